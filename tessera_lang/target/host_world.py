"""The world of a host program: arrays, files, launches and output behind one protocol.

The evaluator (``evaluate``) knows scalars and control flow; everything that holds memory or
runs is asked of a ``World``. ``tesserac run`` gives it the runtime's, ``tesserac check`` a
symbolic one that knows dtypes and shapes only. Must not know syntax, NumPy or a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from tessera_lang.record import dataclass
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.types.dtype import BOOL, DType, cast_to_meet, common_dtype
from tessera_lang.types.shape import Dim

Filling = Literal["zeros", "ones", "empty", "full", "workspace"]
"""``workspace``: zeros that each launch leaves as zeros, so that nobody has to fill them."""
Reduction = Literal["sum", "min", "max", "mean", "all", "any", "argmin", "argmax"]
ViewKind = Literal["T", "mT", "reshape", "contiguous", "row"]
"""``row``: the part of an array at the place ``shape[0]`` of its first axis."""
Index = int | slice | None
"""One axis of an index: an element, a slice, or None for a new axis of size 1."""


@dataclass(frozen=True, slots=True)
class KernelReference:
    """A kernel by the file that declares it and its name; ``pure``: it writes no argument."""

    path: str
    name: str
    pure: bool = False

    @property
    def description(self) -> str:
        return f"the kernel `{self.name}`"


@dataclass(frozen=True, slots=True)
class KernelEffects:
    """What a call of a kernel does to arrays: the parameters that it writes, by number, and the
    dtypes and shapes of the arrays that it returns."""

    writes: tuple[int, ...]
    results: tuple[tuple[DType, tuple[Dim, ...]], ...]


class WorldFault(Exception):
    """What a world refuses, in the user's words; the evaluator adds the line.

    ``code`` is the diagnostic's code, T0801 for a fault without one of its own.
    """

    def __init__(
        self, message: str, *, code: str = "T0801", helps: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.message = message
        self.code = code
        self.helps = helps
        self.notes = notes
        super().__init__(message)


def common_of(operator: str, left: DType, right: DType) -> DType | None:
    """The dtype in which arrays meet under an operator: bools beside numbers are 0 and 1."""
    if operator in ("+", "-", "*", "/") and (left == BOOL) != (right == BOOL):
        return right if left == BOOL else left
    return common_dtype(left, right)


def mixing_help(left: DType, right: DType) -> tuple[str, ...]:
    """What to write where arrays of two dtypes meet that need a cast."""
    first, dtype = cast_to_meet(left, right)
    side, other = ("left", "right") if first else ("right", "left")
    met = right if first else left
    if dtype != met:
        return (f"convert the {side} operand: `.to({dtype})`",)
    return (f"convert the {side} operand: `.to({dtype})`; `.to(x.dtype)`, with the {other} operand"
            " `x`, serves calls with any dtype",)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """What a launch takes. ``occupancy``: the part of the machine that is at work, 0 to 1;
    ``groups``: how many there are."""

    seconds: float
    occupancy: float
    groups: int


@runtime_checkable
class MeasuringWorld(Protocol):
    """A world that runs kernels and can say what a launch takes."""

    def measured(self, kernel: KernelReference, arguments: tuple[object, ...]) -> Measured:
        """A launch of a tile kernel that writes no argument, run several times."""
        ...


@runtime_checkable
class ChecksNan(Protocol):
    """A world that stops where something gives NaN and takes none."""

    check_nan: bool

    def has_nan(self, value: object) -> bool:
        """Whether a number, an array, or one of several is or holds NaN."""
        ...


Outline = tuple[DType, tuple[int, ...]]
"""The dtype and the shape of an array whose elements lie side by side."""


@runtime_checkable
class CompilingWorld(Protocol):
    """A world that can begin the code of kernels before they are launched."""

    def begin(self, kernel: KernelReference, arguments: Sequence[float | Outline]) -> None:
        """Begin the code of a tile kernel for arguments of these layouts, in a thread of its own.
        What is wrong with it, the launch says."""
        ...


class World(Protocol):
    """Arrays are opaque to the evaluator; scalars read from one are int, float or bool.

    Every method may raise WorldFault; ``launch`` also TesseraError with diagnostics of its
    own.
    """

    @property
    def floats(self) -> DType:
        """Of floats that meet no array: f64 in a function that got arrays of f64 alone."""
        ...

    def is_array(self, value: object) -> bool: ...
    def dtype(self, array: object) -> object:
        """A DType, in a world that runs."""
        ...

    def shape(self, array: object) -> object:
        """A tuple of int, in a world that runs."""
        ...

    def device(self, array: object) -> object:
        """``"cpu"`` or ``"cuda"``, in a world that runs: what works on the array."""
        ...

    def fill(
        self, kind: Filling, shape: tuple[int, ...], dtype: DType, value: object = None
    ) -> object:
        """``op.zeros ones empty full workspace``; ``value`` for ``full`` only."""
        ...

    def of_numbers(self, array: object, numbers: object = None) -> object:
        """``array``, which was made of numbers without a dtype: as long as nothing is stored into
        it, it takes the dtype of an array that it meets, as a number does. ``numbers``: they, in
        order, one for all elements, or an array of them in 64 bits; None if ``array`` has them
        exactly."""
        ...

    def beside(self, array: object, dtype: DType) -> object:
        """``array``, in the dtype if it was made of numbers that this holds."""
        ...

    def is_of_numbers(self, array: object) -> bool:
        """Whether it was made so, and nothing has been stored into it."""
        ...

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> object: ...

    def random(
        self, shape: tuple[int, ...], dtype: DType | None, seed: int, low: float, high: float
    ) -> object:
        """Uniform in [low, high); the same seed gives the same values in every process, those of
        f64 rounded. Without a dtype it is ``floats``, and no number of f64 is stored into f32."""
        ...

    def load(self, path: str, key: str | None, dtype: DType | None) -> object:
        """An array of an ``.npy``, ``.npz`` or ``.csv`` file, converted to ``dtype`` if given.

        ``key`` names an array of an ``.npz`` or a column of a ``.csv`` (then of rank 1)."""
        ...

    def save(self, path: str, arrays: dict[str, object]) -> None:
        """``.npy`` and ``.csv`` take one array under the name ``""``; ``.npz`` any number."""
        ...

    def read(self, array: object, items: tuple[Index, ...]) -> object:
        """``array[items]``: a scalar, or a view that shares memory."""
        ...

    def write(self, array: object, items: tuple[Index, ...], value: object) -> None: ...

    def named(self, array: object) -> object:
        """What a name of the array holds: of a slice a value, its elements of now, which no store
        changes; any other array itself."""
        ...

    def value_of(self, array: object) -> object:
        """The array of which NumPy would give this as a view, or a slice; None of another."""
        ...

    def release(self, array: object) -> None:
        """``array`` is the value of nothing from now on, and may be written."""
        ...

    def viewed(self, array: object, of: object) -> object:
        """``array``, new elements that NumPy would give as a view of the array ``of``: a value."""
        ...

    def shares(self, a: object, b: object) -> bool:
        """Whether two arrays have memory in common."""
        ...

    def unary(self, operator: str, a: object) -> object:
        """``-``, ``+``, ``~``, ``not`` and ``abs`` of an array, element by element."""
        ...

    def binary(self, operator: str, a: object, b: object) -> object:
        """Arithmetic and comparisons, ``min`` and ``max``; at least one is an array."""
        ...

    def reduce(self, kind: Reduction, array: object, axis: int | None) -> object:
        """A scalar where ``axis`` is None, else an array without that axis."""
        ...

    def convert(self, array: object, dtype: DType) -> object: ...

    def view(self, kind: ViewKind, array: object, shape: tuple[int, ...] = ()) -> object:
        """The same elements seen another way; a copy only where ``reshape`` or ``contiguous``
        need one. One size of a ``reshape`` may be -1."""
        ...

    def truth(self, array: object) -> bool:
        """The truth of an array of one element."""
        ...

    def text(self, array: object, format: str = "") -> str:
        """What ``print`` shows of an array."""
        ...

    def launch(
        self,
        kernel: KernelReference,
        arguments: tuple[object, ...],
        constants: Mapping[str, object],
        groups: tuple[int, ...] | None,
    ) -> object:
        """Run a kernel. ``arguments`` stand in the order of its parameters (those in
        parentheses), defaults filled in. ``constants`` are the compile-time parameters in
        brackets that the call names or that have a default; the others follow from the
        arguments (the ``T`` of ``x: T[n]``). ``groups`` is what the call says in brackets,
        or None."""
        ...

    def print(self, text: str) -> None: ...

    def finish(self) -> None:
        """Wait for everything launched; raises as ``launch`` does for what went wrong."""
        ...


class KernelCompiler(Protocol):
    """What a runtime needs of the compiler's session."""

    def compile_kernel(
        self, path: str, name: str, signature: tuple[Any, ...], options: TargetOptions,
        stages: tuple[str, ...] = (), grid_rank: int = 0,
    ) -> Artifact: ...  # fmt: skip

    def closure(self, path: str) -> dict[str, str]: ...
