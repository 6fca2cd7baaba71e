"""Control flow on data in Graph IR: operations whose regions are functions of their operands.

``graph.if`` takes a condition, then what its two regions take; ``graph.while`` takes the values
that it carries, then what its regions take besides: the first region says whether it goes on, the
second gives the values anew. ``graph.for`` runs its region a number of times. A region reads
nothing but its arguments, so that it is a graph of its own. Owns what these operations are. Must
not know how a region is made or run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Region, TensorType, Value, VerifyError
from tessera_lang.ir.graph.builder import FUNCTION, RETURN
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import BOOL, I64

IF, WHILE, FOR = "graph.if", "graph.while", "graph.for"
KNOWN_LATER = -1
"""Steps of a loop whose number is its first operand."""

REGION_OPS: dict[str, OpDef] = {
    IF: OpDef(IF, ("condition", "operands..."), "graph_if", results=-1,
              terminators=((RETURN,), (RETURN,))),
    WHILE: OpDef(WHILE, ("operands...",), "graph_while", results=-1,
                 terminators=((RETURN,), (RETURN,)), attributes=(AttributeDef("carried", "int"),)),
    FOR: OpDef(FOR, ("operands...",), "graph_for", results=-1, terminators=((RETURN,),),
               attributes=(AttributeDef("steps", "int"), AttributeDef("carried", "int"),
                           AttributeDef("sliced", "int"), AttributeDef("reverse", "bool"),
                           AttributeDef("again", "int"), AttributeDef("spared", "int"))),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counted:
    """A loop of a number of steps: its parts. ``steps``: how many, None where ``count`` says it;
    ``carried``: the values before the first step; ``sliced``: tensors of which each step gets the
    element along the first axis that is its own; ``rest``: what each step gets as it is; in
    ``reverse``, the last step is the first. ``again``, ``spared``: how many operations a step of a
    gradient does that the loop has done before, and the bytes of what is not kept for that.

    The region takes the number of the step, what is carried, the elements and the rest; it gives
    what is carried anew, and then elements of further results, which hold one for each step along
    their first axis."""

    steps: int | None
    carried: tuple[Value, ...]
    sliced: tuple[Value, ...]
    rest: tuple[Value, ...]
    region: Region
    reverse: bool = False
    count: Value | None = None
    again: int = 0
    spared: int = 0

    @property
    def operands(self) -> tuple[Value, ...]:
        first = () if self.count is None else (self.count,)
        return (*first, *self.carried, *self.sliced, *self.rest)

    @property
    def attributes(self) -> dict[str, Attribute]:
        steps = KNOWN_LATER if self.steps is None else self.steps
        return {"steps": steps, "carried": len(self.carried), "sliced": len(self.sliced),
                "reverse": self.reverse, "again": self.again, "spared": self.spared}  # fmt: skip

    @property
    def pieces(self) -> tuple[Value, ...]:
        """What a step gives to the results that have one for each."""
        return self.region.terminator.operands[len(self.carried) :]

    @property
    def types(self) -> list[TensorType]:
        """Of the results."""
        return [*(v.tensor_type for v in self.carried), *map(self.stacked, self.pieces)]

    def stacked(self, piece: Value) -> TensorType:
        """The type of a result that has such a piece for each step."""
        assert self.steps is not None
        t = piece.tensor_type
        return TensorType(t.dtype, (self.steps, *t.shape))

    def arguments(self) -> tuple[Value, tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
        """Of the region: the number of the step, what is carried, elements, and the rest."""
        number, *given = self.region.arguments
        ends = len(self.carried), len(self.carried) + len(self.sliced)
        return number, tuple(given[: ends[0]]), tuple(given[ends[0] : ends[1]]), tuple(
            given[ends[1] :]
        )  # fmt: skip


def counted(operation: Operation) -> Counted:
    """The parts of a loop of a number of steps."""
    steps, given = operation.integer("steps"), operation.operands
    count = given[0] if steps == KNOWN_LATER else None
    given = given[count is not None :]
    ends = operation.integer("carried"), operation.integer("carried") + operation.integer("sliced")
    return Counted(None if count is not None else steps, given[: ends[0]],
                   given[ends[0] : ends[1]], given[ends[1] :], operation.regions[0],
                   bool(operation.attributes["reverse"]), count, operation.integer("again"),
                   operation.integer("spared"))  # fmt: skip


def function_of(region: Region, name: str = "region") -> Operation:
    """A region as a function."""
    names = tuple(v.name or f"x{i}" for i, v in enumerate(region.arguments))
    return Operation(FUNCTION, attributes={"sym_name": name, "parameters": names},
                     regions=(region,))  # fmt: skip


def _types(values: Sequence[Value]) -> list[object]:
    return [v.type for v in values]


def _is_number(values: Sequence[Value]) -> bool:
    return (
        len(values) == 1 and values[0].tensor_type.dtype == BOOL and not values[0].tensor_type.rank
    )


def check_if(operation: Operation) -> None:
    """Raises VerifyError."""
    condition, *operands = operation.operands
    if not _is_number([condition]):
        raise VerifyError("takes a bool of no axes", operation)
    for region in operation.regions:
        if _types(region.arguments) != _types(operands):
            raise VerifyError("has regions that take its operands", operation)
        if _types(region.terminator.operands) != _types(operation.results):
            raise VerifyError("has regions that give its results", operation)
    _check_closed(operation)


def check_while(operation: Operation) -> None:
    """Raises VerifyError."""
    carried = operation.integer("carried")
    if _types(operation.operands[:carried]) != _types(operation.results):
        raise VerifyError("gives the values that it carries", operation)
    for region in operation.regions:
        if _types(region.arguments) != _types(operation.operands):
            raise VerifyError("has regions that take its operands", operation)
    goes_on, body = operation.regions
    if not _is_number(goes_on.terminator.operands):
        raise VerifyError("has a first region that gives a bool of no axes", operation)
    if _types(body.terminator.operands) != _types(operation.results):
        raise VerifyError("has a second region that gives the values that it carries", operation)
    _check_closed(operation)


def check_for(operation: Operation) -> None:
    """Raises VerifyError."""
    loop = counted(operation)
    number = loop.region.arguments[0].tensor_type if loop.region.arguments else None
    count = loop.count.tensor_type if loop.count is not None else TensorType(I64, ())
    if number != TensorType(I64, ()) or count != TensorType(I64, ()):
        raise VerifyError("counts its steps in i64", operation)
    if loop.count is not None and (loop.sliced or loop.pieces or loop.reverse):
        raise VerifyError("has elements for steps only of a known number of these", operation)
    if any(v.tensor_type.shape[:1] != (loop.steps,) for v in loop.sliced):
        raise VerifyError("has sliced operands of an element for each step", operation)
    elements = [TensorType(v.tensor_type.dtype, v.tensor_type.shape[1:]) for v in loop.sliced]
    wanted = [*_types(loop.carried), *elements, *_types(loop.rest)]
    if _types(loop.region.arguments[1:]) != wanted:
        raise VerifyError("has a region that takes its operands", operation)
    if _types(loop.region.terminator.operands[: len(loop.carried)]) != _types(loop.carried):
        raise VerifyError("has a region that gives the values that it carries", operation)
    if _types(operation.results) != loop.types:
        raise VerifyError("gives what its region gives", operation)
    _check_closed(operation)


def _check_closed(operation: Operation) -> None:
    for region in operation.regions:
        known = set(region.arguments)
        for o in region.operations:
            if not known.issuperset(o.operands):
                raise VerifyError("has regions that read their arguments only", operation)
            known.update(o.results)
