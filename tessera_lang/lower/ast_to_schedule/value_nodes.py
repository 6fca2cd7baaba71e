"""Values of a tile kernel as trees: what is to be computed, before it is known for which part.

Owns the closed union ``Node``. An axis with a capacity is there as a whole; one without is an
iteration space of which a *window* at a time is asked for (``demand_driven_evaluation.py``). Must
not know how a node is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from tessera_lang.ir.core import Value
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import Span
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class Axis:
    """``capacity`` None: as many as ``extent`` says, whatever that is."""

    extent: Value
    capacity: int | None


@dataclass(frozen=True, slots=True)
class Staging:
    """What ``schedule.prefetch``, ``op.prefetch`` and ``schedule.pipeline`` say of a read."""

    double_buffer: bool | None = None
    asynchronous: bool | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an axis: ``size`` is the capacity of the tile, a number or a name."""

    start: Value
    size: int | str
    extent: Value


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A part of an axis that some loop will choose."""

    name: str


Windows = tuple[Window, ...]


@dataclass(slots=True, eq=False)
class Held:
    """A tile (rank 0: a scalar) that was computed.

    ``made_of``: what a variable was bound to, in which ``region``. ``used``: whether the tile was
    needed since.
    """

    value: Value
    dtype: DType
    axes: tuple[Axis, ...]
    made_of: Node | None = None
    region: object = None
    used: bool = False


@dataclass(slots=True, eq=False)
class Read:
    """Elements of an array: axis i runs along ``dims[i]`` of ``view`` from its start.

    ``version`` counts the writes to the view before. ``inside``: whether its indices are in the
    array; where they are not, all of it is 0, as what is behind ``rooms``.
    """

    view: Value
    starts: tuple[Value, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: DType
    axes: tuple[Axis, ...]
    version: int = 0
    staging: Staging | None = None
    span: Span | None = None
    numbers: tuple[Node | None, ...] = ()  # of a gather: the places along an axis of the view
    inside: Value | None = None
    rooms: tuple[Value | None, ...] = ()  # what is really there of an axis; None: all of it


@dataclass(slots=True, eq=False)
class Filled:
    """One scalar everywhere."""

    value: Value
    dtype: DType
    axes: tuple[Axis, ...]


@dataclass(slots=True, eq=False)
class Iota:
    """Coordinates along an axis, from ``first`` in steps."""

    along: int
    dtype: DType
    axes: tuple[Axis, ...]


@dataclass(slots=True, eq=False)
class Mapped:
    """``function`` of equal tiles, element by element; operands that are scalars stay so.

    ``sum`` marks a plain addition, into which a product may be fused. ``rounded`` serves instead
    where the result goes into a float of at most 16 bits.
    """

    function: Callable[[tuple[Value, ...], Windows], Value]
    operands: tuple[Node, ...]
    dtype: DType
    axes: tuple[Axis, ...]
    span: Span | None = None
    kind: Literal["", "add", "cast"] = ""
    rounded: Callable[[tuple[Value, ...], Windows], Value] | None = None


@dataclass(slots=True, eq=False)
class Product:
    """``a @ b`` in the accumulator's dtype; ``stages``: of the pipeline around it."""

    a: Node
    b: Node
    dtype: DType
    axes: tuple[Axis, ...]
    precision: str = "exact"
    stages: int | None = None
    span: Span | None = None


@dataclass(slots=True, eq=False)
class Reduced:
    kind: str
    operand: Node
    along: int
    dtype: DType
    axes: tuple[Axis, ...]
    span: Span | None = None


@dataclass(slots=True, eq=False)
class Scanned:
    kind: str
    operand: Node
    along: int
    inclusive: bool
    dtype: DType
    axes: tuple[Axis, ...]
    span: Span | None = None
    reverse: bool = False


@dataclass(slots=True, eq=False)
class Sorted:
    """The integers of each line of an axis in ascending order; the axis has a capacity.
    ``places``: where they stood, as i32, in their stead."""

    operand: Node
    along: int
    dtype: DType
    axes: tuple[Axis, ...]
    span: Span | None = None
    places: bool = False


@dataclass(slots=True, eq=False)
class Permuted:
    """Axis i is axis ``order[i]`` of the operand."""

    operand: Node
    order: tuple[int, ...]
    dtype: DType
    axes: tuple[Axis, ...]


@dataclass(slots=True, eq=False)
class Part:
    """``operand[...]``: for each axis of the operand a start, and which axis of the result runs
    along it (None: a single element); axes of the result that nothing names have size 1."""

    operand: Node
    starts: tuple[Value, ...]
    along: tuple[int | None, ...]
    dtype: DType
    axes: tuple[Axis, ...]


Node = Held | Read | Filled | Iota | Mapped | Product | Reduced | Scanned | Sorted | Permuted | Part


def operands_of(node: Node) -> tuple[Node, ...]:
    match node:
        case Mapped():
            return node.operands
        case Product():
            return node.a, node.b
        case Reduced() | Scanned() | Sorted() | Permuted() | Part():
            return (node.operand,)
        case Read():
            return tuple(n for n in node.numbers if n is not None)
        case Held() | Filled() | Iota():
            return ()


def with_operands(node: Node, parts: list[Node]) -> Node:
    """The node with other operands, in the order of ``operands_of``; those of a gather stay."""
    match node:
        case Mapped():
            return replace(node, operands=tuple(parts))
        case Product():
            return replace(node, a=parts[0], b=parts[1])
        case Reduced() | Scanned() | Sorted() | Permuted() | Part():
            return replace(node, operand=parts[0])
        case Held() | Filled() | Iota() | Read():
            return node


def replaced(node: Node, old: Node, new: Node) -> Node:
    """The node with another one in place of one that it is made of."""
    return replaced_in([node], old, new)[0]


def replaced_in(
    roots: Sequence[Node], old: Node, new: Node, whole: Collection[int] = ()
) -> list[Node]:
    """Nodes with another one in place of one that they are made of; what they share they share
    still. ``whole``: ids of nodes that stay as they are, with all below them."""
    known: dict[int, Node] = {id(old): new}
    held: list[Node] = []  # so that an id stays one node's

    def of(node: Node) -> Node:
        found = node if id(node) in whole else known.get(id(node))
        if found is None:
            parts = [of(x) for x in operands_of(node)]
            same = all(a is b for a, b in zip(parts, operands_of(node), strict=True))
            found = node if same else _with_all_operands(node, parts)
            held.append(node)
            known[id(node)] = found
        return found

    return [of(root) for root in roots]


def _with_all_operands(node: Node, parts: list[Node]) -> Node:
    if not isinstance(node, Read):
        return with_operands(node, parts)
    rest = iter(parts)
    return replace(node, numbers=tuple(None if n is None else next(rest) for n in node.numbers))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, each once."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        found = stack.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        stack.extend(reversed(operands_of(found)))


def is_whole(node: Node) -> bool:
    """Whether every axis has a capacity: the node can be computed at once."""
    return all(a.capacity is not None for a in node.axes)


@dataclass(slots=True, eq=False)
class Names:
    """Names of open sizes by axis of a node: ``$0`` and ``$1`` rows and columns of a result.
    ``given``: nodes with the labels that were handed down to them."""

    of: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    given: set[tuple[int, tuple[str | int, ...]]] = field(
        default_factory=set["tuple[int, tuple[str | int, ...]]"]
    )
    kept: list[Node] = field(default_factory=list["Node"])  # so that an id stays one node's
    count: int = 0
