"""Every number of a schedule that was measured, not derived: value, unit, machine, page.

A pass compares estimates of registers, bytes and cycles; where the tables of the hardware end, one
of these says how much. To measure anew, change a value here and its page. Numbers of the
instruction set are in ``target.arch.isa``, those of one architecture in ``target.arch.rows``. Must
not know who reads it.
"""

from __future__ import annotations

from typing import TypeVar

from tessera_lang.record import dataclass

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Measurement:
    """``page``: file and heading under ``docs`` that shows the run. ``what``: of what it is."""

    value: object
    unit: str
    page: str
    machine: str
    what: str


MEASUREMENTS: list[Measurement] = []
"""All values of this module, in order."""


def _measured(value: _T, unit: str, page: str, what: str, machine: str = "H200") -> _T:
    MEASUREMENTS.append(Measurement(value, unit, page, machine, what))
    return value


_MODEL = "performance-notebook.md#the-cost-model"
_SHAPES = "performance-notebook.md#other-shapes"
_COMPUTED = "performance-notebook.md#computed-operands"
_SPLIT = "performance-notebook.md#split-k"
_STREAM = "performance-notebook.md#stream-k"
_ROWS = "performance-notebook.md#floors-and-obstacles"
_FEW = "performance-notebook.md#few-rows"
_F8 = "performance-notebook.md#f8"
_CHOSEN = "performance-notebook.md#chosen-not-measured-alone"

# --- the cost model of products --------------------------------------------------------------

SYNCHRONOUS_SHARE = _measured(
    0.62, "share of a rate", _MODEL,
    "what products by warps reach where the machine has asynchronous units", "H100",
)  # fmt: skip
COMPUTED_TURN = _measured(
    250.0, "cycles", _COMPUTED,
    "of an iteration in which lanes meet around operands that they compute",
)  # fmt: skip
COMPUTED_ELEMENT = _measured(
    0.06, "cycles", _COMPUTED,
    "of each element of such operands; little of it runs beside products",
)  # fmt: skip
ADDED_OUTSIDE = _measured(
    0.95, "share of a rate", _F8,
    "of a unit whose sums are added outside it, one part after the other",
)  # fmt: skip
BETWEEN_TILES = _measured(
    1200.0, "cycles", _MODEL,
    "between two tiles of a group that stays", "H100",
)  # fmt: skip
BARRIERS = _measured(
    60.0, "cycles", _MODEL,
    "of one iteration of a pipeline: its barriers", "H100",
)  # fmt: skip
ASYNCHRONOUS_BARRIERS = _measured(
    20.0, "cycles", _MODEL,
    "the same of asynchronous products", "H100",
)  # fmt: skip
PRODUCT_EDGE = _measured(
    4.0, "cycles", _MODEL,
    "of an asynchronous product of 64 rows besides its work", "H100",
)  # fmt: skip
SHARED_MIXED = _measured(
    0.85, "share of the time", _MODEL,
    "of reading shared memory and writing it, one after the other", "H100",
)  # fmt: skip
ASKING = _measured(
    340.0, "cycles", _MODEL,
    "in which one lane waits for a buffer, and asks for its next content", "H100",
)  # fmt: skip
ASKING_TOGETHER = _measured(
    600.0, "cycles", _MODEL,
    "in which all lanes ask for a buffer, wait for another, and meet", "H100",
)  # fmt: skip
MEMORY_LATENCY = _measured(
    900.0, "cycles", _MODEL,
    "of one access to main memory", "H100",
)  # fmt: skip
FIRST_BUFFERS = _measured(
    32.0, "bytes a cycle", _MODEL,
    "at which the first buffers of a tile arrive", "H100",
)  # fmt: skip
CLUSTER_BEGINS = _measured(
    1000.0, "cycles", _MODEL,
    "by which groups of a cluster begin and end later", "H100",
)  # fmt: skip
PARTS_ARRIVE = _measured(
    3000.0, "cycles", _SPLIT,
    "until the sums of a part are known to all, counted, and found",
)  # fmt: skip
PARTS_RATE = _measured(
    32.0, "bytes a cycle", _SPLIT,
    "at which sums are put down and taken up again",
)  # fmt: skip
PARTS_SEEN = _measured(
    512.0, "cycles", _SPLIT,
    "of those of a part, as many more as it takes, that nothing hides",
)  # fmt: skip
BUSY_FULL = _measured(
    0.97, "share of multiprocessors", _SHAPES,
    "from which on a long launch gains nothing by the rest of them",
)  # fmt: skip
BUSY_REST = _measured(
    0.25, "share of multiprocessors", _SHAPES,
    "that rest where the gain is greatest",
)  # fmt: skip
RESTING_GAIN = _measured(
    0.13, "share of cycles", _SHAPES,
    "that such a launch takes less: the others have power and the cache",
)  # fmt: skip
SHORT_LAUNCH = _measured(
    30000.0, "cycles", _SHAPES,
    "of a launch up to which there is no such gain",
)  # fmt: skip
FEW_BUFFERS = _measured(
    {1: 1.8, 2: 1.3, 3: 1.15}, "times", _MODEL,
    "an iteration with so few buffers, beside one with enough", "H100",
)  # fmt: skip
SHORTER_SEEN = _measured(
    0.3, "share of cycles", _MODEL,
    "of the shorter of computing and main memory, that can be seen in the whole",
)  # fmt: skip
LAUNCH_CYCLES = _measured(
    8000.0, "cycles", _CHOSEN,
    "below which a slow form is not told: taken as the time of a launch, which is not measured",
)  # fmt: skip
SLOWER_FORM = _measured(
    1.5, "times", _CHOSEN,
    "as long as another form from which on it is told; the model errs by less",
)  # fmt: skip
PARTS_WORTH = _measured(
    0.94, "share of cycles", _SPLIT,
    "of a launch without parts, at which parts are worth it",
)  # fmt: skip
STREAM_WORTH = _measured(
    1.0, "share of cycles", _STREAM,
    "the same where only tiles that make no wave have parts",
)  # fmt: skip
STREAM_TILES = _measured(
    4, "tiles", _STREAM,
    "whole ones of a group beside which parts are worth it: longer launches run at the limit "
    "of power",
)  # fmt: skip

