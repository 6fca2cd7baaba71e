"""``op.pad`` as operators of a graph: parts of the array, joined.

Owns what stands in the margins. Must not know how arguments are evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.ir.core import Value
from tessera_lang.ir.graph.axis_operators import part_along
from tessera_lang.lower.ast_to_graph.elementwise_functions import Given
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, not_here
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import WorldFault

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad(w: GraphWorld, given: Given) -> object:
    if not w.is_array(given["x"]) or isinstance(given["x"], GraphNumber):
        raise WorldFault(f"an array is expected here, not {kind_of(given['x'])}", code="T0818")
    x = w.lifted(given["x"])
    pairs = _pairs(given["pad_width"], x.tensor_type.rank)
    mode = given.get("mode", "constant")
    if mode != "constant":
        return GraphArray(_joined(w, x, str(mode), pairs))
    value = given.get("constant_values", 0.0)
    if isinstance(value, GraphNumber):
        raise not_here("a pad of a number that the function computes")
    return GraphArray(w.op("pad", x, before=tuple(p for p, _ in pairs), after=tuple(
        q for _, q in pairs), value=float(cast("float", value))))  # fmt: skip


def _pairs(widths: object, rank: int) -> list[tuple[int, int]]:
    """Elements before and after each axis."""
    if isinstance(widths, int):
        return [(widths, widths)] * rank
    rows = cast("Sequence[object]", widths)
    flat = all(isinstance(r, int) for r in rows)
    return [_both(rows if flat else r) for r in ([rows] * rank if flat else rows)]


def _both(row: object) -> tuple[int, int]:
    given = tuple(cast("Sequence[object]", row)) if isinstance(row, tuple | list) else (row,)
    for n in given:
        if isinstance(n, bool) or not isinstance(n, int):
            raise WorldFault(f"a width is an integer that is known, not {kind_of(n)}", code="T0818")
    first, *rest = cast("tuple[int, ...]", given)
    return first, rest[0] if rest else first


def _joined(w: GraphWorld, x: Value, mode: str, pairs: list[tuple[int, int]]) -> Value:
    """The array with its own elements in the margins."""
    if mode not in MODES:
        known = ", ".join(f'"{m}"' for m in MODES)
        raise WorldFault(f'`op.pad` has no mode "{mode}": there are {known}', code="T0818")
    for axis, (before, after) in enumerate(pairs):
        if not (before or after):
            continue
        size = x.tensor_type.shape[axis]
        if not isinstance(size, int):
            raise not_here(f'`op.pad` of mode "{mode}" of an axis whose size is a name')
        if not size:
            raise WorldFault("an axis without elements has none to pad with", code="T0834")
        places = [_place(mode, i, size) for i in range(-before, size + after)]
        parts = [_run(w, x, axis, run) for run in _runs(places)]
        x = w.op("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    return x


def _place(mode: str, i: int, size: int) -> int:
    """Which element stands at place ``i``."""
    if mode == "edge" or size == 1:
        return min(max(i, 0), size - 1)
    if mode == "wrap":
        return i % size
    period = 2 * size if mode == "symmetric" else 2 * size - 2
    at = i % period
    return at if at < size else period - at - (1 if mode == "symmetric" else 0)


def _runs(places: list[int]) -> list[list[int]]:
    """Neighbours that rise or fall by one, or stay: parts of the array."""
    runs: list[list[int]] = []
    for p in places:
        last = runs[-1] if runs else []
        if last and (len(last) < 2 and abs(p - last[0]) <= 1 or
                     len(last) > 1 and p - last[-1] == last[1] - last[0]):  # fmt: skip
            last.append(p)
        else:
            runs.append([p])
    return runs


def _run(w: GraphWorld, x: Value, axis: int, run: list[int]) -> Value:
    low, high = min(run), max(run)
    part = part_along(w.builder, x, axis, low, high + 1)
    if len(run) > 1 and low == high:
        shape = x.tensor_type.shape
        return w.builder.broadcast(part, (*shape[:axis], len(run), *shape[axis + 1 :]))
    return w.op("flip", part, axes=(axis,)) if run[0] > run[-1] else part
