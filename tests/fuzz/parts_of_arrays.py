"""Random statements that work element by element on parts of arrays, in a tile kernel.

    python -m tests.fuzz.parts_of_arrays --from 0 --count 200 [--target cuda | --as sm_90a]

An axis of what is written, and of what is read for it, is taken whole, by a slice with bounds that
are numbers or sizes, in steps, reversed, by a number, or is stretched; arrays have rank 1 to 5 and
sizes that are names or numbers. The statement is a store or a sum, alone or in a loop over one
axis, and a part may have a name first. NumPy runs the same text.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np

import tessera_lang as tessera
from tessera_lang.driver.commands.kernel_selection import target_options
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import TileType
from tessera_lang.opt.schedule.query.kernel_facts import Estimate, facts_of, kernel_of
from tessera_lang.record import dataclass, field
from tests import on_device
from tests.run.emitted import signature_of_a_launch
from tests.run.emitted_cases import TileCase

Array = np.ndarray[Any, np.dtype[Any]]
_SMALL = (1, 2, 3, 5, 8, 17, 33, 64, 100)
_LARGE = (1, 3, 8, 33, 64, 130, 250, 1000)
_MOST = {False: 3_000, True: 1_000_000}  # elements of what is written


@dataclass(frozen=True, slots=True)
class Program:
    seed: int
    source: str
    signature: str
    statements: str  # what NumPy runs
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]

    def arguments(self) -> dict[str, Array]:
        """The result, and what it is made of: small whole numbers."""
        r = np.random.default_rng(self.seed)
        return {
            name: r.integers(-4, 5, shape).astype(np.dtype(self.dtypes[name]))
            for name, shape in self.shapes.items()
        }

    def right(self, arguments: dict[str, Array]) -> Array:
        """What NumPy makes of ``y``."""
        given = {name: a.copy() for name, a in arguments.items()}
        exec(self.statements, {"np": np, **given, **self._sizes()}, given)
        return given["y"]

    def stored(self) -> int:
        """Elements of the array that is written."""
        return math.prod(self.shapes["y"])

    def typed(self) -> str:
        """The signature with the sizes of a call."""
        names = {"float32": "f32", "int32": "i32", "float16": "f16"}
        return ", ".join(
            f"{name}: {names[self.dtypes[name]]}[{', '.join(map(str, shape))}]"
            for name, shape in self.shapes.items()
        )

    def _sizes(self) -> dict[str, int]:
        return {
            text: size
            for name, dims in _dims(self.signature).items()
            for text, size in zip(dims, self.shapes[name], strict=True)
            if not text.isdigit()
        }


def _dims(signature: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in signature.split("; "):
        name, _, rest = part.partition(": ")
        found[name] = rest[rest.index("[") + 1 : -1].split(", ")
    return found


@dataclass(slots=True)
class _Source:
    """An array that is read: an item for each of its axes, and their sizes."""

    name: str
    items: list[str] = field(default_factory=list[str])
    dims: list[str] = field(default_factory=list[str])
    sizes: list[int] = field(default_factory=list[int])


def _text(s: _Source, calls: bool) -> str:
    """The part of an array; axes are reversed by ``::-1`` or by ``calls``."""
    if not calls:
        return f"{s.name}[{', '.join(s.items)}]"
    slices = [item for item in s.items if ":" in item]
    part = f"{s.name}[{', '.join(':' if item == '::-1' else item for item in s.items)}]"
    for axis in (i for i, item in enumerate(slices) if item == "::-1"):
        part = f"op.flip({part}, {axis})"
    return part


@dataclass(slots=True)
class Maker:
    seed: int
    large: bool = False
    r: random.Random = field(default_factory=random.Random)
    sizes: dict[str, int] = field(default_factory=dict[str, int])

    def program(self) -> Program:
        r = self.r = random.Random(self.seed)
        rank = r.choice([1, 2, 2, 2, 3, 3, 4, 5])
        named = r.random() < 0.6
        shape = self._shape(rank)
        dims = [self._dim(n, i, named) for i, n in enumerate(shape)]
        y = _Source("y", [], dims, shape)
        sources = [_Source(name) for name in "xz"[: r.choice([1, 1, 2])]]
        loop = r.randrange(rank) if r.random() < 0.35 else -1
        step = r.choice([1, 8, 64] if self.large else [1, 3, 8, 64])
        for axis in range(rank):
            self._axis(axis, y, sources, loop == axis, step)
        self._more_axes(y, sources)
        return self._written(y, sources, loop, step)

    def _shape(self, rank: int) -> list[int]:
        choices = _LARGE if self.large else _SMALL
        while True:
            shape = [self.r.choice(choices) for _ in range(rank)]
            if math.prod(shape) <= _MOST[self.large]:
                return shape

    def _dim(self, size: int, axis: int, named: bool) -> str:
        if not named or size < 3:
            return str(size)
        name = "abcde"[axis]
        self.sizes[name] = size
        return name

    def _axis(self, axis: int, y: _Source, sources: list[_Source], looped: bool, step: int) -> None:
        r, size, dim = self.r, y.sizes[axis], y.dims[axis]
        if looped:
            y.items.append(f"i:i+{step}")
            for s in sources:
                s.items.append(f"i:i+{step}")
                s.dims.append(dim)
                s.sizes.append(size)
            return
        here, forms = self._forms(size, dim)
        y.items.append(here)
        for s in sources:
            item, text, n = r.choice(forms)
            if r.random() < 0.12 and len(y.items) > 1:
                item, text, n = "0:1", "1", 1  # stretched
            s.items.append(item)
            s.dims.append(text)
            s.sizes.append(n)

    def _forms(self, n: int, dim: str) -> tuple[str, list[tuple[str, str, int]]]:
        """An item of what is written, and items of as many elements with sizes of their axes."""
        r = self.r
        minus = f"{dim}-1" if not dim.isdigit() else str(n - 1)
        every = [(":", dim, n), (f"0:{dim}", dim, n), ("::1", dim, n), ("::-1", dim, n)]
        kinds = ["whole"] * 4 + ["tail", "head", "steps", "number"] * (n > 4)
        match r.choice(kinds):
            case "tail":
                return "1:", [("1:", dim, n), (f"0:{minus}", dim, n), (f":{minus}", dim, n)]
            case "head":
                return f":{minus}", [("1:", dim, n), (f"0:{minus}", dim, n)]
            case "steps":
                step = r.choice([2, 3])
                whole = -(-n // step)
                return f"::{step}", [(f"::{step}", dim, n), (f"0:{dim}:{step}", dim, n),
                                     (":", str(whole), whole)]  # fmt: skip
            case "number":
                return "1:4", [("1:4", dim, n), ("0:3", dim, n), (":", "3", 3), ("::-1", "3", 3)]
            case _:
                return r.choice([":", ":", f"0:{dim}", "0:"]), every

    def _more_axes(self, y: _Source, sources: list[_Source]) -> None:
        """Axes of one place, by a number."""
        for s in (y, *sources):
            while self.r.random() < 0.2 and len(s.items) < 5:
                at, size = self.r.randrange(len(s.items) + 1), self.r.choice([1, 2, 4])
                s.items.insert(at, str(self.r.randrange(size)))
                s.dims.insert(at, str(size))
                s.sizes.insert(at, size)

    def _written(self, y: _Source, sources: list[_Source], loop: int, step: int) -> Program:
        r = self.r
        dtype = r.choice(["f32", "f32", "i32", "f16"])
        place = f"y[{', '.join(y.items)}]"
        parts = [_text(s, r.random() < 0.5) for s in sources]
        before = ""
        if r.random() < 0.3:
            before, parts[0] = f"t = {parts[0]}\n", "t"
        a, b = parts[0], parts[-1]
        value = r.choice([a, f"{a} * 2", f"{a} + {b}", f"({a} - {b}) * {a}",
                          f"op.where({a} > 0, {b}, {a})"])  # fmt: skip
        kind = r.choice(["=", "=", "=", "+="])
        text = f"{before}{place} {kind} {value}\n"
        plain = text.replace("op.where", "np.where").replace("op.flip", "np.flip")
        if loop >= 0:
            axis = next(i for i, item in enumerate(y.items) if item.startswith("i:"))
            bound = y.dims[axis]
            body = "".join(f"    {line}\n" for line in text.splitlines())
            text = f"for i in op.tile_range({bound}, step={step}):\n{body}"
            body = "".join(f"    {line}\n" for line in plain.splitlines())
            plain = f"for i in range(0, {bound}, {step}):\n{body}"
        arrays = {s.name: s for s in (*sources, y)}
        signature = "; ".join(f"{n}: {dtype}[{', '.join(s.dims)}]" for n, s in arrays.items())
        shown = ", ".join(
            f"{n}: {'mut ' * (n == 'y')}{dtype}[{', '.join(s.dims)}]" for n, s in arrays.items()
        )
        body = "".join(f"    {line}\n" for line in text.splitlines())
        source = f"@op.kernel\ndef f({shown}):\n{body}"
        shapes = {n: tuple(s.sizes) for n, s in arrays.items()}
        numpy = {"f32": "float32", "i32": "int32", "f16": "float16"}[dtype]
        return Program(self.seed, source, signature, plain, shapes, dict.fromkeys(arrays, numpy))


def program(seed: int, *, large: bool = False) -> Program:
    return Maker(seed, large).program()


def tried(seed: int, target: str = "cpu") -> tuple[str, str]:
    """What became of a program ("right", "wrong", "refused" by which codes), and what is to be
    said of it."""
    made = program(seed)
    given = made.arguments()
    right = made.right(given)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = tessera.compile(made.source, target=target)
            on_device.call(module.f, list(given.values()), target)
    except tessera.TesseraError as error:
        codes = ",".join(sorted({d.code for d in error.diagnostics}))
        return f"refused {codes}", f"{made.source}{error}"
    if not np.array_equal(given["y"], right):
        at = tuple(int(i) for i in np.argwhere(given["y"] != right)[0])
        return "wrong", f"{made.source}{given['y'][at]} at {at}, not {right[at]}"
    return "right", ""


@dataclass(frozen=True, slots=True)
class Divided:
    """What is told of the code (codes and messages), and of each launch the groups and the
    elements of the largest tile that a group stores."""

    told: tuple[str, ...]
    launches: tuple[tuple[int, int], ...]


def divided(made: Program, arch: str) -> Divided:
    """How a program is divided over a GPU."""
    session = Session(overlay={"given.tessera": made.source})
    case = TileCase("", "f", made.typed(), text=made.source)
    signature = signature_of_a_launch(session, "given.tessera", case, arch)
    machine = session.machine("cuda", arch)
    launches: list[tuple[int, int]] = []
    for launch in session.for_machine("given.tessera", "f", signature, machine).launches:
        facts = facts_of(kernel_of(launch.schedule))
        grid = facts.grid
        groups = 1 if grid is None else Estimate(facts, {}).trips(grid)
        stored = [o.operands[0].type for o, _ in facts.stores]
        elements = max(math.prod(t.sizes) if isinstance(t, TileType) else 1 for t in stored)
        launches.append((groups or 1, elements))
    options = target_options("cuda", arch)
    first = session.compile_kernel("given.tessera", "f", signature, options, ("ptx",))
    told = [
        f"{d.code}: {d.message}" for a in (first, *first.then) for d in a.diagnostics
        if d.code in ("T0706", "T0747", "T0881")
    ]  # fmt: skip
    return Divided(tuple(told), tuple(launches))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--as", default="", dest="arch")
    given = parser.parse_args()
    os.environ["TESSERA_ARCH_AS"] = given.arch
    counts: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        what, said = tried(seed, given.target)
        counts[what] += 1
        if what != "right":
            print(f"seed {seed}, {what}: {said}", flush=True)
    print(dict(counts.most_common()))
    return int(any(what != "right" for what in counts))


if __name__ == "__main__":
    sys.exit(main())
