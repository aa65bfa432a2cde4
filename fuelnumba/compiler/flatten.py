"""Kernel text: a kernel written as a Python function becomes one flat function for given dtypes.

Two steps on the syntax tree. `specialise` replaces what depends on dtypes and on baked parameters: `load(x, i)` becomes the
load of x's storage type, `T(0.5)` a literal of the computation type, `exp(v)` becomes `exp_f32(v)`, `if FLAG:` is decided.
`inline_helpers` writes out the short straight-line helper functions of kernels/half, vmath and arith in place: Numba takes
longer over a call than over a few statements. The elementary functions (FUNCTIONS) stay calls. Each is compiled once in a
process, from its own flat text, and LLVM puts it in place; Numba takes several milliseconds for a statement, LLVM does not.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import os
import textwrap
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.dtypes import DType
from ..core.errors import CompileError

_parsing = threading.Lock()


if hasattr(os, "register_at_fork"):  # a fork waits: in a child, the depth would stay as another thread left it
    os.register_at_fork(before=_parsing.acquire, after_in_parent=_parsing.release, after_in_child=_parsing.release)


def _parse(text: str, mode: str = "exec") -> Any:
    """As ast.parse, by one thread at a time: CPython 3.11 counts the depth of the trees it makes for all threads together,
    and raises a SystemError when they meet there."""
    with _parsing:
        return ast.parse(text, mode=mode)


HELPER_FILES = ("half", "arith", "vmath")
WIDE = {"f32": "f64", "f64": "f64"}  # what sums over many blocks are kept in; integers in i64

FUNCTIONS = frozenset(f"{name}_{c}" for c in ("f32", "f64") for name in (
    "acos", "asin", "atan", "atan2", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2",
    "pow", "sigmoid", "sin", "sinh", "tan", "tanh"))

SIZED = ("stack_", "shared_")  # words that take a literal

BUILTINS = {"min": "minimum", "max": "maximum"}  # Numba's own are not there in our target context

#               dtype   loading a stored value    storing a computed one
CONVERSIONS = {
    "bool": ("({0} != u8(0))", "u8({0})"),
    "f16": ("f16_to_f32({0})", "f32_to_f16({0})"),
    "bf16": ("bf16_to_f32({0})", "f32_to_bf16({0})"),
    "f8e4m3": ("f8e4m3_to_f32({0})", "f32_to_f8e4m3({0})"),
    "f8e5m2": ("f8e5m2_to_f32({0})", "f32_to_f8e5m2({0})"),
    "f8e8m0": ("f8e8m0_to_f32({0})", "f32_to_f8e8m0({0})"),
}


@functools.cache
def helpers() -> dict[str, ast.FunctionDef]:
    """The helper functions by name, parsed from their files."""
    found: dict[str, ast.FunctionDef] = {}
    folder = Path(__file__).parent.parent / "kernels"
    for name in HELPER_FILES:
        for node in _parse((folder / f"{name}.py").read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and _is_straight(node):
                found[node.name] = node
    return found


def _is_straight(f: ast.FunctionDef) -> bool:
    body = _without_docstring(f.body)
    return (bool(body) and isinstance(body[-1], ast.Return) and not f.decorator_list
            and all(isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) for s in body[:-1]))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    skip = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if skip else body


@functools.cache
def kernel_text(fn: Callable[..., Any]) -> str:
    """The source of a kernel function, without decorators and indentation."""
    try:
        text = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        raise CompileError(f"the source of kernel {fn.__name__} is not available",
                           cure="define it in a file or a notebook cell") from None
    return text[text.index("def "):] if text.startswith("@") else text


def parse_kernel(fn: Callable[..., Any]) -> ast.FunctionDef:
    node = _parse(kernel_text(fn)).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


# ------------------------------------------------------------------------------------------------ specialise
class _Specialise(ast.NodeTransformer):
    def __init__(self, pointers: Mapping[str, DType], variables: Mapping[str, DType], bake: Mapping[str, Any],
                 generic: frozenset[str]):
        self.pointers, self.generic = pointers, generic
        self.bake = {k: _parse(v if isinstance(v, str) else repr(v), mode="eval").body for k, v in bake.items()}
        self.types = {v: d.compute for v, d in variables.items()}
        self.main = self.types.get("T", "f32")
        self.types["W"] = WIDE.get(self.main, "i64")
        self.unrolling = 0  # how many loops that are written out there are around
        self.fours = 0

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.bake.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not isinstance(node.func, ast.Name):
            return self.generic_visit(node)
        name = node.func.id
        if name == "load":
            pointer = _pointer_name(node)
            index = self.visit(node.args[1])
            return self._converted(self.pointers.get(pointer), 0, _expr(f"{pointer}[0]", index))
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id.startswith(SIZED):  # a baked word, too
            return ast.Call(node.func, [_folded(node.args[0])], [])
        if name in self.types:
            if self.types[name] == "b1":
                return node.args[0]
            return ast.Call(ast.Name(self.types[name], ast.Load()), node.args, [])
        if name in BUILTINS and len(node.args) == 2:
            return ast.Call(ast.Name(BUILTINS[name], ast.Load()), node.args, [])
        if name in self.generic:
            return ast.Call(ast.Name(f"{name}_{self.main}", ast.Load()), node.args, [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _folded(node) if self.unrolling else node

    def visit_For(self, node: ast.For) -> Any:
        """`for i in unroll(...)` becomes its body for each i, with i a literal."""
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "unroll"):
            return self.generic_visit(node)
        bounds = [_literal(self.visit(a)) for a in call.args]
        if None in bounds or not isinstance(node.target, ast.Name):
            raise CompileError(f"{ast.unparse(call)}: the bounds of a loop that is written out must be literals or baked")
        out: list[ast.stmt] = []
        self.unrolling += 1
        for k in range(*(b for b in bounds if b is not None)):
            self.bake[node.target.id] = ast.Constant(k)
            out += self._block([_parse(ast.unparse(s)).body[0] for s in node.body])
        self.bake.pop(node.target.id, None)
        self.unrolling -= 1
        return out

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Four neighbours of a half type are loaded as they are stored, then converted."""
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "load4"):
            return self.generic_visit(node)
        dtype = self.pointers.get(_pointer_name(call))
        self.generic_visit(node)
        if dtype is None or dtype.name not in CONVERSIONS:
            return node
        assert isinstance(node.targets[0], ast.Tuple)
        self.fours += 1
        stored = [f"four{self.fours}_{k}" for k in range(4)]
        loaded = ast.Assign([ast.Tuple([ast.Name(n, ast.Store()) for n in stored], ast.Store())], call)
        return [loaded, *(ast.Assign([target], self._converted(dtype, 0, ast.Name(n, ast.Load())))
                          for target, n in zip(node.targets[0].elts, stored))]

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "store4":
            dtype = self.pointers.get(_pointer_name(call))
            self.generic_visit(call)
            call.args[2:] = [self._converted(dtype, 1, v) for v in call.args[2:]]
            return node
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("store", "copy_element"):
            target = _pointer_name(call)
            index = self.visit(call.args[1])
            if call.func.id == "store":
                value = self._converted(self.pointers.get(target), 1, self.visit(call.args[2]))
            else:
                source = _pointer_name(call, 2)
                value = _expr(f"{source}[0]", self.visit(call.args[3]))
            place = ast.Subscript(ast.Name(target, ast.Load()), index, ast.Store())
            return ast.Assign([place], value)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        test = self.visit(node.test)
        known = _constant(test)
        if known is None:
            return ast.If(test, self._block(node.body), self._block(node.orelse))
        return self._block(node.body if known else node.orelse) or ast.Pass()

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        known = _constant(test)
        if known is None:
            return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))
        return self.visit(node.body if known else node.orelse)

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for s in body:
            new = self.visit(s)
            out += new if isinstance(new, list) else [new]
        return out

    def _converted(self, dtype: DType | None, way: int, value: ast.expr) -> ast.expr:
        if dtype is None or dtype.name not in CONVERSIONS:
            return value
        wrapper = _parse(CONVERSIONS[dtype.name][way].format("_"), mode="eval").body
        return _Replace("_", value).visit(wrapper)


