"""The tokenizer of a model, built from the vocabulary in its GGUF file.

Needs the packages `tokenizers` and, for chat templates, `jinja2` (extra `models`). Two kinds are known:
`gpt2`, byte-level BPE whose text is first cut up by the patterns below, and `llama`, SentencePiece's BPE,
which merges the pair of highest score anywhere in the text and writes unknown characters as bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from fuelnumba.models.gguf_file import GGUFFile, ModelError, ModelFileError, UnsupportedModelError, _shown

# Values of tokenizer.ggml.token_type.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6

_LONGEST = 2048  # characters of a token; each way to cut one in two is looked at

# What vocabularies call the tokens that end a text or a turn: files often declare only one of them.
_END_TOKENS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
    "</s>",
)

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class _PreTokenizer:
    """How text is cut into words before merging: by each pattern in turn, into its matches and the rest."""

    patterns: tuple[str, ...]
    add_bos: bool = False  # where the file does not say
    whole_words: bool = False  # a word that is a token is taken as it is, whatever the merges say
    nfc: bool = False  # compose characters first


_PRE_TOKENIZERS = {
    "default": _PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": _PreTokenizer((_GPT2,)),
    "llama-bpe": _PreTokenizer((_LLAMA3,), add_bos=True, whole_words=True),
    "qwen2": _PreTokenizer((_LLAMA3.replace("{1,3}", ""),), nfc=True),
    "smollm": _PreTokenizer((r"\p{N}", _GPT2)),
}
_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}


class Tokenizer:
    """Text to token ids and back. Build one with `Tokenizer.from_gguf(file)`.

    `eos_ids` are all tokens that end a text or a turn, `bos_id` the one that begins a text (None: none),
    `add_bos` whether `encode` puts it in front by default, `vocab_size` the number of ids.
    """

    def __init__(self, settings: _Settings) -> None:
        self.vocab_size = settings.vocab_size
        self.bos_id = settings.token_id("bos")
        self._tokens, self._types = settings.tokens, settings.types
        self._tokens = self._tokens + [""] * (self.vocab_size - len(self._tokens))  # padding of the embedding
        self._types = self._types + [_NORMAL] * (self.vocab_size - len(self._types))
        self._template = settings.template
        self._sentencepiece = settings.kind == "llama"
        if self._sentencepiece:
            self._bpe, default_bos = _sentencepiece(settings), True
        else:
            self._bpe, default_bos = _byte_level(settings)
        self._space_prefix = settings.flag("add_space_prefix", self._sentencepiece)
        self.add_bos = settings.flag("add_bos_token", default_bos) and self.bos_id is not None

        ids = {token: id for id, token in enumerate(self._tokens) if self._types[id] == _CONTROL}
        named = (settings.token_id(kind) for kind in ("eos", "eot", "eom"))
        self.eos_ids = frozenset(
            [id for id in named if id is not None] + [ids[name] for name in _END_TOKENS if name in ids]
        )
        eos = settings.token_id("eos")
        self._bos_text = "" if self.bos_id is None else self._tokens[self.bos_id]
        self._eos_text = "" if eos is None else self._tokens[eos]

        own = {
            token: id for id, token in enumerate(self._tokens) if self._types[id] == _USER_DEFINED and token
        }
        ids.pop("", None)
        self._user_defined = _Splitter(own)
        self._special = _Splitter({**own, **ids})

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Tokenizer:
        """The tokenizer in a model file's metadata. Raises ModelFileError or UnsupportedModelError."""
        return cls(_Settings(file))

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = False) -> list[int]:
        """Token ids of a text.

        Control tokens such as `<|im_end|>` are recognised with `parse_special`, which is for rendered chat
        templates; otherwise they are ordinary characters, so that a text cannot smuggle them in. `add_bos`
        None means as the model wants it; a text that begins with the token already gets no second one.
        """
        try:
            text.encode()
        except UnicodeEncodeError as err:
            raise ModelError(
                f"the text is not valid Unicode: a lone surrogate at position {err.start}"
            ) from None
        ids: list[int] = []
        after_token = True  # also at the very beginning
        for part in (self._special if parse_special else self._user_defined).split(text):
            if isinstance(part, int):
                ids.append(part)
                after_token = True
                continue
            if self._sentencepiece:
                part = (" " if self._space_prefix and after_token else "") + part
                part = part.replace(" ", "\u2581")
            try:
                ids += self._bpe.encode(part, add_special_tokens=False).ids
            except Exception as err:  # tokenizers raises nothing more precise
                raise ModelError(f"the tokenizer failed: {' '.join(str(err).split())}") from err
            after_token = False
        wanted = self.add_bos if add_bos is None else add_bos
        if wanted and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of token ids, without control tokens by default; bytes that are no UTF-8 become U+FFFD."""
        raw = b"".join(self.token_bytes(id, skip_special=skip_special) for id in ids)
        text = raw.decode("utf-8", "replace")
        # SentencePiece's encode has put one space in front.
        return text[1:] if self._sentencepiece and self._space_prefix and text[:1] == " " else text

    def token_bytes(self, id: int, *, skip_special: bool = True) -> bytes:
        """The bytes of one token, possibly a part of a character. ValueError for an id out of range."""
        if not 0 <= id < self.vocab_size:
            raise ValueError(f"token id {id} is not in the vocabulary of {self.vocab_size} tokens")
        token, kind = self._tokens[id], self._types[id]
        if kind in (_CONTROL, _UNKNOWN):
            return b"" if skip_special else token.encode()
        if self._sentencepiece:
            if kind == _BYTE and (byte := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)):
                return bytes.fromhex(byte[1])
            return token.replace("\u2581", " ").encode()
        if kind == _USER_DEFINED:
            return token.encode()
        try:
            return bytes(map(_BYTE_OF_CHARACTER.__getitem__, token))
        except KeyError:  # not written in the byte alphabet
            return token.encode()

    def stream(self, *, skip_special: bool = True) -> TokenStream:
        """A decoder for tokens that come one at a time."""
        return TokenStream(self, skip_special)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation as the model's own template writes it; encode the result with `parse_special=True`.

        Each message has "role" and "content". Raises ModelError if the model has no template or the template
        refuses the messages. Contents go in as they are: a control token spelled out in one takes effect.
        """
        if self._template is None:
            raise ModelError("the model file has no chat template (tokenizer.chat_template)")
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: object) -> None:
            raise jinja2.TemplateError(str(message))

        # What transformers sets up, so that templates written for it render the same.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = refuse
        try:
            return environment.from_string(self._template).render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                bos_token=self._bos_text,
                eos_token=self._eos_text,
            )
        except Exception as err:  # a template is a program: it fails in every way a program can
            reason = " ".join(str(err).split()) or type(err).__name__
            raise ModelError(f"the model's chat template failed: {reason}") from err


