"""Rules for arithmetic and comparisons on scalars (docs/ir.md says what each means)."""

from __future__ import annotations

import struct

from tessera_backend.llvm import small_floats, software_fma
from tessera_backend.llvm.emitter import LaneEmitter, NotLowered, Rule, scalar_type
from tessera_backend.llvm.types import integer_constant, is_bits, register_type
from tessera_lang.ir.core import Operation
from tessera_lang.types.dtype import F32, F64, DType

_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_UNSIGNED = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "eq": "eq", "ne": "ne"}
_FLOAT = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def _float_binary(e: LaneEmitter, op: Operation, instruction: str) -> None:
    dtype = scalar_type(op.result)
    (a, kind), (b, _) = (small_floats.to_computing(e, e.operand(v), dtype) for v in op.operands)
    e.bind(
        op.result,
        small_floats.from_computing(e, e.f.value(f"{instruction} {kind} {a}, {b}"), dtype),
    )


def _add_like(integer: str, floating: str) -> Rule:
    def rule(e: LaneEmitter, op: Operation) -> None:
        dtype = scalar_type(op.result)
        if dtype.is_float:
            _float_binary(e, op, floating)
        else:
            a, b = map(e.operand, op.operands)
            wrap = " nsw" if op.attributes.get("exact") and dtype.is_signed else ""
            e.bind(op.result, e.f.value(f"{integer}{wrap} {register_type(dtype)} {a}, {b}"))

    return rule


def _div(e: LaneEmitter, op: Operation) -> None:
    _float_binary(e, op, "fdiv")


def _bitwise(instruction: str) -> Rule:
    def rule(e: LaneEmitter, op: Operation) -> None:
        a, b = map(e.operand, op.operands)
        kind = register_type(scalar_type(op.result))
        e.bind(op.result, e.f.value(f"{instruction} {kind} {a}, {b}"))

    return rule


# --- minimum and maximum --------------------------------------------------------------------


def extreme(e: LaneEmitter, a: str, b: str, dtype: DType, which: str) -> str:
    """``min`` or ``max`` of two register values of one dtype."""
    if dtype.is_float and dtype.bits < 32:
        return _picked_extreme(e, a, b, dtype, which)
    if dtype.is_float:
        (x, kind), (y, _) = (small_floats.to_computing(e, v, dtype) for v in (a, b))
        name = "minimum" if which == "min" else "maximum"
        if e.dialect.lowers(name, kind):
            result = e.call(name, kind, x, y)
        else:
            result = _compared_extreme(e, x, y, kind, which)
        return small_floats.from_computing(e, result, dtype)
    kind = register_type(dtype)
    sign = "s" if dtype.is_signed else "u"
    predicate = sign + ("lt" if which == "min" else "gt")
    first = e.f.value(f"icmp {predicate} {kind} {a}, {b}")
    return e.f.value(f"select i1 {first}, {kind} {a}, {kind} {b}")


def _picked_extreme(e: LaneEmitter, a: str, b: str, dtype: DType, which: str) -> str:
    """One of the two narrow floats as it is: nothing is rounded, so nothing may saturate."""
    f, kind = e.f, register_type(dtype)
    x, y = small_floats.widen(e, a, dtype), small_floats.widen(e, b, dtype)
    before = f.value(f"fcmp {'ult' if which == 'min' else 'ugt'} float {x}, {y}")
    y_number = f.value(f"fcmp ord float {y}, 0.0")
    x_nan = f.value(f"fcmp uno float {x}, 0.0")
    first = f.value(f"and i1 {before}, {y_number}")
    equal = f.value(f"fcmp oeq float {x}, {y}")
    signed = small_floats.as_bits(e, a if which == "min" else b, dtype)
    negative = f.value(f"icmp slt i{dtype.bits} {signed}, 0")
    tie = f.value(f"and i1 {equal}, {negative}")
    pick = f.value(f"or i1 {f.value(f'or i1 {first}, {tie}')}, {x_nan}")
    return f.value(f"select i1 {pick}, {kind} {a}, {kind} {b}")


