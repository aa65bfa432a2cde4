"""What a function read from outside, and the exact words when it changed."""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import linecache
import math
import sys
import types
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from fuelnumba.core.errors import StaleCaptureError
from fuelnumba.trace.guards import collect

_files = iter(range(1000))


def module(text: str, **names) -> types.SimpleNamespace:
    """A user module made from text: its globals can be changed freely. `run` executes more text in it."""
    name = f"user{next(_files)}"
    real = types.ModuleType(name)
    space = real.__dict__
    space.update(names)

    def run(text: str) -> None:
        file = f"<{name} {next(_files)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), space)

    run(text)
    return types.SimpleNamespace(space=space, run=run, module=real, f=space.get("f"), name=name)


def watch(text: str, **names):
    m = module(text, **names)
    m.guards = collect(m.f)
    assert m.guards.check() is None
    return m


# Globals by value -----------------------------------------------------------------------------------------


NAN = float("nan")


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@pytest.mark.parametrize(
    "old, new, said",
    [
        (2.0, 3.0, "from 2.0 to 3.0"),
        (1, True, "from 1 to True"),
        (1, 1.0, "from 1 to 1.0"),
        (0.0, -0.0, "from 0.0 to -0.0"),
        (0.0, NAN, "from 0.0 to nan"),
        (0j, complex(0.0, -0.0), "from 0j to -0j"),
        ("a", "b", "from 'a' to 'b'"),
        (b"a", "a", "from b'a' to 'a'"),
        (None, 0, "from None to 0"),
        (np.float32(1), np.float64(1), "from np.float32(1.0) to np.float64(1.0)"),
        (np.float32(0.0), np.float32(-0.0), "from np.float32(0.0) to np.float32(-0.0)"),
        (np.dtype("f4"), np.dtype("f8"), "from dtype('float32') to dtype('float64')"),
        (Mode.FAST, Mode.SLOW, "from <Mode.FAST: 1> to <Mode.SLOW: 2>"),
        (slice(0, 1), slice(False, 1), "from slice(0, 1, None) to slice(False, 1, None)"),
        ((1, 2), (1, 3), "from (1, 2) to (1, 3)"),
        ((1, 2), [1, 2], "from (1, 2) to [1, 2]"),
        ((1, (0.0,)), (1, (-0.0,)), "from (1, (0.0,)) to (1, (-0.0,))"),
        ([1, 2], [1, 2, 3], "from [1, 2] to [1, 2, 3]"),
        ({"a": 1}, {"a": 2}, "from {'a': 1} to {'a': 2}"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ({1}, {True}, "from {1} to {True}"),
        (frozenset({1}), frozenset({2}), "from frozenset({1}) to frozenset({2})"),
    ],
)
def test_global_replaced(old, new, said):
    m = watch("def f(x): return x * V", V=old)
    m.space["V"] = new
    if said is None:
        assert m.guards.check() is not None
    else:
        assert m.guards.check() == f"global V changed {said}"
    m.space["V"] = old
    assert m.guards.check() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("1.5"),
        lambda: float("nan"),
        lambda: 10**30,
        lambda: complex("nan+1j"),
        lambda: "".join(["a", "b"]),
        lambda: np.float32(1.5),
        lambda: np.float64("nan"),
        lambda: [1, (2, [3.0, {"a": NAN}])],
        lambda: {"a": [1], "b": {2, 3}},
        lambda: Config(1e-5, [1, 2]),
        lambda: deque([1, 2]),
        lambda: slice(1, 2),
        lambda: range(5),
    ],
)
def test_global_replaced_by_an_equal_value(make):
    m = watch("def f(x): return x * V", V=make())
    m.space["V"] = make()
    assert m.guards.check() is None


def test_equal_replacement_is_watched_too():
    m = watch("def f(x): return V[0]", V=[1, [2]])
    m.space["V"] = [1, [2]]
    assert m.guards.check() is None
    m.space["V"][1].append(3)
    assert m.guards.check() == "global V changed from [1, [2]] to [1, [2, 3]]"


