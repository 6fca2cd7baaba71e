"""What names of array libraries stand for: one expression each, in the language's own words.

Owns the expressions, as text over the parameters. Must not know how a call is typed or evaluated:
tile kernels and the host program put their arguments into the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tessera_grammar.array_function_names import ARRAY_NAMES

from tessera_lang.types.dtype import BOOL, F32, DType

Form = Callable[[Collection[str], DType], str]
"""The text for the parameters that are given, and the dtype of the first."""
RankedForm = Callable[[Collection[str], Mapping[str, int]], str]
"""The text for the parameters that are given, and the axes of each; empty where there is none."""


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


def _is_one_infinity(sign: str) -> Form:
    return lambda given, dtype: (
        f"x == {sign}op.inf" if dtype.is_float and dtype.infinite else "x < x"
    )


def _without_nan(reduction: str, neutral: str) -> Form:
    """A reduction in front of which NaN is replaced, of floats, which alone have it."""

    def form(given: Collection[str], dtype: DType) -> str:
        numbers = f"op.where(x != x, {neutral}, x)" if dtype.is_float else "x"
        return _with(f"op.{reduction}({numbers}", "axis", "keepdims")(given, dtype)

    return form


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


# --- by the number of axes -------------------------------------------------------------------

Ranks = Mapping[str, int]
"""The axes of the arguments; of a tuple of arrays those of the first."""


def _joined(vectors: str, matrices: str) -> RankedForm:
    return lambda given, ranks: vectors if ranks["arrays"] == 1 else matrices


def _diag(given: Collection[str], ranks: Ranks) -> str:
    if ranks["x"] == 2:
        return "op.diagonal(x)"
    place = "op.arange(x.shape[0])"
    return f"op.where({place}[:, None] == {place}[None, :], x[:, None], 0)"


def _inner(given: Collection[str], ranks: Ranks) -> str:
    return "a @ b" if ranks["b"] == 1 else "a @ b.T" if ranks["b"] == 2 else ""


def _outer(given: Collection[str], ranks: Ranks) -> str:
    """Of all elements, row by row."""
    a, b = (n if ranks[n] < 2 else f"op.ravel({n})" for n in "ab")
    return f"{a}[:, None] * {b}[None, :]"


def _dot(given: Collection[str], ranks: Ranks) -> str:
    """Of a matrix or a vector on the right `@` is the same sum."""
    return "a @ b" if ranks["b"] < 3 else ""


def _vdot(given: Collection[str], ranks: Ranks) -> str:
    """Shapes are the same: nothing stretches."""
    if max(ranks.values()) < 2:
        return "a @ b"
    if ranks["a"] != ranks["b"]:
        return ""
    letters = "ijklmnop"[: ranks["a"]]
    return f'op.einsum("{letters},{letters}->", a, b)'


def _kron(given: Collection[str], ranks: Ranks) -> str:
    if ranks["a"] != 2 or ranks["b"] != 2:
        return ""
    return ("op.reshape(a[:, None, :, None] * b[None, :, None, :],"
            " (a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]))")  # fmt: skip


def _of_rows(name: str, text: str, alone: str) -> RankedForm:
    """``op.name`` of a matrix of rows, of two vectors or of the rows of two matrices; ``alone``: of
    one vector, a number."""

    def form(given: Collection[str], ranks: Ranks) -> str:
        if "y" not in given:
            return {1: alone, 2: text}.get(ranks["x"], "")
        rows = {1: "op.stack((x, y))", 2: "op.concat((x, y), axis=0)"}.get(ranks["x"], "")
        return f"op.{name}({rows})" if rows and ranks["x"] == ranks["y"] else ""

    return form


def _average(given: Collection[str], ranks: Ranks) -> str:
    if "weights" not in given:
        return _with("op.mean(x", "axis")(given, F32)
    if ranks["weights"] != ranks["x"]:
        return ""
    axis = ", axis=axis" if "axis" in given else ""
    return f"op.sum(x * weights{axis}) / op.sum(weights{axis})"


def _gradient(given: Collection[str], ranks: Ranks) -> str:
    if ranks["x"] != 1 or ranks.get("spacing", 0) != 0:
        return ""
    text = "op.concat((x[1:2] - x[:1], (x[2:] - x[:-2]) / 2.0, x[-1:] - x[-2:-1]))"
    return f"{text} / spacing" if "spacing" in given else text


def _trapezoid(given: Collection[str], ranks: Ranks) -> str:
    front, steps = ":, " * (ranks["y"] - 1), "None, " * (ranks["y"] - 1)
    heights = f"y[{front}1:] + y[{front}:-1]"
    if "x" not in given:
        dx = " * dx" if "dx" in given else ""
        return f"op.sum({heights}, axis=-1) / 2.0{dx}"
    if ranks["x"] != 1:
        return ""
    widths = f"(x[1:] - x[:-1]){f'[{steps}:]' if steps else ''}"
    return f"op.sum(({heights}) * {widths}, axis=-1) / 2.0"


def _cross(given: Collection[str], ranks: Ranks) -> str:
    if ranks["a"] != ranks["b"] or ranks["a"] not in (1, 2):
        return ""
    front = ":, " if ranks["a"] == 2 else ""
    pairs = ((1, 2), (2, 0), (0, 1))
    # Vectors of another length are refused by the shape that is asked for.
    a, b = (f"op.reshape({n}, ({f'{n}.shape[0], ' if front else ''}3{'' if front else ','}))"
            for n in "ab")  # fmt: skip
    parts = ", ".join(
        f"{a}[{front}{i}] * {b}[{front}{j}] - {a}[{front}{j}] * {b}[{front}{i}]" for i, j in pairs
    )
    return f"op.stack(({parts}), axis=1)" if front else f"op.array([{parts}])"


def _among(compared: str, reduced: str, one: str, many: str) -> RankedForm:
    """Each element of ``one`` beside all elements of the vector ``many``."""

    def form(given: Collection[str], ranks: Ranks) -> str:
        rank = ranks[one]
        if ranks[many] != 1:
            return ""
        left = f"{one}[{':, ' * rank}None]" if rank else one
        right = f"{many}[{'None, ' * rank}:]"
        return f"op.{reduced}({compared.format(left, right)}, axis=-1)"

    return form


def _digitize(given: Collection[str], ranks: Ranks) -> str:
    """Bins may fall: then those above an element are counted."""
    risen, fallen = (_among(compared, "sum", "x", "bins")(given, ranks)
                     for compared in ("({1} <= {0}) | ({0} != {0})", "{1} > {0}"))  # fmt: skip
    new = "None, " * (ranks["x"] - 1)
    rise = f"bins[{new}:1] <= bins[{new}-1:]" if ranks["x"] else "bins[0] <= bins[-1]"
    return f"op.where({rise}, {risen}, {fallen})" if risen else ""


def _interp(given: Collection[str], ranks: Ranks) -> str:
    if ranks["xp"] != 1 or ranks["fp"] != 1 or ranks["x"] > 1:
        return ""
    below = "op.sum(x[:, None] >= xp[None, :], axis=1)" if ranks["x"] else "op.sum(x >= xp)"
    first, last = ("[:1]", "[-1:]") if ranks["x"] else ("[0]", "[-1]")
    k, after = (f"op.clip({below}{n}, 0, xp.shape[0] - 1)" for n in (" - 1", ""))
    # Outside there is no interval; what is not chosen must have a derivative too.
    width, rise = f"(xp[{after}] - xp[{k}])", f"(fp[{after}] - fp[{k}])"
    share = f"(x - xp[{k}]) / op.where({width} == 0, 1, {width})"
    at_knot = f"(x == xp[{k}]) & ~op.isfinite({rise})"
    between = f"op.where({at_knot}, fp[{k}], fp[{k}] + {rise} * ({share}))"
    inside = f"op.where(x < xp{first}, fp{first}, {between})"
    return f"op.where(x >= xp{last}, fp{last}, {inside})"


_CENTRED = "(x - op.mean(x, axis=1, keepdims=True))"
_STANDARD = f"({_CENTRED} / op.std(x, axis=1, keepdims=True))"
_RANKED: dict[str, RankedForm] = {
    "hstack": _joined("op.concat(arrays)", "op.concat(arrays, axis=1)"),
    "vstack": _joined("op.stack(arrays)", "op.concat(arrays, axis=0)"),
    "column_stack": _joined("op.stack(arrays, axis=1)", "op.concat(arrays, axis=1)"),
    "diag": _diag, "inner": _inner, "kron": _kron, "average": _average, "gradient": _gradient,
    "dot": _dot, "outer": _outer, "vdot": _vdot,
    "array_equal": lambda given, ranks: "op.all(a == b)" if ranks["a"] == ranks["b"] else "",
    "cov": _of_rows("cov", f"{_CENTRED} @ {_CENTRED}.T / (x.shape[1] - 1)", "op.var(x, ddof=1)"),
    "corrcoef": _of_rows("corrcoef", f"{_STANDARD} @ {_STANDARD}.T / x.shape[1]", ""),
    "trapezoid": _trapezoid, "cross": _cross, "interp": _interp,
    "isin": _among("{} == {}", "any", "x", "values"),
    # NaN stands behind all numbers, as sorts put it.
    "searchsorted": _among("({1} < {0}) | ({0} != {0}) & ({1} == {1})", "sum", "v", "a"),
    "digitize": _digitize,
}  # fmt: skip


def _nan_to_num(given: Collection[str], dtype: DType) -> str:
    if not dtype.is_float:
        return _copy(given, dtype)
    nan = "nan" if "nan" in given else "0.0"
    most, least = (n if n in given else repr(s * dtype.largest) for n, s in (
        ("posinf", 1), ("neginf", -1)))  # fmt: skip
    return (f"op.where(x != x, {nan}, op.where(x == op.inf, {most},"
            f" op.where(x == -op.inf, {least}, x)))")  # fmt: skip


_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "logical_and": "&",
    "logical_or": "|", "logical_xor": "^", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip

_TEXTS: dict[str, str] = {
    **{name: f"a {operator} b" for name, operator in _OPERATORS.items()},
    "deg2rad": "x * 0.017453292519943295", "rad2deg": "x * 57.29577951308232",
    "fabs": "op.abs(x)", "rint": "op.round(x)",
    "fliplr": "op.flip(x, axis=1)", "flipud": "op.flip(x, axis=0)",
    "positive": "+x", "negative": "-x", "square": "x * x", "reciprocal": "1.0 / x",
    "isnan": "x != x", "logical_not": "~x", "bitwise_invert": "~x",
    "copysign": "op.where(op.signbit(b), -op.abs(a), op.abs(a))",
    # Equal infinities have no difference; equal numbers have half of the derivative each.
    "logaddexp": "op.maximum(a, b) + op.softplus(-op.abs(op.where(a == b, 0.0, a - b)))",
    "astype": "op.cast(x, dtype)", "permute_dims": "op.transpose(x, axes)",
    "fmax": "op.where(a != a, b, op.where(b != b, a, op.maximum(a, b)))",
    "fmin": "op.where(a != a, b, op.where(b != b, a, op.minimum(a, b)))",
    "cbrt": "op.copysign(op.abs(x) ** 0.3333333333333333, x)",
    "heaviside": "op.where(x > 0, 1.0, op.where(x < 0, 0.0, op.where(x == 0, h, x)))",
    "sinc": "op.where(x == 0, 1.0, op.sin(x * 3.141592653589793)"
            " / (op.where(x == 0, 1.0, x) * 3.141592653589793))",
    "trace": 'op.einsum("ii->", x)', "diagonal": 'op.einsum("ii->i", x)',
    "atan2": "math.atan2(y, x)", "hypot": "math.hypot(a, b)",
    "matrix_transpose": "x.mT",
}  # fmt: skip
_FORMS: dict[str, Form] = {
    "copy": _copy,
    "clip": _clip, "sign": _sign, "signbit": _signbit, "isinf": _isinf, "isfinite": _isfinite,
    "isclose": _isclose, "allclose": _allclose, "count_nonzero": _count, "ptp": _peak_to_peak,
    "cumulative_sum": _with("op.cumsum(x", "axis"),
    "cumulative_prod": _with("op.cumprod(x", "axis"),
    "concatenate": _with("op.concat(arrays", "axis"), "vecdot": _vecdot,
    "isposinf": _is_one_infinity(""), "isneginf": _is_one_infinity("-"),
    "nansum": _without_nan("sum", "0"), "nanprod": _without_nan("prod", "1"),
    "nanmax": _without_nan("max", "-op.inf"), "nanmin": _without_nan("min", "op.inf"),
    "nanmean": lambda given, dtype: " / ".join(
        _with(f"op.sum({text}", "axis", "keepdims")(given, dtype)
        for text in ("op.where(x != x, 0, x)", "x == x")),
    "nan_to_num": _nan_to_num,
}  # fmt: skip
OF_ELEMENTS = frozenset((
    *_OPERATORS, *"""abs absolute acos acosh asin asinh atan atan2 atanh cbrt ceil clip copysign cos
    cosh deg2rad exp exp2 expm1 fabs floor fmax fmin heaviside hypot isfinite isinf isnan log log10
    log1p log2 logaddexp logical_not maximum minimum negative positive rad2deg reciprocal rint
    sign signbit sin sinh sqrt square tan tanh trunc""".split(),
))  # fmt: skip
"""Functions of each element alone, which take ``out=`` in NumPy: its ufuncs and ``clip``."""
OF_BOOLS = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
"""Those that take bools alone."""
DERIVED = frozenset(n for n in ARRAY_NAMES if n in _TEXTS or n in _FORMS or n in _RANKED)


def text_of(
    name: str, given: Collection[str], dtype: DType = F32, ranks: Ranks | None = None
) -> str:
    """What ``op.name`` stands for; empty where it takes no arrays of so many axes."""
    if name in _RANKED:
        return _RANKED[name](given, ranks or dict.fromkeys(given, 1))
    form = _FORMS.get(name)
    return _TEXTS[name] if form is None else form(given, dtype)
