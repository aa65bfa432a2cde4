"""Symbolic extents: an axis length is an int or a `Dim`, a polynomial over named symbols with integer coefficients.

While tracing, every symbol has a *hint*, the length it had in the call that is being traced. A comparison that algebra
cannot decide is decided by the hint and remembered as a guard: the plan serves only calls for which all guards decide
alike. Symbols stand for lengths of at least 2 (lengths 0 and 1 are always compiled for as such, since they change what
broadcasting means).
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Union

import numpy as np

Extent = Union[int, "Dim"]
Monomial = tuple[Any, ...]  # sorted atoms, repeated for powers; an atom is a symbol's name or an opaque (op, a, b)

MIN_SYMBOL = 2


def _atom_key(atom: Any) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, repr(atom))


@dataclass
class Guard:
    """`a` compares to `b` by `op` ('==' or '<') as `holds` said for the hints."""

    op: str
    a: Extent
    b: Extent
    holds: bool

    def check(self, env: Mapping[str, int]) -> bool:
        a, b = evaluate(self.a, env), evaluate(self.b, env)
        return (a == b if self.op == "==" else a < b) is self.holds

    def __str__(self) -> str:
        op = self.op if self.holds else {"==": "!=", "<": ">="}[self.op]
        return f"{self.a} {op} {self.b}"


@dataclass
class SymEnv:
    """The symbols of one trace: their hints, where they come from, and the guards recorded so far."""

    hints: dict[str, int] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)

    def symbol(self, name: str, hint: int) -> Dim:
        self.hints[name] = hint
        return Dim({(name,): 1})

    def decide(self, op: str, a: Extent, b: Extent) -> bool:
        va, vb = evaluate(a, self.hints), evaluate(b, self.hints)
        holds = va == vb if op == "==" else va < vb
        if not any(g.op == op and (same(g.a, a) and same(g.b, b) or op == "==" and same(g.a, b) and same(g.b, a))
                   for g in self.guards):
            self.guards.append(Guard(op, a, b, holds))
        return holds


_active = threading.local()


@contextmanager
def tracing(env: SymEnv) -> Any:
    """Comparisons inside the block are decided by `env`'s hints and recorded as its guards."""
    before = getattr(_active, "env", None)
    _active.env = env
    try:
        yield env
    finally:
        _active.env = before


