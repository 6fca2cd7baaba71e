"""Signatures as the runtime forms them: plain tuples, made from a call without the compiler.

One entry a parameter, brackets first: ``("t", dtype, rank, contiguous, aligned)``,
``("s", dtype)``, ``("c", kind, value)``. They are JSON and cache keys as they stand;
``to_typed`` makes the compiler's own values when something is compiled.
"""

from __future__ import annotations

from typing import Any

from tessera_backend.runtime.interface import ConstantValue

Entry = tuple[Any, ...]
Signature = tuple[Entry, ...]


def tensor(dtype: str, rank: int, contiguous: bool, aligned: bool) -> Entry:
    return ("t", dtype, rank, contiguous, aligned)


def scalar(dtype: str) -> Entry:
    return ("s", dtype)


def constant(value: ConstantValue, dtype: bool = False) -> Entry:
    """A compile-time value; ``dtype`` says that the text names an element type."""
    return ("c", "dtype" if dtype else type(value).__name__, value)


def to_typed(signature: Signature) -> tuple[Any, ...]:
    """The compiler's form (``tessera_lang.sema.typed.Signature``)."""
    from tessera_lang.sema.typed import ConstantArgument, ScalarArgument, TensorArgument
    from tessera_lang.types.dtype import DTYPES

    typed: list[object] = []
    for entry in signature:
        match entry:
            case ("t", dtype, rank, contiguous, aligned):
                typed.append(TensorArgument(DTYPES[dtype], rank, contiguous, aligned))
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
            case "TensorArgument":
                entries.append(tensor(argument.dtype.name, argument.rank, argument.contiguous,
                                      argument.aligned))  # fmt: skip
            case "ScalarArgument":
                entries.append(scalar(argument.dtype.name))
            case _:
                value = argument.value
                named = getattr(value, "name", None)
                entries.append(constant(named, True) if named else constant(value))
    return tuple(entries)


def from_json(value: list[list[Any]]) -> Signature:
    return tuple(tuple(entry) for entry in value)


def text(signature: Signature) -> str:
    """A signature in a name or a message: ``f32[2] index 64``."""
    words: list[str] = []
    for entry in signature:
        if entry[0] == "t":
            _, dtype, rank, contiguous, aligned = entry
            facts = ("" if contiguous else " strided") + (" aligned" if aligned else "")
            words.append(f"{dtype}[{rank}]{facts}")
        elif entry[0] == "s":
            words.append(str(entry[1]))
        else:
            words.append(str(entry[2]))
    return ", ".join(words)
