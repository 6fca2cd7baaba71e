"""The names of the language: what each takes, where it may stand, whether it is built.

Owns the tables. Must not know scopes or how a call is typed (``builtin_calls.py``).
"""

from __future__ import annotations

from typing import Literal

from tessera_grammar.array_function_names import ARRAY_NAMES, LIBRARY_NAMES, NETWORK_NAMES
from tessera_grammar.directives import DIRECTIVES
from tessera_grammar.keywords import ELEMENTWISE

from tessera_lang.evaluate.builtin import OP_LATER
from tessera_lang.evaluate.builtin_names import PYTHON_BUILTINS
from tessera_lang.evaluate.host_array_functions import HOST_NAMES
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DTYPES

Place = Literal["lane", "host", "both"]


@dataclass(frozen=True, slots=True)
class BuiltinInfo:
    """``parameters`` in order; the first ``required`` must be given; ``variadic`` takes more."""

    name: str
    parameters: tuple[str, ...]
    required: int
    place: Place = "lane"
    variadic: bool = False

    @property
    def counts(self) -> str:
        """How many arguments it takes, in words."""
        most = len(self.parameters)
        if self.variadic:
            return f"{self.required} or more arguments"
        if most == self.required:
            return f"{most} argument{'' if most == 1 else 's'}" if most else "no arguments"
        return f"{self.required} to {most} arguments"


def _info(
    name: str, parameters: str = "", required: int = -1, place: Place = "lane",
    variadic: bool = False,
) -> BuiltinInfo:  # fmt: skip
    names = tuple(parameters.split())
    return BuiltinInfo(name, names, len(names) if required < 0 else required, place, variadic)


NAMESPACES = ("op", "schedule", "tile", "dist", "tshared", "tlocal", "graph", "std", "math", "fast")

AXIS_IDS = ("tile_id", "group_id", "group_count")
PLAIN_IDS = (
    "tile_linear_id", "group_linear_id", "group_tile_count", "grid_tile_linear_id",
    "grid_tile_count", "lane_id", "warp_id",
)  # fmt: skip
ATOMIC_OPERATIONS = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
SCOPES = ("tile", "group", "device", "mesh")
ORDERS = ("relaxed", "acquire", "release", "acq_rel")
FAST_MATH = ("fast.exp", "fast.exp2")
"""The machine's approximations; the others of ``fast`` are functions of ``std.fast``."""
APPROXIMATIONS = ("log2", "sin", "cos", "tanh", "sqrt", "rsqrt", "reciprocal")
"""What ``fast.machine`` names."""
FLOAT_MATH = ("math.sqrt", "math.floor", "math.ceil", "math.trunc", "math.round")

WARP_NUMBERS = ("warp_sum", "warp_max", "warp_min")
WARP_MATCH = "warp_match"
WARP_CONDITIONS = ("warp_any", "warp_all", "warp_ballot")

_ATOMIC = "place value scope order"
_FUNCTIONS: tuple[BuiltinInfo, ...] = (
    *(_info(n) for n in PLAIN_IDS),
    *(_info(n, "axis") for n in AXIS_IDS),
    *(_info(f"atomic_{n}", _ATOMIC, 2) for n in ATOMIC_OPERATIONS),
    _info("atomic_cas", "place expected desired scope order", 3),
    _info("atomic_load", "place scope order", 1),
    _info("atomic_store", _ATOMIC, 2),
    *(_info(n, "value") for n in WARP_NUMBERS),
    _info("warp_shuffle", "value lane"),
    *(_info(n, "condition") for n in WARP_CONDITIONS),
    _info(WARP_MATCH, "value"),
    _info("tbarrier"),
    _info("tfence", "scope", 0),
    _info("tshared.alloc", "shape dtype", 2),
    _info("tlocal.alloc", "shape dtype", 2),
    *(_info(n, "x", place="both") for n in FLOAT_MATH),
    _info("math.fma", "a b c", place="both"),
    *(_info(n, "x") for n in FAST_MATH),
    _info("fast.machine", "kind x exact"),
    _info("abs", "x", place="both"),
    _info("min", "a b", 1, "both", variadic=True),
    _info("max", "a b", 1, "both", variadic=True),
    _info("ceil_div", "a b", place="both"),
    _info("bitcast", "x dtype"),
    _info("range", "start stop step", 1, "both"),
    _info("len", "x", place="both"),
    _info("print", "value", 0, "both", variadic=True),
    *(_info(n, "x", place="both") for n in DTYPES),
)
FUNCTIONS: dict[str, BuiltinInfo] = {f.name: f for f in _FUNCTIONS}