def _compared_extreme(e: LaneEmitter, a: str, b: str, kind: str, which: str) -> str:
    """NaN-propagating, -0.0 below +0.0, from compares and bit operations."""
    f = e.f
    bits = "i32" if kind == "float" else "i64"
    predicate, merge = ("olt", "or") if which == "min" else ("ogt", "and")
    first = f.value(f"fcmp {predicate} {kind} {a}, {b}")
    chosen = f.value(f"select i1 {first}, {kind} {a}, {kind} {b}")
    x, y = (f.value(f"bitcast {kind} {v} to {bits}") for v in (a, b))
    both = f.value(f"bitcast {bits} {f.value(f'{merge} {bits} {x}, {y}')} to {kind}")
    equal = f.value(f"fcmp oeq {kind} {a}, {b}")
    chosen = f.value(f"select i1 {equal}, {kind} {both}, {kind} {chosen}")
    nan = f.value(f"fcmp uno {kind} {a}, {b}")
    total = f.value(f"fadd {kind} {a}, {b}")
    return f.value(f"select i1 {nan}, {kind} {total}, {kind} {chosen}")


def _min_or_max(which: str) -> Rule:
    def rule(e: LaneEmitter, op: Operation) -> None:
        a, b = map(e.operand, op.operands)
        e.bind(op.result, extreme(e, a, b, scalar_type(op.result), which))

    return rule


# --- shifts ---------------------------------------------------------------------------------


def _shift(e: LaneEmitter, op: Operation) -> None:
    """A count of the width or more (a negative one, as unsigned, too) gives 0 or the sign."""
    dtype = scalar_type(op.result)
    kind, f = register_type(dtype), e.f
    a, count = map(e.operand, op.operands)
    inside = f.value(f"icmp ult {kind} {count}, {dtype.bits}")
    if op.name == "tile.shr" and dtype.is_signed:
        clamped = f.value(f"select i1 {inside}, {kind} {count}, {kind} {dtype.bits - 1}")
        e.bind(op.result, f.value(f"ashr {kind} {a}, {clamped}"))
        return
    # A mask, not a select: NVPTX folds two equal selects into a shift whose count it truncates.
    clamped = f.value(f"and {kind} {count}, {dtype.bits - 1}")
    instruction = "shl" if op.name == "tile.shl" else "lshr"
    shifted = f.value(f"{instruction} {kind} {a}, {clamped}")
    e.bind(op.result, f.value(f"select i1 {inside}, {kind} {shifted}, {kind} 0"))


# --- one operand ----------------------------------------------------------------------------


def _sign_mask(dtype: DType) -> str:
    return integer_constant(1 << (dtype.bits - 1), dtype.bits)


def _neg(e: LaneEmitter, op: Operation) -> None:
    dtype, a = scalar_type(op.result), e.operand(op.operands[0])
    kind = register_type(dtype)
    if is_bits(dtype):
        e.bind(op.result, e.f.value(f"xor {kind} {a}, {_sign_mask(dtype)}"))
    elif dtype.is_float:
        e.bind(op.result, e.f.value(f"fneg {kind} {a}"))
    else:
        e.bind(op.result, e.f.value(f"sub {kind} 0, {a}"))


def _not(e: LaneEmitter, op: Operation) -> None:
    kind = register_type(scalar_type(op.result))
    ones = "true" if kind == "i1" else "-1"
    e.bind(op.result, e.f.value(f"xor {kind} {e.operand(op.operands[0])}, {ones}"))


def _abs(e: LaneEmitter, op: Operation) -> None:
    dtype, a = scalar_type(op.result), e.operand(op.operands[0])
    kind, f = register_type(dtype), e.f
    if dtype.is_float:
        bits = small_floats.as_bits(e, a, dtype)
        mask = (1 << (dtype.bits - 1)) - 1
        kept = f.value(f"and i{dtype.bits} {bits}, {mask}")
        e.bind(op.result, small_floats.from_bits(e, kept, dtype))
    elif dtype.is_signed:
        below = f.value(f"icmp slt {kind} {a}, 0")
        negated = f.value(f"sub {kind} 0, {a}")
        e.bind(op.result, f.value(f"select i1 {below}, {kind} {negated}, {kind} {a}"))
    else:
        e.bind(op.result, a)


