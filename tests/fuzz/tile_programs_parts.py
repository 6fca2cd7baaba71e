"""The parts of random tile programs: parameters, operands of products, element-wise work.

Must not know how programs are put together of them, or what they compute.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Axis:
    """An axis of the program: the name of its size, the variable that walks it, its tile.

    ``tile`` 0: the axis is taken whole."""

    size: str
    var: str
    tile: int

    @property
    def slice(self) -> str:
        return f"{self.var}:{self.var}+{self.tile}" if self.tile else ":"


@dataclass(frozen=True)
class Parameter:
    """An array. ``kind``: values (numbers around 0), rows (numbers below the size ``of``),
    count (up to the size ``of``), flag (0 or 1), scale (0.25 to 1), blocks (numbers of tiles, of
    ``size/tile``)."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    kind: str = "values"
    of: str = ""
    mut: bool = False


@dataclass
class TileProgram:
    """A kernel: its parameters, its body, the axes, and what it is made of, in words."""

    seed: int
    parameters: list[Parameter] = field(default_factory=list[Parameter])
    body: list[str] = field(default_factory=list[str])
    axes: dict[str, Axis] = field(default_factory=dict[str, Axis])
    words: list[str] = field(default_factory=list[str])
    dtype: str = "f32"
    products: int = 0

    def text(self, name: str = "kernel") -> str:
        given = ", ".join(
            f"{p.name}: {'mut ' if p.mut else ''}{p.dtype}[{', '.join(p.dims)}]"
            for p in self.parameters
        )
        lines = [f"    {line}" for line in self.body]
        return "\n".join(["@op.kernel", f"def {name}({given}):", *lines]) + "\n"


TILES = (16, 32, 64, 64, 64, 128, 128, 24, 40, 48, 80, 96)
DEPTHS = (16, 32, 32, 64, 64, 64, 24, 48, 80)


EXITS_FROM = 1000
"""Programs from this seed on also have loops that are left early, or walk over listed tiles."""


