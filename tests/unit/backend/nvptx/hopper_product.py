"""One product of a warp group in Tile IR: any types, orders and swizzles of the operands.

``c[m, n] = a @ b``: the operands come by TMA in boxes of one panel, the result goes to global
memory from registers, or through shared memory by ``tma.reduce``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera_lang.analysis.resources.register_layouts import wgmma_a, wgmma_c
from tessera_lang.ir.core import (
    BarrierType,
    BufferType,
    IRType,
    PointerType,
    Program,
    TensorMapType,
    TileType,
    Value,
)
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import BF16, DTYPES, F16, F32, I8, I32, U8, DType


@dataclass(frozen=True)
class Case:
    """``across_a``: a is kept as k x m; ``across_b``: b as k x n (else n x k).

    ``row`` and ``column`` are where the product starts in what is in shared memory; ``wide``:
    warp groups share rows and split the columns; ``reduce``: the result is added to c.
    """

    m: int = 64
    n: int = 64
    k: int = 64
    a: DType = BF16
    b: DType = BF16
    across_a: bool = False
    across_b: bool = False
    swizzle: int = 128
    groups: int = 1
    registers: bool = False
    row: int = 0
    column: int = 0
    wide: bool = False
    reduce: bool = False

    @property
    def c(self) -> DType:
        return I32 if self.a.is_integer else F32

    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of a and b as they lie in memory."""
        m, n = self.m + self.row, self.n + self.column
        return (
            (self.k, m) if self.across_a else (m, self.k),
            (self.k, n) if self.across_b else (n, self.k),
        )

    def panel(self, dtype: DType) -> int:
        return (self.swizzle or 16) // dtype.bytes

    def layout(self) -> RegisterLayout:
        if not self.wide:
            return wgmma_c((self.m, self.n), self.groups)
        columns = self.n // self.groups
        one = wgmma_c((self.m, columns), 1)
        return RegisterLayout(one.registers, one.lanes, (*one.warps, Mode(self.groups, 1, columns)))


def _buffer(b: Builder, case: Case, dtype: DType, shape: Sequence[int], name: str) -> Value:
    panel = case.panel(dtype)
    layout = SharedLayout(1, panel, panel, case.swizzle)
    t = BufferType(dtype, tuple(shape), layout=layout)
    return b.emit("tile.shared.alloc", (), (t,), {"name": name}, names=(name,)).result


def _load(b: Builder, source: Value, buffer: Value, barrier: Value) -> None:
    """All of an array, panel by panel and at most 256 lines at once."""
    t, box = buffer.type, source.type
    assert isinstance(t, BufferType) and isinstance(box, TensorMapType)
    zero = b.index(0)
    for column in range(0, t.shape[1], box.box[1]):
        for line in range(0, t.shape[0], box.box[0]):
            at = (b.index(line), b.index(column))
            b.emit("tma.load", (source, buffer, barrier, zero, *at, *at))


def _fetch(b: Builder, case: Case, maps: Sequence[Value]) -> tuple[Value, Value]:
    first, second = case.shapes()
    left, right = _buffer(b, case, case.a, first, "left"), _buffer(b, case, case.b, second, "right")
    ready = b.emit(
        "tile.mbarrier.alloc", (), (BarrierType(1),), {"name": "ready", "arrivals": 1}
    ).result
    zero = b.index(0)
    size = first[0] * first[1] * case.a.bytes + second[0] * second[1] * case.b.bytes
    with b.region() as region:
        b.emit("tile.mbarrier.expect", (ready, zero), attributes={"bytes": size})
        _load(b, maps[0], left, ready)
        _load(b, maps[1], right, ready)
        b.yield_()
    b.emit("tile.once", regions=(region.region,))
    b.emit("tile.mbarrier.wait", (ready, zero, zero))
    return left, right


def _result(b: Builder, case: Case, left: Value, right: Value) -> Value:
    kind = TileType(case.c, (case.m, case.n), case.layout())
    zero = b.index(0)
    acc = b.emit("tile.splat", (b.constant(0, case.c),), (kind,)).result
    row, column = b.index(case.row), b.index(case.column)
    starts = (zero, row) if case.across_a else (row, zero)
    if case.registers:
        shape = (case.m, case.k)
        t = TileType(case.a, shape, wgmma_a(shape, case.groups, case.a))
        left = b.emit("tile.read_tile", (left, *starts), (t,)).result
        starts = ()
    others = (zero, column) if case.across_b else (column, zero)
    again = b.cmp("gt", zero, zero)
    attributes = {
        "transpose_a": case.across_a, "transpose_b": not case.across_b,
        "precision": "tf32" if case.a == F32 else "exact",
    }  # fmt: skip
    operands = (acc, left, right, again, *starts, *others)
    acc = b.emit("tile.mma.async", operands, (kind,), attributes).result
    b.emit("tile.mma.commit")
    return b.emit("tile.mma.wait", (acc,), (kind,), {"pending": 0}).result


