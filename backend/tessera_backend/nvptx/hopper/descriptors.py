"""Matrix descriptors of ``wgmma``: where a shared buffer's matrix lies, as the hardware asks it.

Owns the one query from a ``SharedLayout`` to the fields of a descriptor and to the bytes
between its parts (PTX ISA, asynchronous warpgroup matrix instructions: canonical layouts).
Must not know LLVM or who issues the product.
"""

from __future__ import annotations

from tessera_lang.ir.core import BufferType
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import STEP_BYTES, VECTOR_BYTES

_LINES = 8  # lines of a core matrix
_LAYOUT_CODE = {0: 0, 128: 1, 64: 2, 32: 3}


class NoDescriptor(ValueError):
    """The layout is none that the matrix unit can read; the message says why."""


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A matrix in shared memory as an operand.

    ``contraction_contiguous``: the contraction is the axis that is contiguous (K-major).
    ``leading`` and ``stride`` are the byte offsets of the descriptor. ``lines``, ``width`` and
    ``line_bytes`` say where an element lies: axis ``major`` is cut into panels of ``width``.
    """

    major: int
    contraction_contiguous: bool
    leading: int
    stride: int
    swizzle: int
    lines: int
    width: int
    line_bytes: int
    element: int

    @property
    def panel_bytes(self) -> int:
        return self.lines * self.line_bytes

    @property
    def low_bits(self) -> int:
        """The low word of the descriptor without the address."""
        return (self.leading >> 4) << 16

    @property
    def high_bits(self) -> int:
        """The high word, which the address has no part in."""
        return self.stride >> 4 | _LAYOUT_CODE[self.swizzle] << 30

    def step(self, number: int) -> int:
        """Bytes from the start of the contraction to that of instruction ``number``."""
        elements = number * STEP_BYTES // self.element
        if not self.contraction_contiguous:
            return elements * self.line_bytes
        panel, within = divmod(elements, self.width)
        return panel * self.panel_bytes + within * self.element

    def check_start(self, row: int, column: int) -> None:
        """Whether a matrix may begin there. Raises NoDescriptor."""
        line, along = (row, column) if self.major == 1 else (column, row)
        if line % _LINES:
            raise NoDescriptor(f"a start at line {line}, no multiple of {_LINES}")
        whole = STEP_BYTES // self.element if self.contraction_contiguous else self.width
        if along % whole:
            raise NoDescriptor(f"a start at {along} of a line, no multiple of {whole}")

    def across(self, coordinate: int) -> int:
        """Bytes from the first row (of b: column) to that one, a multiple of a whole atom."""
        if self.contraction_contiguous:
            if coordinate % _LINES:
                raise NoDescriptor(f"rows start at {coordinate}, no multiple of {_LINES}")
            return coordinate * self.line_bytes
        if coordinate % self.width:
            raise NoDescriptor(f"columns start at {coordinate}, no multiple of {self.width}")
        return coordinate // self.width * self.panel_bytes


def matrix_operand(buffer: BufferType, contraction: int) -> MatrixOperand:
    """The matrix of ``buffer`` (its last two axes) with the contraction along axis 0 or 1 of it.

    Raises NoDescriptor where the hardware cannot read it in place.
    """
    layout, element = buffer.layout, buffer.dtype.bytes
    if layout is None or len(buffer.shape) < 2:
        raise NoDescriptor("the buffer has no layout of panels")
    _, lines, width, pitch = layout.geometry(buffer.shape)
    if pitch != width:
        raise NoDescriptor("lines are padded")
    span = width * element
    if span != (layout.swizzle or VECTOR_BYTES):
        raise NoDescriptor(f"a line of {span} bytes with a swizzle of {layout.swizzle}")
    if lines % _LINES:
        raise NoDescriptor(f"{lines} lines are no multiple of {_LINES}")
    inside = contraction == layout.major
    leading, stride = lines * span, _LINES * span
    if not inside:
        if element != 2:
            raise NoDescriptor("only types of 16 bits are read across the contraction")
        if not layout.swizzle:
            raise NoDescriptor("without a swizzle the contraction must be contiguous")
    elif layout.swizzle:
        leading = VECTOR_BYTES  # not looked at
    return MatrixOperand(
        layout.major, inside, leading, stride, layout.swizzle, lines, width, span, element
    )
