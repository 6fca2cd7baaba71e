"""Random expressions of whole arrays: broadcasts written out, reductions, parts, transposes.

    python -m tests.fuzz.tile_expressions --from 0 --count 200 [--as sm_90a]

Numbers are small integers, so every order of operations gives the same bits; NumPy says which.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Any

import numpy as np

import tessera_lang as tessera
from tessera_lang.record import dataclass

Array = np.ndarray[Any, np.dtype[Any]]
Made = tuple[str, Array]
_PAIRS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply,
                          "min": np.minimum, "max": np.maximum}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    source: str
    arguments: tuple[Array, ...]
    right: Array


class Maker:
    """One random expression and its value."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        m, n, p = (self.r.choice([2, 3, 5, 8, 17, 33]) for _ in "mnp")
        numbers = np.random.default_rng(seed)
        shapes: dict[str, tuple[int, ...]] = {
            "x": (m, n), "y": (n,), "z": (m,), "s": (), "w": (p, m, n)
        }  # fmt: skip
        self.arrays: dict[str, Array] = {
            name: np.asarray(numbers.integers(-3, 4, shape), np.float32)
            for name, shape in shapes.items()
        }
        self.used: set[str] = set()

    def case(self) -> Case:
        text, right = self.of(self.r.choice([2, 3, 4]))
        names = sorted(self.used)
        source = f"@op.kernel\ndef f({', '.join(names)}):\n    return {text} + 0.0\n"
        return Case(source, tuple(self.arrays[n] for n in names), right)

    def of(self, depth: int) -> Made:
        if depth == 0:
            return self._leaf()
        kind = self.r.choices(["pair", "one", "reduce", "where", "turn"], [40, 15, 25, 10, 10])[0]
        if kind == "pair":
            return self._pair(self.of(depth - 1), self.of(depth - 1))
        text, v = self.of(depth - 1)
        if kind == "reduce" and v.ndim:
            name, axis = self.r.choice(["sum", "max", "min"]), self.r.randrange(v.ndim)
            whole = np.asarray(getattr(v, name)(axis=axis), np.float32)
            return f"op.{name}({text}, axis={axis})", whole
        if kind == "where":
            return f"op.where({text} > 0.0, {text}, 1.0)", np.where(v > 0, v, np.float32(1))
        if kind == "turn" and v.ndim == 2:
            return f"({text}).T", v.T
        return f"(-abs({text}))", -np.abs(v)

    def _leaf(self) -> Made:
        name = self.r.choice("xxyzsw")
        self.used.add(name)
        v, roll = self.arrays[name], self.r.random()
        if v.ndim == 2 and roll < 0.3:
            return f"{name}.T", v.T
        if v.ndim == 3 and roll < 0.2:
            return f"{name}.mT", v.swapaxes(1, 2)
        if v.ndim and roll < 0.4:
            return f"{name}[0]", np.asarray(v[0])
        return name, v

    def _pair(self, a: Made, b: Made) -> Made:
        if a[1].ndim and b[1].ndim:
            rank = max(a[1].ndim, b[1].ndim)
            a, b = self._raised(a, rank), self._raised(b, rank)
            fits = all(
                n == k or (n == 1 and "None" in a[0]) or (k == 1 and "None" in b[0])
                for n, k in zip(a[1].shape, b[1].shape, strict=True)
            )
            if not fits:
                return a
        name = self.r.choice(list(_PAIRS))
        text = f"{name}({a[0]}, {b[0]})" if len(name) > 1 else f"({a[0]} {name} {b[0]})"
        return text, np.asarray(_PAIRS[name](a[1], b[1]))

    def _raised(self, a: Made, rank: int) -> Made:
        """New axes in front or behind, one at a time."""
        text, v = a
        while v.ndim < rank:
            axes = [":"] * v.ndim
            front = self.r.random() < 0.5
            axes.insert(0 if front else v.ndim, "None")
            text = f"({text})[{', '.join(axes)}]"
            v = v[None] if front else v[..., None]
        return text, v


def fault(seed: int) -> str:
    """What is wrong with what a case gives; empty where nothing is. A refusal in the user's words
    (sizes that only happen to be 1) is none."""
    case = Maker(seed).case()
    try:
        found = np.asarray(tessera.compile(case.source, target="cpu").f(*case.arguments))
    except tessera.TesseraError as error:
        ours = [d for d in error.diagnostics if d.code.startswith("T09")]
        return f"{case.source}{error}" if ours else ""
    if found.shape == case.right.shape and np.array_equal(found, case.right):
        return ""
    return f"{case.source}gives {found}, not {case.right}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--as", default="", dest="arch")
    given = parser.parse_args()
    os.environ["TESSERA_ARCH_AS"] = given.arch
    for seed in range(given.first, given.first + given.count):
        if said := fault(seed):
            print(f"seed {seed}: {said}", flush=True)


if __name__ == "__main__":
    main()
