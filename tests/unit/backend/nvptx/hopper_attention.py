"""Two chained products for Hopper in Tile IR, the second one on the first one's result.

``o = f(q @ k^T) @ v`` over blocks of k and v, where f rescales by the running maximum of each
row: while the product with v of one block runs, the next block's product with k is issued, and
its result becomes the next left operand in registers only when the product before is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera_lang.analysis.resources.register_layouts import wgmma_c
from tessera_lang.ir.core import (
    BarrierType,
    BufferType,
    IRType,
    PointerType,
    Program,
    Region,
    TensorMapType,
    TileType,
    Value,
)
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import BF16, F32, INDEX

GROUPS, STAGES = 2, 2
ROWS, BLOCK, DEPTH = 64 * GROUPS, 128, 128
_SWIZZLED = SharedLayout(1, 64, 64, 128)
_SHAPE = (ROWS, BLOCK)
_LAYOUT = wgmma_c(_SHAPE, GROUPS)
_TILE = TileType(F32, _SHAPE, _LAYOUT)
_NARROW = TileType(BF16, _SHAPE, _LAYOUT)
_ROW = TileType(F32, (ROWS,), _LAYOUT.without_axis(1))


@dataclass
class Place:
    """A slot of a ring and its phase."""

    slot: Value
    phase: Value


class Kernel:
    def __init__(self, b: Builder, arguments: Sequence[Value]) -> None:
        self.b = b
        self.q_map, self.k_map, self.v_map, self.out, self.blocks = arguments
        self.q = self._buffer((ROWS, DEPTH), "q_tile")
        self.k = self._buffer((STAGES, BLOCK, DEPTH), "k_tiles")
        self.v = self._buffer((STAGES, BLOCK, DEPTH), "v_tiles")
        self.ready = self._barrier(1, "q_full", 1)
        self.k_full, self.k_empty = self._ring("k")
        self.v_full, self.v_empty = self._ring("v")

    def _buffer(self, shape: Sequence[int], name: str) -> Value:
        t = BufferType(BF16, tuple(shape), layout=_SWIZZLED)
        return self.b.emit("tile.shared.alloc", (), (t,), {"name": name}).result

    def _barrier(self, count: int, name: str, arrivals: int) -> Value:
        attributes = {"name": name, "arrivals": arrivals}
        return self.b.emit("tile.mbarrier.alloc", (), (BarrierType(count),), attributes).result

    def _ring(self, name: str) -> tuple[Value, Value]:
        full = self._barrier(STAGES, f"{name}_full", 1)
        return full, self._barrier(STAGES, f"{name}_empty", GROUPS)

    def next(self, at: Place) -> Place:
        b = self.b
        one = b.binary("add", at.slot, b.index(1))
        wraps = b.cmp("eq", one, b.index(STAGES))
        other = b.binary("xor", at.phase, b.index(1))
        return Place(b.select(wraps, b.index(0), one), b.select(wraps, other, at.phase))

    # The producer.
    def _load(self, source: Value, target: Value, full: Value, at: Value, row: Value) -> None:
        b, zero = self.b, self.b.index(0)
        ring = (at,) if target is not self.q else ()
        attributes = {"bytes": BLOCK * DEPTH * 2}
        b.emit("tile.mbarrier.expect", (full, at), attributes=attributes)
        for column in range(0, DEPTH, 64):
            starts = (*ring, zero, b.index(column))
            b.emit("tma.load", (source, target, full, at, *starts, row, b.index(column)))

    def produce(self) -> None:
        b = self.b
        with b.region() as one:
            row = b.binary("mul", b.group_linear(), b.index(ROWS))
            self._load(self.q_map, self.q, self.ready, b.index(0), row)
            with b.region(("j", INDEX), ("slot", INDEX), ("phase", INDEX)) as body:
                j, slot, phase = body.arguments
                row = b.binary("mul", j, b.index(BLOCK))
                for source, target, full, empty in (
                    (self.k_map, self.k, self.k_full, self.k_empty),
                    (self.v_map, self.v, self.v_full, self.v_empty),
                ):
                    b.emit("tile.mbarrier.wait", (empty, slot, phase))
                    self._load(source, target, full, slot, row)
                following = self.next(Place(slot, phase))
                b.yield_(following.slot, following.phase)
            start = (b.index(0), b.index(1))
            b.for_(b.index(0), self.blocks, b.index(1), start, body.region)
            b.yield_()
        b.emit("tile.once", regions=(one.region,))

    # The consumer.
    def scores(self, at: Place) -> Value:
        """Issues q @ k^T."""
        b, zero = self.b, self.b.index(0)
        b.emit("tile.mbarrier.wait", (self.k_full, at.slot, at.phase))
        start = b.emit("tile.splat", (b.constant(0.0, F32),), (_TILE,)).result
        never = b.cmp("gt", zero, zero)
        operands = (start, self.q, self.k, never, zero, zero, at.slot, zero, zero)
        attributes = {"transpose_a": False, "transpose_b": True, "precision": "exact"}
        found = b.emit("tile.mma.async", operands, (_TILE,), attributes).result
        b.emit("tile.mma.commit")
        return found

    def add(self, acc: Value, left: Value, at: Place) -> Value:
        """Issues acc + left @ v."""
        b, zero = self.b, self.b.index(0)
        b.emit("tile.mbarrier.wait", (self.v_full, at.slot, at.phase))
        always = b.cmp("eq", zero, zero)
        operands = (acc, left, self.v, always, at.slot, zero, zero)
        attributes = {"transpose_a": False, "transpose_b": False, "precision": "exact"}
        found = b.emit("tile.mma.async", operands, (_TILE,), attributes).result
        b.emit("tile.mma.commit")
        return found

    def wait(self, pending: int, *values: Value) -> tuple[Value, ...]:
        types = [v.type for v in values]
        return self.b.emit("tile.mma.wait", values, types, {"pending": pending}).results

    def release(self, empty: Value, at: Place) -> None:
        self.b.emit("tile.mbarrier.arrive", (empty, at.slot), attributes={"across": "group"})

    def _stretched(self, row: Value) -> Value:
        return self.b.emit("tile.expand_tile", (row,), (_TILE,), {"axis": 1}).result

    def _reduced(self, tile: Value, kind: str) -> Value:
        attributes = {"kind": kind, "axis": 1}
        return self.b.emit("tile.reduce_tile", (tile,), (_ROW,), attributes).result

    def _weights(self, scores: Value, most: Value) -> Value:
        """A smooth decreasing function of the distance to the maximum, 1 at the maximum."""
        b = self.b
        below = b.binary("sub", self._stretched(most), scores)
        one = b.emit("tile.splat", (b.constant(1.0, F32),), (_TILE,)).result
        return b.binary("div", one, b.fma(below, below, one))

    def consume(self) -> None:
        b = self.b
        zero = b.index(0)
        b.emit("tile.mbarrier.wait", (self.ready, zero, zero))
        first = Place(zero, zero)
        (scores,) = self.wait(0, self.scores(first))
        self.release(self.k_empty, first)
        most = self._reduced(scores, "max")
        weights = self._weights(scores, most)
        total = self._reduced(weights, "add")
        left = b.emit("tile.cast", (weights,), (_NARROW,)).result
        acc = b.emit("tile.splat", (b.constant(0.0, F32),), (_TILE,)).result
        after = self.next(first)
        carried = (acc, left, most, total, after.slot, after.phase, zero, zero)
        names = ("acc", "left", "most", "total", "slot", "phase", "v_slot", "v_phase")
        types = [(n, v.type) for n, v in zip(names, carried, strict=True)]
        with b.region(("j", INDEX), *types) as body:
            b.yield_(*self.block(body.arguments[1:]))
        done = b.for_(b.index(1), self.blocks, b.index(1), carried, body.region)
        acc, left, _, total, _, _, *last = done
        place = Place(*last)
        (acc,) = self.wait(0, self.add(acc, left, place))
        self.release(self.v_empty, place)
        self.store(b.binary("div", acc, self._stretched(total)))

    def block(self, carried: Sequence[Value]) -> tuple[Value, ...]:
        b = self.b
        acc, left, most, total, slot, phase, *before = carried
        at, last = Place(slot, phase), Place(*before)
        issued = self.scores(at)
        acc = self.add(acc, left, last)
        (scores,) = self.wait(1, issued)
        self.release(self.k_empty, at)
        higher = b.binary("max", most, self._reduced(scores, "max"))
        weights = self._weights(scores, higher)
        apart = b.binary("sub", higher, most)
        one = b.emit("tile.splat", (b.constant(1.0, F32),), (_ROW,)).result
        scale = b.binary("div", one, b.fma(apart, apart, one))
        total = b.fma(total, scale, self._reduced(weights, "add"))
        acc, weights = self.wait(0, acc, weights)
        self.release(self.v_empty, last)
        left = b.emit("tile.cast", (weights,), (_NARROW,)).result
        acc = b.binary("mul", acc, self._stretched(scale))
        following = self.next(at)
        return acc, left, higher, total, following.slot, following.phase, slot, phase

    def store(self, acc: Value) -> None:
        b, zero = self.b, self.b.index(0)
        rows = b.binary("mul", b.group_count(), b.index(ROWS))
        view = b.view(self.out, [rows, b.index(DEPTH)], shape=(None, DEPTH), mut=True, aligned=True)
        row = b.binary("mul", b.group_linear(), b.index(ROWS))
        numbers = (row, zero, b.index(ROWS), b.index(DEPTH))
        attributes = {"dims": (0, 1), "steps": (1, 1)}
        b.emit("tile.store_tile", (acc, view, *numbers), attributes=attributes)


def attention() -> tuple[Program, LaunchPlan]:
    """Maps of q, k and v, then o in f32 and the number of blocks (at least one)."""
    boxes = ((ROWS, 64), (BLOCK, 64), (BLOCK, 64))
    types: list[tuple[str, IRType]] = [
        (name, TensorMapType(BF16, box)) for name, box in zip("qkv", boxes, strict=True)
    ]
    types += [("o", PointerType(F32, "global")), ("blocks", INDEX)]
    b = Builder()
    with b.region(*types) as region:
        kernel = Kernel(b, region.arguments)
        roles: list[Region] = []
        for role in (kernel.produce, kernel.consume):
            with b.region() as inner:
                role()
                b.yield_()
            roles.append(inner.region)
        attributes = {
            "names": ("producer", "consumer"), "warps": (4, 4 * GROUPS), "registers": (24, 240)
        }  # fmt: skip
        b.emit("tile.roles", attributes=attributes, regions=roles)
        b.return_()
    lanes = 128 * (GROUPS + 1)
    top = Builder()
    names = tuple(name for name, _ in types)
    top.kernel("attention", region.region, group=(lanes,), grid_rank=1, parameters=names)
    parameters = tuple(
        ParameterPlan(n, "tensor", "f32" if n == "o" else "bf16", 2, mut=n == "o",
                      contiguous=True, aligned=True)
        for n in "qkvo"
    )  # fmt: skip
    slots = (
        *(Slot("tensor_map", i, dtype="bf16", box=box, axes=(0, 1), swizzle=128)
          for i, box in enumerate(boxes)),
        Slot("data", 3, dtype="f32"), Slot("symbol", symbol="blocks"),
    )  # fmt: skip
    return top.program(), LaunchPlan("attention", parameters, slots, (lanes,), None)
