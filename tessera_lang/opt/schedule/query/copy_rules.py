"""What can move a tile from memory: the facts of the launch against the rules of each copy.

Owns the legality of tensor maps and of asynchronous copies, each as the reason why not. Both
the decision and the lowering ask here. Must not know attributes or remarks.
"""

from __future__ import annotations

import re

from tessera_lang.ir.core import TileType, Value
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.opt.schedule.query.alignment import divisor_of
from tessera_lang.opt.schedule.query.kernel_facts import (
    Facts,
    Load,
)
from tessera_lang.opt.schedule.query.tile_access import (
    TileAccess,
    access_of,
)
from tessera_lang.opt.schedule.query.unseen_elements import is_unseen
from tessera_lang.target.arch.isa_constants import SWIZZLES, VECTOR_BYTES
from tessera_lang.target.premises import MAP_AXIS

_RESULT = re.compile(r"result\d+")
_PRIVATE = re.compile(r"private\d+")


def is_result(name: str) -> bool:
    """Whether an argument of that name is an array the kernel returns."""
    return _RESULT.fullmatch(name) is not None


def array_name(facts: Facts, view: Value) -> str:
    """The name of the array a view shows, as the user wrote it: of one that the kernel makes that
    of its variable; of a result without one ``return``."""
    pointer, _, _ = facts.argument_numbers(view)
    names = facts.kernel.strings("parameters")
    name = str(names[pointer]) if 0 <= pointer < len(names) else view.name
    if (is_result(name) or _PRIVATE.fullmatch(name)) and view.name:
        name = view.name
    return name.removesuffix(".data").partition(".")[0]


def contiguous_axis(access: TileAccess, facts: Facts) -> int:
    """The axis of the tile along which the array is contiguous; -1 where none is."""
    unit = access.lines if access.lines >= 0 else unit_axis(access.view, facts)
    return access.dims.index(unit) if unit in access.dims else -1


def unit_axis(view: Value, facts: Facts) -> int:
    """The axis of a view whose elements lie next to each other; -1 where that is not known."""
    t = view.view_type
    if t.contiguous:
        return len(t.shape) - 1
    strides = facts.definitions[view].operands[1 + len(t.shape) :]
    units = [i for i, s in enumerate(strides) if facts.constant(s) == 1]
    return units[-1] if units else -1


def shared_layout(tile: TileType, axis: int) -> SharedLayout | None:
    """The widest swizzled layout of a tile contiguous along ``axis``; None where none fits."""
    rank = len(tile.shape)
    if axis < 0 or axis < rank - 2:
        return None
    along = tile.sizes[axis]
    for swizzle in SWIZZLES:
        panel = swizzle // tile.dtype.bytes
        if along % panel == 0:
            return SharedLayout(1 if axis == rank - 1 else 0, panel, panel, swizzle)
    return None


def tma_reason(
    access: TileAccess, facts: Facts, what: str, repacked: int | None = None
) -> str:  # fmt: skip
    """Why the tensor memory accelerator cannot move a tile; empty where it can. ``repacked``:
    of a copy of the array whose lines, along this axis of the tile, are contiguous and aligned."""
    tile, view = access.tile, access.view.view_type
    rank = len(view.shape)
    axis = contiguous_axis(access, facts) if repacked is None else repacked
    if rank > 5:
        return f"`{what}` has {rank} axes, a tensor map at most 5"
    if facts.definitions[access.view].attributes.get("reshaped"):
        return f"`{what}` is seen with other sizes than its own"
    if any(isinstance(v.type, TileType) for v in access.starts):
        return f"the rows of `{what}` are taken one by one"
    if any(s != 1 for s in access.steps):
        return f"the tile of `{what}` takes one element of {max(access.steps)}"
    if axis < 0:
        return f"the elements of `{what}` are not contiguous along an axis of the tile"
    if len(tile.shape) < 2:
        return f"the tile of `{what}` has one axis"
    if _is_long(access, facts):
        return f"an axis of `{what}` has more than {MAP_AXIS} elements"
    if any(n != 1 for n in tile.sizes[:-2]):
        return f"the tile of `{what}` has more than two axes"
    if shared_layout(tile, axis) is None:
        return f"a line of {tile.sizes[axis]} {tile.dtype} of `{what}` is no multiple of 32 bytes"
    pitch = "" if repacked is not None else pitch_reason(access, facts, what)
    extent = extent_reason(access, facts, what, unseen=True)
    return pitch or extent or begin_reason(access, axis, facts, what)


