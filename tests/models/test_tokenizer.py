"""Tokenizers: textbook implementations beside them, round trips, special tokens, streams, templates."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelnumba.models.gguf_file import (
    GGUFFile,
    ModelError,
    ModelFileError,
    UnsupportedModelError,
    open_gguf,
)
from fuelnumba.models.tokenizer import _BYTE_OF_CHARACTER, Tokenizer
from tests.models.conftest import byte_level_vocabulary, write_tiny

Tiny = Callable[..., Path]
CHARACTER_OF_BYTE = {byte: character for character, byte in _BYTE_OF_CHARACTER.items()}

TEXTS = [
    "The capital of France is",
    "def f(x):\n    return x**2  # square\n\n\n",
    "Grüße aus Köln, où l'été s'achève — naïve “quotes” …",
    "東京タワー и Москва, שלום",
    "👩‍👩‍👧 🇫🇷 🙂🙃",
    "12345 3.14159 2024-01-02 ٣٤ ½",
    "  leading,   inner   and trailing spaces   ",
    "tab\tcarriage\r\nnull-free <|im_end|> <|endoftext|>",
    " ",
    "",
]


def textbook_bpe(file: GGUFFile, word: str) -> list[int]:
    """Ids of one word by the definition of BPE: merge the leftmost pair of lowest rank until none is left."""
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(file.metadata["tokenizer.ggml.merges"])}
    ids = {token: i for i, token in enumerate(file.metadata["tokenizer.ggml.tokens"])}
    parts = [CHARACTER_OF_BYTE[byte] for byte in word.encode()]
    while pairs := [(ranks[p], i) for i, p in enumerate(pairwise(parts)) if p in ranks]:
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [ids[part] for part in parts]


# ----- SmolLM2 -------------------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Words cut by hand after GPT-2's rule, digits one by one.
        ("The capital of France is", ["The", " capital", " of", " France", " is"]),
        ("x = 123;", ["x", " =", " ", "1", "2", "3", ";"]),
        ("we'll don't", ["we", "'ll", " don", "'t"]),
        ("Grüße 🦜", ["Grüße", " 🦜"]),
        ("a\n\n  b\tc", ["a", "\n\n ", " b", "\t", "c"]),
        ("naïve_café--", ["naïve", "_", "café", "--"]),
        ("<|im_end|>", ["<|", "im", "_", "end", "|>"]),
        ("3.14159", ["3", ".", "1", "4", "1", "5", "9"]),
    ],
)
def test_smollm2_agrees_with_textbook_bpe(
    smollm2_file: GGUFFile, smollm2_tokenizer: Tokenizer, text: str, words: list[str]
) -> None:
    assert "".join(words) == text
    expected = [id for word in words for id in textbook_bpe(smollm2_file, word)]
    assert smollm2_tokenizer.encode(text) == expected


@pytest.mark.model
def test_smollm2_known_ids(smollm2_file: GGUFFile, smollm2_tokenizer: Tokenizer) -> None:
    # Read off the vocabulary in the file: each word is a token of its own there.
    tokens = smollm2_file.metadata["tokenizer.ggml.tokens"]
    ids = [504, 3575, 282, 4649, 314]
    assert [tokens[id] for id in ids] == ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"]
    assert smollm2_tokenizer.encode("The capital of France is") == ids
    assert smollm2_tokenizer.encode("0123456789") == list(range(32, 42))
    assert (smollm2_tokenizer.vocab_size, smollm2_tokenizer.bos_id) == (49152, 1)
    assert not smollm2_tokenizer.add_bos
    assert smollm2_tokenizer.eos_ids == {0, 2}  # <|endoftext|> and <|im_end|>


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_round_trips(smollm2_tokenizer: Tokenizer, text: str) -> None:
    ids = smollm2_tokenizer.encode(text)
    assert smollm2_tokenizer.decode(ids) == text
    stream = smollm2_tokenizer.stream()
    assert "".join(stream.push(id) for id in ids) + stream.flush() == text


@pytest.mark.model
@settings(max_examples=150, deadline=None)
@given(
    # Not among SmolLM2's tokens: the bytes 4, 6, 19, 20, 22, 29 and those that begin planes 4 and up.
    st.text(
        st.characters(codec="utf-8", max_codepoint=0x3FFFF).filter(
            lambda c: ord(c) not in (4, 6, 19, 20, 22, 29)
        )
    )
)
def test_smollm2_any_text_round_trips(smollm2_tokenizer: Tokenizer, text: str) -> None:
    assert smollm2_tokenizer.decode(smollm2_tokenizer.encode(text)) == text


@pytest.mark.model
def test_smollm2_control_tokens_only_where_asked_for(smollm2_tokenizer: Tokenizer) -> None:
    text = "a<|im_end|>\nb<|endoftext|>"
    plain = smollm2_tokenizer.encode(text)
    assert not {0, 1, 2} & set(plain)
    assert smollm2_tokenizer.decode(plain) == text
    special = smollm2_tokenizer.encode(text, parse_special=True)
    assert [id for id in special if id < 17] == [2, 0]
    assert smollm2_tokenizer.decode(special) == "a\nb"
    assert smollm2_tokenizer.decode(special, skip_special=False) == text


@pytest.mark.model
def test_smollm2_chat_template(smollm2_tokenizer: Tokenizer) -> None:
    user = {"role": "user", "content": "Hi"}
    system = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    )
    turn = "<|im_start|>user\nHi<|im_end|>\n"
    text = smollm2_tokenizer.apply_chat_template([user])
    assert text == system + turn + "<|im_start|>assistant\n"
    assert smollm2_tokenizer.apply_chat_template([user], add_generation_prompt=False) == system + turn
    own = smollm2_tokenizer.apply_chat_template([{"role": "system", "content": "Be brief."}, user], False)
    assert own == "<|im_start|>system\nBe brief.<|im_end|>\n" + turn
    ids = smollm2_tokenizer.encode(text, parse_special=True)
    assert [id for id in ids if id < 17] == [1, 2, 1, 2, 1]
    assert smollm2_tokenizer.decode(ids, skip_special=False) == text


@pytest.mark.model
def test_smollm2_stream_never_emits_half_a_character(smollm2_tokenizer: Tokenizer) -> None:
    ids = smollm2_tokenizer.encode("a🦜b")
    assert len(ids) > 3  # the parrot is written in several tokens
    stream = smollm2_tokenizer.stream()
    pieces = [stream.push(id) for id in ids]
    assert "" in pieces
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == "a🦜b"
    assert stream.flush() == ""

    stream = smollm2_tokenizer.stream()
    pieces = [stream.push(id) for id in ids[:-2]]
    assert "".join(pieces) == "a"
    assert stream.flush() == "\ufffd"


@pytest.mark.model
def test_ids_out_of_range_and_texts_that_are_none(smollm2_tokenizer: Tokenizer) -> None:
    for id in (-1, 49152):
        with pytest.raises(ValueError, match=rf"^token id {id} is not in the vocabulary of 49152 tokens$"):
            smollm2_tokenizer.decode([id])
    with pytest.raises(ModelError, match=r"^the text is not valid Unicode: a lone surrogate at position 2$"):
        smollm2_tokenizer.encode("ab\udcff")


# ----- Byte-level vocabularies made for the purpose ------------------------------------------------------


def build(tiny: Tiny, **metadata: Any) -> Tokenizer:
    names = {
        name: f"tokenizer.ggml.{name}" if name != "chat_template" else "tokenizer.chat_template"
        for name in metadata
    }
    return Tokenizer.from_gguf(
        open_gguf(tiny(metadata={names[name]: value for name, value in metadata.items()}))
    )


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words that a vocabulary in which every pair merges would see, from the pre-tokenizer itself."""
    return [text[begin:end] for _, (begin, end) in tokenizer._bpe.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["We", "'", "LL", " pay", " 12345", ",", " don", "'t", "!", "\n\n", " x"]),
        (
            "smollm",
            ["We", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", ",", " don", "'t", "!", "\n\n", " x"],
        ),
        ("llama-bpe", ["We", "'LL", " pay", " ", "123", "45", ",", " don", "'t", "!\n\n", " x"]),
        ("qwen2", ["We", "'LL", " pay", " ", "1", "2", "3", "4", "5", ",", " don", "'t", "!\n\n", " x"]),
        ("default", ["We", "'", "LL", " pay", " ", "123", "45", ",", " don", "'", "t", "!", "\n\n", " x"]),
    ],
)
def test_pre_tokenizers(tiny: Tiny, pre: str, expected: list[str]) -> None:
    text = "We'LL pay 12345, don't!\n\n x"
    assert words(build(tiny, pre=pre), text) == expected


