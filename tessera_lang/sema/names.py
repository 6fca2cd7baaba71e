"""Names in expressions: what each means, and what is misspelt, missing or not built.

Owns the generic walk over expressions of a function or of the top level. Must not know
types or statements.
"""

from __future__ import annotations

import math
from typing import Literal

from tessera_lang.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.foreign_names import (
    FOREIGN_NAMES,
    MATH_FORMS,
    RENAMED,
    TILE_FORMS,
    lacks,
    library_help,
)
from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema import builtins
from tessera_lang.sema.argument_binding import bind, bind_builtin
from tessera_lang.sema.bound_names import children
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Builtin, FunctionSymbol, Local, ModuleSymbol, Symbol
from tessera_lang.sema.unsupported import builtin_problem, not_built, tile_builtin_problem
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import dtype_named

_NUMBERS = {"inf": "inf", "nan": "nan", "pi": repr(math.pi), "e": repr(math.e)}
"""What the constants are that modules of other languages have."""

Hidden = frozenset[str]  # names bound by a lambda or comprehension around an expression


@dataclass(slots=True)
class NameChecker:
    """Checks the names of one function, or of the top level (``locals`` empty).

    ``place``: ``lane`` and ``tile`` for kernels, ``any`` for what may run on the host too.
    ``bare``: whether a tile kernel may run it, which knows some functions without ``op.``.
    """

    scope: ModuleScope
    place: Literal["lane", "tile", "any"]
    locals: dict[str, Local] = field(default_factory=dict[str, Local])
    outer: Hidden = frozenset()
    bare: bool = False
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    _told: set[str] = field(default_factory=set[str])

    def check(self, root: ast.Expr, hidden: Hidden = frozenset()) -> None:
        """Every name in an expression, in source order, without recursion over chains."""
        todo: list[tuple[ast.Expr, Hidden]] = [(root, hidden)]
        while todo:
            e, names = todo.pop()
            match e:
                case ast.Name():
                    self._name(e, names)
                case ast.Attribute():
                    if not self._attribute(e, names):
                        todo.append((e.value, names))
                case ast.Lambda():
                    inner = names | {p.name for p in e.parameters}
                    todo.append((e.body, inner))
                case ast.Comprehension():
                    inner = names | _target_names(e.target)
                    todo.extend((x, inner) for x in reversed(e.conditions))
                    todo.append((e.element, inner))
                    todo.append((e.iterable, names))
                case _:
                    if isinstance(e, ast.Call):
                        self._call(e, names)
                    todo.extend((x, names) for x in reversed(children(e)))

    # --- lookup ------------------------------------------------------------------------

    def symbol(self, e: ast.Expr, hidden: Hidden = frozenset()) -> Symbol | None:
        """What a name or dotted name means; None for anything else, and for locals' members."""
        if isinstance(e, ast.Name):
            if e.id in hidden or e.id in self.outer:
                return None
            found = self.locals.get(e.id) or self.scope.lookup(e.id)
            if found is None and self.bare:
                return self.scope.bare_function(e.id)
            return found
        if isinstance(e, ast.Attribute):
            base = self.symbol(e.value, hidden)
            if isinstance(base, ModuleSymbol):
                return self.scope.member(base, e.name)
        return None

    def _name(self, e: ast.Name, hidden: Hidden) -> None:
        if e.id in hidden or e.id in self.outer:
            return
        symbol = self.symbol(e)
        if symbol is None:
            if self.place != "any" or e.id not in builtins.HOST_ONLY:
                self._undefined(e)
            return
        self.scope.symbols[e] = symbol
        if isinstance(symbol, Builtin):
            self._builtin(symbol.name, e.span)

    def _undefined(self, e: ast.Name) -> None:
        if e.id in self._told:
            self._again(e)
            return
        self._told.add(e.id)
        helps: tuple[str, ...] = ()
        fixes: tuple[Fix, ...] = ()
        spelled = dtype_named(e.id)
        close = spelled.name if spelled else nearest(e.id, (*self.locals, *self.scope.candidates()))
        if e.id == "grid_groups":
            helps = ("`grid_groups` is bound by a shape, as in `out: mut f32[grid_groups]`",)
        elif e.id in FOREIGN_NAMES:
            helps = (FOREIGN_NAMES[e.id],)
        elif not spelled and (module := self._module_of(e.id)):
            helps = (f"did you mean `{module}.{e.id}`?",)
            fixes = (
                Fix(f"write `{module}.{e.id}`", (Edit(e.span, f"{module}.{e.id}"),), "unsafe"),
            )
        elif close is not None:
            helps = (f"did you mean `{close}`?",)
            fixes = (Fix(f"write `{close}`", (Edit(e.span, close),), "unsafe"),)
        else:
            helps = library_help(e.id, host=self.place == "any")
        self.problems.append(Diagnostic(
            "T0101", f"`{e.id}` is not defined", e.span, "not found in this scope", helps=helps,
            fixes=fixes,
        ))  # fmt: skip

    def _again(self, e: ast.Name) -> None:
        """One more place of a name that was reported: its fix mends all of them."""
        for i, d in enumerate(self.problems):
            if d.code == "T0101" and d.message == f"`{e.id}` is not defined" and d.fixes:
                (fix,) = d.fixes
                edits = (*fix.edits, replace(fix.edits[0], span=e.span))
                self.problems[i] = replace(d, fixes=(replace(fix, edits=edits),))

    def _module_of(self, name: str) -> str:
        """The module of the language that has a function of this name; empty: none has."""
        if self.place == "tile" and f"op.{name}" in builtins.TILE_FUNCTIONS:
            return "op"
        return "math" if name in self.scope.members(ModuleSymbol("math", None)) else ""

    def _builtin(self, name: str, span: Span) -> None:
        if name in self._told:
            return
        problem = None
        what = builtins.later(name)
        if self.place == "tile":
            problem = tile_builtin_problem(name, span)
        elif self.place == "any" and name in builtins.TILE_VALUES:
            pass  # what calls the function decides whether it has it
        elif self.place == "lane":
            problem = builtin_problem(name, span)
        elif what is not None:
            problem = not_built(f"`{name}` ({what})", span)
        if problem is not None:
            self._told.add(name)
            self.problems.append(problem)

    def _attribute(self, e: ast.Attribute, hidden: Hidden) -> bool:
        """True where the attribute is a member of a module and is done with."""
        base = self.symbol(e.value, hidden)
        if not isinstance(base, ModuleSymbol):
            return False
        if isinstance(e.value, (ast.Name, ast.Attribute)):
            self.scope.symbols[e.value] = base
        symbol = self.scope.member(base, e.name)
        if symbol is None:
            if self.place != "any" or f"{base.name}.{e.name}" not in builtins.HOST_ONLY:
                self._no_member(e, base)
            return True
        self.scope.symbols[e] = symbol
        if isinstance(symbol, Builtin):
            self._builtin(symbol.name, e.span)
        return True

    def _no_member(self, e: ast.Attribute, module: ModuleSymbol) -> None:
        key = f"{module.name}.{e.name}"
        if key in self._told:
            return
        self._told.add(key)
        members = self.scope.members(module)
        renamed = RENAMED.get(e.name) if module.name in ("op", "math") else None
        close = renamed if renamed in members else nearest(e.name, members)
        helps = (f"did you mean `{close}`?",) if close else _number_instead(e.name)
        if module.name == "op" and self.place != "lane" and e.name in TILE_FORMS:
            helps = (TILE_FORMS[e.name],)
            close = close if close == renamed else None
        if module.name == "math" and e.name in MATH_FORMS:
            helps = (MATH_FORMS[e.name],)
        helps = helps or library_help(e.name, host=self.place == "any")
        self.problems.append(Diagnostic(
            "T0104", lacks(module.name, e.name), e.name_span,
            helps=helps,
            fixes=(Fix(f"write `{close}`", (Edit(e.name_span, close),), "unsafe"),)
            if close else (),
        ))  # fmt: skip

    # --- calls -------------------------------------------------------------------------

    def _call(self, e: ast.Call, hidden: Hidden) -> None:
        """Counts of arguments where the callee is certain."""
        symbol = self.symbol(e.function, hidden)
        if isinstance(symbol, Builtin):
            info = builtins.FUNCTIONS.get(symbol.name)
            if self.place == "tile":
                info = builtins.TILE_FUNCTIONS.get(symbol.name, info)
                if symbol.name == "op.tile_range":
                    info = None  # its keywords are looked at with the loop
            elif self.place == "lane" and symbol.name in builtins.LANE_REDUCTIONS:
                info = builtins.TILE_FUNCTIONS[symbol.name]
            host_print = symbol.name in ("print", "min", "max") and self.place == "any"
            if info is not None and not host_print:
                bind_builtin(e, info, self.problems.append)
        elif isinstance(symbol, FunctionSymbol) and not symbol.declaration.brackets:
            f = symbol.declaration
            bind(
                e, [p.name for p in f.parameters],
                [p.name for p in f.parameters if p.default is None], f"`{f.name}`",
                self.problems.append, f.name_span,
            )  # fmt: skip


def _target_names(target: ast.Expr) -> Hidden:
    none: Hidden = frozenset()
    if isinstance(target, ast.Name):
        return frozenset((target.id,))
    if isinstance(target, (ast.TupleExpr, ast.ListExpr)):
        return none.union(*(_target_names(t) for t in target.items))
    return none


def _number_instead(name: str) -> tuple[str, ...]:
    return (f"write `{_NUMBERS[name]}`",) if name in _NUMBERS else ()
