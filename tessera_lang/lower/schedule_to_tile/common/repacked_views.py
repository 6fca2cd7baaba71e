"""Arrays that are read from copies with aligned lines: further arguments, and views of them.

``repacked`` replaces the views of loads whose ``repack`` is decided; the plan says which copies
the runtime makes before a launch. Behind it nothing knows of copies: the divisors of their
strides and addresses are facts like those of any array. Must not know who decides.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, PointerType, Program, Region, Value, ViewType
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.tensor_maps import Maps
from tessera_lang.opt.schedule.query.copy_rules import unit_axis
from tessera_lang.opt.schedule.query.kernel_facts import LOAD, Facts, facts_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import (
    COPY_ALIGNMENT,
    REORDERED_ALIGNMENT,
    CopyPlan,
    LaunchPlan,
    Slot,
)
from tessera_lang.types.dtype import INDEX

_DECIDED = ("repack", "lines")
_Copied = tuple[Value, int]
"""A view, and the axis along which the lines of its copy run: -1 where they run as its own."""


def _copied(load: Operation) -> _Copied:
    lines = load.attributes.get("lines", -1)
    return load.operands[0], lines if isinstance(lines, int) else -1


def repacked(program: Program, plan: LaunchPlan) -> tuple[Program, LaunchPlan]:
    """The kernel with its decided copies as arguments, and the plan that makes them."""
    (kernel,) = program.operations
    loads = [o for o in kernel.walk() if o.name == LOAD and o.attributes.get("repack")]
    if not loads:
        return program, plan
    return _Repacking(kernel, facts_of(kernel), plan).run(loads)


@dataclass(slots=True, eq=False)
class _Repacking:
    kernel: Operation
    facts: Facts
    plan: LaunchPlan
    copies: list[CopyPlan] = field(default_factory=list[CopyPlan])
    arguments: list[Value] = field(default_factory=list[Value])
    slots: list[Slot] = field(default_factory=list[Slot])
    divisors: list[int] = field(default_factory=list[int])
    known: dict[Slot, Value] = field(default_factory=dict[Slot, Value])
    views: dict[_Copied, tuple[Operation, ...]] = field(
        default_factory=dict["_Copied", tuple[Operation, ...]]
    )

    def run(self, loads: list[Operation]) -> tuple[Program, LaunchPlan]:
        maps = Maps(self.facts, self.plan)
        top = {v for o in self.kernel.regions[0].operations for v in o.results}
        for load in loads:
            copied = view, lines = _copied(load)
            if copied in self.views or view not in top:
                continue
            try:
                parameter, axes = maps.array(view)
            except NotTiled:
                continue
            self.views[copied] = self._view(view, lines, parameter, axes)
        kernel = rewrite_operation(self.kernel, self._step)
        (region,) = kernel.regions
        operations: list[Operation] = []
        for operation in region.operations:
            operations.append(operation)
            for copied, made in self.views.items():
                if copied[0] in operation.results:
                    operations += made
        body = Region((*region.arguments, *self.arguments), tuple(operations))
        plan = replace(self.plan, slots=(*self.plan.slots, *self.slots), copies=tuple(self.copies))
        made = replace(kernel, regions=(body,), attributes=self._attributes())
        return Program("schedule", (made,)), plan

    def _attributes(self) -> dict[str, Attribute]:
        attributes: dict[str, Attribute] = dict(self.kernel.attributes)
        names = self.kernel.strings("parameters")
        attributes["parameters"] = (*names, *(v.name for v in self.arguments))
        here = len(self.facts.arguments)
        divisors = self.kernel.integers("divisors") or (1,) * here
        attributes["divisors"] = (*divisors, *self.divisors)
        if "hints" in attributes:
            attributes["hints"] = (*self.kernel.integers("hints"), *(0 for _ in self.divisors))
        return attributes

    def _step(self, operation: Operation) -> Replacement | Operation | None:
        """Loads of the copies; those of a view that cannot be copied take what there is."""
        if operation.name != LOAD or not operation.attributes.get("repack"):
            return None
        rest = operation.operands[1:]
        attributes = {n: v for n, v in operation.attributes.items() if n not in _DECIDED}
        made = self.views.get(_copied(operation))
        if made is None:
            return replace(operation, attributes={**attributes, "copy": "plain"})
        return replace(operation, operands=(made[-1].result, *rest), attributes=attributes)

    def _view(
        self, view: Value, lines: int, parameter: int, axes: tuple[int, ...]
    ) -> tuple[Operation, ...]:  # fmt: skip
        """The view of the copy, and what it takes. ``axes``: the parameter's, by the view's."""
        t = view.view_type
        rank = len(t.shape)
        unit = unit_axis(view, self.facts) % rank if lines < 0 else lines
        order = (*(axes[d] for d in range(rank) if d != unit), axes[unit])
        aligned = COPY_ALIGNMENT if lines < 0 else REORDERED_ALIGNMENT
        number = self._copy(CopyPlan(parameter, order, aligned))
        name = view.name or "array"
        definition = self.facts.definitions[view]
        pointer = self._argument(
            Slot("data", number, dtype=t.dtype.name), Value(PointerType(t.dtype, "global"),
            f"{name}.copy"), COPY_ALIGNMENT,
        )  # fmt: skip
        one = Operation("tile.constant", (), (Value(INDEX, "one"),), {"value": 1})
        strides: list[Value] = []
        for axis in axes:
            if axis == axes[unit]:
                strides.append(one.result)
                continue
            slot = Slot("stride", number, axis)
            stride = Value(INDEX, f"{name}.copy.stride{axis}")
            strides.append(self._argument(slot, stride, aligned // t.dtype.bytes))
        seen = ViewType(t.dtype, t.shape, "global", False, False, True)
        sizes = definition.operands[1 : 1 + rank]
        made = Operation(
            "tile.view", (pointer, *sizes, *strides), (Value(seen, f"{name}.copy"),), {}, (),
            definition.span,
        )  # fmt: skip
        return one, made

    def _argument(self, slot: Slot, value: Value, divisor: int) -> Value:
        if slot not in self.known:
            self.known[slot] = value
            self.arguments.append(value)
            self.slots.append(slot)
            self.divisors.append(divisor)
        return self.known[slot]

    def _copy(self, copy: CopyPlan) -> int:
        if copy not in self.copies:
            self.copies.append(copy)
        return self.plan.first_copy + self.copies.index(copy)
