"""Rules for floor division and its remainder: total on integers, exact on floats."""

from __future__ import annotations

from tessera_backend.llvm import fault_reports, small_floats
from tessera_backend.llvm.emitter import LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.float_remainder import add_fmod
from tessera_backend.llvm.types import integer_constant, register_type
from tessera_lang.ir.core import Operation


def _integer_division(e: LaneEmitter, op: Operation, *, quotient: bool) -> str:
    """Floor division or its remainder, total: by 0 gives 0 and reports the site."""
    dtype = scalar_type(op.result)
    kind, f = register_type(dtype), e.f
    a, b = map(e.operand, op.operands)
    known = e.constant(op.operands[1])
    if known is None or known == 0:
        by_zero = f.value(f"icmp eq {kind} {b}, 0")
        fault_reports.report_if(e, by_zero, op, axis="0", index="0", bound="0")
    else:
        by_zero = ""
    unsafe = by_zero
    if dtype.is_signed and (known is None or known == -1):
        least = integer_constant(1 << (dtype.bits - 1), dtype.bits)
        minimum = f.value(f"icmp eq {kind} {a}, {least}")
        minus = f.value(f"icmp eq {kind} {b}, -1")
        overflow = f.value(f"and i1 {minimum}, {minus}")
        unsafe = f.value(f"or i1 {by_zero}, {overflow}") if by_zero else overflow
    divisor = f.value(f"select i1 {unsafe}, {kind} 1, {kind} {b}") if unsafe else b
    sign = "s" if dtype.is_signed else "u"
    q = f.value(f"{sign}div {kind} {a}, {divisor}")
    r = f.value(f"{sign}rem {kind} {a}, {divisor}")
    if dtype.is_signed:
        q, r = _toward_floor(e, kind, divisor, q, r)
    result = q if quotient else r
    return f.value(f"select i1 {by_zero}, {kind} 0, {kind} {result}") if by_zero else result


def _toward_floor(e: LaneEmitter, kind: str, b: str, q: str, r: str) -> tuple[str, str]:
    f = e.f
    mixed = f.value(f"icmp slt {kind} {f.value(f'xor {kind} {r}, {b}')}, 0")
    rest = f.value(f"icmp ne {kind} {r}, 0")
    down = f.value(f"and i1 {mixed}, {rest}")
    lower = f.value(f"sub {kind} {q}, {f.value(f'zext i1 {down} to {kind}')}")
    shifted = f.value(f"select i1 {down}, {kind} {b}, {kind} 0")
    return lower, f.value(f"add {kind} {r}, {shifted}")


def _float_mod(e: LaneEmitter, a: str, b: str, kind: str) -> tuple[str, str]:
    """Python's ``a % b`` and the truncated remainder it comes from."""
    f = e.f
    rest = f.value(f"call {kind} {add_fmod(e.module, kind)}({kind} {a}, {kind} {b})")
    nonzero = f.value(f"fcmp one {kind} {rest}, 0.0")
    below = f.value(f"fcmp olt {kind} {rest}, 0.0")
    negative = f.value(f"fcmp olt {kind} {b}, 0.0")
    mixed = f.value(f"xor i1 {below}, {negative}")
    moved = f.value(f"and i1 {nonzero}, {mixed}")
    sum_ = f.value(f"fadd {kind} {rest}, {b}")
    value = f.value(f"select i1 {moved}, {kind} {sum_}, {kind} {rest}")
    signed_zero = _copy_sign(e, "0.0", b, kind)
    is_zero = f.value(f"fcmp oeq {kind} {rest}, 0.0")
    return f.value(f"select i1 {is_zero}, {kind} {signed_zero}, {kind} {value}"), moved


def _copy_sign(e: LaneEmitter, magnitude: str, sign: str, kind: str) -> str:
    bits = "i32" if kind == "float" else "i64"
    top = integer_constant(1 << (int(bits[1:]) - 1), int(bits[1:]))
    f = e.f
    m = f.value(f"bitcast {kind} {magnitude} to {bits}")
    s = f.value(f"bitcast {kind} {sign} to {bits}")
    kept = f.value(f"and {bits} {s}, {top}")
    return f.value(f"bitcast {bits} {f.value(f'or {bits} {m}, {kept}')} to {kind}")


def _float_floordiv(e: LaneEmitter, a: str, b: str, kind: str) -> str:
    """Python's ``a // b``: exact remainder first, so that the quotient cannot round up.

    A zero divisor gives what IEEE division gives, as NumPy does.
    """
    f = e.f
    rest = f.value(f"call {kind} {add_fmod(e.module, kind)}({kind} {a}, {kind} {b})")
    _, moved = _float_mod(e, a, b, kind)
    q = f.value(f"fdiv {kind} {f.value(f'fsub {kind} {a}, {rest}')}, {b}")
    lower = f.value(f"fsub {kind} {q}, 1.0")
    q = f.value(f"select i1 {moved}, {kind} {lower}, {kind} {q}")
    whole = e.call("floor", kind, q)
    gap = f.value(f"fcmp ogt {kind} {f.value(f'fsub {kind} {q}, {whole}')}, 0.5")
    up = f.value(f"fadd {kind} {whole}, 1.0")
    whole = f.value(f"select i1 {gap}, {kind} {up}, {kind} {whole}")
    ratio = f.value(f"fdiv {kind} {a}, {b}")
    is_zero = f.value(f"fcmp oeq {kind} {q}, 0.0")
    zero = _copy_sign(e, "0.0", ratio, kind)
    whole = f.value(f"select i1 {is_zero}, {kind} {zero}, {kind} {whole}")
    by_zero = f.value(f"fcmp oeq {kind} {b}, 0.0")
    return f.value(f"select i1 {by_zero}, {kind} {ratio}, {kind} {whole}")


def _floordiv(e: LaneEmitter, op: Operation) -> None:
    dtype = scalar_type(op.result)
    if dtype.is_float:
        (a, kind), (b, _) = (small_floats.to_computing(e, e.operand(v), dtype) for v in op.operands)
        e.bind(op.result, small_floats.from_computing(e, _float_floordiv(e, a, b, kind), dtype))
    else:
        e.bind(op.result, _integer_division(e, op, quotient=True))


def _mod(e: LaneEmitter, op: Operation) -> None:
    dtype = scalar_type(op.result)
    if dtype.is_float:
        (a, kind), (b, _) = (small_floats.to_computing(e, e.operand(v), dtype) for v in op.operands)
        e.bind(op.result, small_floats.from_computing(e, _float_mod(e, a, b, kind)[0], dtype))
    else:
        e.bind(op.result, _integer_division(e, op, quotient=False))


RULES: dict[str, Rule] = {"tile.floordiv": _floordiv, "tile.mod": _mod}