# --- caches and the grid ---------------------------------------------------------------------

CACHE_HELD = _measured(
    1 << 25, "bytes", _FEW,
    "of an array that later launches may find in the cache",
)  # fmt: skip
CACHE_LONG = _measured(
    1 << 28, "bytes", _FEW,
    "of one that takes so long that what the cache writes back makes no difference",
)  # fmt: skip
GRID_ROWS = _measured(
    8, "tiles", _CHOSEN,
    "along the rows that follow each other in the grid",
)  # fmt: skip
UNCOUNTED_GROUPS = _measured(
    4, "groups of a multiprocessor", _CHOSEN,
    "that walk over tiles whose number the launch does not know",
)  # fmt: skip
CLUSTER_TURNS = _measured(
    32, "iterations", _F8,
    "of a tile with which a cluster loses more at the ends of tiles than it shares",
)  # fmt: skip

# --- rows without products --------------------------------------------------------------------

ALONE_REGISTERS = _measured(
    32, "registers of a lane", _CHOSEN,
    "beside its part of the largest tile, where groups that are there at once are counted",
)  # fmt: skip
PREFETCH_GROUPS = _measured(
    4, "groups of a multiprocessor", _ROWS,
    "from which on a cluster does not ask ahead: softmax of 131072 (three) 132 us with and "
    "138 without, of 32768 (six) 150 and 134",
)  # fmt: skip
PREFETCH_WAVES = _measured(
    1.0, "waves", _ROWS,
    "that a group looks ahead: the best of seven settings",
)  # fmt: skip
STAYING_WAVES = _measured(
    2, "iterations", _ROWS,
    "of a group from which on it stays: the last one loads in vain",
)  # fmt: skip
STAYING_REGISTERS = _measured(
    16, "registers of a lane", _CHOSEN,
    "beside its rows, of groups that stay",
)  # fmt: skip
STAYING_STAGES = _measured(
    2, "rows", _ROWS,
    "of the ring of a group that stays; three took 147 us for 144",
)  # fmt: skip
LANE_BYTES = _measured(
    128, "bytes of registers", _ROWS,
    "of a tile that a lane holds: five groups of 8 warps a multiprocessor, four vectors a "
    "lane on their way",
)  # fmt: skip
ROW_BYTES = _measured(
    131072, "bytes of registers", _ROWS,
    "of the largest tile of one group, which fills a multiprocessor",
)  # fmt: skip
BUSY_ROW_BYTES = _measured(
    65536, "bytes of registers", _ROWS,
    "the same where computing takes long, so that a second group loads meanwhile",
)  # fmt: skip
PART_BYTES = _measured(
    32768, "bytes of registers", _ROWS,
    "of the part of a row that a group of a cluster holds, if there may be so many",
)  # fmt: skip
PART_WARPS = _measured(
    8, "warps", _ROWS,
    "of a group that has a part of a row, at most",
)  # fmt: skip
KEPT_WARPS = _measured(
    4, "warps", _ROWS,
    "the same of a group that stays and keeps weights: 0.93 of a copy for 0.91 with 8",
)  # fmt: skip
BUSY_SHARE = _measured(
    1 / 8, "share of the time of memory", _ROWS,
    "of computing from which on the two are to overlap: softmax of 32768 (0.15) 0.88 of a "
    "copy in one group and 1.00 in eight, rmsnorm (0.10) 1.00 in one",
)  # fmt: skip
PART_REGISTERS = _measured(
    20, "registers of a lane", _ROWS,
    "beside what it loads, of groups of a cluster",
)  # fmt: skip
WIDE_PART_REGISTERS = _measured(
    28, "registers of a lane", _ROWS,
    "the same where rows are loaded as wide as they are computed in",
)  # fmt: skip
ASSEMBLER_GROUPS = _measured(
    4, "groups of a multiprocessor", _ROWS,
    "up to which one more is worth asking the assembler for",
)  # fmt: skip
ROW_OPERATIONS = _measured(
    128, "operations a cycle", _CHOSEN,
    "of a multiprocessor, on elements of a row",
)  # fmt: skip
ROW_RATE = _measured(
    13.0, "bytes a cycle", _ROWS,
    "of main memory for each multiprocessor, in a copy",
)  # fmt: skip

