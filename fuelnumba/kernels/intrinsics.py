"""The scalar words of generated kernels as Numba intrinsics, each a line or two of LLVM IR that vectorises.

Imported only while compiling (it pulls in Numba). `lang` holds the same names for NumPy; a test keeps the two
alike. Nothing here calls a runtime library, so the object code of a kernel loads through llvmlite alone.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from fuelnumba.kernels.lang import inv_half_pi_table

__all__ = [
    "at_f32", "at_f64", "ceil", "copysign", "f16_to_f32", "f32", "f32_from_bits", "f32_to_bits", "f32_to_f16", "f64",
    "f64_arg", "f64_from_bits", "f64_to_bits", "fabs", "fault", "floor", "fma", "frem", "gemm_f32", "gemm_f64", "i8",
    "i16", "i32", "i64", "int_floordiv", "int_mod", "int_pow", "inv_half_pi", "load_in", "maximum", "minimum",
    "product", "ptr_f32", "ptr_f64", "ptr_i8", "ptr_i16", "ptr_i32", "ptr_i64", "ptr_u8", "ptr_u16", "ptr_u32",
    "ptr_u64", "radd", "raw_f32", "raw_f64", "raw_i8", "raw_i16", "raw_i32", "raw_i64", "raw_u8", "raw_u16", "raw_u32",
    "raw_u64", "rfma", "rint", "rmul", "sat_i8", "sat_i16", "sat_i32", "sat_i64", "sat_u8", "sat_u32", "select",
    "sqrt", "stack_f32", "stack_f64", "stack_i64", "store_nth", "store_out", "trunc", "u8", "u16", "u32", "u64",
    "wrap_add", "wrap_mul", "wrap_sub",
]

# conversions: Numba understands NumPy's types as casts
f32, f64 = np.float32, np.float64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64

FLOATS = (types.float32, types.float64)


def _need(ok: bool, name: str, *found: object) -> None:
    if not ok:
        raise TypingError(f"{name} does not take ({', '.join(map(str, found))})")


def _is_int(t: object) -> bool:
    return isinstance(t, types.Integer)


def _llvm(builder: ir.IRBuilder, name: str, result: ir.Type, args: list[ir.Value], overloads: tuple):
    """Call the LLVM intrinsic `name`, overloaded on the given types."""
    fnty = ir.FunctionType(result, [a.type for a in args])
    return builder.call(builder.module.declare_intrinsic(name, overloads, fnty), args)


# ---------------------------------------------------------------- bits


def _bitcast(name: str, accepted: tuple, result: types.Type) -> Callable:
    def define(typingctx, x):
        _need(x in accepted, name, x)

        def codegen(context, builder, sig, args):
            return builder.bitcast(args[0], context.get_value_type(sig.return_type))

        return result(x), codegen

    define.__name__ = name
    return intrinsic(define)


f32_from_bits = _bitcast("f32_from_bits", (types.uint32, types.int32), types.float32)
f64_from_bits = _bitcast("f64_from_bits", (types.uint64, types.int64), types.float64)
f32_to_bits = _bitcast("f32_to_bits", (types.float32,), types.uint32)
f64_to_bits = _bitcast("f64_to_bits", (types.float64,), types.uint64)


@intrinsic
def f16_to_f32(typingctx, u):
    """The f16 whose bits are the u16 `u`, as f32."""
    _need(u in (types.uint16, types.int16), "f16_to_f32", u)

    def codegen(context, builder, sig, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(u), codegen


@intrinsic
def f32_to_f16(typingctx, x):
    """The bits (u16) of `x` rounded to the nearest f16, ties to even."""
    _need(x == types.float32, "f32_to_f16", x)

    def codegen(context, builder, sig, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(x), codegen


# ---------------------------------------------------------------- arithmetic


@intrinsic
def select(typingctx, cond, a, b):
    """`a` where `cond` holds, else `b`; both are evaluated."""
    _need(cond == types.boolean and a == b, "select", cond, a, b)

    def codegen(context, builder, sig, args):
        return builder.select(*args)

    return a(cond, a, b), codegen


def _unary(name: str, llvm_name: str) -> Callable:
    def define(typingctx, x):
        _need(x in FLOATS, name, x)

        def codegen(context, builder, sig, args):
            return _llvm(builder, llvm_name, args[0].type, list(args), (args[0].type,))

        return x(x), codegen

    define.__name__ = name
    return intrinsic(define)


floor = _unary("floor", "llvm.floor")
ceil = _unary("ceil", "llvm.ceil")
trunc = _unary("trunc", "llvm.trunc")
rint = _unary("rint", "llvm.rint")
sqrt = _unary("sqrt", "llvm.sqrt")
fabs = _unary("fabs", "llvm.fabs")


@intrinsic
def copysign(typingctx, a, b):
    """`a` with the sign of `b`."""
    _need(a == b and a in FLOATS, "copysign", a, b)

    def codegen(context, builder, sig, args):
        return _llvm(builder, "llvm.copysign", args[0].type, list(args), (args[0].type,))

    return a(a, b), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """`a * b + c`, rounded once whatever the fast-math flags say."""
    _need(a == b == c and a in FLOATS, "fma", a, b, c)

    def codegen(context, builder, sig, args):
        return _llvm(builder, "llvm.fma", args[0].type, list(args), (args[0].type,))

    return a(a, b, c), codegen


def _extreme(name: str, llvm_name: str, relation: str) -> Callable:
    def define(typingctx, a, b):
        _need(a == b and (a in FLOATS or _is_int(a) or a == types.boolean), name, a, b)

        def codegen(context, builder, sig, args):
            if a in FLOATS:
                return _llvm(builder, llvm_name, args[0].type, list(args), (args[0].type,))
            compare = builder.icmp_signed if getattr(a, "signed", False) else builder.icmp_unsigned
            return builder.select(compare(relation, *args), *args)

        return a(a, b), codegen

    define.__name__ = name
    return intrinsic(define)


# floats: NaN wins, and -0 < +0
maximum = _extreme("maximum", "llvm.maximum", ">")
minimum = _extreme("minimum", "llvm.minimum", "<")


def _binary(name: str, integer: str, floating: str | None, flags: tuple[str, ...] = ()) -> Callable:
    """An operation that keeps its operands' type; a float instruction with `flags` gets none from Numba."""

    def define(typingctx, a, b):
        _need(a == b and (_is_int(a) or (floating is not None and a in FLOATS)), name, a, b)

        def codegen(context, builder, sig, args):
            if floating is not None and a in FLOATS:
                return getattr(builder, floating)(*args, flags=flags)
            return getattr(builder, integer)(*args)

        return a(a, b), codegen

    define.__name__ = name
    return intrinsic(define)


