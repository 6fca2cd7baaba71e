"""Layouts: where the elements of a register tile live, and where those of a shared buffer.

Both are one small algebra, and every question of the hardware (boxes of a tensor map, matrix
descriptors, addresses of matrix loads, bank conflicts) is a query on them, never a second
description. Owns the two records, their spelling and their evaluation; queries stand in
``tessera_lang.analysis.resources.register_layouts`` and in the backends. Must not know operations.

A *register layout* maps (register, lane, warp) to coordinates of the tile. Each of the three
numbers is split into digits, fastest first; digit ``d`` of a mode ``extent@axis*stride`` adds
``d * stride`` to the coordinate of ``axis``. A mode with axis None is replicated: the
coordinate does not depend on that digit. The modes of one axis cover 0 .. size-1, each once.

A *shared layout* maps coordinates to bytes: see ``SharedLayout.offset``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """``extent`` values of a digit; each step moves ``stride`` along ``axis`` (None: nowhere)."""

    extent: int
    axis: int | None
    stride: int = 0

    def __str__(self) -> str:
        place = "_" if self.axis is None else f"{self.axis}*{self.stride}"
        return f"{self.extent}@{place}"


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """Digits of the register number, of the lane in its warp, of the warp in its role.

    Each tuple is fastest digit first. The product of ``lanes`` is 32; that of ``warps`` the
    number of warps that hold the tile together.
    """

    registers: tuple[Mode, ...]
    lanes: tuple[Mode, ...]
    warps: tuple[Mode, ...]

    def __str__(self) -> str:
        groups = (("regs", self.registers), ("lanes", self.lanes), ("warps", self.warps))
        return " ".join(f"{name}({' '.join(map(str, modes))})" for name, modes in groups)

    @property
    def register_count(self) -> int:
        """Elements that one lane holds."""
        return size_of(self.registers)

    @property
    def warp_count(self) -> int:
        return size_of(self.warps)

    def shape(self, rank: int) -> tuple[int, ...]:
        """The sizes the modes cover, one per axis."""
        sizes = [1] * rank
        for mode in (*self.registers, *self.lanes, *self.warps):
            if mode.axis is not None:
                sizes[mode.axis] += (mode.extent - 1) * mode.stride
        return tuple(sizes)

    def coordinates(self, register: int, lane: int, warp: int, rank: int) -> tuple[int, ...]:
        """Where the element in ``register`` of ``lane`` of ``warp`` lies in the tile."""
        out = [0] * rank
        parts = ((register, self.registers), (lane, self.lanes), (warp, self.warps))
        for number, modes in parts:
            for mode, digit in zip(modes, digits(number, modes), strict=True):
                if mode.axis is not None:
                    out[mode.axis] += digit * mode.stride
        return tuple(out)

    def without_axis(self, axis: int) -> RegisterLayout:
        """The layout of a tile reduced along ``axis``: registers of that axis are gone, lanes and
        warps of it hold copies; later axes move down by one."""

        def kept(modes: tuple[Mode, ...], drop: bool) -> tuple[Mode, ...]:
            out: list[Mode] = []
            for m in modes:
                if m.axis == axis:
                    if not drop:
                        out.append(Mode(m.extent, None))
                elif m.axis is not None and m.axis > axis:
                    out.append(Mode(m.extent, m.axis - 1, m.stride))
                else:
                    out.append(m)
            return tuple(out)

        return RegisterLayout(
            kept(self.registers, True), kept(self.lanes, False), kept(self.warps, False)
        )


def size_of(modes: Sequence[Mode]) -> int:
    """The number of values of all digits together."""
    product = 1
    for mode in modes:
        product *= mode.extent
    return product


def digits(number: int, modes: Sequence[Mode]) -> Iterator[int]:
    """The digits of ``number``, fastest first."""
    for mode in modes:
        number, digit = divmod(number, mode.extent)
        yield digit


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """How a buffer's last two axes (its *matrix*; leading axes are stages) lie in bytes.

    ``major`` says which of the two is contiguous: 1 the last (rows of columns), 0 the one
    before. Along the contiguous axis the matrix is cut into *panels* of ``panel`` elements (0:
    one panel, the whole axis). A panel is ``lines`` lines of ``pitch`` elements (0: as many as a
    line holds); line = the coordinate of the other axis. Within a line, 16-byte chunks are
    XORed with the line's number as the hardware's ``swizzle`` of 128, 64 or 32 bytes does
    (0: not). Stages and panels follow each other without gaps.
    """

    major: int = 1
    panel: int = 0
    pitch: int = 0
    swizzle: int = 0

    def __str__(self) -> str:
        return f"major={self.major} panel={self.panel} pitch={self.pitch} swizzle={self.swizzle}"

    def geometry(self, shape: Sequence[int]) -> tuple[int, int, int, int]:
        """(panels, lines, width of a line, pitch) in elements, of the matrix of ``shape``."""
        rows, columns = _matrix(shape)
        along, lines = (columns, rows) if self.major == 1 else (rows, columns)
        width = self.panel or along
        return -(-along // width), lines, width, self.pitch or width

    def matrix_bytes(self, shape: Sequence[int], element: int) -> int:
        """Bytes of one stage; ``element`` is the size of one element in bytes."""
        panels, lines, _, pitch = self.geometry(shape)
        return panels * lines * pitch * element

    def bytes(self, shape: Sequence[int], element: int) -> int:
        """Bytes of the whole buffer."""
        stages = 1
        for n in shape[:-2]:
            stages *= n
        return stages * self.matrix_bytes(shape, element)

    def offset(self, coordinates: Sequence[int], shape: Sequence[int], element: int) -> int:
        """The byte at which an element begins. The buffer begins at a multiple of 1024."""
        stage = 0
        for n, c in zip(shape[:-2], coordinates[:-2], strict=True):
            stage = stage * n + c
        row, column = _matrix(coordinates) if len(coordinates) > 1 else (0, coordinates[0])
        along, line = (column, row) if self.major == 1 else (row, column)
        _, lines, width, pitch = self.geometry(shape)
        panel, within = divmod(along, width)
        byte = (panel * lines * pitch + line * pitch + within) * element
        return stage * self.matrix_bytes(shape, element) + swizzled(byte, self.swizzle)


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    return (shape[-2], shape[-1]) if len(shape) > 1 else (1, shape[0])


def swizzled(byte: int, swizzle: int) -> int:
    """The hardware's swizzle: address bits 4.. are XORed with bits 7.. (PTX ISA, swizzle modes).

    128 bytes: bits 4-6 with 7-9; 64: bits 4-5 with 7-8; 32: bit 4 with 7.
    """
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    return byte ^ (((byte >> 7) & mask) << 4)


def elements(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All coordinates of a shape, last axis fastest."""
    return itertools.product(*(range(n) for n in shape))


