"""What to add to `tesserac build` for a call that no code of a folder serves.

Owns the words of the command. Must not know why code does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.runtime.arrays import HOST, ArrayView
from tessera_backend.runtime.call_diagnostics import diagnostic, rendered
from tessera_backend.runtime.signature import Signature
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan
from tessera_lang.types.shape import Dim, Sym

Helps = Callable[[Sequence[Any]], Sequence[str]]


class NothingFits(TesseraError):
    """No code of a folder fits a call. ``helps``: what to do, for the values of its arguments."""

    def __init__(self, message: str, notes: Sequence[str], helps: Helps) -> None:
        self._of = message, tuple(notes), helps
        super().__init__((diagnostic("T0849", message, notes=notes),))

    def of_call(self, values: Sequence[Any]) -> TesseraError:
        message, notes, helps = self._of
        found = diagnostic("T0849", message, notes=notes, helps=helps(values))
        return TesseraError((found,), rendered((found,)))


def helps_for(
    options: Sequence[str], plan: LaunchPlan, wanted: Signature, brackets: Sequence[str],
    device: int, grid_rank: int, values: Sequence[Any],
) -> Sequence[str]:  # fmt: skip
    """``options``: those of the command that the nearest code, of ``plan``, was built with
    otherwise; ``brackets``: the names of the compile-time parameters that ``wanted`` begins with,
    and ``values`` the arguments behind them."""
    entries = wanted[len(brackets) :]
    copied = [p for p, e in zip(plan.parameters, entries, strict=False) if _needs_a_copy(p, e)]
    if "--signature" in options and copied:
        return [_copy(p) for p in copied]
    words: list[str] = []
    for option in options:
        match option:
            case "--signature":
                given = dict(zip(brackets, (e[-1] for e in wanted), strict=False))
                words.append(f"--signature '{signature_text(plan, entries, given, values)}'")
            case "--target":
                words.append("--target cpu")
            case "--arch":
                words.append(f"--arch {_processor(device)}")
            case _:
                words.append(f"{option} {grid_rank}")
    where = "into another folder" if "--target" in options else "for this call too"
    return [f"build it {where}: add `{' '.join(words)}` to the `tesserac build` of this one"]


def _processor(device: int) -> str:
    if device == HOST:
        return "native"
    from tessera_backend.device.driver import device as cuda_device

    major, minor = cuda_device(device).capability
    return f"sm_{major}{minor}"


def _needs_a_copy(p: ParameterPlan, entry: tuple[Any, ...]) -> bool:
    """Whether code wants an array to lie otherwise than this one: no signature says how it lies."""
    if p.kind != "tensor" or entry[0] != "t":
        return False
    _, _, _, contiguous, aligned, *_ = entry
    return (p.contiguous and not contiguous) or (p.aligned and not aligned)


def _copy(p: ParameterPlan) -> str:
    back = f", and after it `{p.name}[...] = ` the copy" if p.mut else ""
    return f"pass a copy of `{p.name}`, which lies row by row: `{p.name}.copy()`{back}"


def signature_text(
    plan: LaunchPlan, entries: Signature, given: dict[str, Any], values: Sequence[Any]
) -> str:
    """A call as `--signature` says it. Sizes that code takes as they come keep their names."""
    said: list[str] = []
    numbers = {p.name: given.get(p.name, p.value) for p in plan.brackets}
    for p, entry, value in zip(plan.parameters, entries, values, strict=False):
        match entry:
            case ("c", _, constant):
                numbers[p.name] = constant
            case ("s", dtype):
                said.append(f"{p.name}: {dtype}")
            case (_, dtype, *_) if isinstance(value, ArrayView):
                sizes = [_size(p, axis, n) for axis, n in enumerate(value.shape)]
                _follow(numbers, p, value.shape)
                mut = "mut " if p.mut else ""
                said.append(f"{p.name}: {mut}{dtype}[{', '.join(map(str, sizes))}]")
            case _:
                pass
    return ", ".join([*said, *(f"{name}={value}" for name, value in numbers.items())])


def _declared(p: ParameterPlan, axis: int) -> Dim | None:
    return p.dims[axis] if axis < len(p.dims) else None


def _size(p: ParameterPlan, axis: int, n: int) -> int | str:
    declared = _declared(p, axis)
    is_compiled_for = axis < len(p.sizes) and p.sizes[axis] is not None
    return declared.name if isinstance(declared, Sym) and not is_compiled_for else n


def _follow(numbers: dict[str, Any], p: ParameterPlan, shape: Sequence[int]) -> None:
    """A compile-time number that a size was declared as is the size that the call has."""
    for axis, n in enumerate(shape):
        declared = _declared(p, axis)
        if isinstance(declared, int) and declared != n:
            same = [name for name, value in numbers.items() if value == declared]
            if len(same) == 1:
                numbers[same[0]] = n