wrap_add = _binary("wrap_add", "add", None)
wrap_sub = _binary("wrap_sub", "sub", None)
wrap_mul = _binary("wrap_mul", "mul", None)
# only `contract` would let a sum swallow the product, and `arcp` says nothing about one
product = _binary("product", "mul", "fmul", ("arcp",))
# the `r` family may be summed in any order: that is what lets LLVM vectorise a reduction
radd = _binary("radd", "add", "fadd", ("reassoc",))
rmul = _binary("rmul", "mul", "fmul", ("reassoc",))


@intrinsic
def rfma(typingctx, a, b, acc):
    """`acc + a * b` for sums whose order is free."""
    _need(a == b == acc and (_is_int(a) or a in FLOATS), "rfma", a, b, acc)

    def codegen(context, builder, sig, args):
        x, y, z = args
        if _is_int(a):
            return builder.add(z, builder.mul(x, y))
        return builder.fadd(z, builder.fmul(x, y, flags=("contract",)), flags=("reassoc", "contract"))

    return a(a, b, acc), codegen


def _saturate(name: str, result: Any) -> Callable:
    """Clamps by hand: `llvm.fptosi.sat` says the same, but its cost keeps most widths from vectorising."""
    bits, signed = result.bitwidth, result.signed
    low, over = (-2.0 ** (bits - 1), 2.0 ** (bits - 1)) if signed else (0.0, 2.0 ** bits)
    # narrow results pass through i32, for which there are vector conversions
    step = ir.IntType(max(bits, 32))

    def define(typingctx, x):
        _need(x in FLOATS, name, x)

        def codegen(context, builder, sig, args):
            v, to = args[0], args[0].type
            above = builder.fcmp_ordered(">=", v, to(over))
            inside = builder.and_(builder.fcmp_ordered(">", v, to(low)), builder.not_(above))
            # outside (and for NaN) convert a zero instead: an out-of-range conversion is undefined
            safe = builder.select(inside, v, to(0.0))
            whole = (builder.fptosi if signed or bits < 32 else builder.fptoui)(safe, step)
            whole = builder.select(builder.fcmp_ordered("<=", v, to(low)), step(int(low)), whole)
            whole = builder.select(above, step(int(over) - 1), whole)
            return whole if bits >= 32 else builder.trunc(whole, ir.IntType(bits))

        return result(x), codegen

    define.__name__ = name
    return intrinsic(define)


