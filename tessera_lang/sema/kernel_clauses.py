"""The clauses of a lane kernel: ``tile[...]``, ``shared(...)``, ``grid[...]``, ``registers(...)``.

Owns their values and limits. Must not know bodies.
"""

from __future__ import annotations

from math import prod

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.evaluate.constant import NotConstant
from tessera_lang.record import dataclass
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Constant
from tessera_lang.sema.signature import constant_in
from tessera_lang.syntax import ast

MOST_LANES = 1024
MOST_AXES = 3
CLAUSES = ("tile", "shared", "grid", "registers")
GRID_GROUPS = "grid_groups"
FEWEST_REGISTERS, MOST_REGISTERS = 24, 255
"""What instructions of a GPU can name, and what a call of a function needs at least."""


@dataclass(frozen=True, slots=True)
class Clauses:
    """``group`` is None where the clause is wrong or its value is not known yet."""

    group: tuple[int, ...] | None
    shared: int | None
    grid: tuple[ast.Expr, ...] | None
    registers: int | None
    problems: tuple[Diagnostic, ...]


def kernel_decorator(function: ast.FunctionDef) -> ast.Decorator | None:
    """The ``@kernel`` of a lane kernel."""
    for d in function.decorators:
        if isinstance(d.value, ast.Name) and d.value.id == "kernel":
            return d
    return None


def tile_decorator(function: ast.FunctionDef) -> ast.Decorator | None:
    """The ``@op.kernel`` of a tile kernel."""
    for d in function.decorators:
        match d.value:
            case ast.Attribute(value=ast.Name(id="op"), name="kernel"):
                return d
            case _:
                pass
    return None


def says_grid(function: ast.FunctionDef) -> bool:
    """Whether a kernel says how many groups a launch has: by a clause, by a size that is called
    ``grid_groups``, or since the loops of a tile kernel make them."""
    lanes = kernel_decorator(function)
    shapes = (p.annotation.shape or () for p in function.parameters if p.annotation is not None)
    return (
        lanes is None
        or any(c.name == "grid" for c in lanes.clauses)
        or any(isinstance(e, ast.Name) and e.id == GRID_GROUPS for shape in shapes for e in shape)
    )


def read_clauses(
    decorator: ast.Decorator,
    scope: ModuleScope,
    compile_time: dict[str, Constant],
    unknown: frozenset[str] = frozenset(),
) -> Clauses:
    """The clauses of a kernel. ``unknown``: compile-time parameters without a value yet."""
    reader = _Reader(scope, compile_time, unknown)
    found: dict[str, ast.Clause] = {}
    for clause in decorator.clauses:
        if clause.name not in CLAUSES:
            continue  # reported where it was read
        if clause.name in found:
            reader.problem(
                "T0113", f"the clause `{clause.name}` is given twice", clause,
                labels=(Label(found[clause.name].span, "first here"),),
            )  # fmt: skip
        else:
            found[clause.name] = clause
    group = None
    if "tile" in found:
        group = reader.group(found["tile"])
    elif all(c.name in CLAUSES for c in decorator.clauses):
        reader.problems.append(Diagnostic(
            "T0304", "a kernel says how many lanes a group has", decorator.span,
            "`tile[...]` is missing", helps=("write `@kernel tile[(128,)]`",),
        ))  # fmt: skip
    shared = reader.budget(found["shared"]) if "shared" in found else None
    grid = reader.grid(found["grid"]) if "grid" in found else None
    registers = reader.registers(found["registers"]) if "registers" in found else None
    return Clauses(group, shared, grid, registers, tuple(reader.problems))


