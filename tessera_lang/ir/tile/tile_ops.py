"""The table of Tile operations on tiles: what a group does together. A part of ``TILE_OPS``.

Every lane of the role (or, outside ``tile.roles``, of the group) gets to such an operation.
Must not know who builds, checks or lowers the operations.
"""

from __future__ import annotations

from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef, Trait

REDUCTIONS = ("add", "mul", "max", "min", "any", "all", "argmax", "argmin")
PRECISIONS = ("exact", "tf32")

_AXIS = AttributeDef("axis", "int")
_DIMS = (AttributeDef("dims", "ints"), AttributeDef("steps", "ints"))
_NAME = AttributeDef("name", "str")
_PENDING = AttributeDef("pending", "int")
ORDER_STEPS = ("init", "wait", "arrive")


def _optional(name: str, kind: str, allowed: tuple[str | int, ...] = ()) -> AttributeDef:
    return AttributeDef(name, kind, allowed, True)  # type: ignore[arg-type]


_ACCESS = (
    _optional("hint", "str", ("stream", "keep")),
    _optional("vector", "int", (1, 2, 4, 8, 16)),  # bytes of an aligned piece
    _optional("whole", "bool"),  # extents cut no such piece
)

_ONE: tuple[Trait, ...] = ("one lane",)
_ALL: tuple[Trait, ...] = ("all lanes",)
_WITH_BARRIER: tuple[Trait, ...] = ("barrier", "all lanes")

_EACH = _optional("each", "str", ("role", "warp_group"))

REGISTER_TILES = [
    OpDef("tile.splat", ("value",), "splat", traits=("generates",)),
    OpDef("tile.coordinate", (), "coordinate", attributes=(_AXIS,), traits=("generates",)),
    OpDef(
        "tile.reduce_tile", ("tile", "scratch..."), "reduce_tile",
        attributes=(AttributeDef("kind", "str", REDUCTIONS), _AXIS, _optional("fresh", "bool")),
        effect="warp", traits=_WITH_BARRIER,
    ),
    OpDef(
        "tile.scan_tile", ("tile", "scratch..."), "scan_tile",
        attributes=(
            AttributeDef("kind", "str", ("add", "mul", "max", "min")), _AXIS,
            AttributeDef("inclusive", "bool"), _optional("reverse", "bool"),
        ),
        effect="warp", traits=_WITH_BARRIER,
    ),
    OpDef("tile.expand_tile", ("tile",), "expand_tile", attributes=(_AXIS,)),
    OpDef(
        "tile.transpose_tile", ("tile",), "transpose_tile",
        attributes=(AttributeDef("permutation", "ints"),),
    ),
    OpDef("tile.convert", ("tile", "scratch..."), "convert", effect="warp", traits=_WITH_BARRIER),
    OpDef("tile.slice_tile", ("tile",), "slice_tile", attributes=(AttributeDef("starts", "ints"),)),
    OpDef("tile.join_tiles", ("tiles...",), "join_tiles", attributes=(_AXIS,)),
    OpDef(
        "tile.load_tile", ("view", "numbers..."), "load_tile",
        attributes=(*_DIMS, *_ACCESS, _optional("ahead", "ints")), effect="read",
        traits=("tile load",),
    ),
    OpDef(
        "tile.store_tile", ("tile", "view", "numbers..."), "store_tile", results=0,
        attributes=(*_DIMS, *_ACCESS), effect="write",
    ),
    OpDef("tile.put_down", ("tile", "view", "start"), "put_down", results=0, effect="write"),
    OpDef(
        "tile.take_up", ("tile", "view", "start"), "take_up", effect="read", traits=("tile load",),
    ),
    OpDef(
        "tile.gather_tile", ("view", "numbers..."), "gather_tile",
        attributes=(AttributeDef("dims", "ints"),), effect="read", traits=("tile load",),
    ),
    OpDef(
        "tile.scatter_tile", ("tile", "view", "numbers..."), "scatter_tile", results=0,
        attributes=(AttributeDef("dims", "ints"),), effect="write",
    ),
    OpDef(
        "tile.read_tile", ("buffer", "starts..."), "read_tile", effect="read",
        traits=("all lanes", "tile load"),
    ),
    OpDef("tile.write_tile", ("tile", "buffer", "starts..."), "write_tile", results=0,
          effect="write", traits=_ALL),
    OpDef(
        "tile.dot", ("a", "b", "accumulator", "starts..."), "dot",
        attributes=(AttributeDef("precision", "str", PRECISIONS),), effect="read", traits=_ALL,
    ),
    OpDef(
        "tile.dot_into", ("a", "b", "accumulator", "numbers..."), "dot_into", results=0,
        attributes=(AttributeDef("transpose_a", "bool"), AttributeDef("transpose_b", "bool")),
        effect="update",
    ),
]  # fmt: skip

