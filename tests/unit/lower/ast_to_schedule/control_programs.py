"""Random control flow: nested loops and conditions with exits, as text that Python runs too.

The body works on whole numbers ``a b c``, on elements of ``x`` and on a tile ``t``; what it has
done stands in ``out`` and ``tiles``. The same lines are a tile kernel, a function that one calls,
a lane kernel of one lane (without the tile) and a Python function. Every body ends: a ``while``
counts, and its count is part of its condition whatever else that holds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

N = 12  # elements of x
WIDTH = 8  # elements of a tile
Array = np.ndarray[Any, np.dtype[np.int32]]


class _Body:
    def __init__(self, seed: int, tiles: bool) -> None:
        self.r = random.Random(seed)
        self.tiles = tiles
        self.lines: list[str] = []
        self.loops = 0
        self.counters = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def number(self) -> str:
        return self.r.choice(("a", "b", "c", str(self.r.randrange(-3, 9)), "x[2]"))

    def test(self) -> str:
        left = self.r.choice((f"{self.r.choice('abc')} % {self.r.randrange(2, 5)}", "a", "b", "c"))
        text = f"{left} {self.r.choice(('<', '==', '>=', '!='))} {self.number()}"
        if self.r.random() < 0.2:
            text = f"{text} {self.r.choice(('and', 'or'))} b > {self.number()}"
        return f"not ({text})" if self.r.random() < 0.15 else text

    def plain(self, depth: int) -> None:
        kinds = ["{v} += {n}", "{v} = {n} - {w}", "{v} = {v} * 3 % 50", "out[{i}] = {v} + {n}"]
        if self.tiles:
            kinds += ["t = t + {v}", "t = t * 2 % 1000", "tiles[{i}, :] = t", "a += op.max(t) % 7"]
        text = self.r.choice(kinds)
        v, w = self.r.choice("abc"), self.r.choice("abc")
        self.line(depth, text.format(v=v, w=w, n=self.number(), i=self.r.randrange(4)))

    def block(self, depth: int, in_loop: bool, size: int) -> None:
        begin = len(self.lines)
        for _ in range(self.r.randint(1, size)):
            kind = self.r.random()
            if depth > 3 or kind < 0.4 or len(self.lines) > 40:
                self.plain(depth)
            elif kind < 0.7:
                self.condition(depth, in_loop)
            elif self.loops < 4:
                self.loop(depth)
            else:
                self.plain(depth)
        if len(self.lines) == begin:
            self.line(depth, "pass")

    def leaving(self, depth: int, in_loop: bool) -> bool:
        if self.r.random() < 0.45:
            return False
        ways = ("break", "continue", "break", "continue", "return") if in_loop else ("return",)
        self.line(depth, self.r.choice(ways))
        return True

    def condition(self, depth: int, in_loop: bool) -> None:
        self.line(depth, f"if {self.test()}:")
        self.block(depth + 1, in_loop, 2)
        self.leaving(depth + 1, in_loop)
        if self.r.random() < 0.5:
            self.line(depth, "else:")
            self.block(depth + 1, in_loop, 2)
            self.leaving(depth + 1, in_loop)

    def loop(self, depth: int) -> None:
        self.loops += 1
        self.counters += 1
        k = f"k{self.counters}"
        how = self.r.randrange(4)
        if how == 0:
            self.line(depth, f"{k} = 0")
            # In parentheses: behind an ``or`` of the test the loop would run on without the count.
            self.line(depth, f"while {k} < {self.r.randrange(1, 6)} and ({self.test()}):")
            self.line(depth + 1, f"{k} += 1")
        elif how == 1:
            ends = f"{self.r.randrange(6)}, {self.r.randrange(-2, 4)}, -{self.r.randrange(1, 3)}"
            self.line(depth, f"for {k} in range({ends}):")
        else:
            self.line(depth, f"for {k} in range({self.r.choice(('x[1] % 5', '4', '7', 'n'))}):")
        if how != 0:
            self.line(
                depth + 1, f"a += x[{k} * 5 % n] + i32({k})" if how == 2 else f"a += i32({k})"
            )
        self.block(depth + 1, True, 3)
        self.loops -= 1


def body_of(seed: int, tiles: bool) -> list[str]:
    """The lines of a body; deterministic."""
    made = _Body(seed, tiles)
    made.block(0, False, 6)
    return made.lines


HEAD = ["a = x[0]", "b = x[1] + 1", "c = x[2] - x[3]"]


def kernel_text(name: str, body: Sequence[str], tiles: bool) -> str:
    head = [*HEAD, f"t = op.full(({WIDTH},), 1, i32)"] if tiles else HEAD
    lines = "\n".join(f"    {line}" for line in [*head, *body, "out[4] = a + b * 7 + c * 31"])
    if tiles:
        return f"@op.kernel\ndef {name}({GIVEN}):\n{lines}\n"
    return f"@kernel tile[(1,)] grid[(1,)]\ndef {name}(x: i32[n], out: mut i32[5]):\n{lines}\n"


GIVEN = f"x: i32[n], out: mut i32[5], tiles: mut i32[4, {WIDTH}]"
GIVES = "return a + c, t"


def called_text(name: str, body: Sequence[str]) -> str:
    """The body as a function that gives a number and a tile wherever it is left."""
    head = [*HEAD, f"t = op.full(({WIDTH},), 1, i32)"]
    lines = "".join(f"    {line}\n" for line in [*head, *_giving(body)])
    function = f"def {name}_body({GIVEN}):\n{lines}"
    call = f"    number, tile = {name}_body(x, out, tiles)\n"
    after = "    out[4] = number\n    tiles[3, :] = tile\n"
    return f"{function}\n@op.kernel\ndef {name}({GIVEN}):\n{call}{after}"


def _giving(body: Sequence[str]) -> list[str]:
    return [*(line.replace("return", GIVES) for line in body), GIVES]


class _Number(int):
    """An i32: arithmetic wraps, as the programs' does."""

    def _made(self, value: int) -> _Number:
        return _Number((value + (1 << 31)) % (1 << 32) - (1 << 31))

    def __add__(self, other: Any) -> Any:
        return self._made(int(self) + other)

    def __sub__(self, other: Any) -> Any:
        return self._made(int(self) - other)

    def __rsub__(self, other: Any) -> Any:
        return self._made(other - int(self))

    def __mul__(self, other: Any) -> Any:
        return self._made(int(self) * other)

    def __mod__(self, other: Any) -> Any:
        return self._made(int(self) % other)

    __radd__, __rmul__ = __add__, __mul__