# float to integer: towards zero, clamped to the range, NaN to 0
sat_i8 = _saturate("sat_i8", types.int8)
sat_i16 = _saturate("sat_i16", types.int16)
sat_i32 = _saturate("sat_i32", types.int32)
sat_i64 = _saturate("sat_i64", types.int64)
sat_u8 = _saturate("sat_u8", types.uint8)
sat_u32 = _saturate("sat_u32", types.uint32)


# ---------------------------------------------------------------- tables


@intrinsic(prefer_literal=True)
def inv_half_pi(typingctx, e, k):
    """Part `k` (a literal) of 2**(e - 52) * 2/pi modulo 4, see `lang`; a gather from constant memory."""
    if isinstance(e, types.Literal):
        return None
    part = k.literal_value if isinstance(k, types.IntegerLiteral) else -1
    _need(_is_int(e) and 0 <= part < 4, "inv_half_pi", e, k)

    def codegen(context, builder, sig, args):
        module, name = builder.module, f"fuel_inv_half_pi_{part}"
        table = module.globals.get(name)
        if table is None:
            column = inv_half_pi_table(part).tolist()
            kind = ir.ArrayType(ir.DoubleType(), len(column))
            table = ir.GlobalVariable(module, kind, name)
            table.initializer = ir.Constant(kind, column)
            table.global_constant, table.linkage, table.unnamed_addr = True, "internal", True
        row = context.cast(builder, args[0], sig.args[0], types.intp)
        load = builder.load(builder.gep(table, [ir.IntType(64)(0), row]))
        load.set_metadata("invariant.load", module.add_metadata([]))
        # constant memory, but the vectoriser wants to hear that no output lies there
        load.set_metadata("noalias", module.add_metadata(_scopes(builder)))
        return load

    return types.float64(e, k), codegen


# ---------------------------------------------------------------- pointers


def _slot(context, builder, base: ir.Value, index: ir.Value, index_type: types.Type):
    """Address of element `index` behind the pointer `base`."""
    return builder.gep(base, [context.cast(builder, index, index_type, types.intp)])


def _pointer(name: str, to: types.Type) -> Callable:
    result = types.CPointer(to)

    def define(typingctx, args, k):
        _need(args == types.CPointer(types.int64) and _is_int(k), name, args, k)

        def codegen(context, builder, sig, values):
            table, slot = values
            first = _slot(context, builder, table, slot, sig.args[1])
            cell = builder.inttoptr(builder.load(first), table.type)
            offset = builder.load(builder.gep(first, [ir.IntType(64)(1)]))
            return builder.inttoptr(builder.add(builder.load(cell), offset), context.get_value_type(result))

        return result(args, k), codegen

    define.__name__ = name
    return intrinsic(define)