_REDUCTIONS = ("sum", "max", "min", "mean", "prod", "any", "all", "argmax", "argmin", "var")
_DERIVED_REDUCTIONS = ("std", "norm", "logsumexp")
"""Reductions of tiles that are made of others."""
_SCANS = ("cumsum", "cumprod", "cummax", "cummin")


def _reduced(name: str) -> str:
    """The parameters of a reduction of tiles."""
    more = {"var": " correction ddof", "std": " correction ddof", "norm": " ord"}
    return f"x axis keepdims{more.get(name, '')}"


_TILE_FUNCTIONS: tuple[BuiltinInfo, ...] = (
    *(_info(f"op.{n}", "x") for n in ELEMENTWISE),
    *(_info(n, "x") for n in FAST_MATH),
    *(_info(f"op.{n}", _reduced(n), 1) for n in (*_REDUCTIONS, *_DERIVED_REDUCTIONS)),
    *(_info(f"op.{n}", "x axis exclusive reverse", 1) for n in _SCANS),
    *(_info(f"op.{n}", one.parameters, one.required) for n, one in ARRAY_NAMES.items()),
    _info("op.broadcast_to", "x shape", 2),
    _info("op.expand_dims", "x axis", 2),
    _info("op.squeeze", "x axis", 1),
    _info("op.roll", "x shift axis", 2),
    _info("op.diff", "x n axis prepend append", 1),
    _info("op.repeat", "x repeats axis", 2),
    _info("op.tile", "x repetitions", 2),
    _info("op.take", "x indices axis", 2),
    _info("op.moveaxis", "x source destination", 3),
    _info("op.swapaxes", "x axis1 axis2", 3),
    _info("op.array", "items dtype", 1),
    _info("op.sort", "x axis descending", 1),
    _info("op.argsort", "x axis descending", 1),
    _info("op.topk", "x k axis largest", 2),
    _info("op.median", "x axis keepdims", 1),
    *(_info(f"op.{n}", "x q axis keepdims", 2) for n in ("quantile", "percentile")),
    _info("op.pad", "x pad_width mode constant_values", 2),
    _info("op.reshape", "x shape", 2),
    _info("op.ravel", "x"),
    _info("op.einsum", "subscripts a b c precision", 2),
    _info("op.flip", "x axis", 1),
    _info("op.concat", "arrays axis", 1),
    _info("op.stack", "arrays axis", 1),
    _info("op.eye", "n m k dtype", 1),
    _info("op.linspace", "start stop num dtype", 3),
    _info("op.take_along_axis", "x indices axis", 2),
    _info("op.tril", "x k", 1),
    _info("op.triu", "x k", 1),
    _info("op.transpose", "x axes", 1),
    _info("op.softmax", "x axis", 1),
    _info("op.matmul", "a b precision tile_shape", 2),
    _info("tile.mma_sync", "a b precision", 2),
    _info("op.where", "condition a b"),
    _info("op.clamp", "x low high"),
    _info("op.cast", "x dtype"),
    _info("op.causal", "x row column offset", 1),
    _info("op.window", "x start length fill", 3),
    _info("op.shared", "shape dtype", 1),
    *(_info(f"op.{n}", "shape dtype", 1) for n in ("zeros", "ones", "empty")),
    _info("op.full", "shape value dtype", 2),
    *(_info(f"op.{n}_like", "x dtype", 1) for n in ("zeros", "ones", "empty")),
    _info("op.full_like", "x value dtype", 2),
    _info("op.arange", "start stop step dtype", 1),
    _info("op.iota", "shape axis dtype", 1),
    _info("op.prefetch", "buffer value"),
    _info("op.barrier"),
    _info("op.tile_range", "stop", 1, variadic=True),
    *(
        _info(f"schedule.{n}", " ".join(p.name for p in one.parameters), 1)
        for n, one in DIRECTIVES.items()
    ),
    _info("schedule.pipeline", "double_buffer stages", 0),
    _info("schedule.prefetch", "x scope", 1),
)
TILE_FUNCTIONS: dict[str, BuiltinInfo] = {f.name: f for f in _TILE_FUNCTIONS}
"""What tile kernels call beside the scalars' functions in ``FUNCTIONS``."""
LANE_REDUCTIONS = frozenset(f"op.{n}" for n in _REDUCTIONS)
"""Those that lanes call too, with arrays and slices of them."""
TILE_VALUES = frozenset(n for n in TILE_FUNCTIONS if n.startswith("op."))
"""Those that a plain function may call too, which a tile kernel calls."""
BARE = tuple(name for name, one in ELEMENTWISE.items() if one.bare)
"""Functions that a tile kernel may call without ``op.``, where nothing else has the name."""