# --- registers ---------------------------------------------------------------------------------

BETWEEN_REGISTERS = _measured(
    {1: 60, 2: 58, 3: 28}, "registers of a lane", _CHOSEN,
    "for addresses and for what work between products holds, by the number of warp groups: "
    "with fewer ptxas 13.0 spilled",
)  # fmt: skip
ORDERED_GROUPS = _measured(
    3, "warp groups", _CHOSEN,
    "from which on they take turns: three 4 % faster, two no different",
)  # fmt: skip
ASSEMBLER_MARGIN = _measured(
    8, "registers of a lane", _CHOSEN,
    "that the assembler needs to work with beside tiles",
)  # fmt: skip
EPILOGUE_PREFETCH = _measured(
    32, "registers of a lane", _CHOSEN,
    "for what the first part of a result reads, held while the loop before it runs",
)  # fmt: skip
PRODUCT_REGISTERS = _measured(
    200, "registers of a lane", _CHOSEN,
    "that products may hold before tiles are smaller",
)  # fmt: skip
FMA_REGISTERS = _measured(
    128, "registers of a lane", _CHOSEN,
    "of an accumulator of multiply-adds; what is read of operands needs others",
)  # fmt: skip
RELIEF = _measured(
    (8, 5, 3), "eighths of registers", _CHOSEN,
    "that products may hold, by how often they were too many",
)  # fmt: skip
THREE_HOLD = _measured(
    (96, 64), "registers of a lane", _MODEL,
    "of accumulators where three warp groups compute beside one that moves data, where "
    "results leave by TMA and where lanes write them: code is assembled for 128 of each lane",
)  # fmt: skip
ALONE = _measured(
    8, "times", _CHOSEN,
    "as many vectors of a lane for a group that has the device for itself",
)  # fmt: skip