COPIES = [
    OpDef(
        "tile.memcpy.async", ("view", "buffer", "numbers..."), "memcpy_async", results=0,
        attributes=(*_DIMS, AttributeDef("vector", "int", (4, 8, 16))), effect="write",
        traits=("lane copy",),
    ),
    OpDef(
        "tile.memcpy.gather", ("view", "buffer", "numbers..."), "memcpy_gather", results=0,
        attributes=(AttributeDef("dims", "ints"), AttributeDef("vector", "int", (4, 8, 16))),
        effect="write", traits=("lane copy",),
    ),
    OpDef("tile.memcpy.commit", (), "nothing", results=0, effect="sync"),
    OpDef("tile.memcpy.wait", (), "nothing", results=0, attributes=(_PENDING,), effect="sync"),
]  # fmt: skip

HOPPER = [
    OpDef(
        "tile.mbarrier.alloc", (), "mbarrier_alloc",
        attributes=(_NAME, AttributeDef("arrivals", "int")), effect="write",
        traits=("allocation", "shared memory"),
    ),
    OpDef(
        "tile.mbarrier.expect", ("barrier", "slot"), "mbarrier", results=0,
        attributes=(AttributeDef("bytes", "int"),), effect="sync",
    ),
    OpDef(
        "tile.mbarrier.arrive", ("barrier", "slot"), "mbarrier", results=0,
        attributes=(AttributeDef("across", "str", ("group", "cluster")),), effect="sync",
    ),
    OpDef("tile.memcpy.arrive", ("barrier", "slot"), "mbarrier", results=0, effect="sync"),
    OpDef("tile.mbarrier.wait", ("barrier", "slot", "phase"), "mbarrier", results=0,
          effect="sync"),
    OpDef(
        "tma.load", ("map", "buffer", "barrier", "slot", "numbers..."), "tma_load", results=0,
        attributes=(_optional("multicast", "int"), _optional("hint", "str", ("first", "last"))),
        effect="write", traits=_ONE,
    ),
    OpDef("tma.store", ("buffer", "map", "numbers..."), "tma_store", results=0,
          effect="read", traits=_ONE),
    OpDef("tma.reduce", ("buffer", "map", "numbers..."), "tma_store", results=0,
          attributes=(AttributeDef("kind", "str", ("add", "min", "max")),),
          effect="read", traits=_ONE),
    OpDef("tma.commit", (), "nothing", results=0, effect="sync"),
    OpDef("tma.wait", (), "nothing", results=0, attributes=(_PENDING,), effect="sync"),
    OpDef("tile.fence_async", (), "nothing", results=0, effect="sync"),
    OpDef(
        "tile.named_barrier", (), "named_barrier", results=0,
        attributes=(AttributeDef("id", "int"), AttributeDef("lanes", "int"),
                    AttributeDef("wait", "bool"), _EACH),
        effect="sync", traits=_ALL,
    ),
    OpDef(
        "tile.ordered_barrier", (), "ordered_barrier", results=0,
        attributes=(AttributeDef("id", "int"), AttributeDef("step", "str", ORDER_STEPS)),
        effect="sync", traits=_ALL,
    ),
    OpDef("tile.cluster_barrier", (), "nothing", results=0, effect="sync", traits=_ALL),
    OpDef("tile.cluster_rank", (), "index"),
    OpDef(
        "tile.cluster_reduce", ("value", "buffer", "barrier"), "cluster_reduce",
        attributes=(AttributeDef("kind", "str", ("add", "mul", "max", "min")),),
        effect="sync", traits=_ALL,
    ),
    OpDef("tile.role_warp", (), "index"),
    OpDef("tile.once", (), "once", results=0, terminators=(("tile.yield",),), effect="nested",
          attributes=(_EACH,)),
    OpDef(
        "tile.roles", (), "roles", results=0, terminators=(("tile.yield",),), variadic=True,
        attributes=(
            AttributeDef("names", "strs"), AttributeDef("warps", "ints"),
            AttributeDef("registers", "ints"), AttributeDef("launched", "int", (), True),
        ),
        effect="nested", traits=_ALL,
    ),
    OpDef(
        "tile.mma.async", ("accumulator", "a", "b", "accumulate", "starts..."), "mma_async",
        attributes=(AttributeDef("transpose_a", "bool"), AttributeDef("transpose_b", "bool"),
                    AttributeDef("precision", "str", PRECISIONS)),
        effect="read", traits=_ALL,
    ),
    OpDef("tile.mma.commit", (), "nothing", results=0, effect="sync", traits=_ALL),
    OpDef("tile.mma.wait", ("values...",), "mma_wait", results=-1,
          attributes=(_PENDING, _optional("computed", "ints")), effect="sync", traits=_ALL),
]  # fmt: skip

TILE_LEVEL_OPS = (*REGISTER_TILES, *COPIES, *HOPPER)
