"""The flat text of a kernel as a Vulkan compute shader, with the same argument block.

A work item is done by one thread, or, for kernels in cooperative words, by a group of them. Types are inferred as NumPy has
them: a literal takes the type of what it meets. Every float is `precise`, since the elementary functions rest on each
operation being rounded by itself. Numbers that `//`, `%` and subscripts get are not negative; integer data have words of their
own for these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ..compiler import flatten
from ..compiler.codegen import Source
from ..core.errors import CompileError
from . import words
from .spelling import Unprintable, Value, called, join, named, number, real, whole
from .words import NEEDS, TYPES

LOCAL = 256  # threads of a group where each has a work item of its own
UNROLLED = 16  # loops of at most so many rounds, known beforehand, are unrolled

SIMPLE = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundEven", "fabs": "abs"}
OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
SIGNS = {"radd": "+", "wrap_add": "+", "wrap_sub": "-", "rmul": "*", "wrap_mul": "*", "product": "*"}
BITS = {"f32_to_bits": ("f32", "u32", "floatBitsToUint({})"), "f64_to_bits": ("f64", "u64", "doubleBitsToUint64({})"),
        "f32_from_bits": ("u32", "f32", "uintBitsToFloat({})"), "f64_from_bits": ("u64", "f64", "uint64BitsToDouble({})"),
        "f16_to_f32": ("u16", "f32", "f16_to_f32({})"), "f32_to_f16": ("f32", "u16", "f32_to_f16({})")}
GROUPED = {"group_sum": "sum", "group_max": "max", "group_min": "min"}

PRELUDE = """#version 460
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
"""
SUBGROUPS = """#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_vote : require
"""


class Shader(NamedTuple):
    """GLSL, and the features of a device that it uses; among them "turns", the table behind `inv_half_pi`."""

    text: str
    needs: frozenset[str]


def shader(source: Source, group: int = 0) -> Shader:
    """The shader of a kernel. Raises CompileError for a word that has no GLSL."""
    try:
        return _Kernel(source, group).shader()
    except Unprintable as err:
        raise CompileError(f"kernel {source.label} cannot be a shader: {err}",
                           cure="use the words of fuelnumba.kernels.lang, or bind the kernel to the cpu only") from None


class _Function:
    """One function's body as GLSL: an elementary function, or a kernel."""

    def __init__(self, whole: _Parts, types: dict[str, str], result: str | None = None) -> None:
        self.whole, self.types, self.result = whole, types, result
        self.params = set(types)
        self.arrays: dict[str, str] = {}  # name -> declaration, of the thread's own
        self.doubles: dict[str, str] = {}  # name -> the word of the block with the bits of a f64 parameter
        self.count = 0

    # -------------------------------------------------------------------------------------- expressions
    def cast(self, v: Value, to: str) -> str:
        """The text of a value as another type."""
        text, t = v
        if t == to:
            return text
        if t in "IF" and re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text):
            number = ast.literal_eval(text)
            if to == "b1":
                return "true" if number else "false"
            return real(number, to) if to[0] == "f" else whole(int(number), to)
        if to[0] in "*[" or t[0] in "*[":
            raise Unprintable(f"a pointer or an array as {to.lstrip('*[')}")
        if t in "IF":  # a variable that has met literals only
            return text if to == {"I": "i64", "F": "f64"}[t] else f"{TYPES[to]}({text})"
        if to == "b1":
            return f"({text} != {self.cast(Value('0', 'I'), t)})"
        if t == "i32" and to in ("i64", "u64"):
            text = f"{self.help('wide')}({text})"
            return text if to == "i64" else f"uint64_t({text})"
        return f"{TYPES[to]}({self.plain(v)})"

    def plain(self, v: Value) -> str:
        """The text with literals as they are without a context: i64 and f64."""
        return self.cast(v, {"I": "i64", "F": "f64"}.get(v.type, v.type)) if v.type in "IF" else v.text

    def uses(self, t: str) -> str:
        """The GLSL type; the device's feature that it asks for is noted."""
        self.whole.need(t)
        return TYPES[t]

    def help(self, name: str) -> str:
        if name not in words.library():
            raise Unprintable(f"the word {name} does not exist")
        self.whole.helpers.setdefault(name)
        return name

    def expr(self, n: ast.expr) -> Value:
        made: Value = getattr(self, f"expr_{type(n).__name__}", self._no_expression)(n)
        if made.type in TYPES:
            self.whole.need(made.type)
        return made

    def _no_expression(self, n: ast.expr) -> Value:
        raise Unprintable(f"the expression {ast.unparse(n)[:60]}")

    def expr_Constant(self, n: ast.Constant) -> Value:
        if isinstance(n.value, bool):
            return Value(str(n.value).lower(), "b1")
        if isinstance(n.value, int):
            return Value(str(n.value), "I")
        if isinstance(n.value, float):
            return Value(repr(n.value), "F")
        return self._no_expression(n)

    def expr_Attribute(self, n: ast.Attribute) -> Value:
        if n.attr not in ("inf", "nan"):
            return self._no_expression(n)
        return Value(real(float(n.attr), "f64"), "f64")

    def expr_Name(self, n: ast.Name) -> Value:
        return Value(named(n.id), self.types.get(n.id, "I"))

    def expr_Subscript(self, n: ast.Subscript) -> Value:
        if not isinstance(n.value, ast.Name):
            return self._no_expression(n)
        name = n.value.id
        if name == "args":
            return Value(f"A.d[{self.cast(self.expr(n.slice), 'i32')}]", "i64")
        t = self.types[name]
        if t[0] == "*":
            return Value(self.at(name, n.slice), t[1:])
        return Value(f"{named(name)}[{self.cast(self.expr(n.slice), 'i32')}]", t[1:])

    def at(self, pointer: str, index: ast.expr) -> str:
        """An element behind a pointer: its address first, since glslang fails on 64-bit subscripts of references."""
        t = self.types.get(pointer, "")
        if not t.startswith("*"):
            raise Unprintable(f"{pointer} is no pointer")
        self.whole.pointers.add(t[1:])
        self.whole.need(t[1:])
        return f"P_{t[1:]}({named(pointer)} + uint64_t({self.plain(self.expr(index))}) * {int(t[2:]) // 8}UL).d[0]"

    def expr_UnaryOp(self, n: ast.UnaryOp) -> Value:
        v = self.expr(n.operand)
        if isinstance(n.op, ast.USub):
            return Value(f"-{v.text}", v.type) if isinstance(n.operand, ast.Constant) else Value(f"(-{v.text})", v.type)
        if isinstance(n.op, ast.Not):
            return Value(f"(!{self.cast(v, 'b1')})", "b1")
        if isinstance(n.op, ast.Invert):
            return Value(f"(!{v.text})" if v.type == "b1" else f"{TYPES[v.type]}(~{v.text})", v.type)
        return self._no_expression(n)

    def expr_BoolOp(self, n: ast.BoolOp) -> Value:
        sign = " && " if isinstance(n.op, ast.And) else " || "
        return Value("(" + sign.join(self.cast(self.expr(v), "b1") for v in n.values) + ")", "b1")

    def expr_Compare(self, n: ast.Compare) -> Value:
        if len(n.ops) != 1:
            return self._no_expression(n)
        a, b = self.expr(n.left), self.expr(n.comparators[0])
        op = OPERATORS[type(n.ops[0])]
        t = join(a.type, b.type)
        t = {"I": "i64", "F": "f64"}.get(t, t)
        if t[0] == "f" and op in ("!=", "==") and ast.dump(n.left) == ast.dump(n.comparators[0]):
            return Value(f"{'' if op == '!=' else '!'}{self.help(f'is_nan_{t}')}({self.cast(a, t)})", "b1")
        if t == "b1" and op not in ("==", "!="):
            t = "i32"
        return Value(f"({self.cast(a, t)} {op} {self.cast(b, t)})", "b1")

    def expr_IfExp(self, n: ast.IfExp) -> Value:
        return self.select(n.test, n.body, n.orelse)

    def select(self, test: ast.expr, yes: ast.expr, no: ast.expr) -> Value:
        a, b = self.expr(yes), self.expr(no)
        t = join(a.type, b.type)
        t = {"I": "i64", "F": "f64"}.get(t, t)
        return Value(f"({self.cast(self.expr(test), 'b1')} ? {self.cast(a, t)} : {self.cast(b, t)})", t)

    def expr_BinOp(self, n: ast.BinOp) -> Value:
        a, b = self.expr(n.left), self.expr(n.right)
        t = join(a.type, b.type)
        if isinstance(n.op, ast.Div) and t[0] not in "fF":
            t = "f64"
        if t in "IF":  # literals, or a variable that has met literals only
            literal = number(n)
            if literal is not None:
                return Value(repr(literal), t)
            t = {"I": "i64", "F": "f64"}[t]
        if isinstance(n.op, (ast.FloorDiv, ast.Mod)):
            name = "quotient" if isinstance(n.op, ast.FloorDiv) else "rest"
            if t in ("i32", "u32"):
                return Value(f"({self.cast(a, t)} {'/' if name == 'quotient' else '%'} {self.cast(b, t)})", t)
            return Value(self.cast(Value(f"{self.help(name)}({self.cast(a, 'i64')}, {self.cast(b, 'i64')})", "i64"), t), t)
        if type(n.op) not in OPERATORS:
            return self._no_expression(n)
        op = OPERATORS[type(n.op)]
        if t == "b1":
            return Value(f"({a.text} { {'&': '&&', '|': '||', '^': '!='}[op]} {b.text})", t)
        made = f"({self.cast(a, t)} {op} {self.cast(b, 'u32' if op in ('<<', '>>') and b.type in ('I', 'i64') else t)})"
        return Value(made if t in ("i32", "u32", "i64", "u64", "f32", "f64") else f"{TYPES[t]}{made}", t)

    # -------------------------------------------------------------------------------------- calls
    def expr_Call(self, n: ast.Call) -> Value:
        if not isinstance(n.func, ast.Name):
            return self._no_expression(n)
        name = n.func.id
        if name in TYPES:
            return self.convert(name, n.args[0])
        if name == "select":
            return self.select(*n.args)
        if name.startswith("ptr_"):
            slot = self.word(n.args[1])
            self.whole.pointers.add(name[4:])
            return Value(f"uint64_t(P_i64(uint64_t(A.d[{slot}])).d[0] + A.d[{slot + 1}])", f"*{name[4:]}")
        if name.startswith("raw_"):
            self.whole.pointers.add(name[4:])
            return Value(f"uint64_t({self.plain(self.expr(n.args[0]))})", f"*{name[4:]}")
        if name == "f64_arg":
            return Value(f"int64BitsToDouble(A.d[{self.word(n.args[1])}])", "f64")
        if name == "load_in" and isinstance(n.args[0], ast.Name):
            return Value(self.at(n.args[0].id, n.args[1]), self.types[n.args[0].id][1:])
        if name == "lane":
            return Value("int(gl_LocalInvocationID.x)", "i32")
        if name == "inv_half_pi":
            self.whole.needs.add("turns")
            self.whole.pointers.add("f64")
            self.whole.need("f64")
            row = self.cast(self.expr(n.args[0]), "u64")
            return Value(f"P_f64(turns + ({row} + {1024 * self.word(n.args[1])}UL) * 8UL).d[0]", "f64")
        if name in flatten.FUNCTIONS:
            t = name[-3:]
            self.whole.function(name)
            return Value(f"{name}({', '.join(self.cast(self.expr(a), t) for a in n.args)})", t)
        return self.word_call(name, [self.expr(a) for a in n.args])

    def word_call(self, name: str, args: Sequence[Value]) -> Value:
        if name in BITS:
            of, to, text = BITS[name]
            if name in ("f16_to_f32", "f32_to_f16"):
                self.help(name)
            return Value(text.format(self.cast(args[0], of)), to)
        t: str | None = None
        for a in args:
            t = join(t, a.type)
        if t is None:
            raise Unprintable(f"the word {name}()")
        if name.startswith("sat_"):
            return Value(f"{self.help(f'{name}_{t}')}({self.plain(args[0])})", name[4:])
        t = {"I": "i64", "F": "f64"}.get(t, t)
        texts = [self.cast(a, t) for a in args]
        if name in SIMPLE:
            return Value(f"{SIMPLE[name]}({', '.join(texts)})", t)
        if name in SIGNS:
            made = f"({texts[0]} {SIGNS[name]} {texts[1]})"
            return Value(made if t[0] == "f" or int(t[1:]) >= 32 else f"{TYPES[t]}{made}", t)
        if name == "rfma":
            return Value(f"fma({', '.join(texts)})" if t[0] == "f" else f"{TYPES[t]}({texts[0]} * {texts[1]} + {texts[2]})", t)
        if t == "b1" and name in ("maximum", "minimum"):
            return Value(f"({texts[0]} {'||' if name == 'maximum' else '&&'} {texts[1]})", t)
        if name in ("maximum", "minimum", "copysign", "frem", "fma", "int_floordiv", "int_mod", "int_pow"):
            if t[0] == "f":
                self.help(f"is_nan_{t}")
            elif name.startswith("int_"):
                self.help(f"divide_{t}")
            return Value(f"{self.help(f'{name}_{t}')}({', '.join(texts)})", t)
        if name in GROUPED:
            if t != "i64":
                self.whole.needs.add("subgroup")
            return Value(f"{self.help(f'{name}_{t}')}({texts[0]})", t)
        raise Unprintable(f"the word {name}()")

    def convert(self, to: str, n: ast.expr) -> Value:
        """`f32(x)`; of literals at once, so that f64 is not asked for."""
        if to == "f32" and isinstance(n, ast.Name) and n.id in self.doubles:
            self.help("f32_of_f64")
            return Value(f"f32_of_f64(uint64_t({self.doubles[n.id]}))", "f32")
        literal = number(n)
        if literal is None:
            return Value(self.cast(self.expr(n), to), to)
        return Value(real(literal, to) if to[0] == "f" else self.cast(Value(str(int(literal)), "I"), to), to)

    def word(self, n: ast.expr) -> int:
        """A literal number."""
        if not isinstance(n, ast.Constant) or not isinstance(n.value, int):
            raise Unprintable(f"{ast.unparse(n)} where a literal is needed")
        return n.value

    # -------------------------------------------------------------------------------------- statements
    def block(self, body: Sequence[ast.stmt], depth: int) -> list[str]:
        out: list[str] = []
        for s in body:
            make = getattr(self, f"stmt_{type(s).__name__}", None)
            if make is None:
                raise Unprintable(f"the statement {ast.unparse(s)[:60]}")
            out += make(s, depth)
        return out

    def stmt_Pass(self, s: ast.Pass, depth: int) -> list[str]:
        return []

    def stmt_Expr(self, s: ast.Expr, depth: int) -> list[str]:
        pad, call = "  " * depth, s.value
        if isinstance(call, ast.Constant):
            return []
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise Unprintable(f"the statement {ast.unparse(s)[:60]}")
        name, args = call.func.id, call.args
        if name in ("store_out", "store_nth") and isinstance(args[0], ast.Name):
            return self.store(args[0].id, args[1], args[2], pad)
        if name == "barrier":
            self.help("barrier_all")
            return [f"{pad}barrier_all();"]
        if name == "fault" and isinstance(args[0], ast.Name):
            self.whole.pointers |= {"u32", "i64"}
            values = ", ".join(self.cast(self.expr(a), "i64") for a in args[1:])
            return [f"{pad}{self.help('fault')}({named(args[0].id)}, {values});"]
        if name == "store4" and isinstance(args[0], ast.Name):
            t = self.types[args[0].id][1:]
            parts = ", ".join(self.cast(self.expr(a), t) for a in args[2:])
            return [f"{pad}{self.four(args[0].id, args[1])} = {self.vector(t)}({parts});"]
        raise Unprintable(f"the word {name}()")

    def vector(self, t: str) -> str:
        self.uses(t)
        return {"f32": "vec4", "u16": "u16vec4", "u32": "uvec4", "i32": "ivec4"}[t]

    def four(self, pointer: str, index: ast.expr) -> str:
        t = self.types[pointer][1:]
        self.whole.vectors.add(t)
        return f"V_{t}({named(pointer)} + uint64_t({self.plain(self.expr(index))}) * {int(t[1:]) // 8}UL).v"

    def store(self, pointer: str, index: ast.expr, value: ast.expr, pad: str) -> list[str]:
        v, t = self.expr(value), self.types[pointer][1:]
        text = self.cast(v, t)
        if t[0] == "f" and not isinstance(value, ast.Name):  # through a variable, which is precise
            self.count += 1
            return [f"{pad}precise {TYPES[t]} s{self.count} = {text};", f"{pad}{self.at(pointer, index)} = s{self.count};"]
        return [f"{pad}{self.at(pointer, index)} = {text};"]

    def stmt_Assign(self, s: ast.Assign, depth: int) -> list[str]:
        pad, target = "  " * depth, s.targets[0]
        call = called(s.value) if isinstance(s.value, ast.Call) else ""
        if isinstance(target, ast.Name):
            if call.startswith(("stack_", "shared_")):
                assert isinstance(s.value, ast.Call)
                t = call.partition("_")[2]
                self.types[target.id] = f"[{t}"
                declared = f"{self.uses(t)} {named(target.id)}[{self.word(s.value.args[0])}];"
                if call.startswith("stack_"):
                    self.arrays[target.id] = declared
                else:
                    self.whole.shared[target.id] = declared
                return []
            if call == "f64_arg":
                assert isinstance(s.value, ast.Call)
                if target.id in self.whole.as_f32:
                    self.doubles[target.id] = f"A.d[{self.word(s.value.args[1])}]"
                    return []
            v = self.expr(s.value)
            self.types[target.id] = t = join(self.types.get(target.id), v.type)
            return [f"{pad}{named(target.id)} = {self.cast(v, t) if t[0] not in '*IF' else self.plain(v)};"]
        if isinstance(target, ast.Tuple) and call == "load4":
            assert isinstance(s.value, ast.Call) and isinstance(s.value.args[0], ast.Name)
            t = self.types[s.value.args[0].id][1:]
            self.count += 1
            out = [f"{pad}{self.vector(t)} q{self.count} = {self.four(s.value.args[0].id, s.value.args[1])};"]
            for part, e in zip("xyzw", target.elts):
                assert isinstance(e, ast.Name)
                self.types[e.id] = join(self.types.get(e.id), t)
                out.append(f"{pad}{named(e.id)} = {self.cast(Value(f'q{self.count}.{part}', t), self.types[e.id])};")
            return out
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            name = target.value.id
            if self.types.get(name, "").startswith("*"):
                return self.store(name, target.slice, s.value, pad)
            place = self.expr(target)
            return [f"{pad}{place.text} = {self.cast(self.expr(s.value), place.type)};"]
        raise Unprintable(f"the statement {ast.unparse(s)[:60]}")

    def stmt_AugAssign(self, s: ast.AugAssign, depth: int) -> list[str]:
        left = flatten._parse(ast.unparse(s.target), mode="eval").body
        return self.stmt_Assign(ast.Assign([s.target], ast.BinOp(left, s.op, s.value)), depth)

    def stmt_For(self, s: ast.For, depth: int) -> list[str]:
        pad = "  " * depth
        if not (isinstance(s.target, ast.Name) and isinstance(s.iter, ast.Call) and called(s.iter) == "range"):
            raise Unprintable(f"the loop over {ast.unparse(s.iter)[:60]}")
        i, bounds = s.target.id, s.iter.args
        if [b.id for b in bounds if isinstance(b, ast.Name)] == ["lo", "hi"]:  # one work item
            self.types[i] = join(self.types.get(i), "i64")
            return [f"{pad}{named(i)} = lo;", *self.block(s.body, depth)]
        values = [self.expr(b) for b in bounds]
        begin, end, step = (Value("0", "I"), values[0], Value("1", "I")) if len(values) == 1 else (
            *values, Value("1", "I"))[:3]
        t: str | None = None
        for v in (begin, end, step):
            t = join(t, v.type)
        known = t == "I"
        self.types[i] = t = join(self.types.get(i), "i32" if t in ("I", "i32") else "i64")
        self.count += 1
        last, by = f"e{self.count}", self.cast(step, t)
        rounds = (int(end.text) - int(begin.text)) // max(abs(int(step.text)), 1) if known else UNROLLED + 1
        hint = "[[unroll]] " if rounds <= UNROLLED else ""
        sign = ">" if step.text.startswith("-") else "<"
        if known:
            last = self.cast(end, t)
            head = []
        else:
            head = [f"{pad}{TYPES[t]} {last} = {self.cast(end, t)};"]
        name = named(i)
        return [*head, f"{pad}{hint}for ({name} = {self.cast(begin, t)}; {name} {sign} {last}; {name} += {by}) {{",
                *self.block(s.body, depth + 1), pad + "}"]

    def stmt_While(self, s: ast.While, depth: int) -> list[str]:
        pad = "  " * depth
        return [f"{pad}while ({self.cast(self.expr(s.test), 'b1')}) {{", *self.block(s.body, depth + 1), pad + "}"]

    def stmt_If(self, s: ast.If, depth: int) -> list[str]:
        pad = "  " * depth
        out = [f"{pad}if ({self.cast(self.expr(s.test), 'b1')}) {{", *self.block(s.body, depth + 1), pad + "}"]
        if s.orelse:
            out += [f"{pad}else {{", *self.block(s.orelse, depth + 1), pad + "}"]
        return out

    def stmt_Return(self, s: ast.Return, depth: int) -> list[str]:
        assert s.value is not None and self.result is not None
        self.types["result"] = self.result
        return [f"{'  ' * depth}result_ = {self.cast(self.expr(s.value), self.result)};", f"{'  ' * depth}return result_;"]

    # -------------------------------------------------------------------------------------- whole
    def lines(self, body: Sequence[ast.stmt]) -> list[str]:
        """Declarations and statements. Types of variables grow until no assignment changes one."""
        while True:
            before = dict(self.types)
            self.count = 0
            made = self.block(body, 1)
            if self.types == before:
                return [*self.declarations(), *made]

    def declarations(self) -> list[str]:
        out = []
        for name, t in self.types.items():
            if name in self.params or (name in self.whole.shared and t[0] == "["):
                continue
            if t[0] == "[":
                out.append(f"  {self.arrays[name]}")
            elif t[0] == "*":
                out.append(f"  uint64_t {named(name)};")
            else:
                real = {"I": "i64", "F": "f64"}.get(t, t)
                out.append(f"  {'precise ' if real[0] == 'f' else ''}{self.uses(real)} {named(name)};")
        return out


