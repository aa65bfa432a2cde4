"""Jitted functions go where functions go: into copies, pickles and other processes."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops

X = np.arange(1.0, 4.0)


@jit
def decorated(x: Any, n: Any = 2) -> Any:
    return x * len(range(n))


def plain(x: Any, n: Any) -> Any:
    return x * len(range(n))


def fill(x: Any, k: Any) -> Any:
    return ops.write_slice(x, x * k, 0)


made = jit(plain, static_argnames="n")
donating = jit(fill, donate="x", dims={"x": ("n",)}, static_argnums=1)


class Model:
    def __init__(self, w: float) -> None:
        self.w = w

    @jit
    def apply(self, x: Any) -> Any:
        return x * self.w

    @classmethod
    @jit
    def of_class(cls, x: Any) -> Any:
        return x + len(cls.__name__)


class Callable:
    def __call__(self, x: Any) -> Any:
        return x * 5


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, *(lambda f, p=p: pickle.loads(pickle.dumps(f, p)) for p in range(2, 6))])
def test_copies(again: Any) -> None:
    assert again(decorated) is decorated and again(Model.apply) is Model.apply  # by name
    assert again(decorated)(X).tolist() == (X * 2).tolist()
    other = again(made)
    assert other is not made and other(X, 3).tolist() == (X * 3).tolist()
    other = again(donating)
    x = X.copy()
    assert other(x, 2.0) is x and x.tolist() == (X * 2).tolist() and other.parameters.dims == {"x": ("n",)}
    assert again(jit(functools.partial(plain, n=3)))(X).tolist() == (X * 3).tolist()
    assert again(jit(Callable()))(X).tolist() == (X * 5).tolist()
    assert again(jit(np.exp))(X).tolist() == np.exp(X).tolist()
    assert again(Model(2.0)).apply(X).tolist() == (X * 2).tolist()
    assert again(Model(2.0).apply)(X).tolist() == (X * 2).tolist()
    assert again(Model.of_class)(X).tolist() == (X + 5).tolist()


def test_local_functions_are_copied_and_not_pickled() -> None:
    k = 2.0
    local = jit(lambda x: x * k)
    local(X)
    for other in (copy.copy(local), copy.deepcopy(local)):
        assert other(X).tolist() == (X * 2).tolist() and other.compilations == 1
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(local)


def test_other_processes() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(decorated, [X, X + 1])[1].tolist() == ((X + 1) * 2).tolist()
        assert pool.starmap(made, [(X, 3)])[0].tolist() == (X * 3).tolist()
        assert pool.map(Model(4.0).apply, [X])[0].tolist() == (X * 4).tolist()
        assert pool.map(Model.of_class, [X])[0].tolist() == (X + 5).tolist()