def _raw(name: str, to: types.Type) -> Callable:
    result = types.CPointer(to)

    def define(typingctx, address):
        _need(address in (types.int64, types.uint64), name, address)

        def codegen(context, builder, sig, values):
            return builder.inttoptr(values[0], context.get_value_type(result))

        return result(address), codegen

    define.__name__ = name
    return intrinsic(define)


# ptr_T(args, k): args[k] is the address of a cell that holds the base address, args[k + 1] a byte offset
ptr_i8, raw_i8 = _pointer("ptr_i8", types.int8), _raw("raw_i8", types.int8)
ptr_u8, raw_u8 = _pointer("ptr_u8", types.uint8), _raw("raw_u8", types.uint8)
ptr_i16, raw_i16 = _pointer("ptr_i16", types.int16), _raw("raw_i16", types.int16)
ptr_u16, raw_u16 = _pointer("ptr_u16", types.uint16), _raw("raw_u16", types.uint16)
ptr_i32, raw_i32 = _pointer("ptr_i32", types.int32), _raw("raw_i32", types.int32)
ptr_u32, raw_u32 = _pointer("ptr_u32", types.uint32), _raw("raw_u32", types.uint32)
ptr_i64, raw_i64 = _pointer("ptr_i64", types.int64), _raw("raw_i64", types.int64)
ptr_u64, raw_u64 = _pointer("ptr_u64", types.uint64), _raw("raw_u64", types.uint64)
ptr_f32, raw_f32 = _pointer("ptr_f32", types.float32), _raw("raw_f32", types.float32)
ptr_f64, raw_f64 = _pointer("ptr_f64", types.float64), _raw("raw_f64", types.float64)


@intrinsic
def f64_arg(typingctx, args, k):
    """Slot `k` of the argument table read as a double."""
    _need(args == types.CPointer(types.int64) and _is_int(k), "f64_arg", args, k)

    def codegen(context, builder, sig, values):
        return builder.bitcast(builder.load(_slot(context, builder, values[0], values[1], sig.args[1])), ir.DoubleType())

    return types.float64(args, k), codegen


def _stack(name: str, of: types.Type) -> Callable:
    def define(typingctx, n):
        if not isinstance(n, types.IntegerLiteral):
            raise TypingError(f"{name} takes a literal size")
        count = n.literal_value

        def codegen(context, builder, sig, values):
            # in the entry block, so that a call inside a loop does not grow the stack
            with builder.goto_entry_block():
                block = builder.alloca(context.get_value_type(of), size=ir.IntType(64)(count))
                block.align = 64
                return block

        return types.CPointer(of)(n), codegen

    define.__name__ = name
    return intrinsic(prefer_literal=True)(define)


# contents undefined, as on any stack
stack_f32 = _stack("stack_f32", types.float32)
stack_f64 = _stack("stack_f64", types.float64)
stack_i64 = _stack("stack_i64", types.int64)


# ---------------------------------------------------------------- loads and stores promised not to meet

OUTPUTS = 32


def _scopes(builder: ir.IRBuilder) -> list:
    """One alias scope per output; equal nodes are one node, so every access of a module shares them."""
    domain = builder.module.add_metadata(["fuel"])
    return [builder.module.add_metadata([f"out{k}", domain]) for k in range(OUTPUTS)]


@intrinsic
def load_in(typingctx, p, i):
    """`p[i]`, promised not to lie in anything written by `store_out` or `store_nth` of this kernel.

    A buffer written in place also works if each iteration loads its elements before it stores them.
    """
    _need(isinstance(p, types.CPointer) and _is_int(i), "load_in", p, i)

    def codegen(context, builder, sig, args):
        load = builder.load(_slot(context, builder, args[0], args[1], sig.args[1]))
        load.set_metadata("noalias", builder.module.add_metadata(_scopes(builder)))
        return load

    return p.dtype(p, i), codegen


