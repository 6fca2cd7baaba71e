"""The host program as ``tesserac check`` sees it: run without data.

Owns what is different where values are unknown: both sides of a branch are looked at, loops
are followed a while and then widened, and a fault at the top level does not end the check.
Must not know how a kernel is checked (the world's launch does).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, cast

from tessera_lang.cancellation import pause
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.evaluate.abstract_world import Size, SymbolicArray
from tessera_lang.evaluate.assigned_names import assigned
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.evaluate.host import CALL_DEPTH, Host, Left, Outcome, Returned, room_for_calls
from tessera_lang.evaluate.modules import ONLY_AT_RUN
from tessera_lang.evaluate.value import HostFunction, Scope, Unknown
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType

STATEMENTS = 20_000  # statements that a check follows
ITERATIONS = 64  # iterations of one loop with every value known
FAULTS = 1000  # faults after which a check ends
RECURSIONS = 8  # calls of one function inside itself

_NOT_RUN = "the top-level statements of the file do not run before a test"


class _OutOfSteps(Exception):
    """The check has followed the program far enough."""


_PASSED_ON = (_OutOfSteps, RecursionError, TesseraError)


class SymbolicHost(Host):
    """Runs the program without data and collects what is surely wrong.

    ``failures``: faults of ours, each with the statement or test that it cost.
    """

    found: list[Diagnostic]
    failures: list[tuple[Exception, Span]]

    def check(self, given: frozenset[str] = frozenset()) -> tuple[Diagnostic, ...]:
        """Diagnostics of the top-level statements. ``given`` names get a value from outside."""
        self.found = []
        self.failures = []
        self._steps = 0
        self._active: dict[object, int] = {}
        self._returns: list[list[object]] = []
        self._open: list[Scope] = []  # of the functions that are being run
        self.top.values.update({name: Unknown() for name in sorted(given)})
        self._set = set(given)
        with room_for_calls():
            try:
                self.modules.define(self._module, self.top)
                for statement in self._module.body:
                    self._recovering(statement)
            except _OutOfSteps:
                pass  # the rest is checked while it runs
            except RecursionError:
                pass
        return tuple(self.found)

    def check_test(self, function: ast.FunctionDef) -> tuple[Diagnostic, ...]:
        """Diagnostics of a test's body; a fault in one of its statements does not end it."""
        self.found = []
        self.failures = []
        self._steps = 0
        self._active = {}
        self._returns = []
        self._open = []
        with suppress(_OutOfSteps):
            try:
                self.run_test(function)
            except HostFault as error:
                self.found.extend(error.diagnostics)
            except _PASSED_ON:
                raise
            except Exception as error:  # noqa: BLE001  # of ours: it costs this test
                self.failures.append((error, function.name_span))
        if not self.found:
            return ()
        ours = {f"`{name}` {ONLY_AT_RUN}" for name in assigned(self._module.body)}
        return tuple(
            replace(d, notes=(*d.notes, _NOT_RUN), helps=()) if d.message in ours else d
            for d in self.found
        )

    def test_body(self, function: ast.FunctionDef, scope: Scope) -> None:
        self.top = scope
        super().test_body(function, scope)

    def _recovering(self, statement: ast.Stmt) -> None:
        """One top-level statement; after a fault its names are unknown."""
        try:
            self.top_statement(statement)
        except HostFault as error:
            self.found.extend(error.diagnostics)
            self._forget((statement,), self.top)
        except _PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001  # of ours: it costs this statement
            self.failures.append((error, statement.span))
            self._forget((statement,), self.top)

    def _forget(self, body: tuple[ast.Stmt, ...], scope: Scope) -> None:
        for name in assigned(body):
            scope.values[name] = Unknown()

    def block(self, body: tuple[ast.Stmt, ...], scope: Scope) -> Outcome:
        for statement in body:
            try:
                outcome = self.statement(statement, scope)
            except HostFault as error:
                if scope is not self.top:
                    raise
                self.found.extend(error.diagnostics)
                self._forget((statement,), scope)
                continue
            if outcome is not None:
                return outcome
        return None

    def statement(self, s: ast.Stmt, scope: Scope) -> Outcome:
        self.check_interrupted()
        pause()
        if isinstance(s, ast.ErrorStmt):  # already reported; its names may be anything
            for name in s.names:
                scope.values.setdefault(name.id, Unknown())
        return super().statement(s, scope)

    def value(self, e: ast.Expr, scope: Scope) -> object:
        return Unknown() if isinstance(e, ast.ErrorExpr) else super().value(e, scope)

    def check_interrupted(self) -> None:
        self._steps += 1
        if self._steps > STATEMENTS or len(self.found) > FAULTS:
            raise _OutOfSteps

    # --- values ------------------------------------------------------------------------

    def undecided(self, value: object) -> bool:
        return isinstance(value, Unknown) or self.world.is_array(value)

    def either(self, a: object, b: object) -> object:
        if isinstance(a, SymbolicArray) and isinstance(b, SymbolicArray):
            return _either_array(a, b)
        if a is b or (_is_plain(a) and type(a) is type(b) and a == b):
            return a
        if isinstance(a, tuple) and isinstance(b, tuple):
            x, y = cast("tuple[object, ...]", a), cast("tuple[object, ...]", b)
            if len(x) == len(y):
                return tuple([self.either(p, q) for p, q in zip(x, y, strict=True)])
        one, other = _kind(cast("object", a)), _kind(cast("object", b))
        return Unknown(one if one == other else "any")

    def _merge(self, scope: Scope, one: dict[str, object], other: dict[str, object]) -> None:
        """``scope`` after one of two ways was taken. A name bound on one way only is kept."""
        merged: dict[str, object] = {}
        for name in [*one, *(n for n in other if n not in one)]:
            if name in one and name in other:
                merged[name] = self.either(one[name], other[name])
            else:
                merged[name] = one[name] if name in one else other[name]
        scope.values.clear()
        scope.values.update(merged)

    # --- control flow ------------------------------------------------------------------

    def branch(self, s: ast.If, scope: Scope) -> Outcome:
        test = self.value(s.test, scope)
        if not self.undecided(test):
            return self.block(s.body if self.truth(test, s.test.span) else s.orelse, scope)
        before = dict(scope.values)
        first = self.block(s.body, scope)
        after_first = dict(scope.values)
        scope.values.clear()
        scope.values.update(before)
        second = self.block(s.orelse, scope)
        return self._joined(scope, first, after_first, second)

    def _joined(
        self, scope: Scope, first: Outcome, after_first: dict[str, object], second: Outcome
    ) -> Outcome:
        """The outcome of two ways; a way that leaves takes its values with it."""
        if isinstance(first, Returned) and isinstance(second, Returned):
            return Returned(self.either(first.value, second.value))
        if first is not None and first == second:
            self._merge(scope, after_first, dict(scope.values))
            return first
        for outcome in (first, second):
            if isinstance(outcome, Returned) and self._returns:
                self._returns[-1].append(outcome.value)
        if isinstance(second, Returned):
            scope.values.clear()
            scope.values.update(after_first)
            return first if isinstance(first, Left) else None
        if not isinstance(first, Returned):
            self._merge(scope, after_first, dict(scope.values))
            return None
        return second if isinstance(second, Left) else None

    def loop_over(self, s: ast.For, scope: Scope) -> Outcome:
        source = self.value(s.iterable, scope)
        if not self.of_unknown_length(source):
            for count, item in enumerate(self.iterate(source, s.iterable.span)):
                if count == ITERATIONS:
                    break
                self.assign(s.target, item, scope)
                outcome = self.block(s.body, scope)
                if outcome is Left.BREAK or isinstance(outcome, Returned):
                    return outcome if isinstance(outcome, Returned) else None
            else:
                return None
        return self._widened(s, scope, s.target)

    def loop_while(self, s: ast.While, scope: Scope) -> Outcome:
        for _ in range(ITERATIONS):
            self.check_interrupted()
            test = self.value(s.test, scope)
            if self.undecided(test):
                break
            if not self.truth(test, s.test.span):
                return None
            outcome = self.block(s.body, scope)
            if outcome is Left.BREAK or isinstance(outcome, Returned):
                return outcome if isinstance(outcome, Returned) else None
        return self._widened(s, scope, None)

    def _widened(self, s: ast.For | ast.While, scope: Scope, target: ast.Expr | None) -> Outcome:
        """Some more iterations: two passes over the body, what changes becomes unknown."""
        for _ in range(2):
            before = dict(scope.values)
            if target is not None:
                self.assign(target, Unknown(), scope)
            outcome = self.block(s.body, scope)
            if isinstance(outcome, Returned) and self._returns:
                self._returns[-1].append(outcome.value)
            self._merge(scope, dict(scope.values), before)
        return None

    def assertion(self, s: ast.Assert, scope: Scope) -> None:
        self.value(s.test, scope)

    def run_function(
        self, function: HostFunction, values: dict[str, object], call: ast.Call
    ) -> object:
        active = self._active.get(function.declaration, 0)
        if active >= min(RECURSIONS, CALL_DEPTH):
            return Unknown()
        self._active[function.declaration] = active + 1
        try:
            return super().run_function(function, values, call)
        finally:
            self._active[function.declaration] = active

    def grow(self, items: list[object], more: list[object]) -> None:
        """Nothing is known of a list that grows: how often is known to the run."""
        self._forget_list(items)

    def replace(self, items: list[object], new: list[object]) -> None:
        self._forget_list(items)

    def _forget_list(self, items: list[object]) -> None:
        for scope in (self.top, *self._open):
            at: Scope | None = scope
            while at is not None:
                for name, value in at.values.items():
                    if _holds(value, items):
                        at.values[name] = Unknown()
                at = at.parent

    def function_result(self, function: HostFunction, scope: Scope) -> object:
        self._returns.append([])
        self._open.append(scope)
        try:
            result = super().function_result(function, scope)
        finally:
            self._open.pop()
            others = self._returns.pop()
        for other in others:
            result = self.either(result, other)
        return result


def _holds(value: object, items: list[object]) -> bool:
    """Whether a value is a list or has it among its items."""
    match value:
        case tuple() | list():
            inner = cast("tuple[object, ...] | list[object]", value)
            return inner is items or any(_holds(v, items) for v in inner)
        case dict():
            return any(_holds(v, items) for v in cast("dict[object, object]", value).values())
        case _:
            return False


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (int, float, str, DType))


def _kind(value: object) -> Literal["int", "float", "bool", "str", "any"]:
    match value:
        case Unknown():
            return value.kind
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "str"
        case _:
            return "any"


def _either_array(a: SymbolicArray, b: SymbolicArray) -> SymbolicArray:
    shape: tuple[Size, ...] | None = None
    if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
        shape = tuple(
            x if x == y else Unknown("int") for x, y in zip(a.shape, b.shape, strict=True)
        )
    return SymbolicArray(a.dtype if a.dtype == b.dtype else None, shape)
