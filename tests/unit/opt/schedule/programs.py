"""Schedule IR of whole kernels, built by hand: what the front end and ``map_grid`` give.

Sizes are the launch's; every array is row-major. ``Kernel`` has the program and its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_lang.ir.core import Attribute, PointerType, Program, TileType, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder, Size
from tessera_lang.ir.verify import verify
from tessera_lang.record import dataclass
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import BF16, F32, INDEX, DType
from tessera_lang.types.shape import Sym


@dataclass(frozen=True, slots=True)
class Array:
    """A parameter: its sizes by name."""

    name: str
    dtype: DType
    dims: tuple[str, ...]
    mut: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    program: Program
    plan: LaunchPlan


def clipped(b: ScheduleBuilder, size: Value, start: Value, capacity: Value) -> Value:
    """``max(0, min(capacity, size - start))``."""
    rest = b.binary("sub", size, start)
    return b.binary("max", b.binary("min", capacity, rest), b.index(0))


Body = Callable[[ScheduleBuilder, Mapping[str, Value]], None]


def kernel(
    name: str, arrays: Sequence[Array], sizes: Mapping[str, int], body: Body,
    attributes: Mapping[str, Attribute] | None = None, aligned: int = 128,
) -> Kernel:  # fmt: skip
    """``body`` gets the views by array name, and the sizes by theirs."""
    b = ScheduleBuilder()
    symbols = list(sizes)
    arguments = [(f"{a.name}.data", PointerType(a.dtype, "global")) for a in arrays]
    arguments += [(s, INDEX) for s in symbols]
    with b.region(*arguments) as region:
        values: dict[str, Value] = dict(zip(symbols, region.arguments[len(arrays) :], strict=True))
        for array, pointer in zip(arrays, region.arguments, strict=False):
            values[array.name] = b.view(
                pointer, [values[d] for d in array.dims], mut=array.mut, aligned=aligned >= 16,
                name=array.name,
            )  # fmt: skip
        body(b, values)
        b.return_()
    found: dict[str, Attribute] = dict(attributes or {})
    found["hints"] = (*(0 for _ in arrays), *sizes.values())
    found["divisors"] = (
        *(aligned for _ in arrays),
        *(min(128, n & -n) if n else 128 for n in sizes.values()),
    )
    b.schedule_kernel(name, region.region, [n for n, _ in arguments], found)
    return Kernel(verify(b.program()), _plan(name, arrays, symbols, aligned >= 16))


def _plan(name: str, arrays: Sequence[Array], symbols: Sequence[str], aligned: bool) -> LaunchPlan:
    parameters = tuple(
        ParameterPlan(
            a.name, "tensor", a.dtype.name, len(a.dims), tuple(Sym(d) for d in a.dims), a.mut,
            True, aligned,
        )
        for a in arrays
    )  # fmt: skip
    slots = tuple(Slot("data", i, dtype=a.dtype.name) for i, a in enumerate(arrays))
    slots += tuple(Slot("symbol", symbol=s) for s in symbols)
    return LaunchPlan(name, parameters, slots, (), None)


Finish = Callable[[ScheduleBuilder, Value], Value]


def matmul(
    m: int = 4096, n: int = 4096, k: int = 4096, *, dtype: DType = BF16, out: DType | None = None,
    tile: Sequence[Size] = ("$0", "$1", "$2"), transposed: bool = True,
    attributes: Mapping[str, Attribute] | None = None, finish: Finish | None = None,
    aligned: int = 128,
) -> Kernel:  # fmt: skip
    """``c = finish(a @ b)``; ``b`` is given as n x k where ``transposed``."""
    b_dims = ("n", "k") if transposed else ("k", "n")
    out = out or dtype
    arrays = [Array("a", dtype, ("m", "k")), Array("b", dtype, b_dims),
              Array("c", out, ("m", "n"), True)]  # fmt: skip

    def body(b: ScheduleBuilder, v: Mapping[str, Value]) -> None:
        bm, bn, bk = (size_value(b, s) for s in tile)
        zero = b.index(0)
        with b.region(("i", INDEX), ("j", INDEX)) as grid:
            i, j = grid.arguments
            em, en = clipped(b, v["m"], i, bm), clipped(b, v["n"], j, bn)
            start = b.full(b.constant(0.0, F32), (tile[0], tile[1]))
            with b.region(("p", INDEX), ("acc", start.type)) as inner:
                p, acc = inner.arguments
                ek = clipped(b, v["k"], p, bk)
                ta = b.load_tile(v["a"], [i, p], [em, ek], (tile[0], tile[2]), hint="ta")
                if transposed:
                    tb = b.load_tile(v["b"], [j, p], [en, ek], (tile[1], tile[2]), hint="tb")
                    tb = b.transpose(tb, (1, 0))
                else:
                    tb = b.load_tile(v["b"], [p, j], [ek, en], (tile[2], tile[1]), hint="tb")
                b.yield_(b.dot(ta, tb, acc))
            (acc,) = b.loops([zero], [v["k"]], [bk], [start], inner.region, ["p"],
                             mapping=["loop"])  # fmt: skip
            result = finish(b, acc) if finish else acc
            b.store_tile(b.cast(result, out), v["c"], [i, j], [em, en])
            b.yield_()
        b.loops([zero, zero], [v["m"], v["n"]], [bm, bn], [], grid.region, ["i", "j"],
                mapping=["grid", "grid"])  # fmt: skip

    sizes = {"m": m, "n": n, "k": k}
    return kernel("matmul", arrays, sizes, body, attributes, aligned)


def size_value(b: ScheduleBuilder, size: Size) -> Value:
    return b.parameter(size) if isinstance(size, str) else b.index(size)


def attention(
    s: int = 4096, t: int = 4096, heads: int = 16, d: int = 128, *, bm: int = 128, bn: int = 128,
    attributes: Mapping[str, Attribute] | None = None,
) -> Kernel:  # fmt: skip
    """Softmax of ``q @ k.T`` times ``v``, over rows of [heads, length, d]."""
    arrays = [
        Array("q", BF16, ("h", "s", "d")), Array("k", BF16, ("h", "t", "d")),
        Array("v", BF16, ("h", "t", "d")), Array("o", BF16, ("h", "s", "d"), True),
    ]  # fmt: skip

    def body(b: ScheduleBuilder, v: Mapping[str, Value]) -> None:
        zero, one, full_d = b.index(0), b.index(1), b.index(d)
        step_m, step_n = b.index(bm), b.index(bn)
        with b.region(("hi", INDEX), ("i", INDEX)) as grid:
            hi, i = grid.arguments
            em = clipped(b, v["s"], i, step_m)
            q = b.load_tile(v["q"], [hi, i, zero], [em, full_d], (bm, d), hint="q")
            top = b.full(b.constant(float("-inf"), F32), (bm,))
            total = b.full(b.constant(0.0, F32), (bm,))
            acc = b.full(b.constant(0.0, F32), (bm, d))
            carried = [("top", top.type), ("total", total.type), ("acc", acc.type)]
            with b.region(("j", INDEX), *carried) as inner:
                b.yield_(*_attention_step(b, v, inner.arguments, q, (hi, step_n), (bm, bn, d)))
            _, total, acc = b.loops(
                [zero], [v["t"]], [step_n], [top, total, acc], inner.region, ["j"],
                mapping=["loop"],
            )  # fmt: skip
            wide = b.broadcast(b.expand(total, 1), (bm, d))
            b.store_tile(b.cast(b.binary("div", acc, wide), BF16), v["o"], [hi, i, zero],
                         [em, full_d])  # fmt: skip
            b.yield_()
        b.loops([zero, zero], [v["h"], v["s"]], [one, step_m], [], grid.region, ["hi", "i"],
                mapping=["grid", "grid"])  # fmt: skip

    return kernel("attention", arrays, {"h": heads, "s": s, "t": t, "d": d}, body, attributes)


def _attention_step(
    b: ScheduleBuilder, v: Mapping[str, Value], arguments: Sequence[Value], q: Value,
    at: tuple[Value, Value], shape: tuple[int, int, int],
) -> tuple[Value, Value, Value]:  # fmt: skip
    j, top, total, acc = arguments
    hi, step = at
    bm, bn, d = shape
    zero = b.index(0)
    en = clipped(b, v["t"], j, step)
    k = b.load_tile(v["k"], [hi, j, zero], [en, b.index(d)], (bn, d), hint="k")
    logits = b.dot(q, b.transpose(k, (1, 0)), b.full(b.constant(0.0, F32), (bm, bn)))
    scaled = b.binary("mul", logits, b.full(b.constant(0.125, F32), (bm, bn)))
    scaled = b.mask(scaled, b.constant(float("-inf"), F32), [b.index(bm), en])
    new_top = b.binary("max", top, b.reduce("max", scaled, en, 1))
    p = exponential(b, b.binary("sub", scaled, b.broadcast(b.expand(new_top, 1), (bm, bn))))
    shrink = exponential(b, b.binary("sub", top, new_top))
    total = b.binary("add", b.binary("mul", total, shrink), b.reduce("add", p, en, 1))
    acc = b.binary("mul", acc, b.broadcast(b.expand(shrink, 1), (bm, d)))
    values = b.load_tile(v["v"], [hi, j, zero], [en, b.index(d)], (bn, d), hint="v")
    weights = b.mask(b.cast(p, BF16), b.constant(0.0, BF16), [b.index(bm), en])
    return new_top, total, b.dot(weights, values, acc)


def exponential(b: ScheduleBuilder, x: Value) -> Value:
    """Something like ``exp`` from the operations there are: (1 + x / 64 clamped)^64."""
    assert isinstance(x.type, TileType)
    shape = x.type.shape
    y = b.binary("mul", x, b.full(b.constant(1.0 / 64.0, F32), shape))
    y = b.binary("add", y, b.full(b.constant(1.0, F32), shape))
    y = b.binary("max", y, b.full(b.constant(0.0, F32), shape))
    for _ in range(6):
        y = b.binary("mul", y, y)
    return y
