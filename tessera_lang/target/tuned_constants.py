"""Every number that was measured or chosen, not derived: value, unit, machine, page.

A pass compares estimates of registers, bytes and cycles; where the tables of the hardware end, one
of these says how much. To measure anew, change a value here and its page. Numbers of the
instruction set are in ``target.arch.isa``, those of one architecture in ``target.arch.rows``. It
stands below all that read it: passes, lowerings, backends. Must not know who they are.
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


def _chosen(value: _T, unit: str, what: str, machine: str = "any GPU") -> _T:
    """A value that is reasonable and was not compared with others by itself."""
    return _measured(value, unit, _CHOSEN, what, machine)


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
LINE_REQUESTS = _measured(
    {128: 1.0, 64: 2.0, 32: 3.5, 16: 8.0}, "requests", _MODEL,
    "as long as one of 128 bytes, for as much in lines of so many",
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
BETWEEN_TILES = _measured(1000.0, "cycles", _MODEL, "between two tiles of a persistent group")
BARRIERS = _measured(60.0, "cycles", _MODEL, "of an iteration: its barriers", "H100")
ASYNCHRONOUS_BARRIERS = _measured(
    20.0, "cycles", _MODEL, "the same of asynchronous products", "H100",
)  # fmt: skip
PRODUCT_EDGE = _measured(
    4.0, "cycles", _MODEL, "of an asynchronous product of 64 rows besides its work", "H100",
)  # fmt: skip
SHARED_MIXED = _measured(
    0.85, "share of the time", _MODEL,
    "of reading shared memory and writing it, one after the other", "H100",
)  # fmt: skip
CONTENDING = _measured(
    (0.012, 8), "share of the time, power of a ratio", _SHAPES,
    "that an iteration takes longer where two resources are as slow, and by which that falls",
)  # fmt: skip
ASKING = _measured(
    300.0, "cycles", _MODEL, "in which one lane waits for a buffer, and asks for its next content",
)  # fmt: skip
ASKING_TOGETHER = _measured(
    600.0, "cycles", _MODEL,
    "in which all lanes ask for a buffer, wait for another, and meet", "H100",
)  # fmt: skip
MEMORY_LATENCY = _measured(900.0, "cycles", _MODEL, "of one access to main memory", "H100")
FIRST_BUFFERS = _measured(
    32.0, "bytes a cycle", _MODEL,
    "at which the first buffers of a tile arrive", "H100",
)  # fmt: skip
CLUSTER_BEGINS = _measured(
    1300.0, "cycles", _MODEL,
    "by which groups of a cluster begin and end later", "H100",
)  # fmt: skip
PARTS_ARRIVE = _measured(
    2000.0, "cycles", _SPLIT,
    "until the sums of a part are known to all, counted, and found",
)  # fmt: skip
PARTS_RATE = _measured(
    28.0, "bytes a cycle", _SPLIT, "at which sums are put down and taken up again",
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
    15000.0, "cycles", _SHAPES,
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
    3000.0, "cycles", "performance-notebook.md#launches",
    "that a launch takes in a queue: a slow form of less is not told",
)  # fmt: skip
SLOWER_FORM = _chosen(
    1.5, "times",
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
    1 << 25, "bytes", _FEW, "of an array that later launches may find in the cache",
)  # fmt: skip
CACHE_LONG = _measured(
    1 << 28, "bytes", _FEW,
    "of one that takes so long that what the cache writes back makes no difference",
)  # fmt: skip
GRID_ROWS = _chosen(
    8, "tiles",
    "along the rows that follow each other in the grid",
)  # fmt: skip
UNCOUNTED_GROUPS = _chosen(
    4, "groups of a multiprocessor",
    "that walk over tiles whose number the launch does not know",
)  # fmt: skip
CLUSTER_TURNS = _measured(
    32, "iterations", _F8,
    "of a tile with which a cluster loses more at the ends of tiles than it shares",
)  # fmt: skip

UNEVEN_SHARE = _chosen(
    0.1, "of the iterations of a group",
    "that the heaviest and the lightest tile may differ by where groups stay: by so much they end "
    "apart, and what groups that stay save at the ends of tiles is less",
)  # fmt: skip

# --- rows without products --------------------------------------------------------------------

ALONE_REGISTERS = _chosen(
    32, "registers of a lane",
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
STAYING_REGISTERS = _chosen(
    16, "registers of a lane",
    "beside its rows, of persistent groups",
)  # fmt: skip
STAYING_STAGES = _measured(
    2, "rows", _ROWS,
    "of the ring of a persistent group; three took 147 us for 144",
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
PART_WARPS = _measured(8, "warps", _ROWS, "of a group that has a part of a row, at most")
KEPT_WARPS = _measured(
    4, "warps", _ROWS,
    "the same of a persistent group and keeps weights: 0.93 of a copy for 0.91 with 8",
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
ROW_OPERATIONS = _chosen(
    128, "operations a cycle",
    "of a multiprocessor, on elements of a row",
)  # fmt: skip
ROW_RATE = _measured(
    13.0, "bytes a cycle", _ROWS,
    "of main memory for each multiprocessor, in a copy",
)  # fmt: skip

# --- registers ---------------------------------------------------------------------------------

BETWEEN_REGISTERS = _chosen(
    {1: 60, 2: 54, 3: 28}, "registers of a lane",
    "for addresses and for what work between products holds, by the number of warp groups: "
    "with fewer ptxas 13.0 spilled",
)  # fmt: skip
ORDERED_GROUPS = _chosen(
    {2: 3, 3: 1, 4: 1}, "products of an iteration",
    "from which on so many warp groups take turns: 4 to 7 % faster; with fewer up to 24 % slower",
)  # fmt: skip
ASSEMBLER_MARGIN = _chosen(
    8, "registers of a lane",
    "that the assembler needs to work with beside tiles",
)  # fmt: skip
EPILOGUE_PREFETCH = _chosen(
    32, "registers of a lane",
    "for what the first part of a result reads, held while the loop before it runs",
)  # fmt: skip
PRODUCT_REGISTERS = _chosen(
    200, "registers of a lane",
    "that products may hold before tiles are smaller",
)  # fmt: skip
WIDER_WORTH = _chosen(
    0.9, "share of the cycles", "from which on tiles that the program says are taken together",
)  # fmt: skip
NARROW_COLUMNS = _chosen(
    (256, 128, 64), "elements", "of the columns of a result that has no room as a whole",
)  # fmt: skip
WIDEST_TILE = _chosen(256, "elements", "along an axis of tiles that are taken together")
FMA_REGISTERS = _chosen(
    128, "registers of a lane",
    "of an accumulator of multiply-adds; what is read of operands needs others",
)  # fmt: skip
RELIEF = _chosen(
    (8, 5, 3), "eighths of registers",
    "that products may hold, by how often they were too many",
)  # fmt: skip
THREE_HOLD = _measured(
    (96, 64), "registers of a lane", _MODEL,
    "of accumulators where three warp groups compute beside one that moves data, where "
    "results leave by TMA and where lanes write them: code is assembled for 128 of each lane",
)  # fmt: skip
ALONE = _chosen(
    8, "times",
    "as many vectors of a lane for a group that has the device for itself",
)  # fmt: skip

# --- schedules: how much, how many -------------------------------------------------------------

GROUP_WARPS = _chosen(
    16, "warps", "of a group at most where nobody says more: lanes then have 128 registers each",
)  # fmt: skip
LOOP_WARPS = _chosen(8, "warps", "of a group that runs loops over elements")
MOST_KEPT = _chosen(4 << 30, "bytes", "of an array that keeps a product for several uses")
MOST_KEPT_SUMS = _chosen(512 << 20, "bytes", "the same of sums, which are computed sooner")
LANE_ELEMENTS = _chosen(
    128, "elements", "that an iteration touches at most where a lane takes it: what a group of four"
    " warps does in one step, and a lane in as many",
)  # fmt: skip
SPLIT_ROWS = _chosen(
    32, "elements", "along the last axis but one, that a step of the loop over an array splits",
)  # fmt: skip
SPLIT_COLUMNS = _chosen(128, "elements", "the same along the last axis: whole lines of all arrays")
LONGEST_SHORT_ROW = _chosen(2048, "bytes", "of a row of which a group takes several")
GROUPS_WANTED = _chosen(
    16, "groups a multiprocessor", "of several short rows, at least: twice as many as are there at"
    " once, so that none waits for the last",
)  # fmt: skip
GROUP_BYTES = _chosen(8192, "bytes", "of the rows that a group takes at once")
GROUP_ROWS = _chosen(64, "rows", "that a group takes at most")
SHORT_COPIES = _chosen(
    64, "copies", "of the body of a nest of loops of a lane, where the program says that they run"
    " a few times at most: as many loads are on their way at once",
)  # fmt: skip
LANE_HELD = _chosen(64, "elements", "of the largest tile of an iteration that a lane takes")
LANE_STORED = _chosen(8, "elements", "that an iteration stores at most where a lane takes it")
LANE_ITERATIONS = _chosen(
    16384, "iterations", "at least, for lanes to take one each: fewer are groups that all run",
)  # fmt: skip
FLOW_REGISTERS = _chosen(
    96, "registers of a lane", "of the tiles that are there at once, before more warps are better",
)  # fmt: skip
FLOW_ACCUMULATORS = _chosen(
    128, "registers of a lane", "of accumulators without roles, before more warps are better",
)  # fmt: skip
FLOW_STAGES = _chosen(3, "buffers", "of a ring that all warps fill, where nobody says how many")
FLOW_MOST_STAGES = _chosen(
    4, "buffers",
    "of such a ring at most: beyond it shared memory is worth more as a second group",
)  # fmt: skip
RING_STAGES = _chosen(8, "buffers", "of a ring that a role fills, at most")
ENOUGH_STAGES = _chosen(3, "buffers", "of a ring, with fewer of which it shares its bytes in turn")
RESERVED_BYTES = _chosen(
    2048, "bytes of shared memory", "for barriers, and what reductions between warps ask for",
)  # fmt: skip
ROW_OTHER_BYTES = _chosen(
    2048, "bytes of shared memory",
    "of a group beside its rows: what warps and groups exchange, and the driver's",
)  # fmt: skip
STAGED_BYTES = _chosen(
    512, "bytes", "of a tile from which on a place in a ring is worth its barriers",
)  # fmt: skip
ROLE_REGISTERS = _chosen(
    {1: (0, 0), 2: (40, 232), 3: (32, 160), 4: (24, 120)}, "registers of a lane",
    "of the producer and of each consumer, by the number of consumers: all warp groups together "
    "have 512; with one consumer every lane has as many as it can (0)",
)  # fmt: skip
HEAVY_REGISTERS = _chosen(
    {2: (24, 240)}, "registers of a lane", "the same where accumulators are large",
)  # fmt: skip
HEAVY_FROM = _chosen(184, "registers of a lane", "from which on accumulators are large")
TWO_RESIDENTS = _chosen(
    (40, 208), "registers of a lane",
    "of the producer and of the consumer of each of two groups that run beside each other",
)  # fmt: skip
MOVING_REGISTERS = _chosen(
    {1: (0, 0), 2: (104, 200), 3: (80, 144), 4: (56, 112)}, "registers of a lane",
    "the same where lanes of the producer hold what they bring",
)  # fmt: skip
HEAVY_MOVING_REGISTERS = _chosen(
    {2: (56, 224)}, "registers of a lane", "where they do and accumulators are large",
)  # fmt: skip
OTHER_REGISTERS = _chosen(
    24, "registers of a lane", "for addresses, counters and what is on the way",
)  # fmt: skip
TWO_ACCUMULATORS = _chosen(
    160, "registers of a lane", "of two accumulators, of the most that a lane has",
)  # fmt: skip
ACCUMULATOR_AND_HALVES = _chosen(192, "registers of a lane", "of an accumulator and its halves")
PEELED_REGISTERS = _chosen(
    32, "registers of a lane", "with which the role that moves data can go through two loops",
)  # fmt: skip
SPLIT_TRIPS = _chosen(
    3, "iterations", "from which on a loop is taken apart where a condition of it turns: with "
    "fewer, hardly one has whole tiles, and the code is there twice",
)  # fmt: skip
ROLE_SUMS = _chosen(
    128 * 256, "elements",
    "of the sums of lanes from which on no other group runs beside, so that a role that moves "
    "data gains",
)  # fmt: skip
MANY_SUMS = _chosen(
    128 * 128, "elements",
    "of a result from which on eight warps share it, and their lanes hardly wait for factors",
)  # fmt: skip
PIECE_REGISTERS = _chosen(
    16, "elements of a lane", "of a piece, where lanes copy a tile in pieces to save registers",
)  # fmt: skip
ELEMENT_LANES = _chosen(128, "lanes", "of a group that works element by element")
ELEMENT_VECTORS = _chosen(4, "vectors of 16 bytes", "that each of them reads")
ELEMENT_ALONE = _chosen(
    1024, "elements", "of a store that one group makes alone, where no loop divides it",
)  # fmt: skip
ELEMENT_HELD = _chosen(
    8192, "elements", "of a store in a loop that a group holds at once, element by element",
)  # fmt: skip
WIDEST_ARRAY = _chosen(4096, "elements", "of a tile of an array of one axis, at most")
WIDEST_ROW = _chosen(
    1024, "elements",
    "of a tile along a row, so that what a column needs is read once for several of them",
)  # fmt: skip
WIDEST_SQUARE = _chosen(64, "elements", "along each axis of a square tile")
TILE_COMBINATIONS = _chosen(
    5000, "sizes of tiles", "that are compared, unless more have nothing in common", "the compiler",
)  # fmt: skip
UNROLLED_OPERATIONS = _chosen(
    1024, "operations", "of an unrolled body, as heavy as the code that they become",
    "the compiler",
)  # fmt: skip
ESTIMATED_STAGES = _chosen(3, "buffers", "of a staged tile, before rings have a depth")
ESTIMATED_COMPUTED = _chosen(2, "buffers", "the same of what an operand is computed from")
ESTIMATED_SLOTS = _chosen(4096, "bytes", "for barriers, scales and what warps exchange, then")
UNKNOWN_TRIPS = _chosen(16, "iterations", "of a loop of which nothing is known")
STORE_TIMES = _chosen(
    (1, 2, 2), "times", "as long results take to leave, by the lines of their subtiles",
)  # fmt: skip
SPLIT_COUNTS = _chosen(
    (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32), "parts", "of a contraction that are compared",
)  # fmt: skip
STREAM_COUNTS = _chosen(
    (48, 64, 96, 128, 192, 256), "parts", "of a sum without products that are compared, too",
)  # fmt: skip
STREAM_GROUPS = _chosen(
    8, "groups", "of a multiprocessor that wait for memory at once, where none multiplies",
)  # fmt: skip
PART_ITERATIONS = _chosen(4, "iterations", "of a part of a contraction, at least")
PART_WAVES = _chosen(2, "parts", "of contractions that a multiprocessor gets at most")
EASED = _chosen(
    2, "times", "that a schedule was eased for want of registers, after which warps multiply",
)  # fmt: skip
FEW_ROWS = _chosen(
    32, "rows",
    "of a product up to which its transpose is computed: 64 fill the unit, half of it is not the "
    "limit",
)  # fmt: skip
OTHER_WAY_WORTH = _measured(
    0.96, "share of the cycles", _SHAPES,
    "from which on the transpose of a product is computed instead",
)  # fmt: skip
USUAL_COLUMNS = _measured(
    (8, 16, 32, 64, 96, 128, 160, 192, 256), "columns", _SHAPES, "that the model was fitted to",
)  # fmt: skip
FINER_WORTH = _measured(
    0.96, "share of the cycles", _SHAPES,
    "from which on columns are told apart by 16: closer ones the model cannot tell",
)  # fmt: skip
REPACK_READS = _chosen(
    2, "times", "that a launch reads an array from which on a copy with aligned lines pays",
)  # fmt: skip
LANE_COPY_RATE = _measured(8.0, "bytes a cycle", _MODEL, "that lanes of a role copy by 4", "H200")
COPY_BEFORE = _measured(4500.0, "cycles", _MODEL, "of a copy of an array, beside moving it", "H200")
REORDERED_READS = _chosen(
    4, "times",
    "that a launch moves each element of an array from which on a copy with its axes in another "
    "order pays: it reads and writes each, and not in lines of one",
)  # fmt: skip
REORDERED_ELEMENTS = _chosen(
    1 << 21, "elements",
    "that lanes would bring one at a time, from which on a copy with its axes in another order is "
    "worth a launch",
)  # fmt: skip
COALESCED_TRIPS = _chosen(
    16, "iterations",
    "of the innermost loop of a nest from which on it is not worth to make one loop of the nest: "
    "twice as many as a ring has buffers",
)  # fmt: skip
REDUCTION_PARTS = _chosen(
    512, "parts", "of a long reduction: some for each multiprocessor, and few to combine",
)  # fmt: skip
PHASE_ELEMENTS = _chosen(
    1 << 15, "elements", "that one group walks over, from which on a launch of its own pays",
)  # fmt: skip
FEW_ITERATIONS = _chosen(
    256, "iterations", "of a parallel loop, fewer than which leave a device with nothing to do",
)  # fmt: skip
LONG_ITERATION = _chosen(
    1 << 17, "elements",
    "that a reduction in one of them goes over, from which on it is worth launches of its own",
)  # fmt: skip
SHORT_ROW = _measured(
    128, "elements", _ROWS,
    "of a row of which tiles of several are computed, with a loop for each reduction",
)  # fmt: skip
SCATTER_ROWS = _chosen(64, "rows", "that are written at once where nothing says how many")
SCATTER_MOST_ROWS = _chosen(
    256, "rows", "of a tile of them at most: each is compared with each other",
)  # fmt: skip
SCATTER_PAIRS = _chosen(4096, "pairs of rows", "that are compared at once")

# --- what is lowered ---------------------------------------------------------------------------

LOOP_TIMES = _chosen(8, "times", "that a loop is taken to run where changes of layout are weighed")
SMALL_ACCESS = _chosen(2048, "bytes", "of a tile whose access is not worth a change of layout")
POWER_SIZES = _chosen(32, "elements", "up to which sizes are padded to powers of two")
SCRATCH_APART = _chosen(1024, "bytes", "of an exchange that is small beside what a group has")
COMBINED_REGISTERS = _chosen(
    256, "registers of a lane", "of parts of sums; more are taken up in a loop",
)  # fmt: skip
ACCESS_INSTRUCTIONS = _chosen(
    10, "instructions",
    "of an element that is read or written by itself, with its address and whether it is inside",
)  # fmt: skip
MOST_REMAINDERS = _chosen(
    16, "operations", "of a kernel that are looked at for remainders without a division",
)  # fmt: skip
UNROLLED_POWER = _chosen(64, "exponents", "up to which a power is multiplications")
NEAR_OPERATIONS = _chosen(
    16, "operations", "of those built last, among which what made a value is looked for",
    "the compiler",
)  # fmt: skip
SHORT_LOOP = _chosen(32, "elements", "that each lane goes through sooner than lanes meet")
COPIED_OPERATIONS = _chosen(
    1200, "operations", "that are added to a kernel whose guards have two versions", "the compiler",
)  # fmt: skip
BRANCH_OPERATIONS = _chosen(6, "operations", "that may run although their value is not asked for")
LAUNCH_COMPARISONS = _chosen(64, "comparisons", "of the check of a launch, at most", "the host")
CHEAP_OPERATIONS = _chosen(3, "operations", "that are computed again rather than kept in a buffer")
PARTIAL_RUN = _chosen(64, "elements", "of a run that one lane reduces at a time")
LINES_AT_ONCE = _chosen(8, "lines", "that one lane takes into a line of results in one pass")
LINE_OPERATIONS = _chosen(8, "operations on data", "of the elements of a result in such a pass")

# --- a CPU -------------------------------------------------------------------------------------

CPU_BLOCK = _chosen(
    (128, 128, 256), "elements",
    "rows, columns and depth of tiles of a product: two caches hold them", "x86-64",
)  # fmt: skip
CPU_LEAST = _chosen(
    32, "elements", "of a tile; a smaller one costs more to start than it spreads", "x86-64",
)  # fmt: skip
CPU_GROUPS = _chosen(16, "groups", "enough for the cores to share evenly", "x86-64")
CPU_RUN = _chosen(
    4096, "elements", "of a run along an axis, of a tile without products, at most", "x86-64",
)  # fmt: skip
CPU_ELEMENTS = _chosen(16384, "elements", "of such a tile", "x86-64")
CPU_LINE = _chosen(64, "bytes", "of a line of the caches", "x86-64")
CPU_SAME_SETS = _chosen(
    512, "bytes", "apart, or a multiple, rows meet in few sets of a cache", "x86-64",
)  # fmt: skip

# --- PTX ---------------------------------------------------------------------------------------

LONG_RUN = _chosen(
    (4096, 1024), "multiply-adds of a lane",
    "in a row (more make a loop), and in one iteration of that loop; long iterations are faster, "
    "and ask for more registers",
)  # fmt: skip
SHORT_RUN = _chosen(
    (1024, 512), "multiply-adds of a lane", "the same where registers spill with long iterations",
)  # fmt: skip
FMA_LINES = _chosen(8, "rows", "whose multiply-adds stand together")
FMA_HELD = _chosen(
    216, "registers of a lane", "for accumulator and operands; what is left holds addresses",
)  # fmt: skip
PINNED = _chosen(16, "values", "of multiply-adds that one empty piece of assembly takes")
TESTED_LAST = _chosen(
    4, "registers of a lane", "from which on it pays to test only the last of them",
)  # fmt: skip
OWN_CELLS = _chosen(
    64, "iterations",
    "of a loop that is unrolled; an array with more cells would not fit into registers",
)  # fmt: skip
OPERATORS_OF_A_KERNEL = _chosen(32, "operators", "of a graph that become one tile kernel")
STEPS_OF_A_LOOP = _chosen(16, "steps", "from which on a loop of a graph is no longer written out")
LONGEST_ROW = _chosen(65536, "elements", "of a row that a kernel of a graph holds")
ROWS_OF_A_TILE = _chosen(1024, "elements", "of a tile of several rows of a graph")
BYTES_OF_HELD_ROWS = _chosen(32 << 10, "bytes", "of values of rows: each is up to three on the way")
ROWS_OF_A_PRODUCT = _chosen(64, "rows", "of a tile of short rows that a product computes")
HELD_BY_A_LOOP = _chosen(40960, "elements", "that the lanes of a fused loop hold, of 32 bits")
LONGEST_LINE_OF_A_TILE = _chosen(256, "elements", "of a line that a fused loop takes at once")
OPERATIONS_OF_A_BYTE = _chosen(
    {2: 200.0, 4: 14.0, 8: 12.0}, "operations", "of a product while memory gives a byte", "H200",
)  # fmt: skip