class Dim:
    """A polynomial over symbols. Supports + - * // % and comparison with ints and Dims; hashable and immutable."""

    __slots__ = ("_hash", "terms")
    terms: dict[Monomial, int]

    def __init__(self, terms: dict[Monomial, int]):
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    # -- arithmetic
    def __add__(self, other: Any) -> Extent:
        o = _terms(other)
        if o is None:
            return self._pinned(operator.add, other)
        out = dict(self.terms)
        for m, c in o.items():
            out[m] = out.get(m, 0) + c
        return _simplify(out)

    __radd__ = __add__

    def __neg__(self) -> Extent:
        return _simplify({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Extent:
        o = _extent(other)
        return self + (-o) if o is not None else self._pinned(operator.sub, other)

    def __rsub__(self, other: Any) -> Extent:
        o = _extent(other)
        return -self + o if o is not None else self._pinned(operator.sub, other, True)

    def __mul__(self, other: Any) -> Extent:
        o = _terms(other)
        if o is None:
            return self._pinned(operator.mul, other)
        out: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in o.items():
                m = tuple(sorted(m1 + m2, key=_atom_key))
                out[m] = out.get(m, 0) + c1 * c2
        return _simplify(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Extent:
        o = _extent(other)
        return _quotient(self, o) if o is not None else self._pinned(operator.floordiv, other)

    def __rfloordiv__(self, other: Any) -> Extent:
        o = _extent(other)
        return _quotient(o, self) if o is not None else self._pinned(operator.floordiv, other, True)

    def __mod__(self, other: Any) -> Extent:
        o = _extent(other)
        return _remainder(self, o) if o is not None else self._pinned(operator.mod, other)

    def __rmod__(self, other: Any) -> Extent:
        o = _extent(other)
        return _remainder(o, self) if o is not None else self._pinned(operator.mod, other, True)

    # -- comparison: algebra first, then the hints of the trace
    def __hash__(self) -> int:
        """Of the polynomial; in the dicts, sets and `functools.cache` of the traced code of the number, which pins it: they
        hold what was found for this length."""
        if getattr(_active, "env", None) is None or _hashed_by_us():
            return self._hash
        return hash(int(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim) and self.terms == other.terms:
            return True
        env: SymEnv | None = getattr(_active, "env", None)
        if env is not None and not symbols(self) | symbols(other) <= env.hints.keys():  # type: ignore[arg-type]
            return False  # a key that an earlier trace left in a cache
        return self._compared(_decide_equal, operator.eq, other)

    def __ne__(self, other: object) -> bool:
        result = self.__eq__(other)
        return result if result is NotImplemented else not result

    def __lt__(self, other: Any) -> bool:
        return self._compared(_less, operator.lt, other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(lambda a, b: _less(b, a), operator.gt, other)

    def __le__(self, other: Any) -> bool:
        return self._compared(lambda a, b: not _less(b, a), operator.le, other)

    def __ge__(self, other: Any) -> bool:
        return self._compared(lambda a, b: not _less(a, b), operator.ge, other)

    def _compared(self, decide: Callable[[Any, Any], bool], fn: Callable[[Any, Any], Any], other: Any) -> Any:
        o = _extent(other)
        return decide(self, o) if o is not None else self._pinned(fn, other)

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """Using a symbolic length as a plain int pins it: the plan then serves this length only."""
        env: SymEnv | None = getattr(_active, "env", None)
        if env is None:
            raise TypeError(f"symbolic length {self} used as an int outside a trace")
        value = evaluate(self, env.hints)
        env.decide("==", self, value)
        return value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        """`np.arange(n)`, `np.array([n, 2])`, `np.full(3, n)`, `np.prod(x.shape)`: an array holds numbers, so n is pinned."""
        return np.array(int(self), dtype)

    # -- the other things that an int can do: a polynomial where there is one, otherwise the number, which pins the length
    def __pos__(self) -> Extent:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __abs__(self) -> Extent:
        return -self if self < 0 else self

    def __invert__(self) -> Extent:
        return -self - 1

    def __round__(self, ndigits: int | None = None) -> Extent:
        return self if ndigits is None or ndigits >= 0 else round(int(self), ndigits)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if isinstance(other, (Real, Dim)) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if isinstance(other, (Real, Dim)) else NotImplemented

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if isinstance(other, int) and other >= 0 else self._pinned(operator.lshift, other)

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if isinstance(other, int) and other >= 0 else self._pinned(operator.rshift, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._pinned(operator.lshift, other, True)

    def __rrshift__(self, other: Any) -> Any:
        return self._pinned(operator.rshift, other, True)

    def __and__(self, other: Any) -> Any:
        return self._pinned(operator.and_, other)

    def __or__(self, other: Any) -> Any:
        return self._pinned(operator.or_, other)

    def __xor__(self, other: Any) -> Any:
        return self._pinned(operator.xor, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else repr(self)

    def __getattr__(self, name: str) -> Any:
        """`n.bit_length()`, `n.real` and the like."""
        if name.startswith("_") or not hasattr(int, name) or getattr(_active, "env", None) is None:
            raise AttributeError(f"a symbolic length has no attribute {name!r}")
        return getattr(int(self), name)

    def _pinned(self, fn: Callable[[Any, Any], Any], other: Any, reflected: bool = False) -> Any:
        """An operator with a number that makes no polynomial. Other things (arrays, traced values) have their own say."""
        if not isinstance(other, (Real, Dim)):
            return NotImplemented
        other = int(other) if isinstance(other, Dim) else other
        return fn(other, int(self)) if reflected else fn(int(self), other)

    def __truediv__(self, other: Any) -> Any:
        return self._pinned(operator.truediv, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._pinned(operator.truediv, other, True)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and 0 <= other <= 4:
            return product([self] * other)
        return self._pinned(operator.pow, other)

    def __rpow__(self, other: Any) -> Any:
        return self._pinned(operator.pow, other, True)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """`np.sqrt(n)`, `np.int64(2) * n`, `np.arange(3) * n`."""
        if not all(isinstance(x, (Dim, Real, np.generic, np.ndarray)) for x in inputs):
            return NotImplemented  # a traced value takes part
        inputs = tuple(x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
        polynomial = _POLYNOMIAL.get(ufunc)
        extents = [_extent(x) for x in inputs]
        if polynomial is not None and method == "__call__" and all(x is not None for x in extents):
            return polynomial(*extents)
        return getattr(ufunc, method)(*(int(x) if isinstance(x, Dim) else x for x in inputs), **kwargs)

    def __repr__(self) -> str:
        parts = []
        for m, c in sorted(self.terms.items(), key=lambda t: (-len(t[0]), [_atom_key(a) for a in t[0]])):
            factors = [a if isinstance(a, str) else f"({_operand(a[1], False)} {a[0]} {_operand(a[2], True)})" for a in m]
            if c != 1 or not factors:
                factors.insert(0, str(c))
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")


def _hashed_by_us() -> bool:
    """The code that asks for a hash is fuelnumba's, or a weak reference that takes a node out of its pool."""
    frame = sys._getframe(2)
    while True:
        room = str(frame.f_globals.get("__name__")).partition(".")[0]
        if room not in sys.stdlib_module_names or room == "weakref" or frame.f_back is None:
            return room in ("fuelnumba", "weakref")
        frame = frame.f_back


_POLYNOMIAL: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.floor_divide: operator.floordiv,
    np.remainder: operator.mod, np.equal: operator.eq, np.not_equal: operator.ne, np.less: operator.lt,
    np.less_equal: operator.le, np.greater: operator.gt, np.greater_equal: operator.ge}


def _operand(x: Extent, right: bool) -> str:
    """Text of an operand of // or %: a sum in parentheses, on the right side a product too."""
    if isinstance(x, Dim):
        (m, c), *more = x.terms.items()
        return f"({x})" if more or (right and (c != 1 or len(m) > 1)) else str(x)
    return str(x)


def _terms(x: Any) -> dict[Monomial, int] | None:
    if isinstance(x, Dim):
        return x.terms
    return {(): int(x)} if isinstance(x, (int, Integral)) else None


def _extent(x: Any) -> Extent | None:
    """A length or an integer of any type, as an Extent; None for everything else."""
    if isinstance(x, (int, Dim)):
        return x
    return int(x) if isinstance(x, Integral) else None


def _simplify(terms: dict[Monomial, int]) -> Extent:
    terms = {m: c for m, c in terms.items() if c}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Dim(terms)


def _quotient(a: Extent, b: Extent) -> Extent:
    exact = divide_exact(a, b)
    return exact if exact is not None else _opaque("//", a, b)


def _remainder(a: Extent, b: Extent) -> Extent:
    return 0 if divide_exact(a, b) is not None else _opaque("%", a, b)


def _opaque(op: str, a: Any, b: Any) -> Extent:
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError(f"{_operand(a, False)} {op} 0")
    return Dim({((op, a, b),): 1})


def divide_exact(a: Extent, b: Extent) -> Extent | None:
    """a / b when it is exact for every value of the symbols (division by a single term), else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if isinstance(a, int):
        return 0 if a == 0 else None
    if same(a, b):
        return 1
    bt = _terms(b)
    if bt is None or len(bt) != 1:
        return None
    (bm, bc), = bt.items()
    out: dict[Monomial, int] = {}
    for m, c in (_terms(a) or {}).items():
        rest = list(m)
        for atom in bm:
            if atom not in rest:
                return None
            rest.remove(atom)
        if bc == 0 or c % bc:
            return None
        out[tuple(rest)] = c // bc
    return _simplify(out)


def same(a: Extent, b: Extent) -> bool:
    """Structural equality: no hints, no guards."""
    if isinstance(a, Dim):
        return isinstance(b, Dim) and a.terms == b.terms
    return not isinstance(b, Dim) and a == b


def same_shape(a: Iterable[Extent], b: Iterable[Extent]) -> bool:
    a, b = tuple(a), tuple(b)
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))


def lower_bound(x: Extent) -> int | None:
    """A value `x` cannot fall below, or None: symbols are >= 2, so a polynomial with no negative terms has one."""
    if not isinstance(x, Dim):
        return x
    total = 0
    for m, c in x.terms.items():
        low = c
        for atom in m:
            least = MIN_SYMBOL if isinstance(atom, str) else _lower_bound_of_division(*atom)
            if c < 0 or least is None or least < 0:
                return None
            low *= least
        total += low
    return total


def _lower_bound_of_division(op: str, a: Extent, b: Extent) -> int | None:
    divisor, low = lower_bound(b), lower_bound(a)
    if divisor is None or divisor <= 0:
        return None
    if op == "%":
        return 0
    return None if low is None or low < 0 else low // b if isinstance(b, int) else 0


def _decide_equal(a: Extent, b: Extent) -> bool:
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    for d in (difference, -difference):
        low = lower_bound(d)
        if low is not None and low > 0:
            return False
    env: SymEnv | None = getattr(_active, "env", None)
    return env.decide("==", a, b) if env is not None else False


def _less(a: Extent, b: Extent) -> bool:
    difference = b - a
    if isinstance(difference, int):
        return difference > 0
    low = lower_bound(difference)
    if low is not None and low > 0:
        return True
    low = lower_bound(-difference)
    if low is not None and low >= 0:
        return False
    env: SymEnv | None = getattr(_active, "env", None)
    if env is None:
        raise TypeError(f"cannot order {a} and {b} outside a trace")
    return env.decide("<", a, b)


def evaluate(x: Extent, env: Mapping[str, int]) -> int:
    """The value of an extent for given symbols."""
    if not isinstance(x, Dim):
        return x
    total = 0
    for m, c in x.terms.items():
        for atom in m:
            if isinstance(atom, str):
                c *= env[atom]
            else:
                op, a, b = atom
                va, vb = evaluate(a, env), evaluate(b, env)
                c *= va // vb if op == "//" else va % vb
        total += c
    return total


def product(extents: Iterable[Extent]) -> Extent:
    out: Extent = 1
    for e in extents:
        out = out * e
    return out


def symbols(x: Extent) -> set[str]:
    if not isinstance(x, Dim):
        return set()
    out: set[str] = set()
    for m in x.terms:
        for atom in m:
            out |= {atom} if isinstance(atom, str) else symbols(atom[1]) | symbols(atom[2])
    return out
