"""Exits as structure: ``break``, ``continue`` and early ``return`` become conditions.

Owns which statements may leave a loop or function, and the flags that say so. What stands behind
an exit becomes the other side of the condition it stands in; where that side may leave too, or
the exit stands deeper, a flag guards the rest. So no operation of Schedule IR leaves a region, and
whoever moves data ahead can follow the loop. Must not know expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.emitter import Emitter
from tessera_lang.lower.ast_to_tile.context import Frame
from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import Local, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL

Statements = tuple[ast.Stmt, ...]


@dataclass(slots=True, eq=False)
class Leaving:
    """What can be left: a loop, or (without ``loop``) a function. ``skipped`` is set where the
    rest is not to run any more, ``broken`` where the loop is over; None where nothing asks.
    ``needed``: variables that are read where it is left. ``values``: what a function returns."""

    loop: bool
    needed: frozenset[Local] = frozenset()
    skipped: Local | None = None
    broken: Local | None = None
    values: tuple[Local, ...] = ()

    @property
    def hidden(self) -> tuple[Local, ...]:
        """Variables that stand in no program."""
        found = (self.skipped, self.broken, *self.values)
        return tuple(x for x in found if x is not None)


def leaving_of_loop(typed: TypedFunction, body: Statements, needed: frozenset[Local]) -> Leaving:
    """The frame of a loop with that body."""
    found = Leaving(True, needed)
    if _needs_flag(typed, body, True):
        found.skipped = Local("skipped", "variable", None)
    if breaks(typed, body):
        found.broken = Local("broken", "variable", None)
    return found


def leaving_of_function(typed: TypedFunction, body: Statements) -> Leaving:
    """The frame of a function with that body."""
    found = Leaving(False)
    if _needs_flag(typed, body, False):
        found.skipped = Local("skipped", "variable", None)
    return found


def leave(s: ast.Stmt, frames: Sequence[Leaving], frame: Frame, b: Emitter) -> None:
    """An exit: the flags it sets. ``frames`` are those of the function, the innermost last."""
    left = frames if isinstance(s, ast.Return) else frames[-1:]
    for leaving in left:
        over = None if isinstance(s, ast.Continue) else leaving.broken
        for flag in (leaving.skipped, over):
            if flag is not None:
                frame.variables[flag] = b.constant(True, BOOL)


def of_function(frames: Sequence[Leaving]) -> Sequence[Leaving]:
    """What can be left in the innermost function: the function, and the loops around."""
    first = max(i for i, leaving in enumerate(frames) if not leaving.loop)
    return frames[first:]


def returns(typed: TypedFunction, body: Statements) -> bool:
    """Whether a function may be left in these statements, inside of loops too."""
    return any(_walk(typed, body, lambda s: isinstance(s, ast.Return)))


def breaks(typed: TypedFunction, body: Statements) -> bool:
    """Whether a loop with that body may be over before its time."""
    return any(_walk(typed, body, lambda s: isinstance(s, ast.Break | ast.Return)))


def may_leave(typed: TypedFunction, s: ast.Stmt, in_loop: bool) -> bool:
    """Whether control may leave the loop or function around at a statement."""
    return any(_walk(typed, (s,), lambda x: _is_exit(x, in_loop)))


def always_leaves(typed: TypedFunction, body: Statements, in_loop: bool) -> bool:
    """Whether control never comes behind a block."""
    for s in body:
        match s:
            case _ if _is_exit(s, in_loop):
                return True
            case ast.If():
                sides = [typed_side] if (typed_side := chosen(typed, s)) is not None else [
                    s.body, s.orelse]  # fmt: skip
                if all(always_leaves(typed, side, in_loop) for side in sides):
                    return True
            case ast.With():
                if always_leaves(typed, s.body, in_loop):
                    return True
            case _:
                pass
    return False


def chosen(typed: TypedFunction, s: ast.If) -> Statements | None:
    """The side of a condition that is known when the kernel is compiled."""
    known = typed.constants.get(s.test)
    return None if known is None else s.body if known else s.orelse


def _is_exit(s: ast.Stmt, in_loop: bool) -> bool:
    return isinstance(s, ast.Return) or (in_loop and isinstance(s, ast.Break | ast.Continue))


def _walk(
    typed: TypedFunction, body: Sequence[ast.Stmt], test: Callable[[ast.Stmt], bool]
) -> list[bool]:
    """The test on each statement of a body; of loops in it, whether the function is left there."""
    found: list[bool] = []
    for s in body:
        found.append(test(s))
        match s:
            case ast.If():
                side = chosen(typed, s)
                found += _walk(typed, s.body + s.orelse if side is None else side, test)
            case ast.With():
                found += _walk(typed, s.body, test)
            case ast.For() | ast.While():
                found.append(returns(typed, s.body))
            case _:
                pass
    return found


def _needs_flag(typed: TypedFunction, body: Statements, in_loop: bool) -> bool:
    """Whether some rest of a block cannot be moved into the side that comes to it."""
    for i, s in enumerate(body):
        rest = body[i + 1 :]
        if _is_exit(s, in_loop):
            return False
        if not may_leave(typed, s, in_loop):
            continue
        if isinstance(s, ast.For | ast.While):
            return bool(rest)
        if isinstance(s, ast.With):
            return bool(rest) or _needs_flag(typed, s.body, in_loop)
        assert isinstance(s, ast.If)
        side = chosen(typed, s)
        if side is not None:
            return _needs_flag(typed, side + rest, in_loop)
        sides = sides_of(typed, s, rest, in_loop)
        return sides is None or any(_needs_flag(typed, x, in_loop) for x in sides)
    return False


def sides_of(
    typed: TypedFunction, s: ast.If, rest: Statements, in_loop: bool
) -> tuple[Statements, Statements] | None:
    """Both sides of a condition, the rest of the block behind the one that comes to it; None
    where both may."""
    if not rest or always_leaves(typed, s.body, in_loop):
        return s.body, s.orelse + rest
    if always_leaves(typed, s.orelse, in_loop):
        return s.body + rest, s.orelse
    return None


def clear(flag: Local | None, frame: Frame, b: Emitter) -> None:
    """A flag that is not set yet."""
    if flag is not None:
        frame.variables[flag] = b.constant(False, BOOL)


def unset(flag: Local, frame: Frame, b: Emitter) -> Value:
    """Whether a flag is not set."""
    found = frame.variables[flag]
    assert isinstance(found, Value)
    return b.unary("not", found)
