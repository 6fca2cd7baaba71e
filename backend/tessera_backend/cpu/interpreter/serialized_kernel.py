"""Kernels that are kept as Tile IR: written as bytes, read again, run on an argument block.

Owns the form of such code and how arrays are found behind addresses. Must not know who launches.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tessera_backend.cpu.interpreter.element_arithmetic import Array, garbage, numpy_type, strided
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.launch import copied, memory_of, run
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.record import dataclass
from tessera_lang.source import Anchor, Span
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import DTYPES, DType

KIND = "tile"
"""Of an artifact whose code is Tile IR."""

_OF_THE_CPU = ("tile.dot_into",)
_NAMES = frozenset(o.name for o in TILE_LEVEL_OPS) - frozenset(_OF_THE_CPU)


class ArrayLayout(Protocol):
    """Strides are in elements."""

    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...


def has_tiles(program: Program) -> bool:
    """Whether a program works on register tiles: what only this machine runs on the CPU."""
    return any(o.holds(_NAMES) for o in program.operations)


def encode(program: Program) -> bytes:
    """A program with the places in the source that its operations come from."""
    places = [None if o.span is None else [o.span.file, o.span.lo, o.span.hi]
              for o in program.walk()]  # fmt: skip
    return json.dumps({"program": print_program(program), "places": places}).encode()


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of the model as it is shown: two operations with their places."""

    message: str
    operation: Operation | None
    span: Span | None
    other: Operation | None
    other_span: Span | None


class AsynchronousKernel:
    """Tile IR in memory. Raises ValueError where the code is none."""

    def __init__(self, artifact: Artifact) -> None:
        self.plan: LaunchPlan = artifact.plan
        held = json.loads(artifact.code)
        self.program = parse_program(held["program"])
        operations = list(self.program.walk())
        self._spans = {
            id(o): Span(Anchor(place[0]), place[1], place[2])
            for o, place in zip(operations, held["places"], strict=True) if place is not None
        }  # fmt: skip

    def launch(
        self, block: Sequence[int], groups: int, arrays: Mapping[int, ArrayLayout],
        spaces: Mapping[int, int],
    ) -> list[tuple[int, ...]]:  # fmt: skip
        """Run all groups on the values of a block; ``arrays`` are those of slots with addresses,
        ``spaces`` the bytes of slots with memory of the launch.

        The faults that lanes reported. Raises AsynchronousFault.
        """
        return run(self.program, self.plan, self.values(block, arrays, spaces), groups)

    def values(
        self, block: Sequence[int], arrays: Mapping[int, ArrayLayout], spaces: Mapping[int, int]
    ) -> list[Any]:
        """What the slots of a block hold; results hold poison before the first launch."""
        plan = self.plan
        made: dict[int, Array] = {}
        for at, slot in enumerate(plan.slots):
            if slot.kind in ("data", "tensor_map") and plan.copy_of(slot.parameter) is None:
                made.setdefault(slot.parameter, array_at(block[at], arrays[at]))
        for number, result in enumerate(plan.results, len(plan.parameters)):
            if number in made and not plan.launches_before:
                made[number][...] = 0 if result.zeroed else garbage(made[number].dtype)
        given: Any = [made.get(i) for i in range(plan.first_copy)]
        for number in range(len(plan.copies)):
            made[plan.first_copy + number] = copied(plan, number, given)
        return [self._value(at, block, made, spaces) for at in range(len(plan.slots))]

    def _value(
        self, at: int, block: Sequence[int], arrays: Mapping[int, Array], spaces: Mapping[int, int]
    ) -> Any:
        slot = self.plan.slots[at]
        match slot.kind:
            case "data" | "tensor_map":
                return arrays[slot.parameter]
            case "scalar":
                return from_bits(block[at], DTYPES[slot.dtype])
            case "workspace" | "scratch":
                (kernel,) = self.program.operations
                return memory_of(kernel, at, slot, spaces[at])
            case _:
                return block[at]

    def finding(self, fault: AsynchronousFault) -> Finding:
        return Finding(
            fault.message, fault.operation, self._span(fault.operation), fault.other,
            self._span(fault.other),
        )  # fmt: skip

    def _span(self, operation: Operation | None) -> Span | None:
        return None if operation is None else self._spans.get(id(operation))


def from_bits(word: int, dtype: DType) -> Any:
    """The number in the low bits of a slot."""
    raw = struct.pack("<Q", word & ((1 << 64) - 1))
    return np.frombuffer(raw, np.dtype(numpy_type(dtype)), 1)[0]


def array_at(address: int, layout: ArrayLayout) -> Array:
    """The array of a layout whose first element is at an address."""
    dtype: Any = np.dtype(numpy_type(layout.dtype))
    if 0 in layout.shape:
        return np.zeros(layout.shape, dtype)
    moves = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    low, high = sum(min(0, m) for m in moves), sum(max(0, m) for m in moves)
    size = dtype.itemsize
    memory = (ctypes.c_char * ((high - low + 1) * size)).from_address(address + low * size)
    flat: Array = np.frombuffer(memory, dtype)[-low:]
    return strided(flat, layout.shape, [s * size for s in layout.strides])
