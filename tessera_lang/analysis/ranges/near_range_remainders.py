"""Remainders of numbers that are hardly outside of the divisor's range.

Must not know what is made of them.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import State, Wrap
from tessera_lang.ir.core import Operation
from tessera_lang.target.tuned_constants import MOST_REMAINDERS
from tessera_lang.types.dtype import DType


def see_remainder(state: State, operation: Operation) -> None:
    """Note a ``tile.mod`` that at most one addition and one subtraction give."""
    number, divisor = map(state.form, operation.operands)
    if not cast("DType", operation.result.type).is_signed or _is_cheap(divisor):
        return
    seen = state.result.remainders
    if operation not in seen and len(seen) >= MOST_REMAINDERS:
        return  # each proof goes over all that is known
    seen.add(operation)
    known = state.known
    multiple = 0
    if len(divisor.terms) == 1 and divisor.terms[0][1] == 1 and not divisor.constant:
        multiple = number.coefficient(divisor.terms[0][0])
    if multiple not in (-1, 0, 1):
        return
    rest = number.plus(divisor, -multiple)
    if not (
        known.proves(divisor.shifted(-1))
        and known.proves(rest + divisor)
        and known.proves((divisor.scaled(2) - rest).shifted(-1))
    ):
        return
    below, above = not known.proves(rest), not known.proves((divisor - rest).shifted(-1))
    state.result.wraps[operation.result] = Wrap(multiple, below, above)


def _is_cheap(divisor: Linear) -> bool:
    """The remainder by a power of two is an ``and``."""
    number = divisor.constant
    return not divisor.terms and number > 0 and number & (number - 1) == 0