def test_a_vocabulary_small_enough_to_follow_by_hand(tiny: Tiny) -> None:
    # Ids: <eos> 0, <bos> 1, then the 256 bytes in the order of their characters, then "ab" and "abc".
    tokenizer = build(tiny, pre="gpt-2")
    a, ab, abc = 2 + list(_BYTE_OF_CHARACTER).index("a"), 258, 259
    assert tokenizer.encode("abcab aab") == [abc, ab, 2 + list(_BYTE_OF_CHARACTER).index("Ġ"), a, ab]
    assert tokenizer.eos_ids == {0}


def test_bos_is_added_where_wanted_and_once(tiny: Tiny) -> None:
    tokenizer = build(tiny, pre="gpt-2", add_bos_token=True)
    assert tokenizer.encode("ab") == [1, 258]
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("ab", add_bos=False) == [258]
    assert tokenizer.encode("<bos>ab", parse_special=True) == [1, 258]
    assert build(tiny, pre="gpt-2").encode("ab") == [258]
    assert build(tiny, pre="gpt-2").encode("ab", add_bos=True) == [1, 258]
    assert build(tiny, pre="llama-bpe").encode("ab") == [1, 258]
    assert build(tiny, pre="llama-bpe", add_bos_token=False).encode("ab") == [258]