class Operands:
    """Writes the text of one program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.p = TileProgram(seed)
        self.depth = 0
        self.batch: Axis | None = None
        self.names = 0
        self.exits = seed >= EXITS_FROM

    # --- text --------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.p.body.append("    " * self.depth + text)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def word(self, word: str) -> None:
        if word not in self.p.words:
            self.p.words.append(word)

    def array(
        self,
        dtype: str,
        dims: tuple[str, ...],
        kind: str = "values",
        of: str = "",
        mut: bool = False,
    ) -> str:
        name = self.name({"values": "A", "rows": "rows", "count": "count"}.get(kind, "S"))
        self.p.parameters.append(Parameter(name, dtype, dims, kind, of, mut))
        return name

    def axis(self, size: str, var: str, tile: int) -> Axis:
        made = Axis(size, var, tile)
        self.p.axes[size] = made
        return made

    # --- operands ----------------------------------------------------------------------------

    def read(self, dtype: str, *axes: Axis, batched: bool = True, kind: str = "values") -> str:
        """A slice of a new array along these axes."""
        where, dims = [a.slice for a in axes], tuple(a.size for a in axes)
        if self.batch and batched:
            where, dims = [self.batch.var, *where], (self.batch.size, *dims)
        return f"{self.array(dtype, dims, kind)}[{', '.join(where)}]"

    def matrix(self, rows: Axis, columns: Axis, dtype: str, simple: bool = False) -> str:
        """A tile of these axes as an operand of a product."""
        choices: list[tuple[Callable[[Axis, Axis, str], str], int]] = [
            (lambda r, c, t: self.read(t, r, c), 4),
            (self.transposed, 4),
        ]
        if not simple:
            choices += [(self.gathered, 1), (self.computed, 2), (self.staged, 2)]
            if dtype in ("f16", "bf16"):
                choices.append((self.dequantized, 2))
        makers, weights = zip(*choices, strict=True)
        return self.r.choices(makers, weights)[0](rows, columns, dtype)

    def transposed(self, rows: Axis, columns: Axis, dtype: str) -> str:
        self.word("transposed")
        return f"{self.read(dtype, columns, rows)}.T"

    def gathered(self, rows: Axis, columns: Axis, dtype: str) -> str:
        if self.batch or not rows.tile:
            return self.read(dtype, rows, columns)
        self.word("gathered")
        if self.r.random() < 0.3 and columns.tile:
            index = self.array("i32", (columns.size,), "rows", "g")
            data = self.array(dtype, ("g", rows.size))
            return f"{data}[{index}[{columns.slice}], {rows.slice}].T"
        index = self.array("i32", (rows.size,), "rows", "g")
        data = self.array(dtype, ("g", columns.size))
        return f"{data}[{index}[{rows.slice}], {columns.slice}]"

    def dequantized(self, rows: Axis, columns: Axis, dtype: str) -> str:
        self.word("dequantized")
        turned = self.r.random() < 0.3
        r, c = (columns, rows) if turned else (rows, columns)
        codes = self.read("i8", r, c)
        scale_dtype = self.r.choice((dtype, "f32"))
        along = self.r.choice(("rows", "columns", "one"))
        if along == "rows":
            scale = f"{self.read(scale_dtype, r, batched=False, kind='scale')}[:, None]"
        elif along == "columns":
            scale = f"{self.read(scale_dtype, c, batched=False, kind='scale')}[None, :]"
        else:
            scale = "0.0625"
        wide = self.r.choice((dtype, "f32")) if along != "one" else dtype
        text = f"({codes}.to({wide}) * {scale})"
        return f"{text}.T" if turned else text

    def computed(self, rows: Axis, columns: Axis, dtype: str) -> str:
        self.word("computed")
        x = self.matrix(rows, columns, dtype, simple=True)
        how = self.r.randrange(6) if dtype != "i8" else self.r.choice((0, 1, 2, 3))
        if how == 0:
            return f"({x} * {self.matrix(rows, columns, dtype, simple=True)})"
        if how == 1:
            return f"op.relu({x})"
        if how == 2:
            return f"({x} + {self.read(dtype, columns, batched=False)}[None, :])"
        if how == 3:
            return f"({x} * {self.read(dtype, rows, batched=False)}[:, None])"
        if how == 4:
            return f"op.tanh({x})"
        return f"(1.0 - {x})" if dtype != "i8" else x

    def staged(self, rows: Axis, columns: Axis, dtype: str) -> str:
        if not rows.tile or not columns.tile:
            return self.read(dtype, rows, columns)
        self.word("buffer")
        turned = self.r.random() < 0.3
        r, c = (columns, rows) if turned else (rows, columns)
        buffer = self.name("buf")
        self.p.body.insert(0, f"{buffer} = op.shared(({r.tile}, {c.tile}), dtype={dtype})")
        value = self.read(dtype, r, c)
        if self.r.random() < 0.5:
            self.line(f"{buffer}[:] = {value}")
        else:
            self.line(f"op.prefetch({buffer}, {value})")
            if self.r.random() < 0.5:
                self.line("op.barrier()")
        return f"{buffer}.T" if turned else buffer

    # --- element-wise ------------------------------------------------------------------------

    def touched(self, value: str, rows: Axis, columns: Axis, most: int = 2) -> str:
        """Zero and more element-wise operations on a tile of f32."""
        for _ in range(self.r.randrange(most + 1)):
            self.word("element-wise")
            how = self.r.randrange(9)
            if how == 0:
                value = f"op.relu({value})"
            elif how == 1:
                value = f"op.tanh({value})"
            elif how == 2:
                value = f"({value} * 0.5)"
            elif how == 3:
                value = f"({value} + {self.read(self.narrow(), columns, batched=False)}[None, :])"
            elif how == 4:
                value = f"({value} * {self.read('f32', rows, batched=False)}[:, None])"
            elif how == 5:
                value = f"({value} + {self.read(self.narrow(), rows, columns)})"
            elif how == 6:
                value = f"op.sigmoid({value})"
            elif how == 7:
                value = f"min({value}, 1.5)"
            else:
                value = f"max({value}, {self.read('f32', rows, columns)})"
        return value

    def narrow(self) -> str:
        return self.r.choice(("f32", self.p.dtype)) if self.p.dtype != "i8" else "f32"
