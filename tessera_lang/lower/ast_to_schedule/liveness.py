"""Which variables are still needed where: what a loop carries and what an ``if`` joins.

Owns the backward walk over one function. A buffer that an iteration fills before it reads it is
private to the iteration, as any variable is. Must not know the IR.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.lower.ast_to_tile.control import nodes
from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import Builtin, Local, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.types.type import Tensor, Tile

Locals = frozenset[Local]


@dataclass(slots=True)
class Liveness:
    """``after`` a statement, and at the ``head`` of the body of a loop."""

    typed: TypedFunction
    after: dict[ast.Stmt, Locals] = field(default_factory=dict[ast.Stmt, Locals])
    head: dict[ast.Stmt, Locals] = field(default_factory=dict[ast.Stmt, Locals])

    def run(self) -> Liveness:
        self._block(self.typed.body, frozenset(), frozenset(), frozenset())
        return self

    def _block(
        self, statements: Sequence[ast.Stmt], out: Locals, on_break: Locals, on_next: Locals
    ) -> Locals:
        """What is needed before the statements, given what is needed behind them."""
        live = out
        for s in reversed(statements):
            self.after[s] = live
            live = self._before(s, live, on_break, on_next)
        return live

    def _before(self, s: ast.Stmt, live: Locals, on_break: Locals, on_next: Locals) -> Locals:
        match s:
            case ast.If() if (known := self.typed.constants.get(s.test)) is not None:
                return self._block(s.body if known else s.orelse, live, on_break, on_next)
            case ast.If():
                then = self._block(s.body, live, on_break, on_next)
                other = self._block(s.orelse, live, on_break, on_next)
                return then | other | self.uses(s.test)
            case ast.For() | ast.While():
                return self._loop(s, live)
            case ast.With():
                inside = self._block(s.body, live, on_break, on_next)
                return inside | self.uses(s.context)
            case ast.Break():
                return on_break
            case ast.Continue():
                return on_next
            case ast.Return():
                return self.uses(s.value)
            case _:
                return (live - self.killed(s)) | self.read(s)

    def _loop(self, s: ast.For | ast.While, out: Locals) -> Locals:
        test = self.uses(s.test) if isinstance(s, ast.While) else frozenset[Local]()
        own = self.targets(s.target) if isinstance(s, ast.For) else frozenset[Local]()
        head = out | test
        while True:
            inside = self._block(s.body, head, out, head) - own
            if inside <= head:
                break
            head |= inside
        self.head[s] = inside | test
        self.after[s] = out
        start = self.uses(s.iterable) if isinstance(s, ast.For) else test
        return out | inside | start

    # --- single statements ----------------------------------------------------------------------

    def uses(self, root: object) -> Locals:
        """Variables that an expression names."""
        symbols, found = self.typed.symbols, set[Local]()
        for n in nodes(root):
            if isinstance(n, ast.Name) and isinstance(symbol := symbols.get(n), Local):
                found.add(symbol)
        return frozenset(found)

    def targets(self, target: ast.Expr) -> Locals:
        return self.uses(target)

    def killed(self, s: ast.Stmt) -> Locals:
        """Variables whose old value nothing behind this statement sees."""
        match s:
            case ast.Assign() | ast.AnnotatedAssign():
                return self._killed(s.target)
            case ast.ExprStmt() if (buffer := prefetched(self.typed, s)) is not None:
                return self.uses(buffer)
            case _:
                return frozenset()

    def _killed(self, target: ast.Expr) -> Locals:
        if isinstance(target, ast.TupleExpr):
            return frozenset(x for item in target.items for x in self._killed(item))
        if isinstance(target, ast.Name):
            return self.uses(target)
        if isinstance(target, ast.Subscript) and is_whole_store(self.typed, target):
            return self.uses(target.value)
        return frozenset()

    def read(self, s: ast.Stmt) -> Locals:
        """Variables whose value this statement needs."""
        match s:
            case ast.Assign():
                return self.uses(s.value) | self._read_by_target(s.target)
            case ast.AnnotatedAssign():
                return self.uses(s.value) | self._read_by_target(s.target)
            case ast.ExprStmt() if (buffer := prefetched(self.typed, s)) is not None:
                return self.uses(s.value) - self.uses(buffer)
            case _:
                return self.uses(s)

    def _read_by_target(self, target: ast.Expr) -> Locals:
        if isinstance(target, ast.TupleExpr):
            return frozenset(x for item in target.items for x in self._read_by_target(item))
        if isinstance(target, ast.Name):
            return frozenset()
        if isinstance(target, ast.Subscript) and is_whole_store(self.typed, target):
            return self.uses(target.items)
        return self.uses(target)


def is_buffer(typed: TypedFunction, node: ast.Expr) -> bool:
    """Whether a name is a tile that may be stored into."""
    symbol = typed.symbols.get(node)
    if not isinstance(symbol, Local):
        return False
    return isinstance(typed.variables.get(symbol, typed.types.get(node)), Tile)


def is_whole_store(typed: TypedFunction, target: ast.Subscript) -> bool:
    """``buf[:] = v``: every axis is taken whole."""
    whole = all(
        isinstance(i, ast.SliceExpr) and i.lower is None and i.upper is None and i.step is None
        for i in target.items
    )
    return whole and is_buffer(typed, target.value)


def prefetched(typed: TypedFunction, s: ast.ExprStmt) -> ast.Expr | None:
    """The buffer that ``op.prefetch(buf, v)`` fills."""
    call = s.value
    if not isinstance(call, ast.Call):
        return None
    if typed.symbols.get(call.function) != Builtin("op.prefetch"):
        return None
    given = typed.arguments.get(call, call.arguments)
    return given[0] if given else None


def assigned(typed: TypedFunction, statements: Sequence[ast.Stmt]) -> tuple[Local, ...]:
    """Variables that these statements may change, in source order; loops' own ones too."""
    found: dict[Local, None] = {}

    def target(node: ast.Expr) -> None:
        if isinstance(node, ast.TupleExpr):
            for item in node.items:
                target(item)
        elif isinstance(node, ast.Subscript):
            if is_buffer(typed, node.value):
                target(node.value)
        elif isinstance(symbol := typed.symbols.get(node), Local):
            found[symbol] = None

    for s in statements:
        match s:
            case ast.Assign() | ast.AugmentedAssign() | ast.AnnotatedAssign():
                target(s.target)
            case ast.ExprStmt():
                if (buffer := prefetched(typed, s)) is not None:
                    target(buffer)
            case ast.If():
                found.update(dict.fromkeys(assigned(typed, s.body + s.orelse)))
            case ast.For():
                target(s.target)
                found.update(dict.fromkeys(assigned(typed, s.body)))
            case ast.While() | ast.With():
                found.update(dict.fromkeys(assigned(typed, s.body)))
            case _:
                pass
    return tuple(found)