class TokenStream:
    """Turns tokens into text as they come, holding back the bytes of an unfinished character."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that became complete with this token, perhaps none."""
        return self._decoder.decode(self._tokenizer.token_bytes(id, skip_special=self._skip_special))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an unfinished character, otherwise nothing."""
        return self._decoder.decode(b"", final=True)


class _Splitter:
    """Cuts a text at the places where one of a few tokens is written out; the longest one wins."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        longest_first = sorted(ids, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if ids else None

    def split(self, text: str) -> list[str | int]:
        """Stretches of text, none empty, and token ids."""
        if self._pattern is None:
            return [text] if text else []
        return [
            self._ids.get(part, part) if i % 2 else part
            for i, part in enumerate(self._pattern.split(text))
            if part
        ]


class _Settings:
    """A file's tokenizer metadata, checked."""

    def __init__(self, file: GGUFFile) -> None:
        self.path, self.metadata = file.path, file.metadata
        self.kind = self._get("model")
        if self.kind not in ("gpt2", "llama"):
            raise UnsupportedModelError(
                f"{self.path}: tokenizer {self.kind!a} is not supported (supported: gpt2, llama)"
            )
        self.tokens: list[str] = self.array("tokens", str)
        self.vocab_size = file.config.vocab_size
        n = len(self.tokens)
        if n > self.vocab_size:
            raise ModelFileError(
                f"{self.path}: {n} tokens, but the embedding has only {self.vocab_size} rows"
            )
        self.types: list[int] = self.array("token_type", int, n) if "token_type" in self else [_NORMAL] * n
        longest = max(self.tokens, key=len, default="")
        if len(longest) > _LONGEST:
            raise ModelFileError(
                f"{self.path}: damaged vocabulary: a token of {len(longest)} characters, {_shown(longest[:20])}..."
            )
        template = self.metadata.get("tokenizer.chat_template")
        self.template = template if isinstance(template, str) else None

    def __contains__(self, key: str) -> bool:
        return f"tokenizer.ggml.{key}" in self.metadata

    def _get(self, key: str) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            raise ModelFileError(f"{self.path}: no vocabulary: the metadata lacks tokenizer.ggml.{key}")
        return value

    def array(self, key: str, kind: type, length: int | None = None) -> list[Any]:
        values = self._get(key)
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise ModelFileError(f"{self.path}: tokenizer.ggml.{key} is not an array of {kind.__name__}")
        if length is not None and len(values) != length:
            raise ModelFileError(
                f"{self.path}: tokenizer.ggml.{key} has {len(values)} entries for {length} tokens"
            )
        return values

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(f"tokenizer.ggml.{key}", default)
        if not isinstance(value, bool):
            raise ModelFileError(f"{self.path}: tokenizer.ggml.{key} is {_shown(value)}: true or false is needed")
        return value

    def token_id(self, kind: str) -> int | None:
        """The id of a token with a part to play (bos, eos ...), or None."""
        id = self.metadata.get(f"tokenizer.ggml.{kind}_token_id")
        if id is None:
            return None
        if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < len(self.tokens):
            why = f"not one of {len(self.tokens)} tokens"
            raise ModelFileError(f"{self.path}: tokenizer.ggml.{kind}_token_id is {_shown(id)}: {why}")
        return id

    def build(self, **options: Any) -> models.BPE:
        try:
            return models.BPE(**options)
        except (
            Exception
        ) as err:  # tokenizers raises plain Exception, for instance for a merge of unknown tokens
            raise ModelFileError(f"{self.path}: damaged vocabulary: {' '.join(str(err).split())}") from err