class _Array:
    def __init__(self, value: Array) -> None:
        self.value = value

    def __getitem__(self, at: int) -> Any:
        return _Number(int(self.value[at]))

    def __setitem__(self, at: Any, value: Any) -> None:
        self.value[at] = value.value if isinstance(value, _Tile) else value


class _Tile:
    """A tile of i32."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value).astype(np.int32)

    def __add__(self, other: int) -> _Tile:
        return _Tile(self.value.astype(np.int64) + int(other))

    def __mul__(self, other: int) -> _Tile:
        return _Tile(self.value.astype(np.int64) * int(other))

    def __mod__(self, other: int) -> _Tile:
        return _Tile(self.value.astype(np.int64) % int(other))


class _Op:
    @staticmethod
    def full(shape: tuple[int, ...], value: int, dtype: object) -> _Tile:
        return _Tile(np.full(shape, value))

    @staticmethod
    def max(tile: _Tile) -> _Number:
        return _Number(int(tile.value.max()))


ITERATIONS = 20_000  # of all loops of one body; the most that one of 2000 bodies takes is 8796


def _counted(lines: Sequence[str]) -> list[str]:
    """The lines with a call of ``iteration`` at the head of every loop's body."""
    made: list[str] = []
    for line in lines:
        made.append(line)
        if line.lstrip().startswith(("for ", "while ")):
            made.append(f"{' ' * (len(line) - len(line.lstrip()) + 4)}iteration()")
    return made


class _Iterations:
    def __init__(self) -> None:
        self.left = ITERATIONS

    def __call__(self) -> None:
        self.left -= 1
        assert self.left, f"this body takes more than {ITERATIONS} iterations"


def ran_by_python(
    body: Sequence[str], x: Array, tiles: bool, called: bool = False
) -> tuple[Array, Array]:
    """What a body leaves in ``out`` and ``tiles``; an AssertionError if it does not end."""
    out, kept = np.zeros(5, np.int32), np.zeros((4, WIDTH), np.int32)
    head = [*HEAD, f"t = op.full(({WIDTH},), 1, i32)"] if tiles else HEAD
    rest = _giving(body) if called else [*body, "out[4] = a + b * 7 + c * 31"]
    lines = "\n".join(f"    {line}" for line in _counted([*head, *rest]))
    names: dict[str, Any] = {
        "x": _Array(x), "out": _Array(out), "tiles": _Array(kept), "n": len(x), "op": _Op,
        "i32": _Number, "iteration": _Iterations(),
    }  # fmt: skip
    exec(compile(f"def f():\n{lines}\n", "<program>", "exec"), names)
    with np.errstate(all="ignore"):
        given = names["f"]()
    if called:
        out[4], kept[3, :] = int(given[0]), given[1].value
    return out, kept