def _add(b: Builder, case: Case, acc: Value, target: Value) -> None:
    """The result added to c by the tensor memory accelerator."""
    out = _buffer(b, case, case.c, (case.m, case.n), "out")
    zero = b.index(0)
    b.emit("tile.write_tile", (acc, out, zero, zero))
    b.emit("tile.fence_async")
    b.barrier()
    with b.region() as region:
        for column in range(0, case.n, case.panel(case.c)):
            at = (zero, b.index(column))
            b.emit("tma.reduce", (out, target, *at, *at), attributes={"kind": "add"})
        b.emit("tma.commit")
        b.emit("tma.wait", attributes={"pending": 0})
        b.yield_()
    b.emit("tile.once", regions=(region.region,))


def boxes(case: Case) -> tuple[tuple[int, int], ...]:
    first, second = case.shapes()
    return (
        (min(first[0], 256), case.panel(case.a)),
        (min(second[0], 256), case.panel(case.b)),
        (case.m, case.panel(case.c)),
    )


def product(case: Case) -> tuple[Program, LaunchPlan]:
    """The program and its plan: maps of a and b, then c (a map where it is added to)."""
    dtypes = (case.a, case.b, case.c)
    count = 3 if case.reduce else 2
    found = list(zip(dtypes, boxes(case), strict=True))[:count]
    types: list[tuple[str, IRType]] = [
        (name, TensorMapType(dtype, box, case.swizzle))
        for name, (dtype, box) in zip("abc", found, strict=False)
    ]
    slots = [
        Slot("tensor_map", i, dtype=dtype.name, box=box, axes=(0, 1), swizzle=case.swizzle)
        for i, (dtype, box) in enumerate(found)
    ]
    if not case.reduce:
        types.append(("c", PointerType(case.c, "global")))
        slots.append(Slot("data", 2, dtype=case.c.name))
    b = Builder()
    with b.region(*types) as region:
        *maps, last = region.arguments
        left, right = _fetch(b, case, (maps[0], maps[1]))
        acc = _result(b, case, left, right)
        if case.reduce:
            _add(b, case, acc, last)
        else:
            sizes = [b.index(case.m), b.index(case.n)]
            view = b.view(last, sizes, shape=(case.m, case.n), mut=True, aligned=True)
            zero = b.index(0)
            attributes = {"dims": (0, 1), "steps": (1, 1)}
            b.emit("tile.store_tile", (acc, view, zero, zero, *sizes), attributes=attributes)
        b.return_()
    lanes = 128 * case.groups
    top = Builder()
    top.kernel("product", region.region, group=(lanes,), grid_rank=1, parameters=("a", "b", "c"))
    parameters = tuple(
        ParameterPlan(name, "tensor", dtype.name, 2, mut=name == "c", contiguous=True, aligned=True)
        for name, dtype in zip("abc", dtypes, strict=True)
    )
    return top.program(), LaunchPlan("product", parameters, tuple(slots), (lanes,), None)


E4M3, E5M2 = DTYPES["f8e4m3"], DTYPES["f8e5m2"]

CASES: dict[str, Case] = {
    "bf16": Case(),
    "f16, two groups, two panels": Case(m=128, n=128, k=128, a=F16, b=F16, groups=2),
    "a across": Case(m=128, across_a=True),
    "b across": Case(n=256, across_b=True),
    "both across": Case(m=128, n=128, k=128, across_a=True, across_b=True, groups=2),
    "e4m3": Case(k=128, a=E4M3, b=E4M3),
    "e5m2 by e4m3": Case(k=128, a=E5M2, b=E4M3),
    "i8": Case(k=128, a=I8, b=I8),
    "u8": Case(n=96, k=256, a=U8, b=U8),
    "tf32": Case(k=32, a=F32, b=F32),
    "tf32, three panels": Case(n=24, k=96, a=F32, b=F32),
    "swizzle 64": Case(swizzle=64),
    "swizzle 64 across": Case(swizzle=64, n=128, across_a=True, across_b=True),
    "swizzle 32": Case(swizzle=32, k=32),
    "swizzle 32 across": Case(swizzle=32, across_a=True, across_b=True),
    "no swizzle": Case(swizzle=0, n=32),
    "bf16 in registers": Case(registers=True, m=128, k=128, groups=2),
    "e4m3 in registers": Case(registers=True, k=128, a=E4M3, b=E4M3),
    "tf32 in registers": Case(registers=True, a=F32, b=F32),
    "i8 in registers": Case(registers=True, k=128, a=I8, b=I8),
    "in registers, b across": Case(registers=True, n=128, k=128, across_b=True),
    "in registers, two blocks": Case(registers=True, m=128),
    "two blocks a group": Case(m=256, n=128, groups=2),
    "groups beside each other": Case(n=256, groups=2, wide=True),
    "groups beside each other across": Case(m=128, n=256, groups=2, wide=True, across_b=True),
    "a part": Case(row=64, column=32),
    "a part across": Case(row=64, column=64, across_a=True, across_b=True),
    "8 columns": Case(n=8),
    "200 columns": Case(n=200),
    "added to c": Case(reduce=True, m=128, groups=2),
}
