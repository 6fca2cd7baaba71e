"""Conditions on places in arrays that hold wherever they are asked.

``x[p + r]`` asks whether ``p + r`` is in the array; that follows where ``p`` and ``r`` are
variables of loops that end early enough. Owns the walk that gathers what loops say. Must not change
anything.
"""

from __future__ import annotations

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.opt.schedule.query.def_use import definitions_of, values_inside
from tessera_lang.opt.schedule.query.index_forms import IndexForms, Scope
from tessera_lang.opt.schedule.query.kernel_facts import FOR
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import INDEX


def asserted_truths(kernel: Operation) -> set[Value]:
    """What a kernel asserts and holds wherever it is computed."""
    asked = {o.operands[0] for o in kernel.nested("tile.assert")}
    if not asked:
        return set()
    views = kernel.nested("tile.view")
    sizes = {v for o in views for v in o.operands[1 : 1 + len(o.result.view_type.shape)]}
    walk = _Walk(IndexForms(definitions_of(kernel), values_inside(kernel), sizes), asked)
    walk.region(kernel.regions[0])
    return walk.true


@dataclass(slots=True, eq=False)
class _Walk:
    """``asked``: conditions to look at where they are computed; ``true``: those that hold there."""

    forms: IndexForms
    asked: set[Value]
    scope: Scope = field(default_factory=Scope)
    true: set[Value] = field(default_factory=set[Value])

    def region(self, region: Region) -> None:
        for o in region.operations:
            if len(o.results) == 1 and o.result in self.asked and self._holds(o.result):
                self.true.add(o.result)
            for inner in o.regions:
                known = list(self.forms.known.facts)
                if o.name == FOR:
                    self._enter(o)
                self.region(inner)
                self.forms.known.facts[:] = known

    def _enter(self, loop: Operation) -> None:
        """``lower <= variable < upper`` in an iteration."""
        count = len(loop.strings("axes"))
        for i, variable in enumerate(loop.regions[0].arguments[:count]):
            lower, upper = (
                self.forms.form(loop.operands[i + k * count], self.scope) for k in range(2)
            )
            at = self.forms.form(variable, self.scope)
            self.forms.holds_here(at - lower)
            self.forms.holds_here((upper - at).shifted(-1))

    def _holds(self, condition: Value) -> bool:
        o = self.forms.definitions.get(condition)
        if o is None:
            return False
        if o.name == "tile.and":
            return all(self._holds(v) for v in o.operands)
        if o.name != "tile.cmp" or o.operands[0].type != INDEX:
            return False
        a, b = (self.forms.form(v, self.scope) for v in o.operands)
        gap = _gap(str(o.attributes["predicate"]), a, b)
        return gap is not None and self.forms.known.proves(gap)


def _gap(predicate: str, a: Linear, b: Linear) -> Linear | None:
    """What is not negative where a comparison holds; None where that is not all of it."""
    match predicate:
        case "lt":
            return (b - a).shifted(-1)
        case "le":
            return b - a
        case "gt":
            return (a - b).shifted(-1)
        case "ge":
            return a - b
        case _:
            return None
