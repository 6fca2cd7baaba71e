"""Which way control goes: variables that may be unset, ends without a value, dead code.

Owns definite assignment and return. Compile-time tests are decided by ``known``; those
without a value yet (``is_open``) count for neither side. What only the run of the host program
tells (``at_run``) is left to it. Must not know types.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.record import dataclass
from tessera_lang.sema.bound_names import expressions, statements, targets
from tessera_lang.sema.kernel_clauses import kernel_decorator
from tessera_lang.source import Span
from tessera_lang.syntax import ast

Known = Callable[[ast.Expr], object]


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a variable may have no value: the path on which nothing sets it."""

    span: Span | None
    text: str


Gaps = dict[str, Gap]  # variables that may be unset
State = Gaps | None  # None: control does not come here


@dataclass(slots=True)
class _Loop:
    """Where control leaves the innermost loop."""

    breaks: list[tuple[Span, Gaps]]
    ends: list[State]
    """How rounds end: where a `continue` stands, and at the end of the body."""


def check_flow(
    function: ast.FunctionDef,
    first: dict[str, Span],
    known: Known,
    is_open: Callable[[ast.Expr], bool],
    at_run: bool = False,
) -> tuple[Diagnostic, ...]:
    """``first``: the variables of the function and where each is first assigned; ``known``: the
    value of an expression, None where it is not known; ``at_run``: that a path sets a variable is
    left to the run, as in Python."""
    return _Flow(function, first, known, is_open, at_run).run()


def literal_value(e: ast.Expr) -> object:
    """The value of ``True``, ``False`` and integers themselves."""
    if isinstance(e, ast.Unary) and e.operator == "-" and isinstance(e.operand, ast.IntLit):
        return -e.operand.value
    return e.value if isinstance(e, ast.BoolLit | ast.IntLit) else None


