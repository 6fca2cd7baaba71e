"""Statements of the host program, and the bodies of plain functions.

Owns control flow on known values. Must not know arrays (the ``World`` does), how files are
found (``Modules``) or what a check does differently (``abstract_interpreter.py``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import ClassVar, cast

from tessera_lang.evaluate.annotations import check_variable
from tessera_lang.evaluate.arithmetic import ArithmeticFault, is_number
from tessera_lang.evaluate.assigned_names import assigned
from tessera_lang.evaluate.call import Calls
from tessera_lang.evaluate.fault import HostFault, fault, outside, placed
from tessera_lang.evaluate.modules import Library, Modules, definition, is_test
from tessera_lang.evaluate.operators import not_built
from tessera_lang.evaluate.value import HostFunction, Kernel, Scope, Unknown, is_unknown
from tessera_lang.locks import free_lock
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.dump import source_text
from tessera_lang.syntax.view_mutation_help import NamedSlice, origin_of
from tessera_lang.target.host_world import World, WorldFault

CALL_DEPTH = 500
_SHORT = 40  # characters of a value that is shown within a line
_FRAMES = 40_000  # Python frames that CALL_DEPTH calls of nested statements may take


@dataclass(frozen=True, slots=True)
class Returned:
    """A body was left by ``return``."""

    value: object


@dataclass(frozen=True, slots=True)
class Left:
    """A body was left by ``break`` or ``continue``."""

    BREAK: ClassVar[Left]
    CONTINUE: ClassVar[Left]
    word: str


Left.BREAK = Left("break")
Left.CONTINUE = Left("continue")
Outcome = Returned | Left | None


class _Room:
    """Python's limit is one for all threads: it is low again when the last program has ended."""

    def __init__(self) -> None:
        self._lock = free_lock()
        self._programs = 0
        self._before = 0

    def enter(self) -> None:
        with self._lock:
            if not self._programs:
                self._before = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._before, _FRAMES))
            self._programs += 1

    def leave(self) -> None:
        with self._lock:
            self._programs -= 1
            if not self._programs:
                sys.setrecursionlimit(self._before)


_room = _Room()


@contextmanager
def room_for_calls() -> Generator[None]:
    """Lets the calls of the program nest as deep as ``CALL_DEPTH`` allows."""
    _room.enter()
    try:
        yield
    finally:
        _room.leave()


def _comparison(test: ast.Expr) -> ast.Compare | None:
    """The comparison that an assertion is about: ``a == b``, or that in ``op.all(a == b)``."""
    if isinstance(test, ast.Call) and len(test.arguments) == 1 and not test.keywords:
        test = test.arguments[0]
    return test if isinstance(test, ast.Compare) else None


