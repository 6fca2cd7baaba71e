"""What a caller may know of a kernel before it is compiled: its parameters.

A value that survives as JSON beside compiled code, so that a call which finds its kernel in
the cache parses nothing. Must not know arguments or the compiler.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from tessera_backend.runtime.report import Place
from tessera_lang.record import dataclass, replace
from tessera_lang.target.plan import ParameterPlan

ConstantValue = int | float | bool | str


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter. ``any`` has no annotation; ``dtype`` "" is not known before the call.

    ``dtype`` may be the name of a bracket parameter (the ``T`` of ``x: T[n]``). ``rank`` -1 is
    not known. ``default`` is the value of a compile-time parameter that the call leaves out.
    ``declared`` is the annotation as written. ``constant``: bytes of a ``const`` array whose sizes
    are all known, 0 for any other.
    """

    name: str
    kind: Literal["array", "scalar", "constant", "any"]
    dtype: str = ""
    rank: int = 0
    mut: bool = False
    default: ConstantValue | None = None
    place: Place = ("", 0, 0)
    declared: str = ""
    constant: int = 0


@dataclass(frozen=True, slots=True)
class KernelInterface:
    """A kernel's parameters: ``brackets`` are compile-time ones written in brackets.

    ``says_grid``: whether the kernel says how many groups a launch has. Where it does not, it is
    compiled for as many axes of a grid as a call gives."""

    name: str
    parameters: tuple[ParameterInfo, ...]
    brackets: tuple[ParameterInfo, ...] = ()
    level: Literal["lane", "tile"] = "lane"
    says_grid: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "parameters": [_to_json(p) for p in self.parameters],
            "brackets": [_to_json(p) for p in self.brackets],
            "level": self.level,
            "says_grid": self.says_grid,
        }

    @staticmethod
    def from_json(value: object) -> KernelInterface:
        """What ``to_json`` wrote. Raises KeyError, TypeError or ValueError."""
        d = cast("dict[str, Any]", value)
        return KernelInterface(
            str(d["name"]),
            tuple(_from_json(p) for p in d["parameters"]),
            tuple(_from_json(p) for p in d["brackets"]),
            "tile" if d["level"] == "tile" else "lane",
            bool(d["says_grid"]),
        )

    def common(self, other: KernelInterface) -> KernelInterface:
        """What two signatures of one kernel have in common; the rest is not known."""
        pairs = zip(self.parameters, other.parameters, strict=True)
        return replace(self, parameters=tuple(_common(p, q) for p, q in pairs))

    @staticmethod
    def of_plan(
        name: str, parameters: tuple[ParameterPlan, ...], level: Literal["lane", "tile"] = "lane",
        says_grid: bool = False,
    ) -> KernelInterface:  # fmt: skip
        """The interface of a kernel of which only compiled code is at hand."""
        kinds: dict[str, Literal["array", "scalar", "constant"]] = {
            "tensor": "array", "scalar": "scalar", "constant": "constant",
        }  # fmt: skip
        return KernelInterface(
            name,
            tuple(
                ParameterInfo(p.name, kinds[p.kind], p.dtype, p.rank, p.mut, p.value, p.span)
                for p in parameters
            ),
            level=level,
            says_grid=says_grid,
        )


def _common(p: ParameterInfo, q: ParameterInfo) -> ParameterInfo:
    return replace(
        p, kind=p.kind if p.kind == q.kind else "any",
        dtype=p.dtype if p.dtype == q.dtype else "", rank=p.rank if p.rank == q.rank else -1,
        mut=p.mut or q.mut, default=p.default if p.default == q.default else None,
    )  # fmt: skip


def _to_json(p: ParameterInfo) -> list[object]:
    return [
        p.name,
        p.kind,
        p.dtype,
        p.rank,
        p.mut,
        p.default,
        list(p.place),
        p.declared,
        p.constant,
    ]


def _from_json(value: list[Any]) -> ParameterInfo:
    name, kind, dtype, rank, mut, default, place, declared, constant = value
    return ParameterInfo(name, kind, dtype, rank, mut, default, tuple(place), declared, constant)
