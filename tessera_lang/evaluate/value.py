"""Values of the host program that are neither scalars nor arrays.

Owns what a name of the host can stand for beside data: functions, kernels, modules, names of
the language, and the unknown values of a symbolic run. Must not know how they are called.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from tessera_lang.record import dataclass, field
from tessera_lang.syntax import ast
from tessera_lang.syntax.view_mutation_help import NamedSlice
from tessera_lang.target.host_world import KernelReference


@dataclass(slots=True, eq=False)
class Scope:
    """Names and values of one function call or module; ``parent`` encloses it.

    ``locals`` are the names that the function assigns: reading one before it has a value
    is a fault, not a look into ``parent``. ``at_run``: names of an imported file that have a
    value only while that file is run. ``given``: what the caller passed, and has too.
    ``origins``: the slice that a name was given, as it is written.
    """

    path: str
    values: dict[str, object] = field(default_factory=dict[str, object])
    parent: Scope | None = None
    locals: frozenset[str] = frozenset()
    at_run: frozenset[str] = frozenset()
    given: tuple[object, ...] = ()
    origins: dict[str, NamedSlice] = field(default_factory=dict[str, NamedSlice])


@dataclass(frozen=True, slots=True, eq=False)
class HostFunction:
    """A plain function or a lambda with the scope it was made in."""

    description: ClassVar[str] = "a function"
    declaration: ast.FunctionDef | ast.Lambda
    scope: Scope
    constants: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        d = self.declaration
        return d.name if isinstance(d, ast.FunctionDef) else "lambda"


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel as a value; ``groups`` once ``k[groups]`` has said how many."""

    description: ClassVar[str] = "a kernel"
    declaration: ast.FunctionDef
    reference: KernelReference
    level: Literal["lane", "tile"]
    scope: Scope
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """A module of the language (``op``, ``math``, ``std``) by its dotted name."""

    description: ClassVar[str] = "a module"
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class FileModule:
    """An imported file."""

    description: ClassVar[str] = "a module"
    name: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class BuiltinFunction:
    """A function of the language by its full name: ``print``, ``op.zeros``, ``math.sqrt``."""

    description: ClassVar[str] = "a function"
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A method of an array or a list, bound to it: ``x.to``, ``losses.append``."""

    description: ClassVar[str] = "a method"
    receiver: object
    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that a symbolic run does not know; ``kind`` is what it is, where that is clear."""

    description: ClassVar[str] = "an unknown value"
    kind: Literal["int", "float", "bool", "str", "any"] = "any"


class Deferred:
    """A number that a world computes later: it is a number wherever one may stand, and is not
    known. Worlds that have such numbers make their own of it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Derivative:
    """``grad(f)``, ``value_and_grad(f)``, and ``fused(f)``, which gives the value alone: ``wrt`` is
    () there, else the parameters. ``single``: the gradient is given alone, not in a tuple.
    ``forward``: of tangents, forward-mode, with the value. ``budget``: bytes that a call may have
    in memory, 0 where nothing says it."""

    description: ClassVar[str] = "a function"
    function: HostFunction | Derivative
    wrt: tuple[str, ...]
    single: bool
    with_value: bool
    forward: bool = False
    budget: int = 0

    @property
    def name(self) -> str:
        """As a program would write it."""
        if self.forward:
            return f"jvp({self.function.name})"
        word = "grad" if not self.with_value else "value_and_grad" if self.wrt else "fused"
        return f"{word}({self.function.name})"

    @property
    def innermost(self) -> HostFunction:
        """The function of the program."""
        inner = self.function
        return inner.innermost if isinstance(inner, Derivative) else inner


@dataclass(frozen=True, slots=True, eq=False)
class Pullback:
    """What ``vjp(f, ...)`` gives beside the value: a function of the gradient of the value, which
    gives those of the arguments. ``places``: for each argument, whether it has one."""

    description: ClassVar[str] = "a function"
    derivative: Derivative
    values: dict[str, object]
    places: tuple[bool, ...]


def is_unknown(value: object) -> bool:
    """Whether a value, or an item of a tuple or list, is unknown."""
    if isinstance(value, (tuple, list)):
        items: tuple[object, ...] = tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return any(is_unknown(item) for item in items)
    return isinstance(value, Unknown)
