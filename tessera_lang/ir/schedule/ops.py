"""The table of Schedule operations: the second part of docs/ir.md as data.

Owns ``SCHEDULE_OPS``. Scalars, views and structured control flow are Tile IR's own operations;
element-wise work on tiles too. Must not know who builds, checks or lowers the operations.
"""

from __future__ import annotations

from tessera_grammar import directives

from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.record import replace

PREFIX = "tessera.schedule."
MAPPINGS = ("open", "grid", "loop")
REDUCTIONS = ("add", "mul", "max", "min", "any", "all", "argmax", "argmin")
SCANS = ("add", "mul", "max", "min")
PRECISIONS = ("exact", "tf32", "f32x3")
STAGES_IN = ("registers", "shared")

_DIMS = (AttributeDef("dims", "ints"), AttributeDef("steps", "ints"))


def _optional(name: str, kind: str, allowed: tuple[str | int, ...] = ()) -> AttributeDef:
    return AttributeDef(name, kind, allowed, True)  # type: ignore[arg-type]


DIRECTIVES = tuple(_optional(name, p.kind) for name, p in directives.attributes())
"""What ``schedule.*`` at the top of a body says, and what the passes decide; ``origins`` tells
which is which (``"tile=user"``, ``"warps=cost model"``)."""

_STAGING = (
    _optional("stage", "str", STAGES_IN),  # where a load is staged
    _optional("stages", "int"),  # buffers of the ring
    _optional("copy", "str", ("tma", "async", "plain")),  # what moves it
    _optional("swizzle", "int"),  # bytes of its lines in shared memory
    _optional("ring", "int"),  # loads of one ring, where copies of them stand in several regions
    # (ring, place): what that load of that ring has brought, a second time, where it lies; the
    # place is freed behind this
    _optional("reread", "ints"),
)
_REPACK = (
    _optional("repack", "bool"),  # from a copy of the array with aligned lines
    _optional("lines", "int"),  # the axis of the view that they run along instead
)
_FILLED = _optional("filled", "bool")  # the zeros beyond the extents are looked at
_OUTSIDE = _optional("outside", "bool")  # it may begin before its array: there it has zeros
_AHEAD = _optional("ahead", "ints")  # (axis of the view, how far): lines asked for besides
_EARLY = _optional("early", "bool")  # for the next iteration of a persistent group
_KEPT = _optional("kept", "bool")  # once, for all iterations of a persistent group
_AGAIN = _optional("again", "bool")  # from shared memory, behind each reduction once more
_HINT = _optional("hint", "str", ("first", "last"))  # what the second-level cache is to evict