def _is_long(access: TileAccess, facts: Facts) -> bool:
    """Whether coordinates of a tensor map cannot tell all elements along an axis apart. A class of
    sizes lies on one side of that."""
    sizes = facts.argument_numbers(access.view)[1]
    hints = facts.kernel.integers("hints")
    return any(n is not None and n < len(hints) and hints[n] > MAP_AXIS for n in sizes)


def begin_reason(access: TileAccess, axis: int, facts: Facts, what: str) -> str:
    """Why boxes of a tile do not begin at multiples of 16 bytes along its lines, which are along
    ``axis``; empty where they do. The copy engine stops at others."""
    start = access.starts[access.dims[axis]]
    if divisor_of(start, facts) * access.tile.dtype.bytes % VECTOR_BYTES == 0:
        return ""
    return f"a tile of `{what}` may begin at no multiple of 16 bytes of a line"


def line_axis(access: TileAccess, facts: Facts) -> int:
    """The axis of the tile along the lines of a copy of the array: the contiguous one, else the
    last of the array; -1 where the tile does not run along it."""
    axis = contiguous_axis(access, facts)
    if axis >= 0 or unit_axis(access.view, facts) >= 0:
        return axis
    view = access.view.view_type
    last = len(view.shape) - 1
    return access.dims.index(last) if last in access.dims else -1


def pitch_reason(access: TileAccess, facts: Facts, what: str) -> str:
    """Why lines of an array do not begin at multiples of 16 bytes; empty where they do."""
    view = access.view.view_type
    size = view.dtype.bytes
    pointer, sizes, strides = facts.argument_numbers(access.view)
    if not view.aligned and _divisor(facts, pointer) % VECTOR_BYTES:
        return f"`{what}` does not begin at a multiple of 16 bytes"
    if view.contiguous:
        inner = [
            known_divisor(facts, number, operand)
            for number, operand in zip(
                sizes[1:], facts.definitions[access.view].operands[2:], strict=False
            )
        ]
        pitch = size * (inner[-1] if inner else VECTOR_BYTES)
        number = sizes[-1] if inner else None
        return _no_multiple(what, facts, number) if pitch % VECTOR_BYTES else ""
    operands = facts.definitions[access.view].operands[1 + len(view.shape) :]
    for number, operand in zip(strides, operands, strict=True):
        if facts.constant(operand) == 1:
            continue
        if known_divisor(facts, number, operand) * size % VECTOR_BYTES:
            return _no_multiple(what, facts, None if number is None else sizes[0])
    return ""


def _no_multiple(what: str, facts: Facts, number: int | None) -> str:
    """No number: the launch gives a class of sizes, not a size; and code that is for any size
    knows none. ``number``: the argument that a size of the array is."""
    hints = facts.kernel.integers("hints")
    known = number is not None and number < len(hints) and hints[number]
    if number is None or known:
        return f"the row pitch of `{what}` is no multiple of 16 bytes"
    return f"the row pitch of `{what}` is not known to be a multiple of 16 bytes"


def _divisor(facts: Facts, number: int | None) -> int:
    divisors = facts.kernel.integers("divisors")
    if number is None or number < 0 or number >= len(divisors):
        return 1
    return divisors[number]


def known_divisor(facts: Facts, number: int | None, value: Value) -> int:
    """A power of two that divides a size or stride: from the launch, or of what it is computed
    from."""
    return max(_divisor(facts, number), divisor_of(value, facts))


# --- extents ---------------------------------------------------------------------------------