class Host(Calls):
    """Runs the top-level statements of one file in a world."""

    def __init__(self, world: World, library: Library, path: str) -> None:
        super().__init__(world, Modules(library))
        self.path = path
        self.top = Scope(path)
        self._module = library.module(path)
        self._set: set[str] = set()
        self._depth = 0
        self._assigned: dict[ast.FunctionDef, frozenset[str]] = {}

    def run(self, given: Mapping[str, object] = {}) -> None:
        """Run the program. ``given`` values stand for what the first assignment at the top
        level would give those names. Raises HostFault."""
        self.top.values.update(given)
        self._set = set(given)
        with room_for_calls():
            try:
                self.modules.define(self._module, self.top)
                for statement in self._module.body:
                    self.top_statement(statement)
            except RecursionError:
                raise self._too_deep() from None

    def run_test(self, function: ast.FunctionDef) -> None:
        """Run a test of the file in a scope of its own. It sees what an import of the file
        gives: definitions, imports and constants; no top-level statement is run.
        Raises HostFault."""
        with room_for_calls():
            try:
                self.test_body(function, self._test_scope(function))
            except RecursionError:
                raise self._too_deep() from None

    def _test_scope(self, function: ast.FunctionDef) -> Scope:
        outer = self.modules.scope(self.path)
        return Scope(self.path, {}, outer, self._locals(HostFunction(function, outer)))

    def test_body(self, function: ast.FunctionDef, scope: Scope) -> None:
        """The statements of a test, whose names go to ``scope``."""
        assert scope.parent is not None
        self.function_result(HostFunction(function, scope.parent), scope)

    def top_statement(self, statement: ast.Stmt) -> None:
        """One statement of the file."""
        if isinstance(statement, (ast.Assign, ast.AnnotatedAssign)):
            target = statement.target
            if isinstance(target, ast.Name) and target.id in self._set:
                self._set.discard(target.id)
                return
        if isinstance(statement, ast.FunctionDef):
            return  # bound before the first statement
        outcome = self.statement(statement, self.top)
        if outcome is not None:
            word = outcome.word if isinstance(outcome, Left) else "return"
            raise fault("T0818", f"`{word}` stands outside of what it could leave", statement.span)

    def block(self, body: tuple[ast.Stmt, ...], scope: Scope) -> Outcome:
        """Run statements until one leaves the body."""
        for statement in body:
            outcome = self.statement(statement, scope)
            if outcome is not None:
                return outcome
        return None

    def statement(self, s: ast.Stmt, scope: Scope) -> Outcome:
        """Run one statement. Raises HostFault."""
        try:
            match s:
                case ast.ExprStmt():
                    self.value(s.value, scope)
                case ast.Assign():
                    self.assign(s.target, self.value(s.value, scope), scope)
                    if (
                        isinstance(s.target, ast.Name)
                        and (origin := origin_of(s.value)) is not None
                    ):
                        scope.origins[s.target.id] = origin
                case ast.AnnotatedAssign():
                    if s.value is not None:
                        value = self.value(s.value, scope)
                        check_variable(self.world, self.value, s, value, scope)
                        self.assign(s.target, value, scope)
                case ast.AugmentedAssign():
                    left = self.value(s.target, scope)
                    self._has_one_name(s, left, scope)
                    self.own(left, s.target, s.operator.removesuffix("="), scope, s.span)
                    right = self.value(s.value, scope)
                    if s.operator == "+" and self._grows(left, right, s.span):
                        return None
                    found = self.operate(s.operator, left, right, s.span, (s.target, s.value))
                    self._keeps_shape(s, left, found)
                    self.assign(s.target, found, scope)
                case ast.If():
                    return self.branch(s, scope)
                case ast.For():
                    return self.loop_over(s, scope)
                case ast.While():
                    return self.loop_while(s, scope)
                case ast.Return():
                    return Returned(None if s.value is None else self.value(s.value, scope))
                case ast.Break():
                    return Left.BREAK
                case ast.Continue():
                    return Left.CONTINUE
                case ast.Assert():
                    self.assertion(s, scope)
                case ast.Import() | ast.FromImport():
                    self.modules.bind_import(s, scope)
                case ast.FunctionDef():
                    self._define(s, scope)
                case ast.With():
                    raise not_built("`with` in the host program", s.context.span, "")
                case ast.Pass() | ast.ErrorStmt():
                    pass
        except (WorldFault, ArithmeticFault) as error:  # no part of it has given it a place
            raise placed(error, s.span) from None
        return None

    def _grows(self, left: object, right: object, span: Span) -> bool:
        """``a += [v]`` of lists changes the list, under every name that it has."""
        if not isinstance(left, list) or not isinstance(right, list):
            return False
        more = [outside(cast("object", left), v, span) for v in cast("list[object]", right)]
        self.grow(cast("list[object]", left), more)
        return True

    def _has_one_name(self, s: ast.AugmentedAssign, array: object, scope: Scope) -> None:
        """``x += e`` gives ``x`` a new array, where NumPy changes the old one: the two differ as
        soon as that has another name. Raises HostFault there."""
        if not isinstance(s.target, ast.Name) or not self.world.is_array(array):
            return
        name = s.target.id
        others = (n for n, v in scope.values.items() if n != name and self.shares(v, array))
        other = next(others, None)
        if other is None and not any(self.shares(v, array) for v in scope.given):
            return
        owner = "the caller has" if other is None else f"`{other}` names"
        sign = s.operator.removesuffix("=")
        raise fault(
            "T0818", f"`{name}` is an array that {owner} too", s.span,
            helps=(f"to change its elements write `{name}[:] {sign}= ...`",
                   f"for a new array write `{name} = {name} {sign} ...`"),
        )  # fmt: skip

    def _keeps_shape(self, s: ast.AugmentedAssign, old: object, new: object) -> None:
        """``x += e`` stretches no array. Raises HostFault."""
        if s.operator == "@" or not self.world.is_array(old) or not self.world.is_array(new):
            return
        before, after = self.world.shape(old), self.world.shape(new)
        if before != after and not is_unknown((before, after)):
            raise fault(
                "T0834", f"an array of shape {before} does not take elements of shape {after}",
                s.span, helps=(f"for a new array write `x = x {s.operator} ...`",),
            )  # fmt: skip

    def branch(self, s: ast.If, scope: Scope) -> Outcome:
        return self.branch_on(self.value(s.test, scope), s, scope)

    def branch_on(self, condition: object, s: ast.If, scope: Scope) -> Outcome:
        """A branch whose condition is evaluated."""
        taken = self.truth(condition, s.test.span)
        return self.block(s.body if taken else s.orelse, scope)

    def loop_over(self, s: ast.For, scope: Scope) -> Outcome:
        if isinstance(s.target, ast.Name):
            over = source_text(s.iterable)
            scope.origins[s.target.id] = NamedSlice(f"{over}[i]", over)
        return self.loop_through(self.value(s.iterable, scope), s, scope)

    def loop_through(self, values: object, s: ast.For, scope: Scope) -> Outcome:
        """A loop over values that are evaluated."""
        for item in self.iterate(values, s.iterable.span):
            self.assign(s.target, item, scope)
            outcome = self.block(s.body, scope)
            if outcome is Left.BREAK:
                break
            if isinstance(outcome, Returned):
                return outcome
        return None

    def loop_while(self, s: ast.While, scope: Scope) -> Outcome:
        while self.truth(self.value(s.test, scope), s.test.span):
            outcome = self.block(s.body, scope)
            if outcome is Left.BREAK:
                break
            if isinstance(outcome, Returned):
                return outcome
        return None

    def assertion(self, s: ast.Assert, scope: Scope) -> None:
        compared = _comparison(s.test)
        outer, self.watched = self.watched, compared
        try:
            value = self.value(s.test, scope)
        finally:
            self.watched = outer
        if self.truth(value, s.test.span):
            return
        text = ""
        if s.message is not None:
            text = ": " + self.text(self.value(s.message, scope), s.message.span)
        notes = () if compared is None else self._sides(compared)
        raise fault("T0805", f"the assertion is false{text}", s.test.span, notes=notes)

    def _sides(self, e: ast.Compare) -> tuple[str, ...]:
        """What the sides of a comparison were, that was evaluated last."""
        texts = [
            self.text(value, part.span)
            for part, value in zip((e.first, *e.rest), self.sides, strict=False)
        ]
        if any(len(t) > _SHORT or "\n" in t for t in texts):
            names = ("left", "right") if len(e.rest) == 1 else ("first", "second", "third")
            return tuple(f"the {n} side is {t}" for n, t in zip(names, texts, strict=False))
        parts = [texts[0]]
        for operator, text in zip(e.operators, texts[1:], strict=False):
            parts += [operator, text]
        return (f"it reads {' '.join(parts)}",)

    def _define(self, s: ast.FunctionDef, scope: Scope) -> None:
        value = definition(s, scope)
        if is_test(s):
            raise fault("T0123", "a test stands at the top level of a file", s.name_span)
        if isinstance(value, Kernel):
            raise fault("T0818", "a kernel stands at the top level of a file", s.name_span)
        scope.values[s.name] = value

    # --- functions ---------------------------------------------------------------------

    def run_function(
        self, function: HostFunction, values: dict[str, object], call: ast.Call
    ) -> object:
        if self._depth >= CALL_DEPTH:
            raise self._too_deep(call)
        scope = Scope(function.scope.path, values, function.scope, self._locals(function),
                      given=tuple(values.values()))  # fmt: skip
        self._depth += 1
        try:
            self._require(function, scope, call)
            return self.function_result(function, scope)
        except RecursionError:
            raise self._too_deep(call) from None
        finally:
            self._depth -= 1

    def _require(self, function: HostFunction, scope: Scope, call: ast.Call) -> None:
        """What a function says of its arguments with ``where``."""
        declaration = function.declaration
        for e in declaration.where if isinstance(declaration, ast.FunctionDef) else ():
            value = self.value(e, scope)
            if not isinstance(value, Unknown) and not self.truth(value, e.span):
                text = source_text(e)
                text = text[1:-1] if isinstance(e, ast.BoolOp | ast.Compare) else text
                names = dict.fromkeys(re.findall(r"[^\W\d]\w*", text))
                worth = [(n, scope.values[n]) for n in names if n in scope.values]
                notes = [f"`{n}` is {self.text(v, e.span)}" for n, v in worth if is_number(v)]
                message = f"`{function.name}` requires `{text}`, and here it does not hold"
                raise fault("T0838", message, call.span, notes=tuple(notes))

    def function_result(self, function: HostFunction, scope: Scope) -> object:
        """Run the body of a function whose parameters stand in ``scope``."""
        declaration = function.declaration
        if isinstance(declaration, ast.Lambda):
            return self.value(declaration.body, scope)
        outcome = self.block(declaration.body, scope)
        if isinstance(outcome, Left):
            message = f"`{outcome.word}` stands outside of a loop"
            raise fault("T0818", message, declaration.name_span)
        return None if outcome is None else outcome.value

    def _locals(self, function: HostFunction) -> frozenset[str]:
        declaration = function.declaration
        if isinstance(declaration, ast.Lambda):
            return frozenset()
        names = self._assigned.get(declaration)
        if names is None:
            names = self._assigned[declaration] = frozenset(assigned(declaration.body))
        return names

    def _too_deep(self, call: ast.Call | None = None) -> HostFault:
        span = call.span if call is not None else self._module.body[0].span
        message = f"calls are nested more than {CALL_DEPTH} deep"
        return fault("T0806", message, span, helps=("use a loop, or check where the calls end",))