_OPS = [
    OpDef(
        "kernel", (), "schedule_kernel", results=0, terminators=(("tile.return",),),
        effect="nested",
        attributes=(
            AttributeDef("sym_name", "str"), AttributeDef("parameters", "strs"), *DIRECTIVES,
            _optional("origins", "strs"), _optional("order", "str"), _optional("roles", "ints"),
            _optional("registers", "ints"), _optional("pingpong", "bool"),
            _optional("pieces", "int"), _optional("residents", "int"),
            _optional("turns", "bool"),  # rings that follow each other have the same bytes
            _optional("direct_access", "bool"),
            _optional("split", "int"), _optional("stream", "int"), _optional("swap", "bool"),
            _optional("subtile", "int"), _optional("group_rows", "int"), _optional("groups", "int"),
            _optional("heaviest", "ints"),  # an axis of the grid; 1: its last tiles are first
            _optional("epilogue", "str", ("whole", "parts", "prefetch")),
            _optional("hints", "ints"), _optional("divisors", "ints"),
            _optional("iterations", "str", ("lanes",)),
        ),
    ),
    OpDef(
        "for", ("bounds...",), "schedule_for", results=-1, terminators=(("tile.yield",),),
        effect="nested",
        attributes=(
            AttributeDef("axes", "strs"), AttributeDef("mapping", "strs"),
            _optional("independent", "strs"), _optional("pipeline_stages", "int"),
            _optional("unroll", "int"), _optional("reason", "str"), _optional("plain", "bool"),
            _optional("remainder", "bool"),  # the few iterations that are not like all others
            # Pieces of one loop have one number. The body of a piece that is general is that of
            # the whole loop, so it is right in the iterations of the pieces before it too.
            _optional("origin", "int"), _optional("general", "bool"),
        ),
        traits=("loop",),
    ),
    OpDef("parameter", (), "index", attributes=(AttributeDef("name", "str"),)),
    OpDef(
        "load", ("view", "numbers..."), "schedule_load",
        attributes=(
            *_DIMS, *_STAGING, *_REPACK, _AHEAD, _EARLY, _KEPT, _AGAIN, _HINT, _FILLED,
            _OUTSIDE,
        ),
        effect="read", traits=("box",),
    ),
    OpDef(
        "store", ("tile", "view", "numbers..."), "schedule_store", results=0,
        attributes=(
            *_DIMS, _optional("leaves", "str", ("tma", "lines", "tile")),
            _optional("columns", "int"),  # of a part that leaves on its own
            _optional("apart", "bool"),  # in a loop: no two runs touch one element
        ),
        effect="write", traits=("box",),
    ),
    OpDef(
        "scatter", ("tile", "view", "numbers..."), "schedule_scatter", results=0,
        attributes=(AttributeDef("dims", "ints"),), effect="write",
    ),
    OpDef(
        "accumulate", ("tile", "view", "numbers..."), "schedule_store", results=0,
        attributes=(*_DIMS, AttributeDef("kind", "str", ("add", "mul", "max", "min"))),
        effect="update", traits=("box",),
    ),
    OpDef(
        "prefetch", ("tile",), "schedule_same",
        attributes=(
            AttributeDef("scope", "str", ("shared",)), _optional("double_buffer", "bool"),
            _optional("asynchronous", "bool"),
        ),
        traits=("moves", "permutes", "in place"),
    ),
    OpDef("full", ("value",), "schedule_full", traits=("generates",)),
    OpDef(
        "iota", (), "schedule_iota", attributes=(AttributeDef("axis", "int"),),
        traits=("generates",),
    ),
    OpDef(
        "reduce", ("tile", "extent"), "schedule_reduce",
        attributes=(
            AttributeDef("kind", "str", REDUCTIONS), AttributeDef("axis", "int"),
            _optional("across", "int"),  # groups of a cluster that hold a part each
        ),
        traits=("contracts", "mixes", "bounded"),
    ),
    OpDef(
        "scan", ("tile",), "schedule_same",
        attributes=(
            AttributeDef("kind", "str", SCANS), AttributeDef("axis", "int"),
            AttributeDef("inclusive", "bool"), _optional("reverse", "bool"),
        ),
        traits=("mixes", "bounded"),
    ),
    OpDef(
        "sort", ("tile", "extent"), "schedule_sort",
        attributes=(AttributeDef("axis", "int"), _optional("places", "bool")),
        traits=("mixes", "bounded"),
    ),
    OpDef(
        "expand", ("tile",), "schedule_expand", attributes=(AttributeDef("axis", "int"),),
        traits=("moves",),
    ),
    OpDef("broadcast", ("tile",), "schedule_broadcast", traits=("moves",)),
    OpDef(
        "transpose", ("tile",), "schedule_transpose",
        attributes=(AttributeDef("permutation", "ints"),), traits=("moves", "permutes"),
    ),
    OpDef(
        "mask", ("tile", "fill", "extents..."), "schedule_mask", traits=("in place", "bounded"),
    ),
    OpDef(
        "extract", ("tile", "starts..."), "schedule_extract",
        attributes=(_optional("past", "bool"),),  # it may run past the end of the tile
        traits=("moves",),
    ),
    OpDef("insert", ("tile", "part", "numbers..."), "schedule_insert", traits=("mixes",)),
    OpDef(
        "gather", ("view", "numbers..."), "schedule_gather",
        attributes=(AttributeDef("dims", "ints"), *_STAGING, _FILLED), effect="read",
    ),
    OpDef(
        "dot", ("a", "b", "accumulator"), "schedule_dot",
        attributes=(
            AttributeDef("precision", "str", PRECISIONS),
            _optional("unit", "str", ("wgmma", "mma", "fma")),
            _optional("warp_grid", "ints"),  # warps along its rows and its columns
            _optional("operands", "strs"),  # where the asynchronous unit reads each of them
            _optional("parts", "ints"),  # of a sum that is added up outside the unit
        ),
        traits=("contracts", "mixes"),
    ),
    OpDef(
        "combine", ("counters", "parts", "place", "first", "part", "count", "tiles..."),
        "schedule_combine", results=0, terminators=(("tile.yield",),), effect="write",
    ),
]  # fmt: skip

SCHEDULE_OPS: dict[str, OpDef] = {
    PREFIX + d.name: replace(d, name=PREFIX + d.name)
    for d in _OPS
}  # fmt: skip
