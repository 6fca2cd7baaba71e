"""Which assignments begin a variable anew: their uses never meet those before.

Owns the definitions that reach each use of a name, and the ranges that they make. A name whose
ranges lie apart in the source may have another type in each. Must not know types.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.record import dataclass, field
from tessera_lang.sema.bound_names import expressions, statement_expressions, targets
from tessera_lang.syntax import ast

Reaching = dict[str, frozenset[ast.Name]]
"""Of each name the targets whose value it may have; without the name no way comes here."""


def beginnings(declaration: ast.FunctionDef) -> frozenset[ast.Name]:
    """Targets of assignments that begin another range of their name; none of a name whose ranges
    lie in each other. The range of a parameter begins at the head."""
    found: set[ast.Name] = set()
    for ranges in ranges_of(declaration).values():
        first, *rest = sorted(ranges, key=lambda r: r.start)
        end, starts = first.end, list[ast.Name]()
        for r in rest:
            if r.start < end or r.target is None:
                break
            starts.append(r.target)
            end = r.end
        else:
            found.update(starts)
    return frozenset(found)


def sizes_of(declaration: ast.FunctionDef) -> list[ast.Name]:
    """Names of sizes in the types of the parameters, each where it stands first."""
    shapes = (i for p in declaration.parameters if p.annotation for i in p.annotation.shape or ())
    names = [e for i in shapes for e in expressions(i) if isinstance(e, ast.Name)]
    return list({e.id: e for e in reversed(names)}.values())


def ranges_of(declaration: ast.FunctionDef) -> dict[str, list[Range]]:
    """The ranges of each name."""
    walk = _Walk()
    walk.block(declaration.body, walk.parameters(declaration))
    return walk.ranges()


@dataclass(slots=True, eq=False)
class Range:
    """Where it lies in the source, the target that it begins with (``first``), and that again where
    it is of an assignment (``target``; None: of another kind)."""

    start: int
    end: int
    target: ast.Name | None
    first: ast.Name


@dataclass(slots=True, eq=False)
class _Loop:
    breaks: list[Reaching] = field(default_factory=list[Reaching])
    nexts: list[Reaching] = field(default_factory=list[Reaching])


@dataclass(slots=True, eq=False)
class _Walk:
    """``parent``: targets of one range, as a forest; ``uses`` of each target; ``plain``: targets
    that take a whole new value, and where that is made. A ``None`` of a state: control does not
    come here."""

    parent: dict[ast.Name, ast.Name] = field(default_factory=dict[ast.Name, ast.Name])
    uses: dict[ast.Name, set[int]] = field(default_factory=dict[ast.Name, set[int]])
    plain: dict[ast.Name, int] = field(default_factory=dict[ast.Name, int])
    loops: list[_Loop] = field(default_factory=list[_Loop])

    def ranges(self) -> dict[str, list[Range]]:
        made: dict[ast.Name, Range] = {}
        for target in self.parent:
            root, start = self._root(target), self.plain.get(target, target.span.start)
            places = {start, *self.uses[target]}
            r = made.setdefault(root, Range(start, start, target, target))
            if start <= r.start:
                r.target, r.first = target if target in self.plain else None, target
            r.start, r.end = min(r.start, *places), max(r.end, *places)
        found: dict[str, list[Range]] = {}
        for root, r in made.items():
            found.setdefault(root.id, []).append(r)
        return found

    def _root(self, target: ast.Name) -> ast.Name:
        while self.parent[target] is not target:
            target = self.parent[target]
        return target

    def parameters(self, declaration: ast.FunctionDef) -> Reaching:
        given = [ast.Name(p.name_span, p.name) for p in declaration.parameters]
        given += sizes_of(declaration)
        for target in given:
            self.parent[target] = target
            self.uses[target] = set()
        return {target.id: frozenset((target,)) for target in given}

    # --- statements ---------------------------------------------------------------------------

    def block(self, body: Iterable[ast.Stmt], state: Reaching | None) -> Reaching | None:
        for s in body:
            if state is None:
                return None
            state = self._statement(s, state)
        return state

    def _statement(self, s: ast.Stmt, state: Reaching) -> Reaching | None:
        match s:
            case ast.If():
                self._read(s, state)
                return _joined(self.block(s.body, state), self.block(s.orelse, state))
            case ast.For() | ast.While():
                return self._loop(s, state)
            case ast.With():
                self._read(s, state)
                return self.block(s.body, self._assign(s, state))
            case ast.Break() | ast.Continue():
                if self.loops:
                    loop = self.loops[-1]
                    (loop.breaks if isinstance(s, ast.Break) else loop.nexts).append(state)
                return None
            case ast.Return():
                self._read(s, state)
                return None
            case _:
                self._read(s, state)
                return self._assign(s, state)

    def _loop(self, s: ast.For | ast.While, state: Reaching) -> Reaching | None:
        if isinstance(s, ast.For):
            self._read(s, state)
        head: Reaching = state
        while True:
            loop = _Loop()
            self.loops.append(loop)
            if isinstance(s, ast.While):
                self._read(s, head)
            end = self.block(s.body, self._assign(s, head))
            self.loops.pop()
            for one in loop.nexts:
                end = _joined(end, one)
            again = _joined(head, end) or head
            if again == head:
                break
            head = again
        for one in loop.breaks:
            head = _joined(head, one) or head
        return head

    def _read(self, s: ast.Stmt, state: Reaching) -> None:
        for root in statement_expressions(s):
            for e in expressions(root):
                if isinstance(e, ast.Name):
                    self._use(e, state)

    def _use(self, e: ast.Name, state: Reaching) -> None:
        found = list(state.get(e.id, ()))
        for target in found:
            self.uses[target].add(e.span.start)
            self.parent[self._root(target)] = self._root(found[0])

    def _assign(self, s: ast.Stmt, state: Reaching) -> Reaching:
        state = dict(state)
        for t in targets(s):
            if not isinstance(t, ast.Name):
                for e in expressions(t):  # a store needs what it stores into
                    if isinstance(e, ast.Name):
                        self._use(e, state)
                continue
            self.parent.setdefault(t, t)
            self.uses.setdefault(t, set())
            if isinstance(s, ast.AugmentedAssign):
                self._use(t, state)
                for before in state.get(t.id, ()):
                    self.parent[self._root(t)] = self._root(before)
            elif isinstance(s, ast.Assign):
                self.plain[t] = s.span.end  # what is read for it is read before
            state[t.id] = frozenset((t,))
        return state


def _joined(a: Reaching | None, b: Reaching | None) -> Reaching | None:
    if a is None or b is None:
        return b if a is None else a
    none = frozenset[ast.Name]()
    return {name: a.get(name, none) | b.get(name, none) for name in (*a, *b)}