def _intrinsic(name: str) -> Rule:
    def rule(e: LaneEmitter, op: Operation) -> None:
        dtype = scalar_type(op.result)
        a, kind = small_floats.to_computing(e, e.operand(op.operands[0]), dtype)
        e.bind(op.result, small_floats.from_computing(e, e.call(name, kind, a), dtype))

    return rule


def _rounding(name: str) -> Rule:
    """To an integer. An infinity of the operand is one: nothing is computed that may saturate."""
    plain = _intrinsic(name)

    def rule(e: LaneEmitter, op: Operation) -> None:
        dtype = scalar_type(op.result)
        if not (dtype.is_float8 and dtype.infinite):
            plain(e, op)
            return
        f, kind, given = e.f, register_type(dtype), e.operand(op.operands[0])
        wide, computing = small_floats.to_computing(e, given, dtype)
        found = small_floats.from_computing(e, e.call(name, computing, wide), dtype)
        magnitude = f.value(f"and {kind} {given}, 127")
        infinite = f.value(f"icmp eq {kind} {magnitude}, {dtype.infinity_code}")
        e.bind(op.result, f.value(f"select i1 {infinite}, {kind} {given}, {kind} {found}"))

    return rule


# --- fused multiply-add ---------------------------------------------------------------------


def _fma(e: LaneEmitter, op: Operation) -> None:
    dtype = scalar_type(op.result)
    operands = [e.operand(v) for v in op.operands]
    if dtype == F64 and not e.dialect.lowers("fma", "double"):
        e.bind(op.result, software_fma.fma(e, *operands))
        return
    if dtype == F64 or (dtype == F32 and e.dialect.lowers("fma", "float")):
        e.bind(op.result, e.call("fma", register_type(dtype), *operands))
        return
    e.bind(op.result, _fma_in_doubles(e, operands, dtype))


def _fma_in_doubles(e: LaneEmitter, operands: list[str], dtype: DType) -> str:
    """One rounding without an fma of the width.

    The product is exact in f64. Its sum with the addend is rounded to odd with the error of
    the sum (Knuth's two-sum), then to the dtype.
    """
    f = e.f
    x, y, z = (
        f.value(f"fpext float {small_floats.widen(e, operand, dtype)} to double")
        for operand in operands
    )
    product = f.value(f"fmul double {x}, {y}")
    total = f.value(f"fadd double {product}, {z}")
    back = f.value(f"fsub double {total}, {product}")
    first = f.value(f"fsub double {product}, {f.value(f'fsub double {total}, {back}')}")
    second = f.value(f"fsub double {z}, {back}")
    error = f.value(f"fadd double {first}, {second}")
    bits = f.value(f"bitcast double {total} to i64")
    inexact = f.value(f"fcmp one double {error}, 0.0")
    error_below = f.value(f"fcmp olt double {error}, 0.0")
    total_below = f.value(f"fcmp olt double {total}, 0.0")
    inward = f.value(f"xor i1 {error_below}, {total_below}")
    truncated = f.value(f"sub i64 {bits}, {f.value(f'zext i1 {inward} to i64')}")
    odd = f.value(f"or i64 {truncated}, 1")
    chosen = f.value(f"select i1 {inexact}, i64 {odd}, i64 {bits}")
    return small_floats.narrow_double(e, f.value(f"bitcast i64 {chosen} to double"), dtype)


# --- powers of two --------------------------------------------------------------------------

_WHOLE = 12582912.0  # 1.5 * 2**23: what is added to it is rounded to an integer, in the last bits
_POLYNOMIAL = (
    1.52973244e-05, 0.000154614449, 0.0013333502, 0.00961805694, 0.0555041097, 0.240226507,
    0.693147182, 1.0,
)  # fmt: skip


