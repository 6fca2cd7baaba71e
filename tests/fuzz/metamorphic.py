"""Rewrites of generated programs that change their text and not their meaning.

``rewritten(case, seed)`` is a program that must give what the first one gave, bit for bit: the
reference says so too, so a rewrite that is wrong is found before the compiler is blamed.
Must not know the compiler.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz import program as p
from tests.fuzz.numbers import FLOATS, INTEGERS

COMMUTE = ("+", "*", "&", "|", "^")
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
ALONE = (p.Store, p.Update, p.Atomic)
"""Statements that set no name, so that they may stand under a test or in a loop."""


def rewritten(kernel: p.Kernel, seed: int, count: int = 8) -> p.Kernel:
    """The kernel after some rewrites, chosen by the seed."""
    r, made = random.Random(seed), copy.deepcopy(kernel)
    for at in range(count):
        r.choice((_expression, _statement))(made, r, at)
    return made


# --- expressions -------------------------------------------------------------------------------


def _expression(kernel: p.Kernel, r: random.Random, at: int) -> None:
    del at
    places = [x for x in expressions(kernel) if not x[2].bare]
    if not places:
        return
    owner, key, e = r.choice(places)
    forms = list(_forms(e, r))
    if forms:
        put(owner, key, r.choice(forms))


def _forms(e: p.Expr, r: random.Random) -> Iterator[p.Expr]:
    match e:
        case p.Binary() if e.operator in COMMUTE:
            yield p.Binary(e.operator, e.right, e.left, e.dtype)
        case p.Compare(operators=[operator]):
            yield p.Compare(e.operands[::-1], [FLIPPED[operator]])
        case p.Choice():
            yield p.Choice(_negated(e.test), e.orelse, e.then, e.dtype)
        case p.Logic():
            other = "or" if e.operator == "and" else "and"
            yield _negated(p.Logic(other, _negated(e.left), _negated(e.right)))
        case _:
            pass
    if e.dtype == "bool":
        yield _negated(_negated(e))
    elif e.dtype in FLOATS:
        yield p.Unary("-", p.Unary("-", e, e.dtype), e.dtype)
    elif e.dtype in INTEGERS:
        yield p.Unary("~", p.Unary("~", e, e.dtype), e.dtype)
        mask = p.Const(r.randrange(128), e.dtype)
        yield p.Binary("^", p.Binary("^", e, mask, e.dtype), mask, e.dtype)
        if e.dtype not in ("i64", "u64", "index"):
            yield p.Cast(p.Cast(e, "i64"), e.dtype)


def _negated(e: p.Expr) -> p.Expr:
    return p.Unary("not ", e, "bool")


# --- statements --------------------------------------------------------------------------------


def _statement(kernel: p.Kernel, r: random.Random, at: int) -> None:
    places = [
        (block, i, rewrite)
        for block in blocks(kernel)
        for i, s in enumerate(block)
        for rewrite in _ways(s)
    ]
    if places:
        block, i, rewrite = r.choice(places)
        block[i : i + 1] = rewrite(block[i], f"w{at}", r)


Rewrite = Callable[[Any, str, random.Random], list[p.Stmt]]


def _ways(s: p.Stmt) -> Iterator[Rewrite]:
    if isinstance(s, ALONE):
        yield from (_under_a_test, _once, _with_dead_code)
    if isinstance(s, p.Store | p.Update) and not s.expr.bare:
        yield _named
    if isinstance(s, p.If) and len(s.branches) == 1:
        yield _turned
    if isinstance(s, p.UniformIf):
        yield _turned_together
    if isinstance(s, p.Barrier):
        yield _barrier_under_a_test
    if isinstance(s, p.UniformFor) and all(isinstance(e, p.Const) for e in s.bounds):
        yield _unrolled


def _true(r: random.Random) -> p.Expr:
    """True in every lane, which the compiler may or may not see."""
    one = p.Id(r.choice(("tile_id", "group_id")), 0)
    return p.Compare([one, p.Const(0, "index")], [">="])


def _under_a_test(s: p.Stmt, name: str, r: random.Random) -> list[p.Stmt]:
    del name
    return [p.If([(_true(r), [s])], [])]


def _once(s: p.Stmt, name: str, r: random.Random) -> list[p.Stmt]:
    first = r.randrange(3)
    bounds: list[p.Expr] = [p.Const(first, "index"), p.Const(first + 1, "index")]
    return [p.For(name, bounds, [s])]


def _with_dead_code(s: p.Stmt, name: str, r: random.Random) -> list[p.Stmt]:
    del name
    dead = p.If([(_negated(_true(r)), [copy.deepcopy(s)])], [])
    return [dead, s] if r.random() < 0.5 else [s, dead]


def _named(s: p.Store | p.Update, name: str, r: random.Random) -> list[p.Stmt]:
    del r
    value = p.Assign(name, s.expr, s.expr.dtype, annotate=True)
    s.expr = p.Name(name, s.expr.dtype)
    return [value, s]


def _turned(s: p.If, name: str, r: random.Random) -> list[p.Stmt]:
    del name, r
    ((test, body),) = s.branches
    return [p.If([(_negated(test), s.orelse)], body)]


def _turned_together(s: p.UniformIf, name: str, r: random.Random) -> list[p.Stmt]:
    del name, r
    return [p.UniformIf(_negated(s.test), s.orelse, s.body)]


def _barrier_under_a_test(s: p.Barrier, name: str, r: random.Random) -> list[p.Stmt]:
    del name, r
    test = p.Compare([p.Id("group_count", 0), p.Const(0, "index")], [">"])
    return [p.UniformIf(test, [s], [])]


def _unrolled(s: p.UniformFor, name: str, r: random.Random) -> list[p.Stmt]:
    del name, r
    values = range(*(int(e.value(None)) for e in s.bounds))  # type: ignore[arg-type]
    if not 0 < len(values) <= 4:
        return [s]
    made: list[p.Stmt] = []
    for k in values:
        made += [p.Assign(s.name, p.Const(k, "index"), "index"), *copy.deepcopy(s.body)]
    return made


# --- the places of a program -------------------------------------------------------------------


def blocks(kernel: p.Kernel) -> Iterator[list[p.Stmt]]:
    """Every block: of the kernel, of its helpers, of their statements."""
    todo = [kernel.body, *(h.body for h in kernel.helpers)]
    while todo:
        block = todo.pop(0)
        yield block
        todo += [inner for s in block for inner in s.blocks()]


def expressions(kernel: p.Kernel) -> Iterator[tuple[Any, Any, p.Expr]]:
    """Every expression with its owner and place."""
    for block in blocks(kernel):
        for s in block:
            todo = list(operands(s))
            while todo:
                found = todo.pop()
                yield found
                todo += list(operands(found[2]))


def operands(node: Any) -> Iterator[tuple[Any, Any, p.Expr]]:
    """The expressions right inside a statement or an expression."""
    if isinstance(node, p.Helper):
        return
    for key, value in list(vars(node).items()):
        if isinstance(value, p.Expr):
            yield node, key, value
        elif isinstance(value, list):
            for at, item in enumerate(value):
                if isinstance(item, p.Expr):
                    yield value, at, item


def put(owner: Any, key: Any, e: p.Expr) -> None:
    """Another expression at a place."""
    if isinstance(key, str):
        setattr(owner, key, e)
    else:
        owner[key] = e
