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
from tessera_lang.types.shape import Dim


@dataclass(slots=True, eq=False)
class PrivateArrays:
    """``first``: the number of the first among parameters and results."""

    frame: KernelFrame
    b: Emitter
    first: int
    plans: list[ResultPlan] = field(default_factory=list[ResultPlan])

    def make(self, name: str, dtype: DType, dims: Sequence[Dim], sizes: Sequence[Value]) -> Value:
        """A view of another array, where the kernel's arrays are; ``sizes``: the values of
        ``dims``."""
        b, number = self.b, self.first + len(self.plans)
        self.plans.append(ResultPlan(dtype.name, tuple(dims), kept=True))
        slot = Slot("data", number, dtype=dtype.name)
        pointer = self.frame.slot(slot, PointerType(dtype, "global"), f"private{number}")
        view = b.of_kernel(
            lambda: b.view(pointer, sizes, shape=[b.known(n) for n in sizes], mut=True,
                           aligned=True, name=name)
        )  # fmt: skip
        self.frame.lowering.sizes[view] = tuple(sizes)
        return view