def _exp2(e: LaneEmitter, op: Operation) -> None:
    """The machine's own, or a polynomial of what is left of an integer."""
    dtype = scalar_type(op.result)
    a, kind = small_floats.to_computing(e, e.operand(op.operands[0]), dtype)
    if kind != "float":
        raise NotLowered(op.name, str(dtype), e.dialect.name)
    found = e.dialect.exp2(e, a) or _exp2_by_polynomial(e, a)
    e.bind(op.result, small_floats.from_computing(e, found, dtype))


def _approx(e: LaneEmitter, op: Operation) -> None:
    """The machine's own, or what the program gives as exact."""
    a, exact = map(e.operand, op.operands)
    dtype = scalar_type(op.result)
    own = e.dialect.approximate(e, str(op.attributes["kind"]), a) if dtype == F32 else None
    e.bind(op.result, own or exact)


def _either(e: LaneEmitter, op: Operation) -> None:
    """The exact form, where nobody has chosen."""
    e.bind(op.result, e.operand(op.operands[0]))


def _exp2_by_polynomial(e: LaneEmitter, x: str) -> str:
    f = e.f
    low = f.value(f"fcmp olt float {x}, {_float(-151.0)}")
    x = f.value(f"select i1 {low}, float {_float(-151.0)}, float {x}")
    high = f.value(f"fcmp ogt float {x}, {_float(129.0)}")
    x = f.value(f"select i1 {high}, float {_float(129.0)}, float {x}")
    whole = f.value(f"fadd float {x}, {_float(_WHOLE)}")
    rest = f.value(f"fsub float {x}, {f.value(f'fsub float {whole}, {_float(_WHOLE)}')}")
    p = _float(_POLYNOMIAL[0])
    for term in _POLYNOMIAL[1:]:
        p = f.value(f"fadd float {f.value(f'fmul float {p}, {rest}')}, {_float(term)}")
    bits = f.value(f"bitcast float {whole} to i32")
    half = f.value(f"lshr i32 {bits}, 1")
    for part in (half, f.value(f"sub i32 {bits}, {half}")):  # in two steps: the last one rounds
        power = f.value(f"add i32 {f.value(f'shl i32 {part}, 23')}, 1065353216")
        p = f.value(f"fmul float {p}, {f.value(f'bitcast i32 {power} to float')}")
    return p


def _float(value: float) -> str:
    """A constant as LLVM writes a float: in the bits of a double."""
    nearest = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', nearest))[0]:016X}"


# --- comparison -----------------------------------------------------------------------------


def _cmp(e: LaneEmitter, op: Operation) -> None:
    dtype = scalar_type(op.operands[0])
    predicate = str(op.attributes["predicate"])
    a, b = map(e.operand, op.operands)
    if dtype.is_float:
        (a, kind), (b, _) = (small_floats.to_computing(e, v, dtype) for v in (a, b))
        e.bind(op.result, e.f.value(f"fcmp {_FLOAT[predicate]} {kind} {a}, {b}"))
        return
    table = _SIGNED if dtype.is_signed else _UNSIGNED
    kind = register_type(dtype)
    e.bind(op.result, e.f.value(f"icmp {table[predicate]} {kind} {a}, {b}"))


RULES: dict[str, Rule] = {
    "tile.add": _add_like("add", "fadd"),
    "tile.sub": _add_like("sub", "fsub"),
    "tile.mul": _add_like("mul", "fmul"),
    "tile.div": _div,
    "tile.min": _min_or_max("min"),
    "tile.max": _min_or_max("max"),
    "tile.and": _bitwise("and"),
    "tile.or": _bitwise("or"),
    "tile.xor": _bitwise("xor"),
    "tile.shl": _shift,
    "tile.shr": _shift,
    "tile.neg": _neg,
    "tile.not": _not,
    "tile.abs": _abs,
    "tile.sqrt": _intrinsic("sqrt"),
    "tile.floor": _rounding("floor"),
    "tile.ceil": _rounding("ceil"),
    "tile.trunc": _rounding("trunc"),
    "tile.round": _rounding("roundeven"),
    "tile.fma": _fma,
    "tile.exp2": _exp2,
    "tile.approx": _approx,
    "tile.either": _either,
    "tile.cmp": _cmp,
}
