"""The engine: what a group (or a role of it) multiplies with, and who moves its data.

The lowering of a body asks an engine everything that differs between machines. An engine that
only changes some answers (other products, data that another role has put into shared memory,
stores by the tensor memory accelerator) inherits the rest:

- ``warps``: how many warps hold the tiles together;
- ``product``: layouts and fragment sizes of a ``dot``; None where it is not computed here;
- ``in_registers``: whether a load has a register tile, or only its buffer is used;
- ``load``, ``store``, ``dot``, ``loop``, ``combine``: the Tile operations for one Schedule
  operation. Each has the body, gives no value back and binds the results with ``body.bind``.
  What they do here is the plain way; an override calls it for what it leaves alone.

Must not know the grid.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.combine_partials import combine
from tessera_lang.lower.schedule_to_tile.common.dot_layouts import Product
from tessera_lang.target.machine import Machine


class Engine:
    """Loads to registers, stores from registers, loops without overlap, no products."""

    def __init__(self, machine: Machine, warps: int) -> None:
        self.machine = machine
        self.warps = warps

    # --- before the lowering: what layouts are chosen for ---------------------------------

    def product(self, dot: Operation) -> Product | None:
        """How ``dot`` (of Schedule IR, sizes chosen) is computed."""
        return None

    def fragments(self, value: Value) -> bool:
        """Whether an operand of a product is loaded from memory in the layout of the product."""
        return False

    def in_registers(self, load: Operation) -> bool:
        """Whether some use wants the register tile that an operation gives (a load, or what
        stands between it and a product); else only its buffer is used."""
        return True

    # --- one operation each ----------------------------------------------------------------

    def load(self, body: Body, operation: Operation) -> None:
        body.bind(operation.result, body.load_tile(operation))

    def store(self, body: Body, operation: Operation) -> None:
        body.store_tile(operation)

    def dot(self, body: Body, operation: Operation) -> None:
        raise NotImplementedError("an engine with products says how they are computed")

    def before_control(self, body: Body, operation: Operation) -> None:
        """Called before an ``if``, ``while`` or ``scope`` is entered."""

    def repeats(self, operation: Operation) -> bool:
        """Whether one group may run an operation more than once."""
        return True

    def loop(self, body: Body, operation: Operation) -> None:
        body.plain_loop(operation)

    def combine(self, body: Body, operation: Operation) -> None:
        combine(body, operation)
