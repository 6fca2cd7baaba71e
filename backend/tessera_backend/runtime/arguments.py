"""A call's arguments put in order, recognised, and brought to one device.

Owns counting and naming of arguments, compile-time values, and where a launch runs. Must
not know compiled code.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera_backend.runtime import scalars, signature
from tessera_backend.runtime.array_checks import check_array
from tessera_backend.runtime.arrays import HOST, ArrayView, describe, is_numpy, is_torch
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.dtypes import TO_NUMPY, dtype_name
from tessera_backend.runtime.module_interface import KernelInterface, ParameterInfo
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.signature import Entry, Signature
from tessera_backend.runtime.staging import Staged, in_hand, stage
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.record import dataclass, field
from tessera_lang.target.array_facts import all_small, constants_by_value
from tessera_lang.target.launch_plan import ParameterPlan
from tessera_lang.types.dtype import DTYPES, F32, DType, dtype_named, float_beside

_ABSENT = object()
_BUFFERS = (bytes, bytearray, memoryview, array)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Values by parameter, and by bracket parameter; _ABSENT where the call gives none."""

    values: tuple[Any, ...]
    brackets: tuple[Any, ...]


def order_arguments(
    interface: KernelInterface, arguments: Sequence[Any], named: dict[str, Any]
) -> Ordered:
    """Positional and named arguments in the order of the parameters.

    Compile-time parameters may be left out of the positional ones. Raises TesseraError.
    """
    parameters = interface.parameters
    values: list[Any] = [_ABSENT] * len(parameters)
    brackets: list[Any] = [_ABSENT] * len(interface.brackets)
    if len(arguments) > len(parameters):
        raise _count_error(interface, len(arguments))
    values[: len(arguments)] = arguments
    names = {p.name: i for i, p in enumerate(parameters)}
    bracket_names = {p.name: i for i, p in enumerate(interface.brackets)}
    for name, value in named.items():
        if name in names:
            if values[names[name]] is not _ABSENT:
                raise error(diagnostic("T0830", f"`{interface.name}` is given `{name}` twice"))
            values[names[name]] = value
        elif name in bracket_names:
            brackets[bracket_names[name]] = value
        else:
            known = ", ".join(f"`{p.name}`" for p in (*parameters, *interface.brackets))
            raise error(diagnostic(
                "T0830", f"`{interface.name}` has no parameter `{name}`",
                helps=(f"its parameters are {known}",) if known else (),
            ))  # fmt: skip
    for i, p in enumerate(parameters):
        if values[i] is _ABSENT and p.default is not None:
            values[i] = p.default
    if any(v is _ABSENT for v in values):
        raise _count_error(interface, len(arguments) + len(named), values)
    return Ordered(tuple(values), tuple(brackets))


def _count_error(interface: KernelInterface, given: int, values: Sequence[Any] = ()) -> Exception:
    wanted = len(interface.parameters)
    missing = [f"`{p.name}`" for p, v in zip(interface.parameters, values, strict=False)
               if v is _ABSENT]  # fmt: skip
    tail = f"; {', '.join(missing)} missing" if missing else ""
    first = interface.parameters[0] if interface.parameters else None
    was = "was" if given == 1 else "were"
    return error(diagnostic(
        "T0830", f"`{interface.name}` takes {wanted} argument{'' if wanted == 1 else 's'}, and "
        f"{given} {was} given{tail}", first.place if first else ("", 0, 0),
        len(first.name) if first else 1,
    ))  # fmt: skip