def _byte_level(settings: _Settings) -> tuple[tokenizers.Tokenizer, bool]:
    """A `gpt2` tokenizer, and whether texts begin with bos by default."""
    name = settings.metadata.get("tokenizer.ggml.pre", "default")
    pre = _PRE_TOKENIZERS.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
    if pre is None:
        known = ", ".join(_PRE_TOKENIZERS)
        raise UnsupportedModelError(
            f"{settings.path}: pre-tokenizer {name!a} is not supported (supported: {known})"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in settings.array("merges", str)]
    for i, merge in enumerate(merges):
        if len(merge) != 2:
            raise ModelFileError(f"{settings.path}: damaged vocabulary: merge {i} has no space")
    # Only what merging may produce: control tokens would otherwise be found in ordinary text.
    vocabulary = {token: id for id, token in enumerate(settings.tokens) if settings.types[id] != _CONTROL}
    bpe = settings.build(vocab=vocabulary, merges=merges, ignore_merges=pre.whole_words)
    tokenizer = tokenizers.Tokenizer(bpe)
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    return tokenizer, pre.add_bos


def _sentencepiece(settings: _Settings) -> tokenizers.Tokenizer:
    """A `llama` tokenizer: a merge for every way to make a token of two others, best score first."""
    scores: list[float] = settings.array("scores", float, len(settings.tokens))
    pieces = {
        token: id
        for id, token in enumerate(settings.tokens)
        if settings.types[id] in (_NORMAL, _USER_DEFINED) and token
    }
    merges = []
    for token, id in pieces.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in pieces and right in pieces:
                merges.append((-scores[id], pieces[left], pieces[right], left, right))
    merges.sort()
    vocabulary = {
        token: id for id, token in enumerate(settings.tokens) if settings.types[id] in (_BYTE, _UNKNOWN)
    }
    unknown = settings.token_id("unknown")
    vocabulary |= pieces
    if unknown is not None:
        vocabulary.setdefault(settings.tokens[unknown], unknown)  # of whatever type it is said to be
    bpe = settings.build(
        vocab=vocabulary,
        merges=[merge[3:] for merge in merges],
        byte_fallback=True,
        unk_token=None if unknown is None else settings.tokens[unknown],
        fuse_unk=True,
    )
    return tokenizers.Tokenizer(bpe)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's way of writing bytes as printable characters: itself where printable, else from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_alphabet()