class _Parts:
    """What a text brings along: the functions it calls, and what they need."""

    def __init__(self) -> None:
        self.pointers = {"i64"}
        self.vectors: set[str] = set()
        self.helpers: dict[str, None] = {}
        self.functions: dict[str, str] = {}
        self.shared: dict[str, str] = {}
        self.needs: set[str] = set()
        self.as_f32: set[str] = set()  # f64 parameters of which only the f32 is asked for

    def need(self, t: str) -> None:
        if t in NEEDS:
            self.needs.add(NEEDS[t])

    def function(self, name: str) -> None:
        """An elementary function, after those that it calls."""
        if name not in self.functions:
            text, parts = _elementary(name)
            self.pointers |= parts.pointers
            self.helpers |= parts.helpers
            self.needs |= parts.needs
            self.functions |= {**parts.functions, name: text}


@cache
def _elementary(name: str) -> tuple[str, _Parts]:
    t, parts = name[-3:], _Parts()
    tree = flatten._parse(flatten.function_text(name)).body[0]
    names = [a.arg for a in tree.args.args]
    lines = _Function(parts, dict.fromkeys(names, t), t).lines(flatten._without_docstring(tree.body))
    head = f"{TYPES[t]} {name}({', '.join(f'{TYPES[t]} {named(a)}' for a in names)}) {{"
    return "\n".join([head, *lines, "}"]), parts