@intrinsic
def store_out(typingctx, p, i, v):
    """`p[i] = v`, where nothing read by `load_in` can be touched; outputs may overlap one another."""
    _need(isinstance(p, types.CPointer) and _is_int(i) and v == p.dtype, "store_out", p, i, v)

    def codegen(context, builder, sig, args):
        store = builder.store(args[2], _slot(context, builder, args[0], args[1], sig.args[1]))
        store.set_metadata("alias.scope", builder.module.add_metadata(_scopes(builder)))
        return context.get_dummy_value()

    return types.void(p, i, v), codegen


@intrinsic(prefer_literal=True)
def store_nth(typingctx, p, i, v, k):
    """`p[i] = v` for output number `k` (literal, below 32): also promised not to meet the other outputs."""
    if isinstance(v, types.Literal):
        return None
    number = k.literal_value if isinstance(k, types.IntegerLiteral) else -1
    fits = isinstance(p, types.CPointer) and _is_int(i) and v == p.dtype and 0 <= number < OUTPUTS
    _need(fits, "store_nth", p, i, v, k)

    def codegen(context, builder, sig, args):
        scopes = _scopes(builder)
        own = scopes.pop(number)
        store = builder.store(args[2], _slot(context, builder, args[0], args[1], sig.args[1]))
        store.set_metadata("alias.scope", builder.module.add_metadata([own]))
        store.set_metadata("noalias", builder.module.add_metadata(scopes))
        return context.get_dummy_value()

    return types.void(p, i, v, k), codegen


@intrinsic
def fault(typingctx, status, code, value, site, bound):
    """Report what went wrong in the status words. The first report stays, of whichever thread."""
    _need(status == types.CPointer(types.int64) and all(map(_is_int, (code, value, site, bound))), "fault", status, code, value,
          site, bound)

    def codegen(context, builder, sig, args):
        first, *rest = (context.cast(builder, a, t, types.int64) for a, t in zip(args[1:], sig.args[1:]))
        won = builder.extract_value(builder.cmpxchg(args[0], first.type(0), first, "monotonic"), 1)
        with builder.if_then(won, likely=False):
            for k, word in enumerate(rest, 1):
                builder.store(word, builder.gep(args[0], [ir.IntType(64)(k)]))
        return context.get_dummy_value()

    return types.void(status, code, value, site, bound), codegen


# ---------------------------------------------------------------- division and powers, defined for every operand


@intrinsic
def frem(typingctx, a, b):
    """The remainder of a / b with the sign of a, exact (C's fmod)."""
    _need(a == b and a in FLOATS, "frem", a, b)

    def codegen(context, builder, sig, args):
        return builder.frem(*args)

    return a(a, b), codegen


def _integer(name: str, build: Callable) -> Callable:
    def define(typingctx, a, b):
        _need(a == b and _is_int(a), name, a, b)

        def codegen(context, builder, sig, args):
            return build(builder, a, *args)

        return a(a, b), codegen

    define.__name__ = name
    return intrinsic(define)


def _divide(builder: ir.IRBuilder, t: Any, a: ir.Value, b: ir.Value):
    """(divisor is zero, floored quotient, floored remainder); the processor traps on x / 0 and least / -1, so these
    divide by 1 instead, which is right for the second."""
    const = a.type
    zero = builder.icmp_unsigned("==", b, const(0))
    if not t.signed:
        safe = builder.select(zero, const(1), b)
        return zero, builder.udiv(a, safe), builder.urem(a, safe)
    least = builder.icmp_unsigned("==", a, const(1 << (t.bitwidth - 1)))
    wraps = builder.and_(least, builder.icmp_unsigned("==", b, const(-1)))
    safe = builder.select(builder.or_(zero, wraps), const(1), b)
    quotient, rest = builder.sdiv(a, safe), builder.srem(a, safe)
    unlike = builder.icmp_signed("<", builder.xor(rest, safe), const(0))
    down = builder.and_(unlike, builder.icmp_unsigned("!=", rest, const(0)))
    return (zero, builder.sub(quotient, builder.zext(down, const)),
            builder.add(rest, builder.select(down, safe, const(0))))


def _int_floordiv(builder, t, a, b):
    zero, quotient, _ = _divide(builder, t, a, b)
    return builder.select(zero, a.type(0), quotient)