@dataclass(slots=True)
class Placed:
    """A call's arguments on one device. ``values`` hold a view for each array.

    ``staged`` are the copies of host arrays, by parameter, and ``given`` the arguments before
    they were copied; ``constants`` says whether compile-time values take part.
    """

    device: int
    values: list[Any]
    entries: list[Entry]
    brackets: list[Entry]
    stream: int
    raw: tuple[Any, ...]
    written: tuple[bool, ...] = ()
    staged: dict[int, Staged] = field(default_factory=dict[int, Staged])
    given: tuple[Any, ...] = ()

    @property
    def constants(self) -> bool:
        return bool(self.brackets) or any(e[0] == "c" for e in self.entries)

    @property
    def aligned(self) -> bool:
        """Whether every array begins at a multiple of 16 bytes."""
        pointers = 0
        for v in self.values:
            if isinstance(v, ArrayView):
                pointers |= v.pointer
        return pointers & 15 == 0

    @property
    def small(self) -> bool:
        """Whether code may rely on it that every array is small: see ``target.array_facts``."""
        arrays = [v for v in self.values if isinstance(v, ArrayView)]
        target = "cpu" if self.device == HOST else "cuda"
        return all_small([(v.shape, v.strides, v.dtype.bytes) for v in arrays], target)

    def signature(self, small: bool = False) -> Signature:
        """What the kernel is compiled for. Alignment and ``small`` are facts of all arrays or of
        none."""
        aligned = self.aligned
        entries = [
            (*e[:4], aligned, small) if e[0] == "t" else (*e[:3], small) if e[0] == "v" else e
            for e in self.entries
        ]
        return (*self.brackets, *entries)

    def key(self, sized: frozenset[int]) -> tuple[object, ...]:
        """Everything that the checks of a call depend on, addresses excepted."""
        parts: list[object] = [self.device, self.aligned, tuple(self.brackets)]
        for i, (v, e) in enumerate(zip(self.values, self.entries, strict=True)):
            if isinstance(v, ArrayView):
                parts.append((e[0], v.dtype.name, v.shape, v.strides, v.read_only))
            else:
                parts.append((e, v) if i in sized else e)
        return tuple(parts)

    def moved(self) -> Callable[[], bool]:
        """A check that every array of the caller is still where it was."""
        direct = [
            (
                raw.data_ptr if is_torch(raw.__class__) else partial(_address, raw, raw.nbytes),
                v.pointer,
            )
            for raw, v in zip(self.raw, self.values, strict=False)
            # NumPy's `resize` moves an array that owns its memory, and nothing else does.
            if isinstance(v, ArrayView)
            and (is_torch(raw.__class__) or (is_numpy(raw.__class__) and raw.flags.owndata))
        ]
        others = [
            (raw, v.pointer)
            for raw, v in zip(self.raw, self.values, strict=False)
            if isinstance(v, ArrayView) and not (is_torch(raw.__class__) or is_numpy(raw.__class__))
        ]
        return _moved(direct, others)

    def finish(self) -> None:
        """Bring back what the launch wrote into copies."""
        for i, copy in self.staged.items():
            if self.written[i]:
                copy.bring_back(self.stream)
        if self.staged:
            from tessera_backend.runtime.faults import report_all

            report_all()


_address_of = address_function()


def _address(array: Any, size: int) -> int:
    """Where an array of NumPy lies; no place once it has another size."""
    return _address_of(array) if array.nbytes == size else -1


def _moved(
    direct: list[tuple[Callable[[], int], int]], others: list[tuple[Any, int]]
) -> Callable[[], bool]:
    if not others and not direct:
        return lambda: False
    if not others and len(direct) == 2:
        (f, p), (g, q) = direct
        return lambda: f() != p or g() != q
    if not others and len(direct) == 3:
        (f, p), (g, q), (h, r) = direct
        return lambda: f() != p or g() != q or h() != r

    def moved() -> bool:
        for pointer, before in direct:
            if pointer() != before:
                return True
        for raw, before in others:
            view = describe(raw, "bound")
            if view is None or view.pointer != before:
                return True
        return False

    return moved


# --- placing -------------------------------------------------------------------------------


def place_arguments(
    interface: KernelInterface, ordered: Ordered, target: str, stream: int | None,
    by_value: bool = False, usual: int | None = None,
) -> Placed:  # fmt: skip
    """Recognise the arguments and choose the device. ``by_value``: whether the launch follows at
    once, so that it may take constants by value. ``usual``: the device where no array says one.
    Raises TesseraError."""
    values: list[Any] = []
    for p, value in zip(interface.parameters, ordered.values, strict=True):
        values.append(_recognise(interface, p, value))
    _check_declared(interface, values)
    device = _device(interface, values, target, usual)
    handle = stream if stream is not None else _stream(values, device)
    brackets = _brackets(interface, ordered.brackets, values)
    dtypes = {
        b.name: str(e[2]) for b, e in zip(interface.brackets, brackets, strict=True)
        if b.dtype == "dtype"
    }  # fmt: skip
    floats = _floats(interface, values)
    entries = [
        _entry(p, v, dtypes, floats) for p, v in zip(interface.parameters, values, strict=True)
    ]  # fmt: skip
    written = tuple(p.mut or p.kind == "any" for p in interface.parameters)
    placed = Placed(device, values, entries, brackets, handle, ordered.values, written)
    if device != HOST:
        _stage(interface, placed, by_value)
    return placed


def _recognise(interface: KernelInterface, p: ParameterInfo, value: Any) -> Any:
    if p.kind == "constant":
        return _constant(interface, p, value)
    view = describe(value, p.name)
    if view is not None:
        if p.kind == "scalar":
            raise error(diagnostic(
                "T0831", f"argument `{p.name}` of `{interface.name}` is a number, and an array "
                "was given", p.place, len(p.name), f"declared {p.dtype}",
                helps=("pass one element: x.item()",),
            ))  # fmt: skip
        return view
    if p.kind == "array" or not scalars.is_number(value):
        raise _not_an_array(interface, p, value)
    return value


