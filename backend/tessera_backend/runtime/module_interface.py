"""What a caller may know of a module before it is compiled: its names, and their parameters.

Values that survive as JSON beside compiled code, so that a call which finds its kernel in
the cache parses nothing. Must not know arguments or the compiler.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from tessera_backend.runtime.call_diagnostics import Place
from tessera_lang.record import dataclass, replace
from tessera_lang.target.launch_plan import ParameterPlan

ConstantValue = int | float | bool | str
Constant = ConstantValue | tuple["Constant", ...]
"""The value of a name at the top level; that of a dtype is its name."""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter. ``any`` has no annotation; ``dtype`` "" is not known before the call.

    ``dtype`` may be the name of a bracket parameter (the ``T`` of ``x: T[n]``). ``rank`` -1 is
    not known. ``default`` is the value of a compile-time parameter that the call leaves out.
    ``declared`` is the annotation as written, and ``written`` the default, empty where there is
    none. ``constant``: bytes of a ``const`` array whose sizes are all known, 0 for any other.
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
    written: str = ""


@dataclass(frozen=True, slots=True)
class KernelInterface:
    """A kernel's parameters: ``brackets`` are compile-time ones written in brackets.

    ``says_grid``: whether the kernel says how many groups a launch has. Where it does not, it is
    compiled for as many axes of a grid as a call gives.
    ``doc`` is the docstring, and ``returns`` the annotation of what is returned, as written.
    ``alone`` is what a float of Python's is in a call without an array of floats.
    """

    name: str
    parameters: tuple[ParameterInfo, ...]
    brackets: tuple[ParameterInfo, ...] = ()
    level: Literal["lane", "tile"] = "lane"
    says_grid: bool = False
    doc: str = ""
    returns: str = ""
    alone: str = "f64"

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "parameters": [_to_json(p) for p in self.parameters],
            "brackets": [_to_json(p) for p in self.brackets],
            "level": self.level,
            "says_grid": self.says_grid,
            "doc": self.doc,
            "returns": self.returns,
            "alone": self.alone,
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
            str(d["doc"]),
            str(d["returns"]),
            str(d["alone"]),
        )

    def common(self, other: KernelInterface) -> KernelInterface:
        """What two signatures of one kernel have in common; the rest is not known."""
        pairs = zip(self.parameters, other.parameters, strict=True)
        brackets = zip(self.brackets, other.brackets, strict=True)
        return replace(
            self, parameters=tuple(_common(p, q) for p, q in pairs),
            brackets=tuple(_common(p, q) for p, q in brackets),
        )  # fmt: skip

    @staticmethod
    def of_plan(
        name: str, parameters: tuple[ParameterPlan, ...], level: Literal["lane", "tile"] = "lane",
        says_grid: bool = False, brackets: tuple[ParameterPlan, ...] = (),
    ) -> KernelInterface:  # fmt: skip
        """The interface of a kernel of which only compiled code is at hand."""
        kinds: dict[str, Literal["array", "scalar", "constant"]] = {
            "tensor": "array", "scalar": "scalar", "constant": "constant",
        }  # fmt: skip
        shown, values = (
            tuple(
                ParameterInfo(
                    p.name, kinds[p.kind], p.dtype, p.rank, p.mut, p.value, p.span, p.declared
                )
                for p in some
            )
            for some in (parameters, brackets)
        )
        return KernelInterface(name, shown, values, level, says_grid)


@dataclass(frozen=True, slots=True)
class FunctionInterface:
    """A plain function. ``is_test``: what ``tesserac test`` runs; ``alone``: as of a kernel."""

    name: str
    parameters: tuple[ParameterInfo, ...]
    brackets: tuple[ParameterInfo, ...] = ()
    doc: str = ""
    returns: str = ""
    is_test: bool = False
    alone: str = "f64"

    def to_json(self) -> list[object]:
        parameters, brackets = (
            [_to_json(p) for p in several] for several in (self.parameters, self.brackets)
        )
        said = (self.doc, self.returns, self.is_test, self.alone)
        return [self.name, parameters, brackets, *said]

    @staticmethod
    def from_json(value: object) -> FunctionInterface:
        """What ``to_json`` wrote. Raises TypeError or ValueError."""
        name, parameters, brackets, doc, returns, is_test, alone = cast("list[Any]", value)
        return FunctionInterface(
            str(name), tuple(_from_json(p) for p in parameters),
            tuple(_from_json(p) for p in brackets), str(doc), str(returns), bool(is_test),
            str(alone),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModuleInterface:
    """What a file gives to its callers, by name."""

    kernels: dict[str, KernelInterface]
    functions: dict[str, FunctionInterface]
    constants: dict[str, Constant]
    doc: str = ""

    @property
    def public(self) -> tuple[str, ...]:
        """The names that are meant for others: no tests, and none that begins with ``_``."""
        functions = [f.name for f in self.functions.values() if not f.is_test]
        names = (*self.constants, *self.kernels, *functions)
        return tuple(name for name in names if not name.startswith("_"))

    def to_json(self) -> dict[str, object]:
        return {
            "kernels": [k.to_json() for k in self.kernels.values()],
            "functions": [f.to_json() for f in self.functions.values()],
            "constants": [[name, value] for name, value in self.constants.items()],
            "doc": self.doc,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> ModuleInterface:
        """What ``to_json`` wrote. Raises KeyError, TypeError or ValueError."""
        kernels = [KernelInterface.from_json(item) for item in value["kernels"]]
        functions = [FunctionInterface.from_json(item) for item in value["functions"]]
        return ModuleInterface(
            {k.name: k for k in kernels}, {f.name: f for f in functions},
            {str(name): _frozen(constant) for name, constant in value["constants"]},
            str(value["doc"]),
        )  # fmt: skip


def _frozen(value: Any) -> Constant:
    """JSON has lists where there were tuples."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in cast("list[Any]", value))
    return cast("Constant", value)


def _common(p: ParameterInfo, q: ParameterInfo) -> ParameterInfo:
    return replace(
        p, kind=p.kind if p.kind == q.kind else "any",
        dtype=p.dtype if p.dtype == q.dtype else "", rank=p.rank if p.rank == q.rank else -1,
        mut=p.mut or q.mut, declared=p.declared if p.declared == q.declared else "",
        default=p.default if p.default == q.default else None,
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
        p.written,
    ]


def _from_json(value: list[Any]) -> ParameterInfo:
    name, kind, dtype, rank, mut, default, place, declared, constant, written = value
    return ParameterInfo(
        name, kind, dtype, rank, mut, default, tuple(place), declared, constant, written
    )