class _Flow:
    def __init__(
        self, function: ast.FunctionDef, first: dict[str, Span], known: Known,
        is_open: Callable[[ast.Expr], bool], at_run: bool,
    ) -> None:  # fmt: skip
        self._function = function
        self._first = first
        self._known = known
        self._is_open = is_open
        self._at_run = at_run
        self._least = dict(_least(e) for e in function.where)
        self._problems: list[Diagnostic] = []
        self._told: set[str] = set()
        self._loops: list[_Loop] = []
        self._undecided = False  # an open test hides whether the end is reached

    def run(self) -> tuple[Diagnostic, ...]:
        start: Gaps = {
            name: Gap(span, f"`{name}` is set only here") for name, span in self._first.items()
        }
        end = self._block(self._function.body, start)
        self._check_returns(end is not None)
        return tuple(self._problems)

    # --- statements --------------------------------------------------------------------

    def _block(self, body: tuple[ast.Stmt, ...], state: State) -> State:
        for s in body:
            if state is None:
                if not isinstance(s, (ast.Pass, ast.ErrorStmt)):
                    self._problems.append(Diagnostic(
                        "T0119", "this is never reached", s.span, severity="warning",
                    ))  # fmt: skip
                return None
            state = self._statement(s, state)
        return state

    def _statement(self, s: ast.Stmt, state: Gaps) -> State:
        match s:
            case ast.If():
                return self._if(s, state)
            case ast.For():
                self._read(s.iterable, state)
                return self._for(s, state)
            case ast.While():
                return self._while(s, state)
            case ast.With():
                self._read(s.context, state)
                return self._block(s.body, self._set(s, state))
            case ast.Return():
                if s.value is not None:
                    self._read(s.value, state)
                return None
            case ast.Break():
                if self._loops:
                    self._loops[-1].breaks.append((s.span, state))
                return None
            case ast.Continue():
                if self._loops:
                    self._loops[-1].ends.append(state)
                return None
            case ast.ErrorStmt():
                return {n: g for n, g in state.items() if n not in {x.id for x in s.names}}
            case ast.FunctionDef():
                return self._without(state, s.name)
            case ast.AnnotatedAssign() if s.value is None:
                return state
            case _:
                for e in _read_by(s):
                    self._read(e, state)
                return self._set(s, state)

    def _set(self, s: ast.Stmt, state: Gaps) -> Gaps:
        for t in targets(s):
            if isinstance(t, ast.Name):
                state = self._without(state, t.id)
        return state

    def _without(self, state: Gaps, name: str) -> Gaps:
        if name not in state:
            return state
        return {n: g for n, g in state.items() if n != name}

    def _if(self, s: ast.If, state: Gaps) -> State:
        self._read(s.test, state)
        decided = self._known(s.test)
        if isinstance(decided, bool):
            return self._block(s.body if decided else s.orelse, state)
        then = self._block(s.body, state)
        orelse = self._block(s.orelse, state)
        if self._is_open(s.test):
            return self._either(then, orelse, state)
        if then is None:
            return self._past(s.body, Gap(s.test.span, "is not set where this is false"), orelse)
        if orelse is None:
            return self._past(s.orelse, Gap(s.test.span, "is not set where this is true"), then)
        merged: Gaps = {}
        for name in (n for n in state if n in then or n in orelse):
            if name in then and name in orelse:
                merged[name] = then[name] if then[name] is not state[name] else orelse[name]
            else:
                side = "true" if name in then else "false"
                merged[name] = Gap(s.test.span, f"`{name}` is not set where this is {side}")
        return merged

    def _past(self, left: tuple[ast.Stmt, ...], why: Gap, state: State) -> State:
        """What is unset beside a branch that control leaves from: said of what is set in there."""
        inside = _set_in(left)
        return state and {
            n: Gap(why.span, f"`{n}` {why.text}") if n in inside and g.span == self._first[n] else g
            for n, g in state.items()
        }

    def _either(self, then: State, orelse: State, state: Gaps) -> State:
        """An open test: what one side sets counts as set; the instance looks again."""
        self._undecided = self._undecided or then is None or orelse is None
        if then is None or orelse is None:
            return {} if then is None and orelse is None else (orelse if then is None else then)
        return {n: g for n, g in state.items() if n in then and n in orelse}

    def _for(self, s: ast.For, state: Gaps) -> State:
        self._loops.append(_Loop([], []))
        end = self._block(s.body, self._set(s, state))
        loop = self._loops.pop()
        left = [g for g in (end, *loop.ends, *(g for _, g in loop.breaks)) if g is not None]
        if left and self._runs(s.iterable):
            merged = {n: g for gaps in reversed(left) for n, g in gaps.items()}
            inside = _set_in(s.body)
            return {
                n: Gap(s.iterable.span, f"`{n}` is not set in every round")
                if n in inside and g.span == self._first[n] else g
                for n, g in merged.items()
            }  # fmt: skip
        return self._after_loop(s, s.iterable.span, state)

    def _runs(self, e: ast.Expr) -> bool:
        """Whether a loop has a round, or the instance looks again."""
        if isinstance(e, ast.TupleExpr | ast.ListExpr):
            return bool(e.items)
        if not isinstance(e, ast.Call) or not isinstance(e.function, ast.Name) or e.keywords:
            return False
        if e.function.id in ("reversed", "enumerate") and len(e.arguments) == 1:
            return self._runs(e.arguments[0])
        if e.function.id != "range" or not 1 <= len(e.arguments) <= 3:
            return False
        values = [self._known(a) if (v := literal_value(a)) is None else v for a in e.arguments]
        start, stop = (0, values[0]) if len(values) == 1 else values[:2]
        step = values[2] if len(values) == 3 else 1
        last = e.arguments[min(1, len(values) - 1)]
        if stop is None and isinstance(last, ast.Name):
            stop = self._least.get(last.id)  # at least
            step = step if isinstance(step, int) and step > 0 else None
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
            return len(range(start, stop, step or 1)) > 0
        return all(literal_value(a) is not None or self._is_open(a) for a in e.arguments)

    def _after_loop(self, s: ast.For | ast.While, at: Span, state: Gaps) -> Gaps:
        inside = _set_in((s,))
        return {
            n: Gap(at, f"this loop may not run, and then `{n}` is not set") if n in inside else g
            for n, g in state.items()
        }

    def _while(self, s: ast.While, state: Gaps) -> State:
        self._read(s.test, state)
        forever = self._known(s.test) is True
        self._loops.append(_Loop([], []))
        self._block(s.body, state)
        loop = self._loops.pop()
        if not forever:
            return self._after_loop(s, s.test.span, state)
        if not loop.breaks:
            return None
        inside = _set_in(s.body)
        merged: Gaps = {}
        for at, gaps in loop.breaks:
            for n, g in gaps.items():
                told = n in inside and g.span == self._first[n]
                merged[n] = Gap(at, f"`{n}` is not set where this leaves the loop") if told else g
        return {n: merged[n] for n in state if n in merged}

    # --- reads -------------------------------------------------------------------------

    def _read(self, e: ast.Expr, state: Gaps) -> None:
        for part in expressions(e):
            if isinstance(part, ast.Name) and part.id in state and part.id not in self._told:
                self._told.add(part.id)
                self._unset(part, state[part.id])

    def _unset(self, name: ast.Name, gap: Gap) -> None:
        first = self._first[name.id]
        helps = (f"give `{name.id}` a value on every path, first of all at the start",)
        if gap.span == first:
            labels = (Label(first, "it is first set here"),)
            message = f"`{name.id}` is read before it is set"
        elif self._at_run:
            return
        else:
            labels = (Label(first, f"`{name.id}` is set here"),)
            if gap.span is not None:
                labels = (*labels, Label(gap.span, gap.text))
            message = f"`{name.id}` may have no value here"
        self._problems.append(Diagnostic(
            "T0109", message, name.span, "read here", labels=labels, helps=helps,
        ))  # fmt: skip

    # --- returns -----------------------------------------------------------------------

    def _check_returns(self, falls_through: bool) -> None:
        if kernel_decorator(self._function) is not None:
            return  # a kernel returns nothing: other checks say so
        returns = [s for s in statements(self._function.body) if isinstance(s, ast.Return)]
        with_value = [s for s in returns if s.value is not None]
        declared = self._function.returns
        wants = bool(with_value) or declared is not None and not is_none(declared)
        if not wants:
            return
        example = with_value[0].span if with_value else declared.span if declared else None
        labels = (Label(example, "a value is promised here"),) if example is not None else ()
        for s in returns:
            if s.value is None:
                self._problems.append(Diagnostic(
                    "T0108", f"this `return` of `{self._function.name}` gives no value", s.span,
                    labels=labels,
                ))  # fmt: skip
        if falls_through and not self._undecided and self._function.body:
            last = self._function.body[-1]
            self._problems.append(Diagnostic(
                "T0108", f"not all paths of `{self._function.name}` return a value",
                self._function.name_span,
                labels=(*labels, Label(last.span, "the end is reached behind this")),
                helps=("add a `return` with a value at the end",),
            ))  # fmt: skip


