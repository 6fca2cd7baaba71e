"""Groups that are to run beside each other on a multiprocessor: what each may have.

Owns the shares of registers and shared memory. Must not decide how many there are.
"""

from __future__ import annotations

from tessera_lang.target.arch.isa_constants import GROUP_BYTES, LANE_REGISTERS, REGISTER_UNIT
from tessera_lang.target.machine import Machine


def launched_registers(lanes: int, residents: int, machine: Machine) -> int:
    """Registers of a lane when groups of so many lanes begin."""
    share = machine.registers // (lanes * residents)
    return min(LANE_REGISTERS, share) // REGISTER_UNIT * REGISTER_UNIT


def room_of_residents(residents: int, machine: Machine) -> int:
    """Bytes of shared memory that each group may ask for."""
    whole = machine.shared_limit + GROUP_BYTES
    return whole // max(1, residents) - GROUP_BYTES
