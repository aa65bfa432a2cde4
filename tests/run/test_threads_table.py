"""Results do not depend on the number of threads, bit by bit: every op of the table with all of its work divided, and
calls large enough to be divided as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuelnumba
from fuelnumba import jit, ops
from fuelnumba.core.ops import CPU, OPS
from fuelnumba.run import executor
from fuelnumba.testing import cases
from fuelnumba.testing.parity import alone

THREADS = (1, 2, 3, 5)
F32, F16 = np.float32, np.float16
PUBLIC = sorted(n for n, op in OPS.items() if op.kind != "leaf" and "uid" not in op.attrs)

pytestmark = [pytest.mark.usefixtures("threads_wake"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # NumPy's, for infinities and NaN


def divided(jitted: Any) -> bool:
    """Whether threads share a launch of the latest call."""
    instance = next(iter(jitted._last.instances.values()))
    return any(row[3] for row in instance.rows) and any(s.together for s in instance.segments)


def one_result(fn: Any, arrays: tuple[Any, ...]) -> list[Any]:
    """The results, which are the same for each number of threads."""
    results = []
    for n in THREADS:
        fuelnumba.set_num_threads(n)
        got = fn(*arrays)
        results.append([np.array(g, order="C") for g in (got if isinstance(got, (list, tuple)) else [got])])
    for n, other in zip(THREADS, results):
        for a, b in zip(results[0], other):
            assert a.tobytes() == b.tobytes(), f"{n} threads: {int((np.atleast_1d(a).view(np.uint8) != np.atleast_1d(b).view(np.uint8)).sum())} bytes differ"
    return results[0]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_op_with_its_work_divided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and edge values of a float, an integer and a boolean dtype, as far as the op serves them."""
    monkeypatch.setattr(executor, "WORTH_DIVIDING", 1)
    served = OPS[name].dtypes()[CPU]
    shared = 0
    for dtype in [d for d in ("f32", "i32", "i64", "bool") if d in served][:2]:
        for case in cases(name, [dtype], ["contiguous"]):
            if case.label.startswith("outer"):
                continue
            fn = alone(case.op, case.attrs)
            got, = one_result(fn, case.arrays)
            assert case.problem(got) is None, f"{case}: {case.problem(got)}"
            shared += divided(fn)
    assert shared, "no case has more than one work item"


# ------------------------------------------------------------------------------------------------ large calls
def draw(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def positions(high: int, *shape: int) -> Any:
    return np.random.default_rng(high).integers(-high, high, shape)


def network(x: Any, w: Any, v: Any, index: Any) -> Any:
    h = ops.layer_norm(x) @ w
    h = h * ops.sigmoid(h) + np.take(x, index, axis=0) @ w
    p = ops.softmax(h @ v)
    return p, h.mean(axis=0), (p * p).sum(), h.argmax(axis=-1)


LARGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "layer_norm": (lambda x: ops.layer_norm(x), (draw(803, 1007),)),
    "layer_norm f16": (lambda x: ops.layer_norm(x), (draw(803, 1007, dtype=F16),)),
    "rms_norm": (lambda x, w: ops.rms_norm(x, w), (draw(1803, 507), draw(507))),
    "log_softmax down": (lambda x: ops.log_softmax(x, axis=0), (draw(407, 703),)),
    "softmax f64": (lambda x: ops.softmax(x), (draw(403, 1007, dtype=np.float64),)),
    "take": (lambda x, i: np.take(x, i, axis=0), (draw(1000, 301), positions(1000, 3001))),
    "take in the middle": (lambda x, i: np.take(x, i, axis=1), (draw(17, 1000, 31), positions(1000, 1501))),
    "gather": (lambda x, i: np.take_along_axis(x, i, axis=1), (draw(701, 803), positions(803, 701, 901))),
    "embedding": (lambda x, i: ops.embedding(x, i), (draw(5000, 128), positions(5000, 7, 701))),
    "sum f16": (lambda x: x.sum(axis=1), (draw(1237, 1501, dtype=F16),)),
    "mean of columns": (lambda x: x.mean(axis=0), (draw(1501, 1237),)),
    "product": (lambda x: (1 + x * 0.01).prod(axis=1), (draw(1003, 1201, dtype=np.float64),)),
    "sum of integers": (lambda x: x.sum(axis=-1), (positions(2**40, 1237, 1501),)),
    "any": (lambda x: (x > 3.5).any(axis=0), (draw(1501, 1237),)),
    "two axes": (lambda x: x.min(axis=(0, 2)), (draw(31, 257, 203),)),
    "var": (lambda x: x.var(axis=1), (draw(1237, 1501),)),
    "matmul transposed": (lambda a, b: a @ b.T, (draw(601, 300), draw(701, 300))),
    "matmul f16": (lambda a, b: a @ b, (draw(401, 300, dtype=F16), draw(300, 501, dtype=F16))),
    "matmul of integers": (lambda a, b: a @ b, (positions(99, 301, 200), positions(99, 200, 301))),
    "grouped heads": (lambda a, b: a @ b, (draw(3, 8, 129, 64), draw(3, 8, 64, 201))),
    "causal attention": (lambda q, k, v: ops.attention(q, k, v), (draw(2, 6, 131, 64), draw(2, 3, 131, 64), draw(2, 3, 131, 64))),
    "attention of one query": (lambda q, k, v, n: ops.attention(q, k, v, n, softcap=30.0),
                               (draw(1, 12, 1, 64), draw(1, 4, 2003, 64), draw(1, 4, 2003, 64), np.array([1999]))),
    "rope": (lambda x, c, s: ops.rope(x, c, s), (draw(4, 8, 501, 64), draw(501, 32), draw(501, 32))),
    "concat": (lambda x, y: np.concatenate([x, y[::-1], x], axis=1), (draw(701, 503), draw(701, 409))),
    "copy of a view": (lambda x: ops.contiguous(x.T[::-1, ::2]), (draw(1501, 1003),)),
    "cast": (lambda x: x.astype(np.int8), (draw(1501, 1003) * 50,)),
    "network": (network, (draw(503, 256), draw(256, 301), draw(301, 203), positions(503, 503))),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_calls(name: str) -> None:
    fn, arrays = LARGE[name]
    jitted = jit(fn)
    one_result(jitted, arrays)
    assert divided(jitted), "too small: the threads have no part in it"