def _least(e: ast.Expr) -> tuple[str, int]:
    """The number that a size has at least by a fact ``n >= 1``."""
    match e:
        case ast.Compare(
            first=ast.Name(id=name), operators=(">=" | ">" as sign,), rest=(ast.IntLit(value=k),)
        ):
            return name, k + (sign == ">")
        case _:
            return "", 0


def _set_in(body: tuple[ast.Stmt, ...]) -> set[str]:
    """Variables that these statements, or those in them, set."""
    every = statements(body)
    return {t.id for s in every for t in targets(s) if isinstance(t, ast.Name)}


def is_none(annotation: ast.TypeExpr) -> bool:
    """``-> None``."""
    return isinstance(annotation.base, ast.NoneLit)


def _read_by(s: ast.Stmt) -> tuple[ast.Expr, ...]:
    """Expressions that a plain statement reads, targets' indices included."""
    match s:
        case ast.Assign():
            return (s.value, *_indices(s.target))
        case ast.AnnotatedAssign():
            return (*((s.value,) if s.value is not None else ()), *_indices(s.target))
        case ast.AugmentedAssign():
            return (s.target, s.value)
        case ast.ExprStmt():
            return (s.value,)
        case ast.Assert():
            return (s.test, *((s.message,) if s.message is not None else ()))
        case _:
            return ()


def _indices(target: ast.Expr) -> tuple[ast.Expr, ...]:
    match target:
        case ast.Name():
            return ()
        case ast.TupleExpr() | ast.ListExpr():
            return tuple(x for item in target.items for x in _indices(item))
        case _:
            return (target,)
