"""What names of array libraries stand for: one expression each, in the language's own words.

Owns the expressions, as text over the parameters. Must not know how a call is typed or evaluated:
tile kernels and the host program put their arguments into the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tessera_grammar.array_function_names import ARRAY_NAMES

from tessera_lang.types.dtype import BOOL, F32, DType

Form = Callable[[Collection[str], DType], str]
"""The text for the parameters that are given, and the dtype of the first."""

_LOG_2 = 0.6931471805599453


def _clip(given: Collection[str], dtype: DType) -> str:
    bounds = {"min", "max"} & set(given)
    if len(bounds) == 2:
        return "op.clamp(x, min, max)"
    return "op.maximum(x, min)" if "min" in bounds else "op.minimum(x, max)"


def _sign(given: Collection[str], dtype: DType) -> str:
    if dtype.is_float:
        return "op.where(x > 0.0, 1.0, op.where(x < 0.0, -1.0, op.where(x == 0.0, 0.0, x)))"
    low = "op.where(x < 0, -1, x)" if dtype.kind == "int" else "x"
    return f"op.where(x > 0, 1, {low})"


def _signbit(given: Collection[str], dtype: DType) -> str:
    if not dtype.is_float:
        return "x < 0"
    bits = max(32, dtype.bits)
    return f"bitcast(op.cast(x, f{bits}), i{bits}) < 0"


def _isinf(given: Collection[str], dtype: DType) -> str:
    return "op.abs(x) == op.inf" if dtype.is_float and dtype.infinite else "x < x"


def _isfinite(given: Collection[str], dtype: DType) -> str:
    return "op.abs(x) < op.inf" if dtype.is_float and dtype.infinite else "x == x"


def _with(call: str, *optional: str) -> Form:
    """A call with those of its optional arguments that are given."""

    def form(given: Collection[str], dtype: DType) -> str:
        more = "".join(f", {name}={name}" for name in optional if name in given)
        return f"{call}{more})"

    return form


def _count(given: Collection[str], dtype: DType) -> str:
    """Bools are counted as they are."""
    what = "x" if dtype == BOOL else "x != 0"
    return _with(f"op.sum({what}", "axis", "keepdims")(given, dtype)


def _copy(given: Collection[str], dtype: DType) -> str:
    return "x | x" if dtype == BOOL else "+x"


def _peak_to_peak(given: Collection[str], dtype: DType) -> str:
    most, least = (_with(f"op.{n}(x", "axis", "keepdims")(given, dtype) for n in ("max", "min"))
    return f"{most} - {least}"


def _vecdot(given: Collection[str], dtype: DType) -> str:
    return f"op.sum(a * b, axis={'axis' if 'axis' in given else '-1'})"


def _isclose(given: Collection[str], dtype: DType) -> str:
    rtol = "rtol" if "rtol" in given else "1e-5"
    atol = "atol" if "atol" in given else "1e-8"
    a, b = "a", "b"
    if not dtype.is_float or dtype.bits < 32:  # the tolerances are numbers of wide floats
        wide = "f32" if dtype.is_float else "f64"
        a, b = f"op.cast(a, {wide})", f"op.cast(b, {wide})"
    near = f"op.abs({a} - {b}) <= {atol} + {rtol} * op.abs({b})"
    return f"({a} == {b}) | ({near}) & (op.abs({b}) < op.inf)"


def _allclose(given: Collection[str], dtype: DType) -> str:
    return f"op.all({_isclose(given, dtype)})"


_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "logical_and": "&",
    "logical_or": "|", "logical_xor": "^", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>", "dot": "@",
}  # fmt: skip

_TEXTS: dict[str, str] = {
    **{name: f"a {operator} b" for name, operator in _OPERATORS.items()},
    "deg2rad": "x * 0.017453292519943295", "rad2deg": "x * 57.29577951308232",
    "fabs": "op.abs(x)", "rint": "op.round(x)", "array_equal": "op.all(a == b)",
    "fliplr": "op.flip(x, axis=1)", "flipud": "op.flip(x, axis=0)",
    "positive": "+x", "negative": "-x", "square": "x * x", "reciprocal": "1.0 / x",
    "isnan": "x != x", "logical_not": "~x", "bitwise_invert": "~x",
    "copysign": "op.where(op.signbit(b), -op.abs(a), op.abs(a))",
    "logaddexp": f"op.where(a == b, a + {_LOG_2},"
                 " op.maximum(a, b) + op.softplus(-op.abs(a - b)))",
    "astype": "op.cast(x, dtype)", "permute_dims": "op.transpose(x, axes)",
    "trace": 'op.einsum("ii->", x)', "diagonal": 'op.einsum("ii->i", x)',
    "atan2": "math.atan2(y, x)", "hypot": "math.hypot(a, b)",
    "matrix_transpose": "x.mT", "outer": "a[:, None] * b[None, :]",
}  # fmt: skip
_FORMS: dict[str, Form] = {
    "copy": _copy,
    "clip": _clip, "sign": _sign, "signbit": _signbit, "isinf": _isinf, "isfinite": _isfinite,
    "isclose": _isclose, "allclose": _allclose, "count_nonzero": _count, "ptp": _peak_to_peak,
    "cumulative_sum": _with("op.cumsum(x", "axis"),
    "cumulative_prod": _with("op.cumprod(x", "axis"),
    "concatenate": _with("op.concat(arrays", "axis"), "vecdot": _vecdot,
}  # fmt: skip
OF_BOOLS = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
"""Those that take bools alone."""
DERIVED = frozenset(name for name in ARRAY_NAMES if name in _TEXTS or name in _FORMS)


def text_of(name: str, given: Collection[str], dtype: DType = F32) -> str:
    """What ``op.name`` stands for."""
    form = _FORMS.get(name)
    return _TEXTS[name] if form is None else form(given, dtype)