class _Kernel(_Parts):
    """A shader in the making."""

    def __init__(self, source: Source, group: int) -> None:
        super().__init__()
        self.source, self.group = source, group

    def shader(self) -> Shader:
        text = self.source.text()
        tree = flatten._parse(text).body[0]
        self._find_f32(tree)
        main = _Function(self, {"lo": "i64", "hi": "i64"})
        lines = main.lines(tree.body)
        helpers = words.with_helpers(list(self.helpers))
        if any("double" in h for h in helpers):
            self.needs.add("f64")
        parts = [PRELUDE + (SUBGROUPS if "subgroup" in self.needs else ""),
                 f"// {self.source.label}: {', '.join(f'{p.name}: {p.dtype or p.kind}' for p in self.source.params)}",
                 f"layout(local_size_x = {self.group or LOCAL}) in;",
                 "layout(constant_id = 0) const bool FUSED = true;",
                 "layout(push_constant) uniform Push { uint64_t block; int64_t total; uint64_t turns; };"]
        for t in sorted(self.pointers):
            size = int(t[1:]) // 8
            parts.append(f"layout(buffer_reference, scalar, buffer_reference_align = {size}) buffer P_{t} {{ {TYPES[t]} d[]; }};")
        for t in sorted(self.vectors):
            size = int(t[1:]) // 2
            parts.append(f"layout(buffer_reference, scalar, buffer_reference_align = {size}) buffer V_{t} {{ "
                         f"{main.vector(t)} v; }};")
        parts += [f"shared {d}" for d in self.shared.values()]
        parts += [*helpers, *self.functions.values(), "void main() {"]
        number = "gl_WorkGroupID" if self.group else "gl_GlobalInvocationID"
        across = "gl_NumWorkGroups.x" if self.group else f"gl_NumWorkGroups.x * {LOCAL}u"
        parts += [f"  int64_t lo = int64_t({number}.x) + int64_t({number}.y) * int64_t({across});",
                  "  if (lo >= total) return;", "  int64_t hi = lo + 1L;", "  P_i64 A = P_i64(block);", *lines, "}"]
        return Shader("\n".join(parts) + "\n", frozenset(self.needs))

    def _find_f32(self, tree: ast.FunctionDef) -> None:
        """Parameters that are f64 in the block, and that the kernel only reads as f32."""
        given = {s.targets[0].id for s in tree.body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
                 and isinstance(s.value, ast.Call) and called(s.value) == "f64_arg"}
        reads = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in given]
        narrow = [n.args[0].id for n in ast.walk(tree) if isinstance(n, ast.Call) and called(n) == "f32"
                  and isinstance(n.args[0], ast.Name) and n.args[0].id in given]
        self.as_f32 = {name for name in given if reads.count(name) == narrow.count(name)}