def test_llama_bpe_takes_a_word_that_is_a_token_whatever_the_merges_say(tiny: Tiny) -> None:
    changes = byte_level_vocabulary("a b", "ab c")
    changes["tokenizer.ggml.tokens"][0:0] = ["xyz"]
    changes["tokenizer.ggml.token_type"][0:0] = [1]
    for pre, expected in (("llama-bpe", [0]), ("gpt-2", None)):
        metadata = {key.removeprefix("tokenizer.ggml."): value for key, value in changes.items()}
        tokenizer = build(tiny, **(metadata | {"pre": pre, "bos_token_id": None, "eos_token_id": 1}))
        ids = tokenizer.encode("xyz")
        assert ids == expected if expected else len(ids) == 3


def test_user_defined_tokens_are_found_in_any_text(tiny: Tiny) -> None:
    metadata = byte_level_vocabulary(control=("<eos>", "<bos>", "<think>", "<think>!"))
    metadata["tokenizer.ggml.token_type"][2:4] = [4, 4]
    metadata = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    metadata["merges"] = ["a b"]
    metadata["tokens"].append("ab")
    metadata["token_type"].append(1)
    tokenizer = build(tiny, **metadata)
    assert tokenizer.encode("ab<think>ab<think>!") == [260, 2, 260, 3]
    assert tokenizer.decode([260, 2]) == "ab<think>"


def test_an_embedding_with_more_rows_than_tokens(tmp_path: Path) -> None:
    path = tmp_path / "padded.gguf"
    write_tiny(path, tensors={"token_embd.weight": np.zeros((320, 32), np.float32)})
    tokenizer = Tokenizer.from_gguf(open_gguf(path))
    assert tokenizer.vocab_size == 320
    assert tokenizer.decode([258, 319]) == "ab"


# ----- SentencePiece -------------------------------------------------------------------------------------

PIECES = ["▁", "a", "b", "c", "▁a", "ab", "bc", "▁ab", "abc", "ca", "▁b", "aa", "▁▁"]


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    return {
        "model": "llama",
        "pre": None,
        "merges": None,
        "tokens": tokens,
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(PIECES),
        # Characters are not merged into; the others rank by position.
        "scores": [0.0] * 259 + [-1000.0 if len(piece) == 1 else -float(i) for i, piece in enumerate(PIECES)],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }


def textbook_sentencepiece(text: str) -> list[str]:
    """Pieces by the definition: merge the leftmost neighbours whose union scores best until none is known."""
    parts = list(text)
    while pairs := [(PIECES.index(a + b), i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in PIECES]:
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("spm") / "tiny.gguf"
    names = {f"tokenizer.ggml.{key}": value for key, value in sentencepiece_metadata().items()}
    write_tiny(path, metadata=names)
    return Tokenizer.from_gguf(open_gguf(path))


@settings(max_examples=200, deadline=None)
@given(st.text("abc ", max_size=30))
def test_sentencepiece_agrees_with_the_textbook(sentencepiece: Tokenizer, text: str) -> None:
    expected = textbook_sentencepiece("▁" + text.replace(" ", "▁")) if text else []
    assert sentencepiece.encode(text) == [1, *(259 + PIECES.index(piece) for piece in expected)]
    assert sentencepiece.decode(sentencepiece.encode(text)) == text


def test_sentencepiece_bytes_specials_and_prefix(sentencepiece: Tokenizer) -> None:
    space_a, e_acute = 259 + PIECES.index("▁a"), [3 + 0xC3, 3 + 0xA9]
    assert sentencepiece.add_bos
    assert sentencepiece.encode("aé") == [1, space_a, *e_acute]
    assert sentencepiece.decode([1, space_a, *e_acute]) == "aé"
    assert sentencepiece.encode("a</s>") == [1, space_a, *(3 + byte for byte in b"</s>")]
    assert sentencepiece.encode("a</s>a", parse_special=True) == [1, space_a, 2, space_a]
    stream = sentencepiece.stream()
    assert [stream.push(id) for id in (space_a, *e_acute)] == [
        " a",
        "",
        "é",
    ]  # a continuation keeps its space


def test_sentencepiece_without_prefix(tiny: Tiny) -> None:
    tokenizer = build(tiny, **sentencepiece_metadata(add_space_prefix=False))
    assert tokenizer.encode("a a") == [1, 259 + PIECES.index("a"), 259 + PIECES.index("▁a")]
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"


# ----- Chat templates ------------------------------------------------------------------------------------


def test_templates_see_what_transformers_shows_them(tiny: Tiny) -> None:
    template = (
        "{{ bos_token }}\n{% for m in messages %}\n    {% if m.role == 'skip' %}{% continue %}{% endif %}\n"
        "[{{ m.role }}] {{ m.content | trim }}{{ eos_token }}\n{% endfor %}\n"
        "{% if add_generation_prompt %}\n[assistant]{% endif %}"
    )
    tokenizer = build(tiny, chat_template=template)
    messages = [{"role": "user", "content": " Hi "}, {"role": "skip", "content": ""}]
    assert tokenizer.apply_chat_template(messages) == "<bos>\n[user] Hi<eos>\n[assistant]"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must\n alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + none }}", None),
        ("{% if %}", None),
        ("{{ messages.__class__.__mro__ }}", None),
        ("{{ messages.append(1) }}", None),
    ],
)
def test_templates_that_fail(tiny: Tiny, template: str, reason: str | None) -> None:
    tokenizer = build(tiny, chat_template=template)
    with pytest.raises(ModelError) as caught:
        tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    message = str(caught.value)
    assert message.startswith("the model's chat template failed: ")
    assert "\n" not in message
    assert reason is None or message.endswith(f": {reason}")


def test_no_template(tiny: Tiny) -> None:
    with pytest.raises(ModelError) as caught:
        build(tiny).apply_chat_template([])
    assert str(caught.value) == "the model file has no chat template (tokenizer.chat_template)"