class _Replace(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.value if node.id == self.name else node


def _pointer_name(call: ast.Call, position: int = 0) -> str:
    p = call.args[position]
    if not isinstance(p, ast.Name):
        raise CompileError(f"{ast.unparse(call)}: a pointer must be a parameter or a variable")
    return p.id


def _expr(pattern: str, index: ast.expr) -> ast.expr:
    node = _parse(pattern, mode="eval").body
    assert isinstance(node, ast.Subscript)
    node.slice = index
    return node


def _constant(test: ast.expr) -> bool | None:
    """The truth of a test over literals only, else None."""
    if any(isinstance(n, (ast.Name, ast.Call, ast.Subscript, ast.Attribute)) for n in ast.walk(test)):
        return None
    return bool(eval(compile(ast.fix_missing_locations(ast.Expression(test)), "<baked>", "eval"), {"__builtins__": {}}))


def _folded(e: ast.expr) -> ast.expr:
    """An expression of integer literals as one literal; any other as it is."""
    return ast.Constant(found) if (found := _literal(e)) is not None else e


def _literal(e: ast.expr) -> int | None:
    if isinstance(e, ast.Constant):
        return e.value if type(e.value) is int else None
    if not isinstance(e, ast.BinOp) or type(e.op) not in FOLDED:
        return None
    a, b = _literal(e.left), _literal(e.right)
    return None if a is None or b is None else FOLDED[type(e.op)](a, b)


FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod}


