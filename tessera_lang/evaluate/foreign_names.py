"""Names that programmers of CUDA, Triton, Numba and NumPy try first, and what stands for them.

Owns the table, for kernels and for the host program. Must not know scopes.
"""

from __future__ import annotations

_NUMPY = "NumPy has no place in a program: write `f32(x)`, `math.sqrt(x)`, `op.zeros(shape)`"
_BARRIER = "write `tbarrier()`"

FOREIGN_NAMES: dict[str, str] = {
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
    "fabs": "write `abs(x)`",
    "fmin": "write `min(a, b)`",
    "fmax": "write `max(a, b)`",
    "cdiv": "write `ceil_div(a, b)`",
    "divmod": "write `a // b` and `a % b`",
    "cast": "write the type as a function: `f32(x)`",
}
"""What to write, by the name that was written."""


def _members() -> dict[str, str]:
    reductions = ("sum", "max", "min", "mean", "prod", "var", "any", "all", "argmax", "argmin")
    found = {name: f"write `op.{name}(x)`" for name in (*reductions, "cumsum", "softmax")}
    of_one = ("sqrt", "floor", "ceil", "trunc", "round", "exp", "log", "sin", "cos", "tanh")
    found |= {n: f"write `math.{n}(x)` of a number, `op.{n}(x)` of a tile" for n in of_one}
    found |= dict.fromkeys(("astype", "type", "float", "half", "int"), "write `x.to(f32)`")
    found |= dict.fromkeys(("size", "numel"), "write `len(x)`, or `x.shape[0] * x.shape[1]`")
    found |= dict.fromkeys(("transpose", "permute"), "write `x.T`, or `x.mT` of more axes")
    found |= dict.fromkeys(("dot", "matmul"), "write `a @ b`")
    return found | {
        "abs": "write `abs(x)`",
        "fill": "assign to what it has: `x[i] = value`, or `x[:] = value` of a tile",
        "item": "write `x[0]`",
        "clamp": "write `min(max(x, low), high)`",
        "clip": "write `min(max(x, low), high)`",
    }


FOREIGN_MEMBERS: dict[str, str] = _members()
"""What to write for an attribute of an array, a tile or a number, by its name."""


def helps_for_member(name: str, close: str | None = None) -> tuple[str, ...]:
    """What to write for an attribute that is not there; ``close``: one that is, and nearly so."""
    if name in FOREIGN_MEMBERS:
        return (FOREIGN_MEMBERS[name],)
    return (f"did you mean `{close}`?",) if close else ()
