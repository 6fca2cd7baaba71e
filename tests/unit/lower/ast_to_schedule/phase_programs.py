"""Random kernels of several loops that read what others wrote, as text that Python runs too.

Numbers are small whole ones, so that f32 is exact. What NumPy makes of the statements, one after
the other, is what a call has to leave in the arrays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

N = 96
ARRAYS = "abc"
Array = np.ndarray[Any, np.dtype[np.float32]]


class _Program:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = ["s: f32 = 1.0"]
        self.tiles = 0

    def array(self) -> str:
        return self.r.choice(ARRAYS)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def nest(self, *body: str, head: str | None = None) -> None:
        step = self.r.choice((16, 32))
        self.line(head or f"for i in op.tile_range({N}, step={step}):")
        self.lines += [f"    {x}" for x in body] if head else [
            "    " + x.replace("S", str(step)) for x in body]  # fmt: skip

    # --- statements -----------------------------------------------------------------------------

    def side_by_side(self) -> None:
        x, y, z = self.array(), self.array(), self.array()
        self.nest(f"{x}[i:i+S] = {y}[i:i+S] + {z}[i:i+S]")

    def with_number(self) -> None:
        x, y = self.array(), self.array()
        self.nest(f"{x}[i:i+S] = {y}[i:i+S] - s")

    def of_another_place(self) -> None:
        x, y = self.array(), self.array()
        at = 16 * self.r.randrange(5)
        self.nest(f"{x}[i:i+S] = min({y}[{at}:{at}+S], 9.0)")

    def summed(self) -> None:
        self.line(f"s = op.{self.r.choice(('max', 'min'))}({self.array()})")

    def whole(self) -> None:
        x, y = self.r.sample(ARRAYS, 2)
        self.line(f"{x}[:] = {y} + op.max({y}) - op.min({y})")

    def element(self) -> None:
        self.line(f"{self.array()}[{self.r.randrange(N)}] = {self.r.choice(('s', '3.0'))}")

    def read(self) -> None:
        self.line(f"s = {self.array()}[{self.r.randrange(N)}]")

    def carried(self) -> None:
        t = f"t{self.tiles}"
        self.tiles += 1
        x, y = self.array(), self.array()
        self.line(f"{t} = op.zeros((16,), f32)")
        self.line(f"for i in range(0, {N}, 16):")
        self.line(f"    {t} = max({t}, {x}[i:i+16])")
        if self.r.random() < 0.5:
            self.line(f"    {y}[i:i+16] = {t}")
        self.line(f"for i in range(0, {N}, 16):")
        self.line(f"    {self.array()}[i:i+16] = {self.array()}[i:i+16] + {t}")

    def guarded(self) -> None:
        x, y = self.array(), self.array()
        self.line(f"if s > {self.r.randrange(4)}.0:")
        self.line(f"    for i in op.tile_range({N}, step=32):")
        self.line(f"        {x}[i:i+32] = {y}[i:i+32] * 2.0")

    def bounded(self) -> None:
        """So that numbers stay small."""
        x = self.array()
        self.nest(f"{x}[i:i+S] = max(min({x}[i:i+S], 50.0), -50.0)")


_KINDS: tuple[tuple[Callable[[_Program], None], int], ...] = (
    (_Program.side_by_side, 3), (_Program.with_number, 3), (_Program.of_another_place, 3),
    (_Program.summed, 2), (_Program.whole, 1), (_Program.element, 1), (_Program.read, 1),
    (_Program.carried, 2), (_Program.guarded, 1), (_Program.bounded, 1),
)  # fmt: skip


def body_of(seed: int) -> list[str]:
    """The lines of a body; deterministic."""
    made = _Program(seed)
    kinds, weights = zip(*_KINDS, strict=True)
    for _ in range(made.r.randint(3, 8)):
        made.r.choices(kinds, weights)[0](made)
    made.line(f"c[{N - 1}] = s")
    return made.lines


def kernel_text(name: str, body: list[str]) -> str:
    given = ", ".join(f"{x}: mut f32[{N}]" for x in ARRAYS)
    return f"@op.kernel\ndef {name}({given}):\n" + "".join(f"    {x}\n" for x in body)


class _Op:
    max = staticmethod(np.max)
    min = staticmethod(np.min)

    @staticmethod
    def zeros(shape: tuple[int, ...], dtype: Any) -> Array:
        return np.zeros(shape, np.dtype(dtype))

    @staticmethod
    def tile_range(n: int, step: int) -> range:
        return range(0, n, step)


def _extreme(of: Any) -> Callable[..., Any]:
    def made(a: Any, b: Any) -> Any:
        return of(a, np.float32(b) if isinstance(b, float) else b)

    return made


def ran_by_python(body: list[str], arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays as the statements leave them."""
    after = {k: v.copy() for k, v in arrays.items()}
    names: dict[str, Any] = {
        **after, "op": _Op, "f32": np.float32, "max": _extreme(np.maximum),
        "min": _extreme(np.minimum),
    }  # fmt: skip
    lines = "".join(f"    {line}\n" for line in body)
    given = ", ".join(ARRAYS)
    exec(compile(f"def f({given}):\n{lines}", "<program>", "exec"), names)
    names["f"](*after.values())
    return after
