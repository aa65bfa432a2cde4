"""Random programs. A program is a list of steps; it runs on NumPy arrays in float64 and, unchanged, on traced values.

It is made while it runs on NumPy: a step is taken only when its result is finite, of moderate size, and does not hang on
the last digits of its operands (a comparison of nearly equal numbers, a number about to be rounded).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuelnumba import ops

Array = np.ndarray[Any, Any]
Apply = Callable[..., Any]


@dataclass
class Step:
    name: str
    arguments: tuple[int, ...]  # numbers of earlier values
    numpy: Apply
    traced: Apply

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'v{k}' for k in self.arguments)})"


@dataclass
class Program:
    inputs: list[Array]
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def run(self, arrays: Any, how: str) -> list[Any]:
        values = list(arrays)
        for s in self.steps:
            values.append(getattr(s, how)(*(values[k] for k in s.arguments)))
        return [values[k] for k in self.outputs]

    def __str__(self) -> str:
        lines = [f"v{k} = {x.dtype}{list(x.shape)}, strides {x.strides}" for k, x in enumerate(self.inputs)]
        lines += [f"v{len(self.inputs) + k} = {s}" for k, s in enumerate(self.steps)]
        return "\n".join([*lines, f"return {', '.join(f'v{k}' for k in self.outputs)}"])


def both(fn: Apply) -> tuple[Apply, Apply]:
    return fn, fn


# ------------------------------------------------------------------------------------------------ what a step may be
def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Array) -> Array:
    d = x - x.mean(axis=-1, keepdims=True)
    return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)


def write(x: Array, src: Array, at: tuple[int, ...]) -> Array:
    out = x.copy()
    out[tuple(slice(a, a + n) for a, n in zip(at, src.shape))] = src
    return out


UNARY: dict[str, tuple[Apply, Apply]] = {
    "tanh": both(np.tanh), "sin": both(np.sin), "cos": both(np.cos), "neg": both(lambda x: -x), "abs": both(np.abs),
    "exp": both(lambda x: np.exp(-np.abs(x))), "sqrt": both(lambda x: np.sqrt(np.abs(x) + 0.5)), "log1p": both(lambda x: np.log1p(x * x)),
    "square": both(np.square), "relu": both(lambda x: np.maximum(x, 0)), "clip": both(lambda x: np.clip(x, -1.5, 1.5)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ops.sigmoid), "silu": (lambda x: x / (1 + np.exp(-x)), ops.silu),
    "softmax": (softmax, ops.softmax), "layer_norm": (layer_norm, ops.layer_norm),
}
BINARY: dict[str, tuple[Apply, Apply]] = {
    "add": both(lambda x, y: x + y), "sub": both(lambda x, y: x - y), "mul": both(lambda x, y: x * y),
    "div": both(lambda x, y: x / (1 + np.abs(y))), "max": both(np.maximum), "min": both(np.minimum),
    "where": both(lambda x, y: np.where(x > y, x * 2, y - 1)), "less": both(lambda x, y: (x < y) * 1.5),
    "hypot": both(lambda x, y: np.sqrt(x * x + y * y + 0.1)),
}


class Maker:
    def __init__(self, seed: int, length: int | None = None, dtype: Any = np.float64) -> None:
        """With a `length`, axis 0 of the inputs has it, and no step depends on its being that number."""
        self.r = np.random.default_rng(seed)
        self.length, self.dtype = length, dtype
        self.values: list[Array] = []
        self.program = Program([])

    def make(self) -> Program:
        for _ in range(self.r.integers(1, 4)):
            self.program.inputs.append(self._input())
        self.values += self.program.inputs
        wanted = int(self.r.integers(5, 31))
        for _ in range(6 * wanted):
            if len(self.program.steps) == wanted:
                break
            self._try()
        made = range(len(self.program.inputs), len(self.values))
        count = min(len(made), int(self.r.integers(1, 4)))
        chosen = {self.values_last, *(int(k) for k in self.r.choice(made, count, replace=False))}
        self.program.outputs = sorted(chosen)
        return self.program

    @property
    def values_last(self) -> int:
        return len(self.values) - 1

    def _input(self) -> Array:
        r = self.r
        if self.length is not None:
            shape = (self.length, int(r.choice([2, 3, 4])))
            return r.standard_normal(shape).astype(self.dtype)
        shape = tuple(int(n) for n in r.choice([1, 2, 3, 4, 6], r.integers(1, 4)))
        x = r.standard_normal(shape).astype(self.dtype)
        kind = r.integers(5)
        if kind == 0:
            return x.T
        if kind == 1:
            return x[::-1]
        if kind == 2:
            return np.broadcast_to(x[:1], shape)
        if kind == 3:
            return np.repeat(x, 2, axis=-1)[..., ::2]
        return x

    def _try(self) -> None:
        kind = self.r.choice(["unary", "binary", "scalar", "reduce", "view", "join", "matmul", "write", "take"],
                             p=[0.24, 0.24, 0.1, 0.12, 0.14, 0.05, 0.05, 0.03, 0.03])
        made = getattr(self, f"_{kind}")()
        if made is None:
            return
        name, arguments, (numpy, traced) = made
        operands = [self.values[k] for k in arguments]
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(numpy(*operands))
        except ValueError:
            return
        too_close = name in ("where", "less") and _nearly_equal(*operands)
        if value.size > 20_000 or not np.isfinite(value).all() or np.abs(value).max(initial=0) > 100 or too_close:
            return
        self.program.steps.append(Step(name, arguments, numpy, traced))
        self.values.append(value)

    # -- kinds: (name, numbers of the operands, how)
    def _pick(self) -> int:
        """Late values more often than early ones."""
        n = len(self.values)
        return n - 1 - int(min(self.r.geometric(0.35) - 1, n - 1))

    def _unary(self) -> Any:
        name = str(self.r.choice(list(UNARY)))
        k = self._pick()
        if name in ("softmax", "layer_norm") and (self.values[k].ndim == 0 or self.values[k].shape[-1] < 2):
            return None
        return name, (k,), UNARY[name]

    def _binary(self) -> Any:
        name = str(self.r.choice(list(BINARY)))
        a = self._pick()
        fits = [k for k, v in enumerate(self.values) if _broadcasts(v.shape, self.values[a].shape)]
        b = int(self.r.choice(fits))
        return name, ((a, b) if self.r.random() < 0.5 else (b, a)), BINARY[name]

    def _scalar(self) -> Any:
        c = round(float(self.r.uniform(-2, 2)), 2)
        which = int(self.r.integers(4))
        fn = (lambda x: x * c, lambda x: x + c, lambda x: c - x, lambda x: np.maximum(x, c))[which]
        return f"{('mul', 'add', 'rsub', 'max')[which]} {c}", (self._pick(),), both(fn)

    def _reduce(self) -> Any:
        k = self._pick()
        x = self.values[k]
        if x.ndim == 0:
            return None
        count = int(self.r.integers(1, x.ndim + 1))
        axes = tuple(int(a) for a in self.r.choice(x.ndim, count, replace=False))
        name, keep = str(self.r.choice(["sum", "mean", "max", "min"])), bool(self.r.random() < 0.6)
        fn = getattr(np, name)
        return f"{name} axis={axes} keepdims={keep}", (k,), both(lambda x: fn(x, axis=axes, keepdims=keep))

    def _view(self) -> Any:
        r, k = self.r, self._pick()
        x = self.values[k]
        if x.ndim == 0:
            return "unsqueeze", (k,), both(lambda x: x[None])
        axis = int(r.integers(x.ndim))
        which = str(r.choice(["transpose", "flip", "slice", "step", "unsqueeze", "reshape", "broadcast", "index", "roll"]))
        if which == "transpose":
            axes = tuple(int(a) for a in r.permutation(x.ndim))
            return f"transpose {axes}", (k,), both(lambda x: np.transpose(x, axes))
        if which == "flip":
            return f"flip {axis}", (k,), both(lambda x: np.flip(x, axis))
        if which == "slice" and x.shape[axis] > 1:
            cut = (slice(None),) * axis + (slice(1, None) if r.random() < 0.5 else slice(None, -1),)
            return f"{cut}", (k,), both(lambda x: x[cut])
        if which == "step" and x.shape[axis] > 2:
            step = int(r.choice([-1, 2, -2]))
            cut = (slice(None),) * axis + (slice(None, None, step),)
            return f"{cut}", (k,), both(lambda x: x[cut])
        if which == "unsqueeze" and x.ndim < 4:
            return f"unsqueeze {axis}", (k,), both(lambda x: np.expand_dims(x, axis))
        if which == "reshape":
            return ("ravel", (k,), both(lambda x: x.reshape(-1))) if r.random() < 0.4 else (
                "reshape reversed", (k,), both(lambda x: x.reshape(x.shape[::-1])))
        if which == "broadcast" and x.ndim < 4:
            n = int(r.choice([2, 3]))
            return f"broadcast {n}", (k,), both(lambda x: np.broadcast_to(x, (n, *x.shape)))
        if which == "index":
            at = (slice(None),) * axis + (int(r.choice([0, -1])),)
            return f"{at}", (k,), both(lambda x: x[at])
        if which == "roll":
            n = int(r.integers(-9, 9))
            return f"roll {n} {axis}", (k,), both(lambda x: np.roll(x, n, axis))
        return None

    def _join(self) -> Any:
        k = self._pick()
        x = self.values[k]
        if x.ndim == 0:
            return None
        axis = int(self.r.integers(x.ndim))
        same = [j for j, v in enumerate(self.values) if v.shape == x.shape]
        j = int(self.r.choice(same))
        if x.ndim < 4 and self.r.random() < 0.4:
            return f"stack {axis}", (k, j), both(lambda x, y: np.stack([x, y], axis))
        return f"concat {axis}", (k, j, k), both(lambda x, y, z: np.concatenate([x, y, z], axis))

    def _matmul(self) -> Any:
        k = self._pick()
        x = self.values[k]
        if x.ndim < 2 or x.ndim > 3:
            return None
        fits = [j for j, v in enumerate(self.values) if v.ndim >= 2 and v.shape[-2] == x.shape[-1]
                and _broadcasts(v.shape[:-2], x.shape[:-2])]
        if not fits or self.r.random() < 0.2:
            return "gram", (k,), both(lambda x: x @ np.swapaxes(x, -1, -2) * 0.1)
        return "matmul", (k, int(self.r.choice(fits))), both(lambda x, y: (x @ y) * 0.2)

    def _write(self) -> Any:
        k = self._pick()
        x = self.values[k]
        if x.ndim == 0 or self.length is not None:
            return None
        smaller = [j for j, v in enumerate(self.values) if v.ndim == x.ndim and all(n <= m for n, m in zip(v.shape, x.shape))]
        j = int(self.r.choice(smaller))
        at = tuple(int(self.r.integers(m - n + 1)) for n, m in zip(self.values[j].shape, x.shape))
        return f"write at {at}", (k, j), (lambda x, y: write(x, y, at), lambda x, y: ops.write_slice(x, y, at=at))

    def _take(self) -> Any:
        k = self._pick()
        x = self.values[k]
        if x.ndim == 0 or self.length is not None:
            return None
        axis = int(self.r.integers(x.ndim))
        index = self.r.integers(-x.shape[axis], x.shape[axis], 3)
        return f"take {index.tolist()} {axis}", (k,), both(lambda x: np.take(x, index, axis=axis))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(n == m or n == 1 or m == 1 for n, m in zip(a[::-1], b[::-1]))


def _nearly_equal(x: Array, y: Array) -> bool:
    return x is not y and bool((np.abs(x - y) < 1e-6).any())


# ------------------------------------------------------------------------------------------------ integers
INT_BINARY: dict[str, Apply] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "and": lambda x, y: x & y,
    "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y, "max": np.maximum, "min": np.minimum,
    "floordiv": lambda x, y: x // (y | 1), "mod": lambda x, y: x % (y | 1), "where": lambda x, y: np.where(x > y, x - y, y),
    "shift": lambda x, y: (x << (y & 3)) >> 1,
}
INT_UNARY: dict[str, Apply] = {
    "neg": lambda x: -x, "not": lambda x: ~x, "abs": np.abs, "square": lambda x: x * x, "sign": np.sign, "sum": lambda x: x.sum(axis=-1, keepdims=True),
    "max": lambda x: x.max(axis=0, keepdims=True), "flip": lambda x: x[::-1], "bool": lambda x: (x > 3) & (x != 7),
    "flag": lambda x: np.where(x == 0, 1, x), "transpose": lambda x: x.T, "narrow": lambda x: x.astype(np.int8),
    "unsigned": lambda x: x.astype(np.uint8), "float": lambda x: ((x & 127).astype(np.float64) * 0.5).astype(np.int16),
    "prod": lambda x: (x | 1).prod(axis=0),
}


def integer_program(seed: int) -> Program:
    """Steps on integers of several widths; every result is exact, whatever is fused."""
    r = np.random.default_rng(seed)
    dtypes = [np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint32]
    inputs = []
    for _ in range(r.integers(1, 4)):
        of = dtypes[int(r.integers(len(dtypes)))]
        info = np.iinfo(of)
        inputs.append(r.integers(info.min, info.max, (4, 4), of, endpoint=True))
    program, values = Program(inputs), list(inputs)
    for _ in range(r.integers(5, 25)):
        name = str(r.choice([*INT_BINARY, *INT_UNARY]))
        picks = [int(r.integers(max(0, len(values) - 6), len(values))) for _ in range(2)]
        fn = INT_BINARY.get(name) if r.random() < 0.6 else INT_UNARY.get(name)
        if fn is None:
            continue
        arguments = tuple(picks[:2 if fn is INT_BINARY.get(name) else 1])
        operands = [values[k] for k in arguments]
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(fn(*operands))
        except (TypeError, ValueError):
            continue
        if value.dtype.kind == "f" or value.dtype == np.uint64:
            continue
        values.append(value)
        program.steps.append(Step(name, arguments, fn, fn))
    made = range(len(inputs), len(values))
    program.outputs = sorted({len(values) - 1, *(int(k) for k in r.choice(made, min(2, len(made))))}) if made else [0]
    return program
