"""Names that programmers of CUDA, Triton, Numba and NumPy try first, and what stands for them.

Owns the table, for kernels and for the host program. Must not know scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite

from tessera_grammar.array_function_names import LIBRARY_NAMES, NETWORK_NAMES

from tessera_lang.evaluate.unsupported_numpy import NUMPY_FORMS

_NUMPY = (
    "NumPy has no place in a program: write `f32(x)`, `math.sqrt(x)` of a number, `op.exp(x)`,"
    " `op.sum(x, axis=0)` of a tile, `op.zeros(shape)`"
)
_BARRIER = "write `tbarrier()`"

OTHER_SPELLINGS = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh",
}  # fmt: skip
"""Functions of one number by NumPy's older names, which `math` and `op` have by C's."""
SAME: dict[str, str] = {
    **OTHER_SPELLINGS, "arctan2": "atan2", "amax": "max", "amin": "min", "absolute": "abs",
    "radians": "deg2rad", "degrees": "rad2deg", "mod": "remainder", "true_divide": "divide",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
    "invert": "bitwise_invert", "bitwise_not": "bitwise_invert", "pow": "power", "fix": "trunc",
    "around": "round", "trapz": "trapezoid", "identity": "eye", "row_stack": "vstack",
    "in1d": "isin", "ediff1d": "diff",
}  # fmt: skip
"""Functions of `op` by other names that NumPy has for them: they take the same arguments, and
programs may write them."""
RENAMED: dict[str, str] = {
    "flatten": "ravel", "permute": "permute_dims", "mul": "multiply",
    "sub": "subtract", "div": "divide", "cat": "concat",
}  # fmt: skip
"""Functions of `op` by names that others have for them, which programs are told."""
KEYWORDS = {"axes": "axis", "dim": "axis", "dims": "axis", "keepdim": "keepdims"}
"""Parameters by names that others have for them."""


def _same(module: str, new: str) -> str:
    return f"write `{module}.{new}`, with the same arguments"


_OF_MATH = ("arctan2", *OTHER_SPELLINGS)
MATH_FORMS: dict[str, str] = {old: _same("math", SAME[old]) for old in _OF_MATH}
"""What to write for what `math` does not have."""

FOREIGN_NAMES: dict[str, str] = {
    **MATH_FORMS,
    "threadIdx": "write `tile_id(axis)`, the last axis being the fastest, or `tile_linear_id()`",
    "blockIdx": "write `group_id(axis)`, the last axis being the fastest, or `group_linear_id()`",
    "blockDim": "write `group_tile_count()`, the lanes of a group",
    "gridDim": "write `group_count(axis)`",
    "program_id": "write `group_id(axis)`",
    "__syncthreads": _BARRIER,
    "syncthreads": _BARRIER,
    "barrier": _BARRIER,
    "__shared__": "write `tshared.alloc(shape, dtype)`",
    "atomicAdd": "write `atomic_add(x[i], value)`",
    "atomicMin": "write `atomic_min(x[i], value)`",
    "atomicMax": "write `atomic_max(x[i], value)`",
    "atomicCAS": "write `atomic_cas(x[i], expected, desired)`",
    "atomicExch": "write `atomic_exchange(x[i], value)`",
    "cuda": "write `grid_tile_linear_id()`, `tbarrier()`, `tshared.alloc(shape, dtype)`",
    "tl": "write `grid_tile_linear_id()` for the lane, and `x[i]` to load and store",
    "np": _NUMPY,
    "numpy": _NUMPY,
    "enumerate": "count with `range` and index with the count",
    "zip": "count with `range` and index with the count",
    "powf": "write `math.pow(x, y)`, or `x ** 2`",
    "rsqrt": "write `1.0 / math.sqrt(x)`",
    "clamp": "write `min(max(x, low), high)`",
    "fmin": "write `min(a, b)`, which is NaN where one is; `b if a != a else min(a, b)` leaves"
    " that of `a` out",
    "fmax": "write `max(a, b)`, which is NaN where one is; `b if a != a else max(a, b)` leaves"
    " that of `a` out",
    "cdiv": "write `ceil_div(a, b)`",
    "divmod": "write `a // b` and `a % b`",
    "cast": "write the type as a function: `f32(x)`",
    "int": "write the type as a function: `i64(x)`, or `.to(i64)`",
    "float": "write the dtype as a function: `f64(x)`, or `f32(x)` beside arrays of f32",
}
"""What to write, by the name that was written."""


def _members() -> dict[str, str]:
    reductions = ("sum", "max", "min", "mean", "prod", "var", "any", "all", "argmax", "argmin")
    found = {
        name: f"write `op.{name}(x)`, with the same arguments behind `x`"
        for name in (*reductions, "std", "norm", "cumsum", "cumprod", "softmax")
    }
    of_one = ("sqrt", "floor", "ceil", "trunc", "round", "exp", "log", "log10", "sin", "cos",
              "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "expm1")  # fmt: skip
    found |= {n: f"write `math.{n}(x)` of a number, `op.{n}(x)` of a tile" for n in of_one}
    found |= dict.fromkeys(("astype", "type"), "write `x.to(f32)`, with the dtype that is meant")
    dtypes = {"half": "f16", "bfloat16": "bf16", "float": "f32", "double": "f64", "short": "i16",
              "int": "i32", "long": "i64", "byte": "u8"}  # fmt: skip
    found |= {name: f"write `x.to({dtype})`" for name, dtype in dtypes.items()}
    found["bool"] = "compare: `x != 0`"
    found |= dict.fromkeys(("size", "numel"), "write `len(x)`, or `x.shape[0] * x.shape[1]`")
    found |= dict.fromkeys(
        ("transpose", "permute"), "write `x.T`, `x.mT`, or `op.transpose(x, axes)` in a tile kernel"
    )
    found |= dict.fromkeys(("dot", "matmul"), "write `a @ b`")
    for old, new in (("amax", "max"), ("amin", "min")):
        found[old] = found[new]
    return found | {
        "accumulate": "write `op.cumsum(x, axis=0)`, `op.cumprod`, `op.cummax` or `op.cummin`",
        "reduce": "write `op.sum(x, axis=0)`, `op.max`, `op.min` or `op.prod`",
        "abs": "write `abs(x)`",
        "fill": "assign to what it has: `x[i] = value`, or `x[:] = value` of a tile",
        "item": "write `x[0]`",
        "clamp": "write `min(max(x, low), high)`",
        "clip": "write `min(max(x, low), high)`, or `op.clip(x, low, high)` of a tile",
        "reshape": "write `op.reshape(x, (m, n))`",
        "ravel": "write `op.reshape(x, -1)`",
        "flatten": "write `op.reshape(x, -1)`",
        "copy": "a tile is a value: write `x` itself",
        "squeeze": "write `op.squeeze(x, axis=0)`",
        "repeat": "write `op.repeat(x, 2, axis=0)`",
        "take": "write `op.take(x, places, axis=0)`",
        "swapaxes": "write `op.swapaxes(x, 0, 1)`",
        "conj": "there are no complex numbers: write `x`",
        "real": "there are no complex numbers: write `x`",
        "round": "write `math.round(x)` of a number, `op.round(x)` of a tile",
    }


FOREIGN_MEMBERS: dict[str, str] = _members()
"""What to write for an attribute of an array, a tile or a number, by its name."""


def helps_for_member(name: str, close: str | None = None) -> tuple[str, ...]:
    """What to write for an attribute that is not there; ``close``: one that is, and nearly so."""
    if name in FOREIGN_MEMBERS:
        return (FOREIGN_MEMBERS[name],)
    return (f"did you mean `{close}`?",) if close else ()


_LIBRARY_MODULES = {
    "std.sort": "sort argsort sort_pairs",
    "std.nn": "softmax log_softmax layernorm rmsnorm",
    "std.conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "std.pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d",
    "std.norm": "batch_norm group_norm instance_norm",
    "std.loss": "mse_loss l1_loss huber_loss binary_cross_entropy_with_logits kl_div nll_loss"
    " cross_entropy",
    "std.linalg": "matmul gemv addmm linear",
    "std.scan": "inclusive exclusive running_max running_min segmented",
    "std.random": "uniform normal integers",
    "std.stencil": "convolve1d laplace2d",
    "std.topk": "topk",
    "std.einsum": "einsum",
    "std.transpose": "transpose",
    "std.elementwise": "add subtract multiply divide minimum maximum negate absolute relu square",
    "std.reduce": "mean argmax argmin",
}
_OTHER_NAMES = {
    "cumsum": "std.scan.inclusive", "rand": "std.random.uniform",
    "randn": "std.random.normal", "randint": "std.random.integers",
    "sub": "std.elementwise.subtract", "mul": "std.elementwise.multiply",
    "div": "std.elementwise.divide",
    "dot": "std.linalg.matmul", "mm": "std.linalg.matmul", "bmm": "std.linalg.matmul",
    "mv": "std.linalg.gemv", "layer_norm": "std.nn.layernorm", "rms_norm": "std.nn.rmsnorm",
}  # fmt: skip
LIBRARY = tuple(name.removeprefix("std.") for name in _LIBRARY_MODULES)
"""Modules of the standard library that programs use, without `std.`."""
IN_LIBRARY: dict[str, str] = {
    **{name: f"{m}.{name}" for m, names in _LIBRARY_MODULES.items() for name in names.split()},
    **_OTHER_NAMES,
}
"""Functions of the library by the names that they, or others like them, go by."""


OTHER_AXES: dict[str, str] = {
    "inner": 'write `a @ b`, or `op.einsum("ik,jk->ij", a, b)`',
    "dot": 'write `op.einsum("ij,kjl->ikl", a, b)`, or `a @ b`, which multiplies matrix by matrix',
    "array_equal": "arrays of other axes are not equal: write `op.all(a == b)` to stretch one",
    "vdot": "give both one shape: `op.vdot(op.ravel(a), op.ravel(b))`",
    "kron": 'write `op.reshape(op.einsum("ij,kl->ikjl", a, b), (m * p, n * q))`, of sizes (m, '
    "n) and (p, q)",
    "isin": "write `op.any(x[:, None] == v[None, :], axis=1)`",
    "searchsorted": "write `op.sum(v[None, :] < x[:, None], axis=1)`",
    "digitize": "write `op.sum(x[:, None] >= bins[None, :], axis=1)`",
    "trapezoid": "write `op.sum((y[1:] + y[:-1]) * (x[1:] - x[:-1])) / 2.0`",
    "gradient": "write `(x[2:] - x[:-2]) / 2.0` for what is inside",
    "interp": "number the intervals, `k = op.sum(x[:, None] >= xp[None, :], axis=1) - 1`, and "
    "write `fp[k] + (x - xp[k]) / (xp[k + 1] - xp[k]) * (fp[k + 1] - fp[k])`",
    "cross": "write `op.stack((a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * "
    "b[1] - a[1] * b[0]))`",
    "cov": "write `d = x - op.mean(x, axis=1, keepdims=True)`, then `d @ d.T / (n - 1)`",
    "corrcoef": "write `d = (x - op.mean(x, axis=1, keepdims=True)) / op.std(x, axis=1, "
    "keepdims=True)`, then `d @ d.T / n`",
    "average": "write `op.sum(x * w[:, None], axis=0) / op.sum(w)` of weights along axis 0",
}
"""What to write for functions that take vectors or matrices alone, of arrays of other axes."""


def _or_before(name: str) -> str:
    return f"or call `op.{name}` in a plain function, and pass what it gives to the kernel"


def _of_the_run(name: str) -> str:
    return (
        f"kernels do not have it: call `op.{name}` in a plain function, which the host program"
        " runs, and pass what it gives to the kernel"
    )


_EUCLID = (
    "of numbers from 0 on begin with `x, y = a, b`; in `while op.any(y > 0):` write"
    " `x, y = op.where(y > 0, y, x), op.where(y > 0, x % op.maximum(y, 1), 0)`"
)

_FORMS_OF_TILES: dict[str, str] = {
    **{old: _same("op", new) for old, new in RENAMED.items()},
    "random": "write `std.random.uniform_at(place, seed)`, of the places `op.arange(64)`",
    "rand": "write `std.random.uniform_at(place, seed)`, of the places `op.arange(64)`",
    "randn": "write `std.random.normal_at(place, seed)`, of the places `op.arange(64)`",
    "randint": "write `std.random.integers_at(place, seed, 0, 9)`, of the places `op.arange(64)`",
    "split": "write the parts: `x[0:n, :]`, `x[n:, :]`",
    "unstack": "write the parts: `x[0, :]`, `x[1, :]`",
    "meshgrid": "it takes two vectors and `indexing=`, and both results are taken at once,"
    " `a, b = op.meshgrid(x, y)`; or write `x[None, :]` and `y[:, None]`, which stretch",
    "broadcast_arrays": "axes of one element stretch: write `a[:, None] + b[None, :]`",
    "tensordot": 'write `op.einsum("ijk,jkl->il", a, b)`',
    **{name: _of_the_run(name) for name in (*LIBRARY_NAMES, *NETWORK_NAMES)},
    "bincount": "write `op.sum(x[:, None] == op.arange(bins)[None, :], axis=0)`;"
    f" {_or_before('bincount')}",
    "histogram": "number the bins, `b = op.floor((x - low) / width).to(i32)`, and count them:"
    f" `op.sum(b[:, None] == op.arange(bins)[None, :], axis=0)`; {_or_before('histogram')}",
    "nonzero": "in a kernel choose by the mask, `op.where(x > 0, x, 0.0)`;"
    f" {_or_before('nonzero')}",
    "convolve": "add up shifted windows, `y += w[k] * op.window(x, i - k, 64)`;"
    f" {_or_before('convolve')}",
    "partition": "write `op.sort(x)`",
    "argpartition": "write `op.argsort(x)`, or `values, places = op.topk(x, k)`",
    "lexsort": "write `i = op.argsort(b)`, then `i[op.argsort(a[i])]` for `op.lexsort((b, a))`:"
    " every sort keeps the order of equal elements",
    "rot90": "write `op.flip(op.transpose(x), axis=0)`",
    "polyval": "write `y = y * x + c[k]` in a loop over `k`",
    "fmod": "write `op.copysign(op.abs(x) % op.abs(y), x)`: `x % y` has the sign of `y`",
    "divmod": "write `a // b` and `a % b`",
    "modf": "write `x - op.trunc(x)` and `op.trunc(x)`",
    "compress": "how many there are is known to the run alone: the host program writes `x[c]`, a"
    " kernel `op.where(c, x, 0.0)`",
    "select": "write `op.where(c, a, op.where(d, b, otherwise))`",
    "piecewise": "write `op.where(c, a, op.where(d, b, otherwise))`",
    "choose": "write `op.where(k == 0, a, b)`",
    "atleast_2d": "write `x[None, :]`",
    "lcm": f"with the greatest common divisor `x` write `a // x * b`: {_EUCLID}",
    "gcd": _EUCLID,
    "vander": "write `x[:, None] ** op.arange(n - 1, -1, -1)[None, :]` of floats",
    "apply_along_axis": "write a loop over `op.tile_range`, with `x[i, :]`",
    "vectorize": "write a plain function: it takes tiles",
    "cond": "write `a if condition else b`, or `op.where(condition, a, b)`",
    "bool": "compare: `x != 0`",
    "nextafter": "compute with the bits in a kernel: of a positive f32 the next greater one is"
    " `bitcast(bitcast(x, i32) + 1, f32)`",
    "result_type": "write the dtype: `f32`",
    "finfo": "write the number itself: `3.4028235e38`",
    "iinfo": "write the number itself: `2147483647`",
    "asarray": "write `op.array([1.0, 2.0])`, or pass the array",
    "conj": "there are no complex numbers: write `x`",
    "real": "there are no complex numbers: write `x`",
    "imag": "there are no complex numbers: write `op.zeros_like(x)`",
    "linalg": "there are `op.linalg.solve`, `inv`, `det` and `matrix_power` in the host program,"
    " and `op.norm(x)`, `op.outer(a, b)`, `op.trace(x)`, `a @ b`",
    "fft": "there is no transform: write the sum as a product with a matrix, `w @ x`",
}
TILE_FORMS = {**NUMPY_FORMS, **_FORMS_OF_TILES}
"""What to write for a function on arrays in a tile kernel, by NumPy's name or another's."""


def library_help(name: str, *, host: bool) -> tuple[str, ...]:
    """What the library has under a name that is sought elsewhere; ``host``: whether what asks can
    call it there, as only the host program can."""
    found = IN_LIBRARY.get(name)
    if found is None:
        return ()
    module = found.rpartition(".")[0]
    if host:
        return (f"write `import {module}` and call `{found}`",)
    return (f"the host program can: it imports `{module}` and calls `{found}` on whole arrays",)


def counted(values: Sequence[object]) -> str:
    """What to write for a `range` over floats, of the values of its arguments where known."""
    numbers = [float(v) for v in values if isinstance(v, (int, float))]
    if len(numbers) != len(values) or not 1 <= len(numbers) <= 3:
        return "count with an integer and compute from it: `start + k * step`"
    start = numbers[0] if len(numbers) > 1 else 0.0
    stop = numbers[1] if len(numbers) > 1 else numbers[0]
    step = numbers[2] if len(numbers) > 2 else 1.0
    if step == 0 or not all(map(isfinite, numbers)):
        return "count with an integer and compute from it: `start + k * step`"
    steps = (stop - start) / step
    count = round(steps) if abs(steps - round(steps)) < 1e-9 * max(1.0, abs(steps)) else ceil(steps)
    shown = f"k * {step!r}" if step != 1 else "k"
    shown = f"{start!r} + {shown}" if start else shown
    return f"count with an integer, `for k in range({max(count, 0)}):`, and compute `{shown}`"


def lacks(module: str, name: str) -> str:
    """What is said of a member that a module does not have, or not so."""
    if (module, name) == ("op", "meshgrid"):
        return "there is no such call of `op.meshgrid`"
    if (module, name) == ("op", "linalg"):
        return "`op.linalg` has no such function"
    return f"`{module}` has no `{name}`"