@dataclass
class Config:
    eps: float = 1e-5
    sizes: list = field(default_factory=list)


@dataclass(frozen=True)
class Model:
    config: Config
    name: str = "tiny"


def test_mutated_containers():
    m = watch("def f(x): return x * LIST[0]", LIST=[1, 2, 3])
    m.space["LIST"][1] = 5
    assert m.guards.check() == "global LIST[1] changed from 2 to 5"
    m.space["LIST"][1] = 2
    assert m.guards.check() is None
    m.space["LIST"].append(4)
    assert m.guards.check() == "global LIST changed from 3 to 4 elements"

    m = watch("def f(x): return x * D['eps']", D={"eps": 1e-5, "deep": [{"k": 1}]})
    m.space["D"]["deep"][0]["k"] = 2
    assert m.guards.check() == "global D['deep'][0]['k'] changed from 1 to 2"
    m.space["D"]["deep"][0]["k"] = 1
    m.space["D"]["more"] = 1
    assert m.guards.check() == "global D['more'] was added"
    del m.space["D"]["more"]
    assert m.guards.check() is None
    eps = m.space["D"].pop("eps")
    assert m.guards.check() == "global D['eps'] was deleted"
    m.space["D"]["eps"] = eps
    assert m.guards.check() == "the order of global D changed"

    m = watch("def f(x): return x if 1 in S else -x", S={1, 2})
    m.space["S"].add(3)
    assert m.guards.check() == "global S gained 3"
    m.space["S"] -= {3, 1}
    assert m.guards.check() == "global S lost elements"


def test_dataclasses():
    m = watch("def f(x): return x * CFG.config.eps", CFG=Model(Config(sizes=[1])))
    m.space["CFG"].config.eps = 1e-6
    assert m.guards.check() == "global CFG.config.eps changed from 1e-05 to 1e-06"
    m.space["CFG"].config.eps = 1e-5
    m.space["CFG"].config.sizes.append(2)
    assert m.guards.check() is None  # not read

    text = "def f(x): return g(x, CFG)\ndef g(x, c): return x * c.config.eps"
    m = watch(text, CFG=Model(Config(sizes=[1])))
    m.space["CFG"].config.sizes.append(2)
    assert m.guards.check() == "global CFG.config.sizes changed from 1 to 2 elements"
    m.space["CFG"] = Model(Config(sizes=[1]))
    m.space["CFG"].config.sizes[0] = 7
    assert m.guards.check().startswith("global CFG changed from Model(")


def test_simple_namespace_gains_a_name():
    m = watch("def f(x): return g(C)\ndef g(c): return c.a", C=types.SimpleNamespace(a=1))
    m.space["C"].b = 2
    assert m.guards.check() == "global C.b was defined as 2"


def test_deleted_and_later_defined_names():
    m = watch("def f(x): return x * V if V else LATER", V=1)
    m.space["LATER"] = 1
    assert m.guards.check() == "global LATER was defined as 1"
    del m.space["LATER"]
    assert m.guards.check() is None
    del m.space["V"]
    assert m.guards.check() == "global V was deleted"


def test_builtin_shadowed_by_a_global():
    m = watch("def f(x): return abs(x)")
    m.space["abs"] = lambda x: x
    assert m.guards.check() == "global abs was defined as function <lambda>"


def test_unread_globals_do_not_matter():
    m = watch("def f(x): return x * V", V=1, OTHER=2)
    m.space["OTHER"] = 3
    assert m.guards.check() is None