LANE_ONLY = (
    *PLAIN_IDS, *AXIS_IDS, *(f"atomic_{n}" for n in ATOMIC_OPERATIONS), "atomic_cas", "atomic_load",
    "atomic_store", *WARP_NUMBERS, "warp_shuffle", *WARP_CONDITIONS, WARP_MATCH, "tbarrier",
    "tfence", "tshared.alloc", "tlocal.alloc",
)  # fmt: skip
"""What makes no sense in a tile kernel: there are no lanes to name."""

GROUP_OPERATIONS = ("group_sum", "group_max", "group_min")
"""Functions of ``std.group`` that need no import."""

NUMBERS = ("inf", "nan")
COMPILE_TIME_TYPES = ("int", "float", "bool", "str", "dtype")

LATER: dict[str, str] = {
    "autotune": "tuning",
}  # fmt: skip
"""Names the language has and this compiler has not yet, with what they belong to."""

OP_BUILT = (
    "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like",
    "workspace", "arange", "random", "load", "save", "reshape", "contiguous", "cast", "sum", "min",
    "max", "mean", "all", "any", "argmin", "argmax", "abs",
    *(n.removeprefix("op.") for n in HOST_NAMES), *LIBRARY_NAMES, *NETWORK_NAMES,
)  # fmt: skip
"""Members of ``op`` that the host program has today."""

HOST_ONLY = (
    "int", "float", "str", "fused", "grad", "value_and_grad", "vjp", "jvp", *PYTHON_BUILTINS,
)  # fmt: skip
"""What plain functions have when the host program runs them, and kernels have not."""

NAMESPACES_LATER: dict[str, str] = {
    "schedule": "schedules", "tile": "tile operations", "dist": "distribution",
    "graph": "graph functions",
}  # fmt: skip

TOP_LEVEL: tuple[str, ...] = tuple(
    dict.fromkeys((*NAMESPACES, *(n for n in FUNCTIONS if "." not in n), *NUMBERS, *LATER))
)
"""Every builtin without a dot, for lookup and suggestions."""

MEMBERS: dict[str, tuple[str, ...]] = {
    "tshared": ("alloc",),
    "tlocal": ("alloc",),
    "math": tuple(n.removeprefix("math.") for n in FUNCTIONS if n.startswith("math.")),
    "op": tuple(
        dict.fromkeys(
            (
                *OP_BUILT,
                *OP_LATER,
                *(n.removeprefix("op.") for n in TILE_FUNCTIONS if n.startswith("op.")),
            )
        )
    ),
    "schedule": tuple(
        n.removeprefix("schedule.") for n in TILE_FUNCTIONS if n.startswith("schedule.")
    ),
    "tile": ("mma_sync",),
    "fast": tuple(n.removeprefix("fast.") for n in FUNCTIONS if n.startswith("fast.")),
}


def later(name: str) -> str | None:
    """What a builtin that is not built yet belongs to; None for one that is built."""
    if name in LATER:
        return LATER[name]
    head, _, member = name.partition(".")
    if head in NAMESPACES_LATER and member:
        return NAMESPACES_LATER[head]
    if head == "op" and member in OP_LATER:
        return "tile and graph operations"
    return None


def is_built(name: str) -> bool:
    """Whether some part of a program can use a builtin: a lane kernel, a tile kernel or the host
    program. (``later`` answers for the host program and for what stands nowhere yet.)"""
    head, _, member = name.partition(".")
    if name == "op.kernel" or name in FUNCTIONS or name in TILE_FUNCTIONS:
        return True
    return later(name) is None and (head != "op" or not member or member in OP_BUILT)
