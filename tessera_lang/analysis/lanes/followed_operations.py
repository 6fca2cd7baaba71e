"""The operations of a kernel that say where lanes go and which elements they touch.

Who follows lanes one by one leaves out all others, most of which compute what is stored. Must not
know how lanes are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tessera_lang.analysis.lanes.hand_overs import is_sync
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import EXITS, GROUP_IDS, LANE_IDS, LEAVES
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType


def followed_operations(
    kernel: Operation, wanted: Callable[[Operation], bool]
) -> Mapping[Region, tuple[Operation, ...]]:
    """For each region its operations that count: accesses that are ``wanted``, barriers and
    atomics, exits, and what these are made of."""
    found = _Slice(kernel, wanted)
    return {
        region: tuple(o for o in region.operations if o in found.kept or o.name in EXITS)
        for operation in (kernel, *kernel.walk()) for region in operation.regions
    }  # fmt: skip


def _is_number(value: Value) -> bool:
    return not isinstance(value.type, DType) or not value.type.is_float


def _is_literal(operation: Operation) -> bool:
    """Two lanes may store different ones."""
    return operation.name == "tile.constant" or operation.name == "tile.select"


@dataclass(slots=True)
class _Slice:
    kernel: Operation
    wanted: Callable[[Operation], bool]
    kept: set[Operation] = field(default_factory=set[Operation])
    _made: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    _around: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])

    def __post_init__(self) -> None:
        roots: list[Operation] = []
        for operation in self.kernel.walk():
            self._made.update((v, operation) for v in operation.results)
            for region in operation.regions:
                self._made.update((v, operation) for v in region.arguments)
                self._around.update((o, operation) for o in region.operations)
            if self._is_root(operation):
                roots.append(operation)
        waiting = roots
        while waiting:
            operation = waiting.pop()
            if operation in self.kept or operation is self.kernel:
                continue
            self.kept.add(operation)
            waiting.extend(self._needs(operation))

    def _is_root(self, o: Operation) -> bool:
        if o.name in LANE_IDS or o.name in GROUP_IDS or o.name in LEAVES:
            return True
        return o.name == "tile.barrier" or is_sync(o) or self.wanted(o)

    def _needs(self, operation: Operation) -> Iterator[Operation]:
        """What makes its operands, what is around it, and of control what its regions hand on."""
        around = self._around.get(operation)
        if around is not None:
            yield around
        values = list(operation.operands)
        for region in operation.regions:
            values.extend(region.terminator.operands)
            for inner in region.walk():
                if inner.name in LEAVES:
                    values.extend(inner.operands)
        for value in values:
            made = self._made.get(value)
            if made is not None and (_is_number(value) or _is_literal(made)):
                yield made