def specialise(node: ast.FunctionDef, pointers: Mapping[str, DType], variables: Mapping[str, DType],
               bake: Mapping[str, Any]) -> list[ast.stmt]:
    """The body of a kernel for given dtypes of its pointers, type variables and baked parameters."""
    worker = _Specialise(pointers, variables, bake, generic_functions())
    return worker._block(_without_docstring(node.body))


@functools.cache
def generic_functions() -> frozenset[str]:
    """Names a kernel may use without a type: `exp` where exp_f32 and exp_f64 exist."""
    return frozenset(n[:-4] for n in helpers() if n.endswith("_f32") and n[:-4] + "_f64" in helpers())


# ------------------------------------------------------------------------------------------------ inline
class _Inline:
    def __init__(self) -> None:
        self.table = {name: f for name, f in helpers().items() if name not in FUNCTIONS}
        self.count = 0

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for s in body:
            before: list[ast.stmt] = []
            if isinstance(s, ast.While) and self._calls_helper(s.test):
                raise CompileError(f"a helper function in the test of a while loop: {ast.unparse(s.test)}")
            for field, value in ast.iter_fields(s):
                if isinstance(value, ast.expr):
                    setattr(s, field, self.expr(value, before))
            if isinstance(s, (ast.For, ast.While, ast.If)):
                s.body, s.orelse = self.block(s.body), self.block(s.orelse)
            out += [*before, s]
        return out

    def _calls_helper(self, e: ast.expr) -> bool:
        return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in self.table for n in ast.walk(e))

    def expr(self, e: ast.expr, before: list[ast.stmt]) -> ast.expr:
        for field, value in ast.iter_fields(e):
            if isinstance(value, ast.expr):
                setattr(e, field, self.expr(value, before))
            elif isinstance(value, list):
                setattr(e, field, [self.expr(v, before) if isinstance(v, ast.expr) else v for v in value])
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in self.table:
            return self.expand(self.table[e.func.id], e.args, before)
        return e

    def expand(self, f: ast.FunctionDef, args: list[ast.expr], before: list[ast.stmt]) -> ast.expr:
        self.count += 1
        prefix = f"h{self.count}_"
        names: dict[str, ast.expr] = {}
        seen: dict[str, int] = {}
        for param, value in zip(f.args.args, args, strict=True):
            if isinstance(value, (ast.Name, ast.Constant)):
                names[param.arg] = value
            else:
                local = prefix + param.arg
                before.append(ast.Assign([ast.Name(local, ast.Store())], value))
                names[param.arg] = ast.Name(local, ast.Load())
        *steps, last = _without_docstring(f.body)
        for s in steps:
            assert isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
            value = self.expr(_Rename(names).visit(_copy(s.value)), before)
            name = s.targets[0].id
            seen[name] = seen.get(name, 0) + 1  # a name assigned twice is two values: Numba need not sort them out
            local = prefix + name + (f"_{seen[name]}" if seen[name] > 1 else "")
            before.append(ast.Assign([ast.Name(local, ast.Store())], value))
            names[s.targets[0].id] = ast.Name(local, ast.Load())
        assert isinstance(last, ast.Return) and last.value is not None
        return self.expr(_Rename(names).visit(_copy(last.value)), before)


class _Rename(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.names.get(node.id, node)


def _copy(e: ast.expr) -> ast.expr:
    return _parse(ast.unparse(e), mode="eval").body


def inline_helpers(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements with every call of a short helper function written out."""
    return _Inline().block(body)


def flatten_text(text: str) -> str:
    """Flat source of a module that defines one function."""
    tree = _parse(text)
    f = tree.body[0]
    assert isinstance(f, ast.FunctionDef)
    f.body = inline_helpers(f.body)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def function_text(name: str) -> str:
    """Flat source of one of the elementary functions."""
    return flatten_text(ast.unparse(helpers()[name]))