# ----- Vocabularies that cannot be used ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"pre": "tekken"},
            UnsupportedModelError,
            "pre-tokenizer 'tekken' is not supported (supported: default, gpt-2, llama-bpe, qwen2, smollm)",
        ),
        (
            {"model": "bert"},
            UnsupportedModelError,
            "tokenizer 'bert' is not supported (supported: gpt2, llama)",
        ),
        (
            {"pre": ["smollm"]},
            UnsupportedModelError,
            "pre-tokenizer ['smollm'] is not supported (supported: default, gpt-2, llama-bpe, qwen2, smollm)",
        ),
        ({"model": None}, ModelFileError, "no vocabulary: the metadata lacks tokenizer.ggml.model"),
        ({"merges": None}, ModelFileError, "no vocabulary: the metadata lacks tokenizer.ggml.merges"),
        ({"merges": ["a b", "ab"]}, ModelFileError, "damaged vocabulary: merge 1 has no space"),
        ({"merges": [1, 2]}, ModelFileError, "tokenizer.ggml.merges is not an array of str"),
        ({"token_type": [1, 2]}, ModelFileError, "tokenizer.ggml.token_type has 2 entries for 260 tokens"),
        (
            {"eos_token_id": 260},
            ModelFileError,
            "tokenizer.ggml.eos_token_id is 260: not one of 260 tokens",
        ),
        (
            {"bos_token_id": "x"},
            ModelFileError,
            "tokenizer.ggml.bos_token_id is 'x': not one of 260 tokens",
        ),
        ({"model": "llama"}, ModelFileError, "no vocabulary: the metadata lacks tokenizer.ggml.scores"),
    ],
)
def test_vocabularies_that_cannot_be_used(
    tiny: Tiny, tmp_path: Path, changes: dict[str, Any], error: type[ModelError], message: str
) -> None:
    with pytest.raises(error) as caught:
        build(tiny, **changes)
    assert str(caught.value) == f"{tmp_path / 'tiny.gguf'}: {message}"


def test_no_tokens_and_too_many(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write_tiny(
        path,
        metadata={"tokenizer.ggml.tokens": None},
        tensors={"token_embd.weight": np.zeros((8, 32), np.float32)},
    )
    with pytest.raises(ModelFileError) as caught:
        Tokenizer.from_gguf(open_gguf(path))
    assert str(caught.value) == f"{path}: no vocabulary: the metadata lacks tokenizer.ggml.tokens"
    write_tiny(path, tensors={"token_embd.weight": np.zeros((8, 32), np.float32)})
    with pytest.raises(ModelFileError) as caught:
        Tokenizer.from_gguf(open_gguf(path))
    assert str(caught.value) == f"{path}: 260 tokens, but the embedding has only 8 rows"


def test_merges_of_unknown_tokens(tiny: Tiny) -> None:
    with pytest.raises(ModelFileError, match=re.escape("tiny.gguf: damaged vocabulary: ")) as caught:
        build(tiny, merges=["a b", "q q"])
    assert "\n" not in str(caught.value)


# ----- Vocabularies that do harm ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("eos_token_id", True, "tokenizer.ggml.eos_token_id is True: not one of 260 tokens"),
        ("add_bos_token", "no", "tokenizer.ggml.add_bos_token is 'no': true or false is needed"),
    ],
)
def test_settings_of_the_wrong_kind(
    tiny: Callable[..., Path], key: str, value: object, message: str
) -> None:
    path = tiny(metadata={f"tokenizer.ggml.{key}": value})
    with open_gguf(path) as file, pytest.raises(ModelFileError) as caught:
        Tokenizer.from_gguf(file)
    assert str(caught.value) == f"{path}: {message}"


def test_a_token_without_end(tiny: Callable[..., Path]) -> None:
    """Every way to cut a token in two is looked at."""
    tokens = [*byte_level_vocabulary("a b", "ab c")["tokenizer.ggml.tokens"][:-1], "ab" * 2000]
    path = tiny(metadata={"tokenizer.ggml.tokens": tokens})
    with open_gguf(path) as file, pytest.raises(ModelFileError) as caught:
        Tokenizer.from_gguf(file)
    assert str(caught.value) == (
        f"{path}: damaged vocabulary: a token of 4000 characters, 'abababababababababab'..."
    )
