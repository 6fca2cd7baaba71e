"""Signatures as the runtime forms them: plain tuples, made from a call without the compiler.

One entry a parameter, brackets first: ``("t", dtype, rank, contiguous, aligned, small)``,
``("s", dtype)``, ``("c", kind, value)``, and for a ``const`` array that a launch takes by value
``("v", dtype, rank, small)``. A tile kernel is told more of an array: a seventh part,
``(sizes, hints, divisors, unit, pitches, buckets)``. They are JSON and cache keys as they
stand; ``to_typed`` makes the compiler's own values when something is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.module_interface import ConstantValue
from tessera_lang.record import dataclass
from tessera_lang.target.array_facts import array_facts, coarser

Entry = tuple[Any, ...]
Signature = tuple[Entry, ...]
Axes = tuple[tuple[str, int], ...]
"""Axes of parameters: (parameter, axis)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The axes whose size a tile kernel is compiled for, and those of which it takes a bound."""

    needed: Axes = ()
    whole: Axes = ()


def tensor(
    dtype: str, rank: int, contiguous: bool, aligned: bool, small: bool = False
) -> Entry:  # fmt: skip
    return ("t", dtype, rank, contiguous, aligned, small)


def by_value(dtype: str, rank: int, small: bool = False) -> Entry:
    return ("v", dtype, rank, small)


def scalar(dtype: str) -> Entry:
    return ("s", dtype)


def constant(value: ConstantValue, dtype: bool = False) -> Entry:
    """A compile-time value; ``dtype`` says that the text names an element type."""
    return ("c", "dtype" if dtype else type(value).__name__, value)


def with_facts(
    signature: Signature, names: Sequence[str], values: Sequence[Any], asked: Asked
) -> Signature:
    """The signature of a tile kernel. ``names`` and ``values`` are the parameters', which stand
    at the end of the signature."""
    brackets = len(signature) - len(names)
    entries = list(signature[:brackets])
    for name, value, entry in zip(names, values, signature[brackets:], strict=True):
        if entry[0] == "t" and isinstance(value, ArrayView):
            needed, whole = (
                tuple([axis for owner, axis in axes if owner == name])
                for axes in (asked.needed, asked.whole)
            )
            f = array_facts(value.shape, value.strides, value.dtype.bytes, needed, whole)
            facts = (f.sizes, f.hints, f.divisors, f.unit, f.pitches, f.buckets)
            entry = (*entry[:6], facts)
        entries.append(entry)
    return tuple(entries)


def coarser_signature(signature: Signature, level: int) -> Signature:
    """The signature with fewer classes of sizes: see ``target.array_facts.coarser``."""
    entries: list[Entry] = []
    for entry in signature:
        for sizes, hints, divisors, *rest in entry[6:] if entry[0] == "t" else ():
            entry = (*entry[:6], (sizes, *coarser(hints, divisors, level), *rest))
        entries.append(entry)
    return tuple(entries)


def to_typed(signature: Signature) -> tuple[Any, ...]:
    """The compiler's form (``tessera_lang.sema.side_tables.Signature``)."""
    from tessera_lang.sema.side_tables import ConstantArgument, ScalarArgument, TensorArgument
    from tessera_lang.types.dtype import DTYPES

    typed: list[object] = []
    for entry in signature:
        match entry:
            case ("t", dtype, rank, contiguous, aligned, small):
                typed.append(TensorArgument(DTYPES[dtype], rank, contiguous, aligned, small=small))
            case ("t", dtype, rank, contiguous, aligned, _, facts):
                sizes, hints, divisors, unit, pitches, buckets = facts
                typed.append(TensorArgument(
                    DTYPES[dtype], rank, contiguous, aligned, sizes, hints, divisors, unit,
                    pitches, buckets,
                ))  # fmt: skip
            case ("v", dtype, rank, small):
                typed.append(TensorArgument(
                    DTYPES[dtype], rank, True, True, small=small, value=True
                ))  # fmt: skip
            case ("s", dtype):
                typed.append(ScalarArgument(DTYPES[dtype]))
            case (_, kind, value):
                typed.append(ConstantArgument(DTYPES[value] if kind == "dtype" else value))
            case _:
                raise ValueError(f"not an entry of a signature: {entry!r}")
    return tuple(typed)


def from_typed(signature: tuple[Any, ...]) -> Signature:
    """The runtime's form of a compiler's signature."""
    entries: list[Entry] = []
    for argument in signature:
        match type(argument).__name__:
            case "TensorArgument" if argument.value:
                entries.append(by_value(argument.dtype.name, argument.rank, argument.small))
            case "TensorArgument":
                entries.append(tensor(argument.dtype.name, argument.rank, argument.contiguous,
                                      argument.aligned, argument.small))  # fmt: skip
            case "ScalarArgument":
                entries.append(scalar(argument.dtype.name))
            case _:
                value = argument.value
                named = getattr(value, "name", None)
                entries.append(constant(named, True) if named else constant(value))
    return tuple(entries)


def text(signature: Signature) -> str:
    """A signature in a name or a message: ``f32[2] index 64``."""
    words: list[str] = []
    for entry in signature:
        if entry[0] == "t":
            words.append(_tensor_text(entry))
        elif entry[0] == "v":
            words.append(f"const {entry[1]}[{entry[2]}]{' small' if entry[3] else ''}")
        elif entry[0] == "s":
            words.append(str(entry[1]))
        else:
            words.append(str(entry[2]))
    return ", ".join(words)


def _tensor_text(entry: Entry) -> str:
    _, dtype, rank, contiguous, aligned, small, *more = entry
    words = ("" if contiguous else " strided") + (" aligned" if aligned else "")
    words += " small" if small else ""
    if not more:
        return f"{dtype}[{rank}]{words}"
    sizes, hints = more[0][:2]
    shape = ", ".join(
        f"~{hint}" if size is None else str(size) for size, hint in zip(sizes, hints, strict=True)
    )
    return f"{dtype}[{shape}]{words}"


def varying(signatures: Sequence[Signature], names: Sequence[str]) -> str:
    """What differs most among signatures of one kernel, in the user's words."""
    found: dict[str, dict[Any, None]] = {}
    for signature in signatures:
        for name, entry in zip(names, signature, strict=True):
            for what, value in _parts(name, entry):
                found.setdefault(what, {})[value] = None
    return max(found, key=lambda what: len(found[what]), default="")


def _parts(name: str, entry: Entry) -> list[tuple[str, Any]]:
    if entry[0] == "c":
        return [(f"the value of `{name}`", entry[2])]
    parts: list[tuple[str, Any]] = [(f"the element type of `{name}`", entry[1])]
    if entry[0] in ("t", "v"):
        parts.append((f"the layout of `{name}`", entry[2:6]))
    for facts in entry[6:] if entry[0] == "t" else ():
        sizes, hints, divisors, unit, pitches, _ = facts
        parts.append((f"the layout of `{name}`", (*entry[2:6], unit, pitches)))
        parts += [
            (f"the size of axis {axis} of `{name}`", group)
            for axis, group in enumerate(zip(sizes, hints, divisors, strict=True))
        ]
    return parts