def _check_declared(interface: KernelInterface, values: Sequence[Any]) -> None:
    """What the annotation alone says, before anything is compiled or copied."""
    found: list[Diagnostic] = []
    for p, value in zip(interface.parameters, values, strict=True):
        if isinstance(value, ArrayView) and p.kind == "array":
            dtype = p.dtype if p.dtype in DTYPES else ""
            declared = ParameterPlan(p.name, "tensor", dtype, p.rank, mut=p.mut, span=p.place)
            found += check_array(interface.name, declared, p.declared, value)
    if found:
        raise error(*found)


def _article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiouAEIOU' else 'a'} {word}"


def _not_an_array(interface: KernelInterface, p: ParameterInfo, value: object) -> Exception:
    kind = type(value).__name__
    if kind == "array":  # Python's own
        kind = f"{type(value).__module__}.array"
    helps: tuple[str, ...] = ()
    if isinstance(value, (list, tuple)):
        numpy = TO_NUMPY[p.dtype].name if p.dtype in DTYPES else "float32"
        helps = (f'make an array of it: numpy.array(..., dtype="{numpy}")',)
    elif scalars.is_number(value):
        helps = ("give an array of one element",)
    elif p.kind != "scalar" and (hasattr(value, "__array__") or isinstance(value, _BUFFERS)):
        what = "frombuffer" if isinstance(value, (bytes, bytearray)) else "asarray"
        helps = (f"give an array of it: numpy.{what}(...)",)
    wanted = {"array": "an array", "scalar": "a number"}.get(p.kind, "an array or a number")
    return error(diagnostic(
        "T0831", f"argument `{p.name}` of `{interface.name}` is {_article(kind)}, and {wanted} "
        "is expected", p.place, len(p.name), helps=helps,
    ))  # fmt: skip


def _constant(interface: KernelInterface, p: ParameterInfo, value: Any) -> Any:
    wanted = p.dtype
    plain = scalars.plain(value) if scalars.is_number(value) else value
    if wanted == "dtype":
        plain = dtype_name(value) or plain
    huge = isinstance(plain, int) and plain.bit_length() > 64
    fine = not huge and {
        "int": isinstance(plain, int) and not isinstance(plain, bool),
        "float": isinstance(plain, (int, float)) and not isinstance(plain, bool),
        "bool": isinstance(plain, bool),
        "str": isinstance(plain, str),
        "dtype": isinstance(plain, str) and dtype_named(plain) is not None,
    }.get(wanted, isinstance(plain, (int, float, bool, str)))
    if not fine:
        raise error(diagnostic(
            "T0850", f"compile-time parameter `{p.name}` of `{interface.name}` is given "
            f"{scalars.shown(value)}, and {_article(wanted or 'number, bool or text')} is expected",
            p.place, len(p.name),
            helps=("integers have 64 bits",) if huge else (),
        ))  # fmt: skip
    if wanted == "float":
        return float(plain)
    if wanted == "dtype":
        dtype = dtype_named(str(plain))
        assert dtype is not None
        return dtype.name
    return plain


def _device(
    interface: KernelInterface, values: Sequence[Any], target: str, usual: int | None
) -> int:
    devices = sorted({v.device for v in values if isinstance(v, ArrayView) and v.device != HOST})
    if len(devices) > 1:
        where = ", ".join(
            f"`{p.name}` on cuda:{v.device}"
            for p, v in zip(interface.parameters, values, strict=True)
            if isinstance(v, ArrayView) and v.device != HOST
        )
        raise error(diagnostic(
            "T0844", f"the arguments of `{interface.name}` are on different devices: {where}",
            helps=("bring them to one device before the call",),
        ))  # fmt: skip
    if devices and target == "cpu":
        raise error(diagnostic(
            "T0844", f"`{interface.name}` was loaded for the CPU, and an argument is on CUDA "
            f"device {devices[0]}", helps=('load it with target="auto" or "cuda"',),
        ))  # fmt: skip
    if devices:
        return devices[0]
    if usual is not None:
        return usual
    return 0 if target == "cuda" else HOST


def _stream(values: Sequence[Any], device: int) -> int:
    """The stream that the arrays' libraries work on now; the default one where none says."""
    if device == HOST:
        return 0
    views = [v for v in values if isinstance(v, ArrayView)]
    said = [v.stream for v in views] + [v.ready_on for v in views]
    return next((stream for stream in said if stream is not None), 0)


