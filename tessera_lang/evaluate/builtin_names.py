"""The names of the language as values of the host program.

Owns what a name means that no program defines. Must not know scopes or calls.
"""

from __future__ import annotations

from tessera_lang.evaluate.constant import BUILTIN_CONSTANTS, Intrinsic
from tessera_lang.evaluate.value import BuiltinFunction, Namespace

NAMESPACES = ("op", "schedule", "tile", "dist", "tshared", "tlocal", "graph", "std", "math", "fast")
PYTHON_BUILTINS = (
    "sum", "any", "all", "sorted", "list", "tuple", "reversed", "enumerate", "zip", "round",
    "divmod", "pow", "chr", "ord",
)  # fmt: skip
PLAIN_BUILTINS = (
    "print",
    "range",
    "int",
    "float",
    "str",
    "fused",
    "grad",
    "value_and_grad",
    "vjp",
    "jvp",
    *PYTHON_BUILTINS,
)
LANE_NAMES = (
    "tile_linear_id", "tile_id", "group_linear_id", "group_id", "group_tile_count",
    "group_count", "grid_tile_linear_id", "grid_tile_count", "lane_id", "warp_id", "tbarrier",
    "tfence", "select", "bitcast", "warp_sum", "warp_max", "warp_min", "warp_shuffle",
    "warp_any", "warp_all", "warp_ballot", "warp_match", "group_sum", "group_max", "group_min",
    *(f"atomic_{k}" for k in (
        "add", "sub", "min", "max", "and", "or", "xor", "exchange", "cas", "load", "store",
    )),
)  # fmt: skip
LATER = {"autotune": "tuning"}
"""Names of the language that this version lacks, with what they belong to."""

MATH_NUMBERS = {
    "pi": 3.141592653589793, "e": 2.718281828459045,
    "inf": BUILTIN_CONSTANTS["inf"], "nan": BUILTIN_CONSTANTS["nan"],
}  # fmt: skip


def member(namespace: str, name: str) -> object:
    """``namespace.name`` for a namespace that no file makes: ``op``, ``math``."""
    if namespace in ("math", "op") and name in MATH_NUMBERS:
        return MATH_NUMBERS[name]
    return BuiltinFunction(f"{namespace}.{name}")


def builtin(name: str) -> object | None:
    """A name of the language that needs no import; None where there is none."""
    if name in NAMESPACES:
        return Namespace(name)
    value = BUILTIN_CONSTANTS.get(name)
    if isinstance(value, Intrinsic):
        return BuiltinFunction(value.name)
    if name in PLAIN_BUILTINS:
        return BuiltinFunction(name)
    return value
