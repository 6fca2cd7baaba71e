"""Builds Schedule operations; results get the types the table says.

On top of the builder of Tile IR, whose scalar operations take tiles too. Must not know syntax
or passes. Nothing is checked here beyond what a Python type says: ``verify.py`` does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import (
    Attribute,
    IRType,
    Operation,
    Program,
    Region,
    TileType,
    Value,
    ViewType,
)
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.record import replace
from tessera_lang.types.dtype import BOOL, I32, INDEX, DType

Size = int | str


def tile_type(value: Value) -> TileType:
    """The type of a tile. Raises TypeError for anything else."""
    if not isinstance(value.type, TileType):
        raise TypeError(f"{value.type} is no tile")
    return value.type


def dtype_of(value: Value) -> DType:
    """The dtype of a scalar, or of the elements of a tile, view, buffer or pointer."""
    t = value.type
    if isinstance(t, DType):
        return t
    dtype = getattr(t, "dtype", None)
    if not isinstance(dtype, DType):
        raise TypeError(f"{t} has no elements")
    return dtype


def like(t: IRType, dtype: DType) -> IRType:
    """The scalar or tile type like ``t`` that holds ``dtype``."""
    return replace(t, dtype=dtype) if isinstance(t, TileType) else dtype


class ScheduleBuilder(Builder):
    """Appends operations of Schedule IR; ``numbers`` are ``index`` values."""

    def program(self) -> Program:
        return Program("schedule", super().program().operations)

    # --- element-wise: the operations of Tile IR on scalars or tiles --------------------------

    def cmp(self, predicate: str, a: Value, b: Value, hint: str = "") -> Value:
        t = like(a.type, BOOL)
        return self._one("tile.cmp", (a, b), t, hint, predicate=predicate)

    def cast(self, a: Value, dtype: DType, hint: str = "") -> Value:
        """``a`` as ``dtype``; ``a`` itself where it has that dtype."""
        if dtype_of(a) == dtype:
            return a
        return self._one("tile.cast", (a,), like(a.type, dtype), hint)

    def bitcast(self, a: Value, dtype: DType, hint: str = "") -> Value:
        if dtype_of(a) == dtype:
            return a
        return self._one("tile.bitcast", (a,), like(a.type, dtype), hint)

    # --- making tiles ------------------------------------------------------------------------

    def full(self, scalar: Value, shape: Sequence[Size], hint: str = "") -> Value:
        t = TileType(dtype_of(scalar), tuple(shape))
        return self._one(f"{PREFIX}full", (scalar,), t, hint)

    def iota(self, shape: Sequence[Size], axis: int, dtype: DType = INDEX, hint: str = "") -> Value:
        """Coordinates along ``axis``."""
        return self._one(f"{PREFIX}iota", (), TileType(dtype, tuple(shape)), hint, axis=axis)

    def parameter(self, name: str) -> Value:
        """A size that the schedule chooses."""
        return self._one(f"{PREFIX}parameter", (), INDEX, name.replace("$", "size"), name=name)

    # --- memory ------------------------------------------------------------------------------

    def load_tile(
        self, view: Value, starts: Sequence[Value], extents: Sequence[Value],
        shape: Sequence[Size], *, dims: Sequence[int] = (), steps: Sequence[int] = (),
        hint: str = "", filled: bool = False,
    ) -> Value:  # fmt: skip
        """Elements of ``view``; tile axis i runs along ``dims[i]`` (the last axes in order)."""
        t = TileType(dtype_of(view), tuple(shape))
        along, step = _placed(view, len(t.shape), dims, steps)
        operands = (view, *starts, *extents)
        more: dict[str, Attribute] = {"filled": True} if filled else {}
        return self._one(f"{PREFIX}load", operands, t, hint, dims=along, steps=step, **more)

    def gather(
        self, view: Value, numbers: Sequence[Value], extents: Sequence[Value],
        shape: Sequence[Size], *, dims: Sequence[int] = (), hint: str = "", filled: bool = False,
    ) -> Value:  # fmt: skip
        """As ``load_tile``; a number may be a rank-1 tile of index, the places to take."""
        t = TileType(dtype_of(view), tuple(shape))
        along, _ = _placed(view, len(t.shape), dims, ())
        operands = (view, *numbers, *extents)
        more: dict[str, Attribute] = {"filled": True} if filled else {}
        return self._one(f"{PREFIX}gather", operands, t, hint, dims=along, **more)

    def store_tile(
        self, tile: Value, view: Value, starts: Sequence[Value], extents: Sequence[Value], *,
        dims: Sequence[int] = (), steps: Sequence[int] = (),
    ) -> Operation:  # fmt: skip
        along, step = _placed(view, len(tile_type(tile).shape), dims, steps)
        operands = (tile, view, *starts, *extents)
        return self.emit(f"{PREFIX}store", operands, (), {"dims": along, "steps": step})

    def scatter(
        self, tile: Value, view: Value, numbers: Sequence[Value], extents: Sequence[Value], *,
        dims: Sequence[int] = (),
    ) -> Operation:  # fmt: skip
        """As ``store_tile``; a number may be a rank-1 tile of index, places that all differ."""
        along, _ = _placed(view, len(tile_type(tile).shape), dims, ())
        operands = (tile, view, *numbers, *extents)
        return self.emit(f"{PREFIX}scatter", operands, (), {"dims": along})

    def accumulate(
        self, kind: str, tile: Value, view: Value, starts: Sequence[Value],
        extents: Sequence[Value], *, dims: Sequence[int] = (), steps: Sequence[int] = (),
    ) -> Operation:  # fmt: skip
        """``view[...] op= tile``."""
        along, step = _placed(view, len(tile_type(tile).shape), dims, steps)
        operands = (tile, view, *starts, *extents)
        attributes: dict[str, Attribute] = {"dims": along, "steps": step, "kind": kind}
        return self.emit(f"{PREFIX}accumulate", operands, (), attributes)

    def prefetch(
        self, tile: Value, *, double_buffer: bool | None = None, asynchronous: bool | None = None
    ) -> Value:
        attributes: dict[str, Attribute] = {"scope": "shared"}
        if double_buffer is not None:
            attributes["double_buffer"] = double_buffer
        if asynchronous is not None:
            attributes["asynchronous"] = asynchronous
        return self._one(f"{PREFIX}prefetch", (tile,), tile.type, tile.name, **attributes)

    # --- shapes ------------------------------------------------------------------------------

    def expand(self, tile: Value, axis: int, hint: str = "") -> Value:
        """One more axis, of size 1."""
        t = tile_type(tile)
        shape = (*t.shape[:axis], 1, *t.shape[axis:])
        return self._one(f"{PREFIX}expand", (tile,), TileType(t.dtype, shape), hint, axis=axis)

    def broadcast(self, tile: Value, shape: Sequence[Size], hint: str = "") -> Value:
        """Axes of size 1 stretched to ``shape``; the tile itself where it has that shape."""
        t = tile_type(tile)
        if t.shape == tuple(shape):
            return tile
        return self._one(f"{PREFIX}broadcast", (tile,), TileType(t.dtype, tuple(shape)), hint)

    def transpose(self, tile: Value, permutation: Sequence[int], hint: str = "") -> Value:
        """Axis i of the result is axis ``permutation[i]``."""
        t = tile_type(tile)
        shape = tuple(t.shape[axis] for axis in permutation)
        result = TileType(t.dtype, shape)
        order = tuple(permutation)
        return self._one(f"{PREFIX}transpose", (tile,), result, hint, permutation=order)

    def mask(self, tile: Value, fill: Value, extents: Sequence[Value], hint: str = "") -> Value:
        """``fill`` beyond the extents."""
        return self._one(f"{PREFIX}mask", (tile, fill, *extents), tile.type, hint)

    def extract(
        self, tile: Value, starts: Sequence[Value], shape: Sequence[Size], *, past: bool = False
    ) -> Value:
        """``past``: it may run past the end of the tile, where its elements are not defined."""
        t = TileType(tile_type(tile).dtype, tuple(shape))
        attributes: dict[str, Attribute] = {"past": True} if past else {}
        return self.emit(f"{PREFIX}extract", (tile, *starts), (t,), attributes).result

    def insert(
        self, tile: Value, part: Value, starts: Sequence[Value], extents: Sequence[Value],
        hint: str = "",
    ) -> Value:  # fmt: skip
        """``tile`` with the extents of ``part`` at ``starts``; both have one rank."""
        operands = (tile, part, *starts, *extents)
        return self._one(f"{PREFIX}insert", operands, tile.type, hint)

    # --- what needs several elements -----------------------------------------------------------

    def reduce(self, kind: str, tile: Value, extent: Value, axis: int, hint: str = "") -> Value:
        """Over the first ``extent`` elements along ``axis``; a scalar where no axis is left."""
        t = tile_type(tile)
        dtype = INDEX if kind in ("argmax", "argmin") else t.dtype
        shape = (*t.shape[:axis], *t.shape[axis + 1 :])
        result: IRType = TileType(dtype, shape) if shape else dtype
        return self._one(f"{PREFIX}reduce", (tile, extent), result, hint, kind=kind, axis=axis)

    def scan(
        self, kind: str, tile: Value, axis: int, inclusive: bool = True, reverse: bool = False
    ) -> Value:
        """``reverse``: from the last element on, what is beyond the extent being the identity."""
        more: dict[str, Attribute] = {"reverse": True} if reverse else {}
        return self._one(
            f"{PREFIX}scan", (tile,), tile.type, "", kind=kind, axis=axis, inclusive=inclusive,
            **more,
        )  # fmt: skip

    def sort(self, tile: Value, extent: Value, axis: int, places: bool = False) -> Value:
        """The first ``extent`` integers of each line of an axis in ascending order; those behind
        stay where they are. ``places``: in their stead, as i32, where they stood; of equal ones
        the first comes first."""
        more: dict[str, Attribute] = {"places": True} if places else {}
        t = replace(tile.tile_type, dtype=I32) if places else tile.type
        return self._one(f"{PREFIX}sort", (tile, extent), t, "", axis=axis, **more)

    def dot(
        self, a: Value, b: Value, accumulator: Value, precision: str = "exact", hint: str = ""
    ) -> Value:
        """``accumulator + a @ b``."""
        operands = (a, b, accumulator)
        return self._one(f"{PREFIX}dot", operands, accumulator.type, hint, precision=precision)

    # --- structure -----------------------------------------------------------------------------

    def loops(
        self, lowers: Sequence[Value], uppers: Sequence[Value], steps: Sequence[Value],
        carried: Sequence[Value], body: Region, axes: Sequence[str], *,
        mapping: Sequence[str] = (), names: Sequence[str] = (),
        attributes: Mapping[str, Attribute] | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        """The carried values at the end; ``body`` takes (n variables, carried...)."""
        found: dict[str, Attribute] = dict(attributes or {})
        found["axes"] = tuple(axes)
        found["mapping"] = tuple(mapping) or ("open",) * len(axes)
        operands = (*lowers, *uppers, *steps, *carried)
        types = [v.type for v in carried]
        return self.emit(f"{PREFIX}for", operands, types, found, (body,), names).results

    def schedule_kernel(
        self, sym_name: str, body: Region, parameters: Sequence[str],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Operation:  # fmt: skip
        found: dict[str, Attribute] = dict(attributes or {})
        found["sym_name"] = sym_name
        found["parameters"] = tuple(parameters)
        return self.emit(f"{PREFIX}kernel", (), (), found, (body,))


def _placed(
    view: Value, rank: int, dims: Sequence[int], steps: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(view.type, ViewType):
        raise TypeError(f"{view.type} is no view")
    axes = len(view.type.shape)
    return tuple(dims) or tuple(range(axes - rank, axes)), tuple(steps) or (1,) * rank