def stored(typed: TypedFunction, statements: Sequence[ast.Stmt]) -> tuple[ast.Expr, ...]:
    """Arrays that these statements write into, or functions they call: what names them."""
    found: list[ast.Expr] = []
    for n in nodes(tuple(statements)):
        if isinstance(n, ast.Assign | ast.AugmentedAssign):
            several = n.target.items if isinstance(n.target, ast.TupleExpr) else (n.target,)
            places = [t.value for t in several if isinstance(t, ast.Subscript)]
            found += [e for e in places if isinstance(typed.types.get(e), Tensor)]
        elif isinstance(n, ast.Call) and (instance := typed.calls.get(n)) is not None:
            found += _given_to_write(typed, n, instance)
    return tuple(found)


def _given_to_write(
    typed: TypedFunction, call: ast.Call, instance: TypedFunction
) -> list[ast.Expr]:
    """Arguments for the parameters that a function may write."""
    named = zip(instance.parameters, instance.parameter_types, strict=True)
    writable = {p.name for p, t in named if isinstance(t, Tensor) and t.mut}
    given = zip(instance.declaration.parameters, typed.arguments.get(call, call.arguments),
                strict=False)  # fmt: skip
    found: list[ast.Expr] = []
    for parameter, passed in given:
        while isinstance(passed, ast.Subscript):
            passed = passed.value
        if passed is not None and parameter.name in writable:
            found.append(passed)
    return found