class _Reader:
    def __init__(
        self, scope: ModuleScope, compile_time: dict[str, Constant], unknown: frozenset[str]
    ) -> None:
        self._scope = scope
        self._compile_time = compile_time
        self._unknown = unknown
        self.problems: list[Diagnostic] = []

    def problem(
        self, code: str, message: str, at: ast.Clause | ast.Expr, label: str = "", *,
        labels: tuple[Label, ...] = (), helps: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.problems.append(Diagnostic(code, message, at.span, label, labels=labels, helps=helps))

    def _value(self, e: ast.Expr, code: str, what: str) -> object | None:
        if names_in(e) & self._unknown:
            return None
        try:
            return constant_in(self._scope, e, self._compile_time)
        except NotConstant as fault:
            self.problem(code, f"{what} must be known at compile time", fault.expression,
                         fault.reason)  # fmt: skip
            return None

    def group(self, clause: ast.Clause) -> tuple[int, ...] | None:
        """Lanes per axis: ``tile[128]``, ``tile[(8, 32)]``, ``tile[8, 32]``."""
        value: list[object] = []
        for e in clause.arguments:
            v = self._value(e, "T0304", "the shape of a group")
            if v is None:
                return None
            value.extend(v if isinstance(v, tuple) else (v,))  # type: ignore[misc]
        lanes = tuple(v for v in value if type(v) is int and v > 0)
        if not value or len(lanes) != len(value):
            self.problem("T0304", "a group has a positive number of lanes on each axis", clause,
                         helps=("write `tile[(128,)]` or `tile[(8, 32)]`",))  # fmt: skip
            return None
        if len(lanes) > MOST_AXES:
            self.problem("T0304", f"a group has at most {MOST_AXES} axes, not {len(lanes)}", clause)
            return None
        if prod(lanes) > MOST_LANES:
            self.problem(
                "T0304", f"a group has at most {MOST_LANES} lanes, not {prod(lanes)}", clause
            )
            return None
        return lanes

    def budget(self, clause: ast.Clause) -> int | None:
        """Bytes of shared memory."""
        if len(clause.arguments) != 1:
            self.problem("T0305", "`shared` takes one size in bytes", clause,
                         helps=("write `shared(16_KiB)`",))  # fmt: skip
            return None
        e = clause.arguments[0]
        value = self._value(e, "T0305", "the budget of shared memory")
        if value is None:
            return None
        if type(value) is not int or value < 0:
            self.problem("T0305", "the budget of shared memory is a size in bytes", e,
                         helps=("write `shared(16_KiB)`",))  # fmt: skip
            return None
        return value

    def registers(self, clause: ast.Clause) -> int | None:
        """The most registers of a lane on a GPU."""
        value = None
        if len(clause.arguments) == 1:
            value = self._value(clause.arguments[0], "T0314", "the number of registers")
            if value is None:
                return None
        if type(value) is not int or not FEWEST_REGISTERS <= value <= MOST_REGISTERS:
            self.problem(
                "T0314", f"a lane has {FEWEST_REGISTERS} to {MOST_REGISTERS} registers", clause,
                helps=("write `registers(64)`",),
            )  # fmt: skip
            return None
        return value

    def grid(self, clause: ast.Clause) -> tuple[ast.Expr, ...] | None:
        """Groups per axis, as written."""
        items: list[ast.Expr] = []
        for e in clause.arguments:
            items.extend(e.items if isinstance(e, ast.TupleExpr) else (e,))
        if not 1 <= len(items) <= MOST_AXES:
            self.problem("T0304", f"a grid has 1 to {MOST_AXES} axes", clause,
                         helps=("write `grid[(ceil_div(n, 128),)]`",))  # fmt: skip
            return None
        return tuple(items)


def names_in(e: ast.Expr) -> frozenset[str]:
    """Names that occur in a small expression."""
    found: set[str] = set()
    todo: list[ast.Expr] = [e]
    while todo:
        node = todo.pop()
        match node:
            case ast.Name():
                found.add(node.id)
            case ast.TupleExpr():
                todo.extend(node.items)
            case ast.Unary():
                todo.append(node.operand)
            case ast.Binary():
                todo.extend((node.left, node.right))
            case ast.BoolOp():
                todo.extend(node.values)
            case ast.Compare():
                todo.extend((node.first, *node.rest))
            case ast.Conditional():
                todo.extend((node.test, node.then, node.orelse))
            case ast.Call():
                todo.extend((node.function, *node.arguments))
            case ast.Subscript():
                todo.extend((node.value, *node.items))
            case ast.Attribute():
                todo.append(node.value)
            case _:
                pass
    return frozenset(found)