def extent_reason(access: TileAccess, facts: Facts, what: str, unseen: bool = False) -> str:
    """A tensor map gives zeros beyond the array, so a tile must end where its array does, or what
    is behind its end is not looked at. That is asked only where ``unseen``."""
    sizes = facts.definitions[access.view].operands[1:]
    for axis, extent in enumerate(access.extents):
        dim = access.dims[axis]
        capacity = access.tile.sizes[axis]
        if facts.constant(extent) == capacity:
            continue
        extent = _where_inside(access, facts, extent)
        if facts.constant(extent) == capacity:
            continue
        if is_clipped(facts, extent, capacity, sizes[dim], access.starts[dim]):
            continue
        if not unseen or not _is_unseen(access, axis, extent, facts):
            return f"the tile of `{what}` may end before its array does"
    return ""


def _is_unseen(access: TileAccess, axis: int, extent: Value, facts: Facts) -> bool:
    terms = _terms(facts, extent)
    if access.result is None or terms is None:
        return False
    capacity = access.tile.sizes[axis]
    known = [t for t in terms if not _harmless(facts, t, capacity)]
    return is_unseen(access.result, axis, known, facts)


def _where_inside(access: TileAccess, facts: Facts, extent: Value) -> Value:
    """An extent that is 0 where an index is outside, without that: along the axis of the index
    the tile begins behind the array there."""
    chosen = facts.definitions.get(extent)
    if chosen is None or chosen.name != "tile.select" or facts.constant(chosen.operands[2]) != 0:
        return extent
    sizes = facts.definitions[access.view].operands[1:]
    for dim, start in enumerate(access.starts):
        begins = facts.definitions.get(start)
        if dim in access.dims or begins is None or begins.name != "tile.select":
            continue
        same = begins.operands[0] is chosen.operands[0]
        if same and facts.same(begins.operands[2], sizes[dim]):
            return chosen.operands[1]
    return extent


def is_clipped(facts: Facts, extent: Value, capacity: int, size: Value, start: Value) -> bool:
    """Whether an extent is ``max(0, min(capacity, size - start))``, in any order of them.

    Constants that cannot bite are looked over: 0 below, the capacity and more above.
    """
    terms = _terms(facts, extent)
    if terms is None:
        return False
    rest = [t for t in terms if not _harmless(facts, t, capacity)]
    return len(rest) == 1 and _is_difference(facts, rest[0], size, start)


def _terms(facts: Facts, value: Value) -> list[Value] | None:
    """What a nest of minima, under maxima with constants of at most 0, is the minimum of."""
    definition = facts.definitions.get(value)
    if definition is None:
        return [value]
    if definition.name == "tile.max":
        a, b = definition.operands
        for zero, other in ((a, b), (b, a)):
            number = facts.constant(zero)
            if number is not None and number <= 0:
                return _terms(facts, other)
        return None
    if definition.name == "tile.min":
        parts = [_terms(facts, v) for v in definition.operands]
        found = [p for p in parts if p is not None]
        return [t for p in found for t in p] if len(found) == len(parts) else None
    return [value]


def _harmless(facts: Facts, value: Value, capacity: int) -> bool:
    number = facts.constant(value)
    return number is not None and number >= capacity


def _is_difference(facts: Facts, value: Value, size: Value, start: Value) -> bool:
    definition = facts.definitions.get(value)
    zero = facts.constant(start) == 0
    if zero and facts.same(value, size):
        return True
    if definition is None or definition.name != "tile.sub":
        return False
    left, right = definition.operands
    return facts.same(left, size) and facts.same(right, start)


def async_reason(load: Load, facts: Facts, what: str) -> str:
    """Why ``cp.async`` cannot move a tile: it needs 4 bytes of contiguous, aligned elements."""
    access = access_of(load.operation)
    axis = contiguous_axis(access, facts)
    if axis < 0:
        return f"the elements of `{what}` are not contiguous along an axis of the tile"
    if access.tile.dtype.bytes >= 4:
        return ""
    view = access.view.view_type
    number = facts.argument_numbers(access.view)[1][-1] if view.contiguous else None
    last = facts.definitions[access.view].operands[len(view.shape)]
    if known_divisor(facts, number, last) * access.tile.dtype.bytes % 4:
        return f"the row pitch of `{what}` is no multiple of 4 bytes"
    return ""
