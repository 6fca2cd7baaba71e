"""The table of Tile operations: docs/ir.md as data.

Owns ``TILE_OPS``. Must not know who builds, checks or lowers the operations.
"""

from __future__ import annotations

from tessera_lang.ir.tile.op_definition import AttributeDef, Classes, Effect, OpDef, Trait
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS

PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
ATOMIC_KINDS = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
SCOPES = ("tile", "group", "device", "mesh")
ORDERS = ("relaxed", "acquire", "release", "acq_rel")
WARP_KINDS = ("add", "min", "max")
VOTES = ("any", "all")
APPROXIMATIONS = ("log2", "sin", "cos", "tanh", "sqrt", "rsqrt", "reciprocal")
BOUNDS = ("guarded", "proved", "off")

_AXIS = AttributeDef("axis", "int", (0, 1, 2))
_AXIS_OR_ALL = AttributeDef("axis", "int", (-1, 0, 1, 2))
_SITE = AttributeDef("site", "int")
_EXACT = AttributeDef("exact", "bool", (), True)
_SCOPE = AttributeDef("scope", "str", SCOPES)
_ACCESS = (AttributeDef("bounds", "str", BOUNDS), AttributeDef("open", "ints", (), True), _SITE)
_ATOMIC = (_SCOPE, AttributeDef("order", "str", ORDERS), *_ACCESS)

_EXITS = ("tile.break", "tile.continue", "tile.leave", "tile.return")
_BODY = ("tile.yield", *_EXITS)
_SCOPE_BODY = ("tile.leave", "tile.return", "tile.break", "tile.continue")


def _elementwise(
    names: str, operands: str, classes: Classes, effect: Effect = "none", exact: bool = False,
    traits: tuple[Trait, ...] = (),
) -> list[OpDef]:  # fmt: skip
    """Operations whose operands and result have one dtype."""
    attributes = (_SITE,) if effect == "fault" else (_EXACT,) if exact else ()
    return [
        OpDef(
            f"tile.{name}", tuple(operands.split()), "same",
            classes=classes, attributes=attributes, effect=effect,
            traits=(*traits, "element-wise"),
        )
        for name in names.split()
    ]  # fmt: skip


_COMMUTATIVE: tuple[Trait, ...] = ("commutative",)
_ELEMENT_WISE: tuple[Trait, ...] = ("element-wise",)
_LOOP_EXIT: tuple[Trait, ...] = ("leaves", "loop exit")

_GEOMETRY = [
    OpDef("tile.lane_linear", (), "index", traits=("lane id",)),
    OpDef("tile.lane_index", (), "index", attributes=(_AXIS,), traits=("lane id",)),
    OpDef("tile.group_linear", (), "index", traits=("group id",)),
    OpDef("tile.group_index", (), "index", attributes=(_AXIS,), traits=("group id",)),
    OpDef("tile.group_count", (), "index", attributes=(_AXIS_OR_ALL,), traits=("group id",)),
]  # fmt: skip

_MEMORY = [
    OpDef(
        "tile.view", ("pointer", "sizes..."), "view",
        attributes=(
            AttributeDef("reshaped", "bool", (), True),  # with other sizes than the array
            AttributeDef("merged", "ints", (), True),  # how many of its axes each axis is
        ),
    ),
    OpDef(
        "tile.table", (), "table",
        attributes=(AttributeDef("name", "str"), AttributeDef("values", "str")),
    ),
    OpDef(
        "tile.shared.alloc", (), "shared_alloc",
        attributes=(
            AttributeDef("name", "str"), AttributeDef("offset", "int", (), True),
            AttributeDef("scratch", "bool", (), True),
        ),
        effect="write", traits=("allocation", "buffer", "shared memory"),
    ),
    OpDef(
        "tile.local.alloc", (), "local_alloc", attributes=(AttributeDef("name", "str"),),
        effect="write", traits=("allocation", "buffer"),
    ),
    OpDef(
        "tile.load", ("array", "indices..."), "load",
        attributes=(*_ACCESS, AttributeDef("uniform", "bool", (), True)), effect="read",
        traits=("element access",),
    ),
    OpDef(
        "tile.store", ("value", "array", "indices..."), "store",
        results=0, attributes=_ACCESS, effect="write", traits=("element access",),
    ),
    OpDef(
        "tile.atomic", ("value", "array", "indices..."), "atomic",
        attributes=(AttributeDef("kind", "str", ATOMIC_KINDS), *_ATOMIC), effect="update",
        traits=("atomic",),
    ),
    OpDef(
        "tile.atomic_cas", ("expected", "desired", "array", "indices..."), "atomic_cas",
        attributes=_ATOMIC, effect="update", traits=("atomic",),
    ),
    OpDef(
        "tile.atomic_load", ("array", "indices..."), "load", attributes=_ATOMIC, effect="read",
        traits=("atomic",),
    ),
    OpDef(
        "tile.atomic_store", ("value", "array", "indices..."), "store",
        results=0, attributes=_ATOMIC, effect="write", traits=("atomic",),
    ),
    OpDef("tile.fence", (), "nothing", results=0, attributes=(_SCOPE,), effect="sync"),
    OpDef(
        "tile.barrier", (), "nothing", results=0, effect="sync", traits=("barrier", "all lanes"),
    ),
    OpDef(
        "tile.assert", ("condition",), "assert", results=0, attributes=(_SITE,), effect="fault"
    ),
    OpDef(
        "tile.assume", ("a", "b"), "assume", results=0,
        attributes=(AttributeDef("predicate", "str", PREDICATES),), effect="fault",
    ),
    OpDef(
        "tile.print", ("values...",), "print", results=0,
        attributes=(AttributeDef("text", "int"),), effect="fault",
    ),
]  # fmt: skip