def _int_mod(builder, t, a, b):
    zero, _, rest = _divide(builder, t, a, b)
    return builder.select(zero, a.type(0), rest)


def _int_pow(builder, t, a, b):
    """By squaring, wrapping; a**-n is what 1 / a**n truncates to, and 0 for a = 0."""
    const = a.type
    negative = builder.icmp_signed("<", b, const(0)) if t.signed else ir.IntType(1)(0)
    count = builder.select(negative, builder.sub(const(0), b), b)
    start = builder.block
    loop, done = builder.append_basic_block("pow"), builder.append_basic_block("pow_done")
    builder.branch(loop)
    builder.position_at_end(loop)
    left, square, product = (builder.phi(const) for _ in range(3))
    odd = builder.icmp_unsigned("==", builder.and_(left, const(1)), const(1))
    new_product = builder.select(odd, builder.mul(product, square), product)
    new_left, new_square = builder.lshr(left, const(1)), builder.mul(square, square)
    for phi, first, new in ((left, count, new_left), (square, a, new_square), (product, const(1), new_product)):
        phi.add_incoming(first, start)
        phi.add_incoming(new, loop)
    builder.cbranch(builder.icmp_unsigned("!=", new_left, const(0)), loop, done)
    builder.position_at_end(done)
    if not t.signed:
        return new_product
    unit = builder.or_(builder.icmp_unsigned("==", a, const(1)), builder.icmp_unsigned("==", a, const(-1)))
    return builder.select(builder.and_(negative, builder.not_(unit)), const(0), new_product)


int_floordiv = _integer("int_floordiv", _int_floordiv)
int_mod = _integer("int_mod", _int_mod)
int_pow = _integer("int_pow", _int_pow)


# ---------------------------------------------------------------- BLAS


def _gemm(name: str, of: types.Type) -> Callable:
    pointer = types.CPointer(of)

    def define(typingctx, address, ta, tb, m, n, k, a, lda, b, ldb, c, ldc):
        _need(a == b == c == pointer, name, a, b, c)

        def codegen(context, builder, sig, args):
            real, i32_, byte = context.get_value_type(of), ir.IntType(32), ir.IntType(8)

            def cell(value: ir.Value) -> ir.Value:
                with builder.goto_entry_block():
                    place = builder.alloca(value.type)
                builder.store(value, place)
                return place

            def number(position: int) -> ir.Value:
                wide = context.cast(builder, args[position], sig.args[position], types.int64)
                return cell(builder.trunc(wide, i32_))

            def flag(position: int) -> ir.Value:
                on = builder.icmp_unsigned("!=", args[position], args[position].type(0))
                return cell(builder.select(on, byte(ord("T")), byte(ord("N"))))

            call = [flag(1), flag(2), number(3), number(4), number(5), cell(real(1.0)), args[6], number(7), args[8],
                    number(9), cell(real(0.0)), args[10], number(11)]
            kind = ir.FunctionType(ir.VoidType(), [v.type for v in call])
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), call)
            return context.get_dummy_value()

        return types.void(address, ta, tb, m, n, k, a, lda, b, ldb, c, ldc), codegen

    define.__name__ = name
    return intrinsic(define)


# c = op(a) @ op(b) in BLAS's column-major terms, through the Fortran interface at `address`; t* are 0 or 1
gemm_f32 = _gemm("gemm_f32", types.float32)
gemm_f64 = _gemm("gemm_f64", types.float64)


def _advance(name: str, of: types.Type) -> Callable:
    pointer = types.CPointer(of)

    def define(typingctx, p, i):
        _need(p == pointer and _is_int(i), name, p, i)

        def codegen(context, builder, sig, args):
            return _slot(context, builder, args[0], args[1], sig.args[1])

        return pointer(p, i), codegen

    define.__name__ = name
    return intrinsic(define)


# the pointer `i` elements further on
at_f32, at_f64 = _advance("at_f32", types.float32), _advance("at_f64", types.float64)
