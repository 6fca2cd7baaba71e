"""What a schedule prints against what was built of it: Tile IR, the plan, PTX.

``differences`` says what differs, in words. It reads the schedule and the code apart from each
other, and knows nothing of how one becomes the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import BarrierType, BufferType, Operation, TileType, Value
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.opt.schedule.query.kernel_facts import facts_of
from tessera_lang.opt.schedule.query.staging_rings import rings_of
from tessera_lang.target.launch_plan import LaunchPlan

_DOT, _LOADS = "tessera.schedule.dot", ("tessera.schedule.load", "tessera.schedule.gather")
_UNITS = {"wgmma": r"\bwgmma\.mma_async", "mma": r"\bmma\.sync"}
_COPIES = {
    "tma": r"cp\.async\.bulk\.tensor\.\dd\.shared", "async": r"\bcp\.async\.c[ag]\.shared",
}  # fmt: skip


def differences(made: ForMachine, ptx: Sequence[str] = ()) -> list[str]:
    """For each launch of a call; ``ptx``: the code of each, where there is any."""
    found: list[str] = []
    for number, launch in enumerate(made.launches):
        if launch.lowered is None:
            continue
        (schedule,), ((tile,), plan) = launch.schedule.operations, _parts(launch)
        found += _of_group(schedule, plan)
        found += _of_products(schedule, tile)
        found += _of_staging(schedule, tile)
        found += _of_stores(schedule, tile)
        found += _of_warps(schedule, tile)
        found += _of_operands(schedule, tile)
        if ptx:
            found += _of_code(schedule, ptx[number])
    return found


def unexplained(made: ForMachine, best: str) -> list[str]:
    """Products that are not done by the best unit of the machine, and of which no remark says why:
    of kernels that have register tiles."""
    if any(d.code == "T0747" for d in made.remarks):
        return []
    said = {d.span for d in made.remarks if d.code == "T0744"}
    return [
        f"{o.attributes.get('unit')} at {o.span}"
        for launch in made.launches for o in launch.schedule.walk()
        if o.name == _DOT and o.attributes.get("unit") != best and o.span not in said
    ]  # fmt: skip


def _parts(launch: ForMachine) -> tuple[tuple[Operation, ...], LaunchPlan]:
    assert launch.lowered is not None
    return launch.lowered[0].operations, launch.lowered[1]


def _differ(what: str, printed: object, built: object) -> list[str]:
    return [] if printed == built else [f"{what}: {printed} printed, {built} built"]


# --- the group and the grid ----------------------------------------------------------------------


def warps_of(schedule: Operation) -> int:
    roles = schedule.attributes.get("roles")
    if isinstance(roles, tuple):
        return sum(n for n in roles if isinstance(n, int))
    warps = schedule.attributes["warps"]
    assert isinstance(warps, int)
    return warps


def cluster_of(schedule: Operation) -> int:
    size = 1
    shape = schedule.attributes.get("cluster", ())
    for n in shape if isinstance(shape, tuple) else ():
        size *= n if isinstance(n, int) else 1
    return size


def _of_group(schedule: Operation, plan: LaunchPlan) -> list[str]:
    lanes = size = 1
    for n in plan.group:
        lanes *= n
    for n in plan.cluster:
        size *= n
    stays = bool(schedule.attributes.get("persistent"))
    groups = schedule.attributes.get("groups")
    counted = _differ("groups", (groups,), plan.grid) if groups is not None else []
    return [
        *counted,
        *_differ("warps", warps_of(schedule), lanes // 32),
        *_differ("cluster", cluster_of(schedule), size),
        *_differ("persistent groups", stays, plan.persistent),
    ]


# --- products ------------------------------------------------------------------------------------


def _built_unit(operation: Operation) -> str:
    """The unit of an operation of Tile IR that multiplies tiles; empty of any other."""
    if operation.name == "tile.mma.async":
        return "wgmma"
    if operation.name != "tile.dot":
        return ""
    return "fma" if isinstance(operation.operands[0].type, BufferType) else "mma"


def _of_products(schedule: Operation, tile: Operation) -> list[str]:
    """Each product, by its place in the source: there is one unit there, that which is printed."""
    printed: dict[object, set[str]] = {}
    for dot in (o for o in schedule.walk() if o.name == _DOT):
        printed.setdefault(dot.span, set()).add(str(dot.attributes.get("unit")))
    built: dict[object, set[str]] = {}
    for operation in tile.walk():
        unit = _built_unit(operation)
        if unit:
            built.setdefault(operation.span, set()).add(unit)
    if not any(built.values()) and all(units == {"fma"} for units in printed.values()):
        return []  # loops over elements
    places = {**printed, **built}
    found: list[str] = []
    for place in places:
        found += _differ("unit of a product", printed.get(place), built.get(place))
    return found


def _of_warps(schedule: Operation, tile: Operation) -> list[str]:
    """How warps share each product, by the warps of its accumulator along rows and columns."""
    found: list[str] = []
    for dot in (o for o in schedule.walk() if o.name == _DOT and "warp_grid" in o.attributes):
        built = {_warps_along(o.result.type) for o in tile.walk()
                 if o.name == "tile.dot" and o.span == dot.span}  # fmt: skip
        printed = {o.attributes.get("warp_grid") for o in schedule.walk()
                   if o.name == _DOT and o.span == dot.span}  # fmt: skip
        found += _differ("warps of a product", printed, built)
    return found


def _warps_along(t: object) -> tuple[int, int]:
    assert isinstance(t, TileType) and isinstance(t.layout, RegisterLayout)
    rows, columns = (
        prod(m.extent for m in t.layout.warps if m.axis == axis) for axis in range(2)
    )  # fmt: skip
    return rows, columns


def _of_operands(schedule: Operation, tile: Operation) -> list[str]:
    """Where asynchronous products read their first operands, and in how many parts sums that are
    added outside the unit are computed."""
    found: list[str] = []
    dots = [o for o in schedule.walk() if o.name == _DOT and o.attributes.get("unit") == "wgmma"]
    for place in dict.fromkeys(o.span for o in dots):
        here = [o for o in dots if o.span == place]
        built = [o for o in tile.walk() if o.name == "tile.mma.async" and o.span == place]
        printed = {_strings(o)[0] != "registers" for o in here}
        buffers = {isinstance(o.operands[1].type, BufferType) for o in built}
        found += _differ("first operands in buffers", printed, buffers)
        counts = {p[0] for o in here if isinstance(p := o.attributes.get("parts"), tuple)}
        if counts:
            found += _differ("parts of a sum", max(map(str, counts)), str(len(built) // len(here)))
    return found


def _strings(dot: Operation) -> tuple[str, ...]:
    said = dot.attributes["operands"]
    assert isinstance(said, tuple)
    return tuple(map(str, said))


# --- results --------------------------------------------------------------------------------------


def _of_stores(schedule: Operation, tile: Operation) -> list[str]:
    """Parts that leave by TMA or by lines, and where the work before them stands."""
    stores = [o for o in schedule.walk() if o.name == "tessera.schedule.store"]
    ways = {o.attributes.get("leaves", "tile") for o in stores}
    widths = {o.attributes["columns"] for o in stores if "columns" in o.attributes}
    sends = [o for o in tile.walk() if o.name == "tma.store"]
    buffers = {o.operands[0].type for o in sends} | {
        o.operands[0].type for o in tile.walk() if o.name == "tile.read_tile"
    }  # fmt: skip
    parts = {t.shape[-1] for t in buffers if isinstance(t, BufferType)}
    found = _differ("results by TMA", "tma" in ways, bool(sends))
    if sends and not widths <= parts:
        found += _differ("columns of a part", widths, parts)
    return [*found, *_of_epilogue(schedule, tile)]


def _of_epilogue(schedule: Operation, tile: Operation) -> list[str]:
    """What is stored in parts is computed whole, or part by part: then what is cut is no
    element-wise result."""
    form = schedule.attributes.get("epilogue")
    if form is None:
        return []
    made = {v: o for o in tile.walk() for v in o.results}
    cut = [o for o in tile.walk() if o.name == "tile.slice_tile"]
    users = Counter(v for o in tile.walk() for v in o.operands)
    whole = any(
        (source := made.get(o.operands[0])) is not None and _by_elements(source)
        and users[o.operands[0]] == sum(c.operands[0] is o.operands[0] for c in cut)
        for o in cut
    )  # fmt: skip
    return _differ("work before a store", form, "whole") if whole and form != "whole" else []


def _by_elements(operation: Operation) -> bool:
    return operation.name in ("tile.cast", "tile.add", "tile.mul", "tile.sub", "tile.div")


# --- what is staged ------------------------------------------------------------------------------


def _of_staging(schedule: Operation, tile: Operation) -> list[str]:
    if "roles" in schedule.attributes:
        return _of_rings(schedule, tile)
    return _of_buffers(schedule, tile)


def _staged(schedule: Operation) -> Iterator[Operation]:
    return (o for o in schedule.walk()
            if o.name in _LOADS and o.attributes.get("stage") == "shared")  # fmt: skip


def _of_rings(schedule: Operation, tile: Operation) -> list[str]:
    """Each ring has two barriers for each of its buffers; one that is read again has none."""
    rings = [r for r in rings_of(facts_of(schedule)) if r.reread is None]
    barriers = [o.result.type for o in tile.walk() if o.name == "tile.mbarrier.alloc"]
    counts = sorted(t.count for t in barriers if isinstance(t, BarrierType))
    printed = sorted(n for r in rings for n in (r.stages, r.stages))
    tensors = {o.attributes.get("copy") for o in _staged(schedule)} & {"tma"}
    built = {"tma" for o in tile.walk() if o.name == "tma.load"}
    by_tma = {o.attributes["swizzle"] for o in _staged(schedule) if o.attributes["copy"] == "tma"}
    lines = {_swizzle(o.operands[1]) for o in tile.walk() if o.name == "tma.load"}
    return [
        *_differ("stages", printed, counts), *_differ("copies by TMA", tensors, built),
        *_differ("swizzles", by_tma, lines),
    ]  # fmt: skip


def _of_buffers(schedule: Operation, tile: Operation) -> list[str]:
    """The buffers that copies write: how many stages they have, and who copies."""
    printed: Counter[tuple[object, object]] = Counter()
    ranks: set[int] = set()
    for load in _staged(schedule):
        attributes, t = load.attributes, load.result.type
        assert isinstance(t, TileType)
        ranks.add(len(t.shape))
        printed[attributes.get("copy"), attributes.get("stages")] += 1
    ahead = {key for key in printed if key[0] == "async"}
    written: dict[Value, str] = {}
    for operation in tile.walk():
        if operation.name == "tile.memcpy.async":
            written[operation.operands[1]] = "async"
        elif operation.name == "tile.write_tile":
            written.setdefault(operation.operands[1], "plain")
    swizzles = {load.attributes.get("swizzle", 0) for load in _staged(schedule)}
    lines = {_swizzle(value) for value in written}
    if not swizzles <= lines:
        return _differ("swizzles", swizzles, lines)
    built = {(how, _stages(value, ranks)) for value, how in written.items()}
    found = _differ("asynchronous copies", ahead, {key for key in built if key[0] == "async"})
    for key in (k for k in printed if k[0] == "plain"):
        if key not in built:
            found += _differ("copies by lanes", key, sorted(built))
    return found


def _swizzle(buffer: Value) -> int:
    t = buffer.type
    assert isinstance(t, BufferType)
    return t.layout.swizzle if t.layout is not None else 0


def _stages(buffer: Value, ranks: set[int]) -> int:
    """The first axis of a buffer is its stages where it has one more than a tile."""
    t = buffer.type
    assert isinstance(t, BufferType)
    return t.shape[0] if len(t.shape) - 1 in ranks and len(t.shape) not in ranks else 1


# --- PTX ------------------------------------------------------------------------------------------


def _of_code(schedule: Operation, ptx: str) -> list[str]:
    lanes = re.search(r"\.reqntid (\d+)", ptx)
    cluster = re.search(r"\.reqnctapercluster (\d+)", ptx)
    found = _differ("warps in PTX", warps_of(schedule), int(lanes[1]) // 32 if lanes else 0)
    found += _differ("cluster in PTX", cluster_of(schedule), int(cluster[1]) if cluster else 1)
    units = {str(o.attributes.get("unit")) for o in schedule.walk() if o.name == _DOT}
    for unit, pattern in _UNITS.items():
        found += _differ(f"{unit} in PTX", unit in units, re.search(pattern, ptx) is not None)
    copies = {o.attributes.get("copy") for o in _staged(schedule)}
    for copy, pattern in _COPIES.items():
        found += _differ(f"{copy} in PTX", copy in copies, re.search(pattern, ptx) is not None)
    if "roles" in schedule.attributes:
        stages = sum(2 * r.stages for r in rings_of(facts_of(schedule)) if r.reread is None)
        found += _differ("barriers in PTX", stages, _barriers(ptx))
    return found


def _barriers(ptx: str) -> int:
    """How many barriers are set up; each is by one instruction."""
    return len(re.findall(r"\bmbarrier\.init\.", ptx))