# Arrays ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 100_000])
def test_array_contents(n):
    m = watch("def f(x): return x * W", W=np.zeros(n))
    m.space["W"][n // 2] = -0.0
    assert m.guards.check() == "the contents of global W changed"
    m.space["W"][n // 2] = 0.0
    assert m.guards.check() is None
    m.space["W"] = m.space["W"].copy()
    assert m.guards.check() == f"global W is another object than before: a float64[{n}] array"


def test_array_views_are_compared_by_what_they_show():
    base = np.arange(40_000.0).reshape(200, 200)
    wide = np.broadcast_to(base[0, :5], (10**6, 5))
    m = watch("def f(x): return x * A + B", A=base[::2, ::-1], B=wide)
    base[1, 0] = -1
    assert m.guards.check() is None
    base[2, 0] = -1
    assert m.guards.check() == "the contents of global A changed"
    base[2, 0] = 400
    base[0, 4] = -1
    assert m.guards.check() is not None
    base[0, 4] = 4
    assert m.guards.check() is None


def test_array_form():
    m = watch("def f(x): return x * W", W=np.zeros((2, 3), "f4"))
    w = m.space["W"]
    w.shape = (3, 2)
    assert m.guards.check() == "the shape of global W changed from (2, 3) to (3, 2)"


def test_adopted_array_is_not_compared_by_contents():
    m = watch("def f(x): return x @ W + B", W=np.zeros(3), B=np.zeros(3))
    assert m.guards.adopt(m.space["W"]) is True
    assert m.guards.adopt(np.zeros(3)) is False
    m.space["W"][0] = 1
    assert m.guards.check() is None
    m.space["B"][0] = 1
    assert m.guards.check() == "the contents of global B changed"
    m.space["B"][0] = 0
    m.space["W"] = np.zeros(3)
    assert m.guards.check() == "global W is another object than before: a float64[3] array"


def test_arrays_in_containers_and_object_arrays():
    m = watch("def f(x): return x @ P['layers'][0]", P={"layers": [np.ones(3)]})
    m.space["P"]["layers"][0][1] = 2
    assert m.guards.check() == "the contents of global P['layers'][0] changed"
    m = watch("def f(x): return x * O[0]", O=np.array([1.0, [2.0]], dtype=object))
    m.space["O"][0] = 5.0
    assert m.guards.check() == "the contents of global O changed"
    m.space["O"][0] = 1.0
    m.space["O"][1][0] = 3.0
    assert m.guards.check() == "global O[0] changed from 2.0 to 3.0"


def test_masked_array():
    m = watch("def f(x): return x * M", M=np.ma.array([1.0, 2.0], mask=[0, 0]))
    m.space["M"].mask = [0, 1]
    assert m.guards.check() == "the contents of global M changed"


# Closures and defaults ------------------------------------------------------------------------------------


def test_closures_in_a_loop():
    fs = []
    for k in range(3):

        def f(x, k=k):
            return x * k

        fs.append(f)
    guards = [collect(f) for f in fs]
    assert [g.check() for g in guards] == [None] * 3
    fs[1].__defaults__ = (7,)
    assert [g.check() for g in guards] == [None, "the defaults of f changed from (1,) to (7,)", None]


def test_closure_cell():
    def make(k, items):
        def f(x):
            return [x * k + i for i in items]

        def change(to):
            nonlocal k
            k = to

        return f, change

    items = [1, 2]
    f, change = make(2.0, items)
    guards = collect(f)
    change(3.0)
    assert guards.check() == "closure k changed from 2.0 to 3.0"
    change(2.0)
    items.append(3)
    assert guards.check() == "closure items changed from 2 to 3 elements"


def test_empty_cell():
    def make():
        def f(x):
            return later * x

        guards = collect(f)
        assert guards.check() is None
        later = 2
        return guards

    assert make().check() == "closure later was defined as 2"


def test_defaults():
    m = watch("def f(x, s=2.0, *, items=ITEMS): return x * s", ITEMS=[1])
    m.space["ITEMS"].append(2)
    assert m.guards.check() == "default items of f changed from 1 to 2 elements"
    m.space["ITEMS"].pop()
    assert m.guards.check() is None
    m.f.__defaults__ = (3.0,)
    assert m.guards.check() == "the defaults of f changed from (2.0,) to (3.0,)"
    without = collect(m.f, defaults=False)
    m.f.__defaults__ = (4.0,)
    m.space["ITEMS"].append(2)
    assert without.check() is None


# Functions ------------------------------------------------------------------------------------------------


def test_redefined_helper():
    m = watch("def g(x): return x + 1\ndef f(x): return g(x)")
    m.run("def g(x): return x + 2")
    assert m.guards.check() == "global g was redefined"


def test_code_replaced_in_place():
    # What autoreload does.
    m = watch("def g(x): return x + 1\ndef f(x): return g(x)")
    m.space["g"].__code__ = (lambda x: x + 2).__code__
    assert m.guards.check() == "global g was redefined"
    m = watch("def f(x): return x")
    m.f.__code__ = (lambda x: -x).__code__
    assert m.guards.check() == "f was redefined"


def test_helper_with_the_same_code_and_another_closure():
    text = "def make(k):\n def g(x): return x * k\n return g\ng = make(2)\ndef f(x): return g(x)"
    m = watch(text)
    m.space["g"] = m.space["make"](3)
    assert m.guards.check() == "global g was redefined"


def test_globals_of_nested_helpers():
    other = module("SCALE = 2.0\ndef h(x): return x * SCALE\n")
    m = watch("def g(x): return h(x)\ndef f(x): return [g(i) for i in x]", h=other.space["h"])
    other.space["SCALE"] = 3.0
    assert m.guards.check() == f"global {other.name}.SCALE changed from 2.0 to 3.0"


def test_nested_code():
    text = """
def f(x):
    def inner(y):
        class Local:
            k = A
        return [y * B for _ in range(C)]
    return inner(x), (lambda: D)()
"""
    m = watch(text, A=1, B=2, C=3, D=4)
    for name in "ABCD":
        m.space[name] += 10
        assert m.guards.check() == f"global {name} changed from {m.space[name] - 10} to {m.space[name]}"
        m.space[name] -= 10


@pytest.mark.parametrize(
    "wrap",
    [
        "functools.partial(g)",
        "functools.lru_cache(g)",
        "staticmethod(g)",
        "[g]",
        "{'g': functools.partial(functools.partial(g))}",
        "Jitted(g)",
    ],
)
def test_wrapped_helpers(wrap):
    text = f"""
class Jitted:
    def __init__(self, g): self.__wrapped__ = g
    def __call__(self, x): return self.__wrapped__(x)
def g(x): return x * SCALE
h = {wrap}
def f(x): return h(x)
"""
    m = watch(text, SCALE=1, functools=functools)
    m.space["SCALE"] = 2
    assert m.guards.check() == "global SCALE changed from 1 to 2"


def test_partial_arguments():
    text = "def g(a, x): return x\nh = functools.partial(g, [1])\ndef f(x): return h(x)"
    m = watch(text, functools=functools)
    m.space["h"].args[0].append(2)
    assert m.guards.check() == "global h.args[0] changed from 1 to 2 elements"


def test_partial_and_method_as_root():
    m = module("def f(s, x): return x * V * s[0]", V=1)
    arg = [1]
    guards = collect(functools.partial(m.f, arg))
    m.space["V"] = 2
    assert guards.check() == "global V changed from 1 to 2"
    m.space["V"] = 1
    arg[0] = 2
    assert guards.check() == "f.args[0][0] changed from 1 to 2"


def test_library_code_is_not_followed():
    m = watch("def f(x): return np.exp(x) * math.pi + np.linalg.norm(x)", np=np, math=math)
    assert m.guards.describe() == [
        "the code of f",
        "global np = module numpy",
        "global math = module math",
    ]


# Modules --------------------------------------------------------------------------------------------------


def test_constant_of_a_module():
    other = module("EPS = 1e-5\nOTHER = 1\n")
    m = watch("def f(x): return x * cfg.EPS", cfg=other.module)
    other.space["OTHER"] = 2
    assert m.guards.check() is None
    other.space["EPS"] = 1e-6
    assert m.guards.check() == "global cfg.EPS changed from 1e-05 to 1e-06"
    m.space["cfg"] = module("EPS = 1e-5").module
    assert m.guards.check().startswith("global cfg changed from module user")


@pytest.mark.parametrize(
    "line", ["from {0} import EPS", "import {0} as c; EPS = c.EPS", "import {0}; EPS = {0}.EPS"]
)
def test_import_inside_the_function(line, monkeypatch):
    other = module("EPS = 1e-5")
    monkeypatch.setitem(sys.modules, other.name, other.module)
    m = watch(f"def f(x):\n    {line.format(other.name)}\n    return x * EPS")
    other.space["EPS"] = 1e-6
    assert m.guards.check() == f"{other.name}.EPS changed from 1e-05 to 1e-06"


# Instances and classes ------------------------------------------------------------------------------------


class Block:
    scale = 2.0

    def __init__(self, w):
        self.w = w
        self.calls = 0

    def forward(self, x):
        return x * self.w * self.scale * FACTOR

    def __call__(self, x):
        return self.forward(x)

    @property
    def doubled(self):
        return self.w * 2

    @functools.cached_property
    def cached(self):
        return self.w * 3

    @classmethod
    def kind(cls):
        return cls.scale

    @staticmethod
    def static(x):
        return x * FACTOR


FACTOR = 1.0


class Net:
    def __init__(self):
        self.blocks = [Block(1.0), Block(2.0)]
        self.head = Block(3.0)
        self.eps = 1e-5
        self.calls = 0

    def direct(self, x):
        return x * self.eps + self.head.w

    def methods(self, x):
        return self.head.forward(x)

    def looped(self, x):
        for block in self.blocks:
            x = block(x)
        return sum(x * b.w for b in self.blocks)

    def captured(self, x):
        return [x * self.eps for _ in range(2)]

    def prop(self, x):
        return self.head.doubled * x

    def cached(self, x):
        return self.head.cached * x

    def escaping(self, x):
        return helper(self, x)

    def by_name(self, x):
        return getattr(self, "eps") * x  # noqa: B009

    def counting(self, x):
        self.calls += 1
        return x

    def class_things(self, x):
        return self.head.kind() * self.head.static(x)


def helper(net, x):
    return x * net.eps


def bound(method):
    return collect(method.__func__, method.__self__), method.__self__


def test_attributes_of_self():
    guards, net = bound(Net().direct)
    net.eps = 1e-6
    assert guards.check() == "self.eps changed from 1e-05 to 1e-06"
    net.eps = 1e-5
    net.head.w = 4.0
    assert guards.check() == "self.head.w changed from 3.0 to 4.0"
    net.head.w = 3.0
    net.calls += 1
    net.blocks.append(1)
    assert guards.check() is None
    del net.eps
    assert guards.check() == "self.eps was deleted"


def test_bound_method_alone():
    net = Net()
    guards = collect(net.direct)
    net.eps = 1e-6
    assert guards.check() == "self.eps changed from 1e-05 to 1e-06"


def test_method_called_on_an_attribute(monkeypatch):
    guards, net = bound(Net().methods)
    net.head.w = 4.0
    assert guards.check() == "self.w changed from 3.0 to 4.0"
    net.head.w = 3.0
    net.head.scale = 5.0  # now the instance has its own
    assert guards.check() == "self.scale changed from 2.0 to 5.0"
    del net.head.scale
    assert guards.check() is None
    net.head.forward = lambda x: x
    assert guards.check() == "self.head.forward was defined as function <lambda>"
    del net.head.forward
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    assert guards.check() == "global FACTOR changed from 1.0 to 2.0"
    monkeypatch.undo()
    monkeypatch.setattr(Block, "forward", lambda self, x: x)
    assert guards.check() == "self.head.forward was redefined"


def test_instances_out_of_sight(monkeypatch):
    guards, net = bound(Net().looped)
    net.blocks[1].w = 5.0
    assert guards.check() == "self.blocks[1].w changed from 2.0 to 5.0"
    net.blocks[1].w = 2.0
    net.blocks[1].calls += 1  # in no code that is reached
    assert guards.check() is None
    net.blocks[0].scale = 1.0
    assert guards.check() == "self.blocks[0].scale was defined as 1.0"
    del net.blocks[0].scale
    monkeypatch.setattr(Block, "scale", 3.0)
    assert guards.check() == "Block.scale changed from 2.0 to 3.0"
    monkeypatch.undo()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    assert guards.check() == "global FACTOR changed from 1.0 to 2.0"
    monkeypatch.undo()
    net.blocks.reverse()
    assert guards.check().startswith("self.blocks[0] ")


@pytest.mark.parametrize("name", ["captured", "escaping", "by_name"])
def test_other_ways_to_self(name):
    guards, net = bound(getattr(Net(), name))
    net.eps = 1e-6
    assert guards.check() == "self.eps changed from 1e-05 to 1e-06"


@pytest.mark.parametrize("name", ["prop", "cached"])
def test_properties_are_followed_not_called(name):
    guards, net = bound(getattr(Net(), name))
    assert "cached" not in vars(net.head)
    assert guards.check() is None
    net.head.w = 5.0
    assert guards.check() == "self.w changed from 3.0 to 5.0"


def test_class_and_static_methods(monkeypatch):
    guards, _ = bound(Net().class_things)
    assert guards.check() is None
    monkeypatch.setattr(Block, "scale", 9.0)
    assert guards.check() == "cls.scale changed from 2.0 to 9.0"
    monkeypatch.undo()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    assert guards.check() == "global FACTOR changed from 1.0 to 2.0"


def test_counter_on_self_is_noticed():
    guards, net = bound(Net().counting)
    net.counting(1)
    assert guards.check() == "self.calls changed from 0 to 1"


def test_arrays_of_instances_can_be_adopted():
    net = Net()
    net.blocks = [Block(np.ones(3)), Block(np.ones(3))]
    guards = collect(net.looped)
    assert guards.adopt(net.blocks[0].w)
    net.blocks[0].w[0] = 2
    assert guards.check() is None
    net.blocks[1].w[0] = 2
    assert guards.check() == "the contents of self.blocks[1].w changed"


def test_slots_and_inherited_methods():
    text = """
class Base:
    __slots__ = ("w",)
    def __init__(self): self.w = 1
    def run(self, x): return x * self.w
class Sub(Base):
    __slots__ = ()
    def run(self, x): return super().run(x) + 1
s = Sub()
def f(x): return g(s, x)
def g(s, x): return s.run(x)
"""
    m = watch(text)
    m.space["s"].w = 2
    assert m.guards.check() == "global s.w changed from 1 to 2"
    m.space["s"].w = 1
    m.space["Base"].run = lambda self, x: x
    assert m.guards.check() == "Base.run was redefined"


def test_class_constants_and_redefined_classes():
    m = watch("class C:\n    EPS = 1\ndef f(x): return x * C.EPS")
    m.space["C"].EPS = 2
    assert m.guards.check() == "global C.EPS changed from 1 to 2"
    m.run("class C:\n    EPS = 1\n")
    assert m.guards.check() == "global C was redefined"


def test_attribute_of_a_function():
    m = watch("def g(x): return x\ng.scale = 2\ndef f(x): return x * g.scale")
    m.space["g"].scale = 3
    assert m.guards.check() == "global g.scale changed from 2 to 3"


def test_attribute_that_is_made_anew_at_each_read():
    class Fresh:
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return [1, 2]

    m = watch("def f(x): return x * C.items[0]", C=Fresh())
    assert m.guards.check() is None


@pytest.mark.parametrize(
    "body",
    [
        "for name in ('eps', 'other'): x = x * getattr(cfg, name, 1)",
        "x = operator.attrgetter('eps')(cfg)",
        "match cfg:\n        case Cfg(eps=e): x = x * e",
        "x = vars(cfg)['eps']",
        "x = (lambda c: c.eps)(cfg)",
        "c = cfg; x = c.eps",
    ],
)
def test_names_given_otherwise(body):
    import operator

    text = (
        f"class Cfg:\n    def __init__(self): self.eps = 1\ncfg = Cfg()\ndef f(x):\n    {body}\n    return x"
    )
    m = watch(text, operator=operator)
    m.space["cfg"].eps = 2
    assert m.guards.check() == "global cfg.eps changed from 1 to 2"


def test_instance_dict():
    m = watch("class C:\n    pass\nc = C()\nc.k = 1\ndef f(x): return x * c.__dict__['k']")
    m.space["c"].k = 2
    assert m.guards.check() == "global c.__dict__['k'] changed from 1 to 2"


def test_subclass_that_overrides_later():
    text = """
class Base:
    EPS = 1
    def run(self, x): return x * self.EPS
class Sub(Base): pass
items = [Sub()]
def f(x):
    for i in items: x = i.run(x)
    return x
"""
    m = watch(text)
    m.space["Sub"].EPS = 2
    assert m.guards.check() == "Base.EPS changed from 1 to 2"
    del m.space["Sub"].EPS
    assert m.guards.check() is None
    m.space["Sub"].run = lambda self, x: x
    assert m.guards.check() == "Base.run was redefined"


def test_containers_and_arrays_of_user_classes():
    class Row(list):
        scale = 1

    class Arr(np.ndarray):
        pass

    a = np.zeros(2).view(Arr)
    a.unit = 1
    m = watch("def f(x): return x * ROW.scale * ROW[0] + A.unit + A", ROW=Row([1]), A=a)
    m.space["ROW"].scale = 2
    assert m.guards.check() == "global ROW.scale was defined as 2"  # until now it was the class's
    del m.space["ROW"].scale
    m.space["ROW"][0] = 2
    assert m.guards.check() == "global ROW[0] changed from 1 to 2"
    m.space["ROW"][0] = 1
    a.unit = 2
    assert m.guards.check() == "global A.unit changed from 1 to 2"
    a.unit = 1
    a[0] = 1
    assert m.guards.check() == "the contents of global A changed"


def test_decorators_with_state_and_library_wrappers():
    text = """
class Scaled:
    def __init__(self, g, k): functools.update_wrapper(self, g); self.k = k
    def __call__(self, *a): return self.k * self.__wrapped__(*a)
def twice(g):
    @functools.wraps(g)
    def inner(*a): return TIMES * g(*a)
    return inner
def g(x): return x * V
g = twice(Scaled(g, 5))
@contextlib.contextmanager
def scope():
    yield DEPTH
def f(x):
    with scope() as d: return g(x) * d
"""
    m = watch(text, functools=functools, contextlib=contextlib, TIMES=2, V=1, DEPTH=1)
    for name in ("TIMES", "V", "DEPTH"):
        m.space[name] += 1
        assert m.guards.check() == f"global {name} changed from {m.space[name] - 1} to {m.space[name]}"
        m.space[name] -= 1
    m.space["g"].__wrapped__.k = 6
    assert m.guards.check() == "closure g of global g.k changed from 5 to 6"


def test_descriptor_of_the_users_own():
    text = """
class Half:
    def __get__(self, obj, cls): return obj.w / DIV
class C:
    half = Half()
    def __init__(self): self.w = 3.0
c = C()
def f(x): return x * c.half
"""
    m = watch(text, DIV=2)
    m.space["DIV"] = 4
    assert m.guards.check() is not None
    m.space["DIV"] = 2
    assert m.guards.check() is None
    m.space["c"].w = 5.0
    assert m.guards.check() is not None


def test_function_of_a_module_and_of_a_class_made_inside():
    other = module("K = 1\nclass L:\n    def __call__(self, x): return x * K\ndef h(x): return L()(x)")
    m = watch("def f(x): return mod.h(x)", mod=other.module)
    other.space["K"] = 2
    assert m.guards.check() == f"global {other.name}.K changed from 1 to 2"


# Limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("big", [list(range(20_000)), {"a": [[0] * 6000, [0] * 6000]}])
def test_too_large(big):
    m = module("def f(x):\n    return x * TABLE[3]\n", TABLE=big)
    with pytest.raises(StaleCaptureError) as caught:
        collect(m.f)
    file = m.f.__code__.co_filename
    assert str(caught.value) == (
        "global TABLE holds more than 10000 values, too many to watch for changes\n"
        f" --> {file}:2, in f\n"
        "  |\n"
        "2 |     return x * TABLE[3]\n"
        "  |                ^^^^^\n"
        "  = pass it to the function as an argument"
    )


def test_containers_that_contain_themselves():
    loop: list = [1]
    loop.append(loop)
    m = watch("def f(x): return x * L[0]", L=loop)
    loop[0] = 2
    assert m.guards.check() == "global L[0] changed from 1 to 2"


def test_recursive_functions():
    m = watch("def f(x, n): return f(x, n - 1) if n else g(x)\ndef g(x): return f(x, 0) * V", V=1)
    m.space["V"] = 2
    assert m.guards.check() == "global V changed from 1 to 2"


def test_a_builtin_as_root_has_no_guards():
    assert collect(math.sin).check() is None
    assert collect(np.exp).describe() == []


# Telling --------------------------------------------------------------------------------------------------


def test_describe():
    m = watch(
        "def g(x): return x\ndef f(x, k=1): return g(x) * SCALE * CFG['a'] + W + B",
        SCALE=2.0,
        CFG={"a": [1]},
        W=np.zeros((2, 3), "f4"),
        B=np.zeros(2),
    )
    m.guards.adopt(m.space["W"])
    assert m.guards.describe() == [
        "the code of f",
        "global SCALE = 2.0",
        "global CFG = {'a': [1]}",
        "global W = a float32[2, 3] array, read live",
        "global B = a float64[2] array, contents compared",
        "the code of global g",
    ]


# Leaks ----------------------------------------------------------------------------------------------------


class Tracer:
    pass


def leaks(m, *args):
    guards = collect(m.f)
    m.f(*args)
    return guards.leaked(lambda v: isinstance(v, Tracer))


@pytest.mark.parametrize(
    "body, names, said",
    [
        ("global LAST\n    LAST = x", {}, ["global LAST"]),
        ("LOG.append(x)", {"LOG": [1]}, ["global LOG[1]"]),
        ("CACHE['k'] = [x]", {"CACHE": {}}, ["global CACHE['k'][0]"]),
        ("BOX.value = x", {"BOX": types.SimpleNamespace()}, ["global BOX.value"]),
        ("BOX.inner.n = x", {"BOX": types.SimpleNamespace(inner=Config())}, ["global BOX.inner.n"]),
        ("OTHER.X = x", {"OTHER": types.ModuleType("other")}, ["global OTHER.X"]),
        ("OBJ.keep(x)", {"OBJ": None}, ["self.kept", "global OBJ.kept"]),
        ("CLS.kept = x", {"CLS": None}, ["global CLS.kept"]),
        ("global LATE\n    LATE = lambda: x", {}, ["closure x of global LATE"]),
        ("f.last = x", {}, ["global f.last"]),
        ("y = x", {}, []),
    ],
)
def test_leaks(body, names, said):
    class Keeper:
        def keep(self, x):
            self.kept = x

    names = {n: {"OBJ": Keeper(), "CLS": Keeper}.get(n, v) for n, v in names.items()}
    assert leaks(module(f"def f(x):\n    {body}\n", **names), Tracer()) == said


def test_leak_into_a_closure_and_self():
    last = None
    log: list = []

    def f(x):
        nonlocal last
        last = x
        log.append({"x": x})

    guards = collect(f)
    f(Tracer())
    assert last is not None
    assert guards.leaked(lambda v: isinstance(v, Tracer)) == ["closure last", "closure log[0]['x']"]

    class Holder:
        def run(self, x):
            self.y = x
            self.sub.y = x

    holder = Holder()
    holder.sub = Holder()
    guards = collect(holder.run)
    holder.run(Tracer())
    assert guards.leaked(lambda v: isinstance(v, Tracer)) == ["self.y", "self.sub.y"]


# Threads, life and speed ----------------------------------------------------------------------------------


def test_check_leaves_nothing_behind():
    m = watch("def f(x): return x * A[0] + B", A=[1], B=np.ones(3))
    m.guards.check()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(100):
        m.guards.check()
    gc.collect()
    assert len(gc.get_objects()) - before < 20
