"""Arrays that a tile kernel makes and nobody else sees: memory of a call.

Owns their slots among those of the kernel, and their plans: the runtime gives them memory like what
launches of one call leave for each other. Must not know what is stored into them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import PointerType, Value
from tessera_lang.lower.ast_to_schedule.emitter import Emitter
from tessera_lang.lower.ast_to_tile.kernel_parameters import KernelFrame
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import ResultPlan, Slot
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim, DimOperator, Sym, dim_op

_OPERATORS: dict[str, DimOperator] = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "min": "min", "max": "max",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class ScratchArrays:
    """``first``: the number of the first among parameters and results."""

    frame: KernelFrame
    b: Emitter
    first: int
    plans: list[ResultPlan] = field(default_factory=list[ResultPlan])
    views: list[Value] = field(default_factory=list[Value])
    free: list[int] = field(default_factory=list[int])

    def dim(self, value: Value) -> Dim | None:
        """A number as a size of the launch; None where it is not made of such sizes."""
        b, known = self.b, self.b.known(value)
        if known is not None:
            return known
        name = next((n for n, v in self.frame.lowering.symbols.items() if v is value), None)
        if name is not None:
            return Sym(name)
        operator, left, right = b.made_of(value) or ("", value, value)
        if operator not in _OPERATORS:
            return None
        if operator in ("floordiv", "mod") and (b.known(right) or 0) <= 0:
            return None
        a, c = self.dim(left), self.dim(right)
        return None if a is None or c is None else dim_op(_OPERATORS[operator], a, c)

    def make(self, name: str, dtype: DType, dims: Sequence[Dim], sizes: Sequence[Value]) -> Value:
        """A view of another array, where the kernel's arrays are; ``sizes``: the values of
        ``dims``; ``name``: what messages call it."""
        b, number = self.b, self.first + len(self.plans)
        plan = ResultPlan(dtype.name, tuple(dims), kept=True)
        for i in self.free:
            if self.plans[i] == plan:
                self.free.remove(i)
                return self.views[i]
        self.plans.append(plan)
        slot = Slot("data", number, dtype=dtype.name)
        pointer = self.frame.slot(slot, PointerType(dtype, "global"), name)
        view = b.of_kernel(
            lambda: b.view(pointer, sizes, shape=[b.known(n) for n in sizes], mut=True,
                           aligned=True, name=name)
        )  # fmt: skip
        self.frame.lowering.sizes[view] = tuple(sizes)
        self.frame.lowering.pointers[view] = pointer
        self.views.append(view)
        return view

    def forget(self, count: int) -> None:
        """What was built with the arrays behind so many is built again: they may serve for it."""
        self.free = list(range(count, len(self.plans)))