_MODE = re.compile(r"(\d+)@(?:_|(\d+)\*(\d+))")
_REGISTER = re.compile(r"regs\(([^()]*)\) lanes\(([^()]*)\) warps\(([^()]*)\)")
_SHARED = re.compile(r"major=([01]) panel=(\d+) pitch=(\d+) swizzle=(0|32|64|128)")


def _modes(text: str) -> tuple[Mode, ...]:
    out: list[Mode] = []
    for word in text.split():
        m = _MODE.fullmatch(word)
        if m is None:
            raise ValueError(f"no mode: '{word}'")
        out.append(Mode(int(m[1]), None) if m[2] is None else Mode(int(m[1]), int(m[2]), int(m[3])))
    return tuple(out)


def register_layout(text: str) -> RegisterLayout:
    """What ``str`` of a register layout wrote. Raises ValueError."""
    m = _REGISTER.fullmatch(text)
    if m is None:
        raise ValueError(f"no register layout: '{text}'")
    return RegisterLayout(_modes(m[1]), _modes(m[2]), _modes(m[3]))


def shared_layout(text: str) -> SharedLayout:
    """What ``str`` of a shared layout wrote. Raises ValueError."""
    m = _SHARED.fullmatch(text)
    if m is None:
        raise ValueError(f"no shared layout: '{text}'")
    return SharedLayout(int(m[1]), int(m[2]), int(m[3]), int(m[4]))