def _entry(
    p: ParameterInfo, value: Any, dtypes: Mapping[str, str] = {}, floats: DType = F32
) -> Entry:
    """``dtypes``: what the brackets that name dtypes are. ``floats``: what a float of Python's
    is."""
    if isinstance(value, ArrayView):
        return signature.tensor(value.dtype.name, len(value.shape), value.contiguous, False)
    if p.kind == "constant":
        return signature.constant(value, p.dtype == "dtype")
    if p.dtype in DTYPES:
        return signature.scalar(p.dtype)
    if p.dtype in dtypes:
        return signature.scalar(dtypes[p.dtype])
    return signature.scalar(scalars.natural_dtype(value, p.name, p.place, floats=floats).name)


def _brackets(
    interface: KernelInterface, given: Sequence[Any], values: Sequence[Any]
) -> list[Entry]:
    """Bracket parameters: given, or the dtype or a size of an argument that names it, or the
    default."""
    entries: list[Entry] = []
    for b, value in zip(interface.brackets, given, strict=True):
        if value is _ABSENT:
            value = _dtype_of(b.name, interface, values)
        if value is None:
            value = _size_of(b.name, interface, values)
        if value is None:
            value = b.default
        if value is None:
            raise error(diagnostic(
                "T0850", f"nothing says what `{b.name}` of `{interface.name}` is", b.place,
                len(b.name), helps=(f"name it in the call: {b.name}=...",),
            ))  # fmt: skip
        entries.append(signature.constant(_constant(interface, b, value), b.dtype == "dtype"))
    return entries


def _size_of(name: str, interface: KernelInterface, values: Sequence[Any]) -> int | None:
    """The size of the first axis that is declared with this name, as the 64 of ``x: f32[n, D]``."""
    for p, v in zip(interface.parameters, values, strict=True):
        sizes = p.declared.partition("[")[2].rpartition("]")[0].split(",")
        if isinstance(v, ArrayView) and len(sizes) == len(v.shape):
            for said, size in zip(sizes, v.shape, strict=True):
                if said.strip() == name:
                    return size
    return None


def _dtype_of(name: str, interface: KernelInterface, values: Sequence[Any]) -> str | None:
    """The dtype of the arguments declared with this name: an array says it before a number, a
    number of NumPy's before one of Python's, which takes any."""
    named = [(p, v) for p, v in zip(interface.parameters, values, strict=True) if p.dtype == name]
    for _, v in named:
        if isinstance(v, ArrayView):
            return v.dtype.name
    named.sort(key=lambda pair: not isinstance(pair[1], np.generic))
    floats = _floats(interface, values)
    return next(
        (scalars.natural_dtype(v, p.name, p.place, floats=floats).name for p, v in named), None
    )


def _floats(interface: KernelInterface, values: Sequence[Any]) -> DType:
    """What a float of Python's is in a call: nothing narrower than f64 may take part in it, no
    array, no number of NumPy's, and no dtype that the kernel names."""
    arrays = (v.dtype for v in values if isinstance(v, ArrayView))
    narrow = any(isinstance(v, np.inexact) and not isinstance(v, float) for v in values)
    return float_beside(arrays, F32 if narrow else DTYPES[interface.alone])


def _stage(interface: KernelInterface, placed: Placed, by_value: bool) -> None:
    """Copy host arrays to the device of the launch, and wait for other libraries' streams. Small
    ``const`` arrays of lane kernels go with the launch itself."""
    from tessera_backend.device.driver import device
    from tessera_backend.device.stream import synchronize_stream

    placed.given = tuple(placed.values)
    chosen = _by_value(interface, placed.values) if by_value else (False,) * len(placed.values)
    for i, (p, v) in enumerate(zip(interface.parameters, placed.values, strict=True)):
        if not isinstance(v, ArrayView):
            continue
        if v.device == HOST and chosen[i]:
            copy = in_hand(v, placed.device)
            placed.staged[i], placed.values[i] = copy, copy.view
            placed.entries[i] = signature.by_value(v.dtype.name, len(v.shape))
        elif v.device == HOST:
            copy = stage(v, placed.device, placed.stream, p.name, interface.name)
            placed.staged[i] = copy
            placed.values[i] = copy.view
            placed.entries[i] = _entry(p, copy.view)
        elif v.ready_on is not None and v.ready_on != placed.stream:
            synchronize_stream(device(placed.device), v.ready_on)


def _by_value(interface: KernelInterface, values: Sequence[Any]) -> tuple[bool, ...]:
    ranks = [len(v.shape) if isinstance(v, ArrayView) else 0 for v in values]
    lanes = interface.level == "lane"
    return constants_by_value(ranks, [p.constant * lanes for p in interface.parameters])