_WARP = [
    OpDef(
        "tile.warp_reduce", ("a",), "warp_reduce", classes="number",
        attributes=(AttributeDef("kind", "str", WARP_KINDS),), effect="warp",
    ),
    OpDef(
        "tile.warp_shuffle", ("a", "lane"), "warp_shuffle", classes="number", effect="warp",
        traits=("per lane",),
    ),
    OpDef(
        "tile.warp_vote", ("a",), "warp_vote",
        attributes=(AttributeDef("kind", "str", VOTES),), effect="warp",
    ),
    OpDef("tile.warp_ballot", ("a",), "warp_ballot", effect="warp"),
    OpDef(
        "tile.warp_match", ("a", "scratch..."), "warp_match", effect="warp", traits=("per lane",),
    ),
]  # fmt: skip
WARP_OPS = tuple(definition.name for definition in _WARP)
"""Operations in which the lanes of a warp meet."""

_ARITHMETIC = [
    OpDef("tile.constant", (), "constant", attributes=(AttributeDef("value", "scalar"),)),
    *_elementwise("add mul", "a b", "number", exact=True, traits=_COMMUTATIVE),
    *_elementwise("sub", "a b", "number", exact=True),
    OpDef(
        "tile.div", ("a", "b"), "same", classes="float",
        attributes=(AttributeDef("rounded", "bool", (), True),), traits=_ELEMENT_WISE,
    ),
    *_elementwise("floordiv mod", "a b", "number", effect="fault"),
    *_elementwise("min max", "a b", "any", traits=_COMMUTATIVE),
    *_elementwise("and or xor", "a b", "bits", traits=_COMMUTATIVE),
    *_elementwise("shl shr", "a count", "integer"),
    *_elementwise("neg abs", "a", "number"),
    *_elementwise("not", "a", "bits"),
    *_elementwise("sqrt floor ceil trunc round", "a", "float"),
    *_elementwise("exp2", "a", "float"),
    OpDef(
        "tile.approx", ("a", "exact"), "same", classes="float",
        attributes=(AttributeDef("kind", "str", APPROXIMATIONS),), traits=_ELEMENT_WISE,
    ),
    OpDef("tile.either", ("exact", "quick"), "same", classes="float", traits=_ELEMENT_WISE),
    *_elementwise("fma", "a b c", "float"),
    OpDef(
        "tile.cmp", ("a", "b"), "compare",
        attributes=(
            AttributeDef("predicate", "str", PREDICATES), AttributeDef("near", "bool", (), True),
        ),
        traits=_ELEMENT_WISE,
    ),
    OpDef("tile.select", ("condition", "a", "b"), "select", traits=_ELEMENT_WISE),
    OpDef("tile.cast", ("a",), "cast", traits=_ELEMENT_WISE),
    OpDef("tile.bitcast", ("a",), "bitcast", traits=_ELEMENT_WISE),
]  # fmt: skip

_CONTROL = [
    OpDef(
        "tile.kernel", (), "kernel", results=0, terminators=(("tile.return",),), effect="nested",
        attributes=(
            AttributeDef("sym_name", "str"), AttributeDef("group", "ints"),
            AttributeDef("grid_rank", "int"), AttributeDef("shared_budget", "int"),
            AttributeDef("parameters", "strs"), AttributeDef("sizes", "ints", (), True),
            AttributeDef("small", "bool", (), True),
            AttributeDef("cluster", "ints", (), True),
            AttributeDef("registers", "int", (), True), AttributeDef("divisors", "ints", (), True),
        ),
    ),
    OpDef(
        "tile.for", ("lower", "upper", "step", "carried..."), "for", results=-1,
        attributes=(_SITE,), terminators=(_BODY,), effect="nested", traits=("loop",),
    ),
    OpDef(
        "tile.while", ("carried...",), "while", results=-1,
        terminators=(("tile.condition",), _BODY), effect="nested", traits=("loop",),
    ),
    OpDef(
        "tile.if", ("condition",), "if", results=-1, terminators=(_BODY, _BODY), effect="nested",
        traits=("block",),
    ),
    OpDef(
        "tile.scope", (), "scope", results=-1, terminators=(_SCOPE_BODY,), effect="nested",
        traits=("block",),
    ),
    OpDef("tile.yield", ("values...",), "exit", results=0, effect="exit"),
    OpDef("tile.condition", ("condition", "carried..."), "exit", results=0, effect="exit"),
    OpDef("tile.break", ("carried...",), "exit", results=0, effect="exit", traits=_LOOP_EXIT),
    OpDef("tile.continue", ("carried...",), "exit", results=0, effect="exit", traits=_LOOP_EXIT),
    OpDef("tile.leave", ("values...",), "exit", results=0, effect="exit", traits=("leaves",)),
    OpDef("tile.return", (), "exit", results=0, effect="exit", traits=("leaves",)),
]  # fmt: skip

TILE_OPS: dict[str, OpDef] = {
    definition.name: definition
    for definition in (
        *_GEOMETRY,
        *_MEMORY,
        *_WARP,
        *_ARITHMETIC,
        *_CONTROL,
        *TILE_LEVEL_OPS,
    )
}
