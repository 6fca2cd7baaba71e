"""Random tile programs: one to three products, whatever is read, computed and looped around them.

Makes the text of a kernel and says what its parameters are. What the text computes is another
module's; which pass serves it is nobody's here.
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
    count (up to the size ``of``), flag (0 or 1), scale (0.25 to 1)."""

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
SMALL = (8, 16, 24, 32)


class Tiles:
    """Writes the text of one program."""

    def __init__(self, seed: int, plain: bool = False) -> None:
        self.r = random.Random(seed)
        self.p = TileProgram(seed)
        self.depth = 0
        self.batch: Axis | None = None
        self.names = 0
        self.plain = plain

    # --- text --------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.p.body.append("    " * self.depth + text)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def word(self, word: str) -> None:
        if word not in self.p.words:
            self.p.words.append(word)

    def array(self, dtype: str, dims: tuple[str, ...], kind: str = "values", of: str = "", mut: bool = False) -> str:
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
        how = self.r.randrange(6)
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
        return f"(1.0 - {x})"

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

    # --- loops -------------------------------------------------------------------------------

    def contraction(self, k: Axis, rows: Axis) -> None:
        """The head of the loop over ``k``; the depth is one more afterwards."""
        how = self.r.choices(("tile", "range", "triangle", "data", "span"), (5, 3, 1.5, 1.5, 0.7))[0]
        if how in ("triangle", "data", "span") and not rows.tile:
            how = "range"
        if how == "tile":
            self.line(f"for {k.var} in op.tile_range({k.size}, step={k.tile}):")
        elif how == "range":
            self.line(f"for {k.var} in range(0, {k.size}, {k.tile}):")
        elif how == "triangle":
            self.word("triangular")
            self.line(f"for {k.var} in range(0, {rows.var} + {rows.tile}, {k.tile}):")
        elif how == "data":
            self.word("data-dependent")
            count = self.array(self.r.choice(("i32", "u16")), (rows.size,), "count", k.size)
            self.line(f"for {k.var} in range(0, {count}[{rows.var}], {k.tile}):")
        else:
            self.word("data-dependent")
            low = self.array("u16", (rows.size,), "count", k.size)
            count = self.array("u16", (rows.size,), "count", k.size)
            self.line(f"for {k.var} in range({low}[{rows.var}], {count}[{rows.var}], {k.tile}):")
        self.depth += 1

    def maybe_if(self, rows: Axis, k: Axis) -> int:
        """Perhaps a uniform condition; how much deeper it is now."""
        if self.r.random() > 0.15 or not rows.tile:
            return 0
        self.word("if")
        how = self.r.randrange(3)
        if how == 0:
            flag = self.array("i32", (rows.size,), "flag")
            self.line(f"if {flag}[{rows.var}] > 0:")
        elif how == 1 and k.tile:
            self.line(f"if {k.var} <= {rows.var}:")
        else:
            self.line(f"if {rows.var} % {2 * rows.tile} == 0:")
        self.depth += 1
        return 1

    def grid(self, *axes: Axis) -> int:
        """The heads of the loops over the result; how deep they are."""
        axes = (self.batch, *axes) if self.batch else axes
        if self.r.random() < 0.75:
            names = ", ".join(a.var for a in axes)
            sizes = ", ".join(a.size for a in axes)
            steps = ", ".join(str(a.tile or 1) for a in axes)
            step = steps if len(axes) == 1 else f"({steps})"
            self.line(f"for {names} in op.tile_range({sizes}, step={step}):")
            self.depth += 1
            return 1
        for a in axes:
            self.line(f"for {a.var} in range(0, {a.size}, {a.tile or 1}):")
            self.depth += 1
        return len(axes)

    # --- the whole ---------------------------------------------------------------------------

    def program(self) -> TileProgram:
        self.p.dtype = self.r.choices(("f32", "f16", "bf16", "i8"), (3, 3, 4, 1))[0]
        if self.r.random() < 0.2:
            self.batch = self.axis("nb", "z", 1)
            self.word("batch")
        kinds = [
            (self.single, 4), (self.independent, 2), (self.summed, 2.5), (self.chained, 3),
            (self.behind, 2), (self.gated, 1), (self.whole, 1.5), (self.rows_only, 0.7),
            (self.split, 1),
        ]  # fmt: skip
        makers, weights = zip(*kinds, strict=True)
        self.r.choices(makers, weights)[0]()
        return self.p

    def result(self, dims: tuple[str, ...], dtype: str) -> tuple[str, bool]:
        """The name of an array to store into; whether it is to be returned."""
        dims = (self.batch.size, *dims) if self.batch else dims
        if self.r.random() < 0.5:
            self.line(f"out = op.empty(({', '.join(dims)}{',' if len(dims) == 1 else ''}), {dtype})")
            return "out", True
        name = self.name("O")
        self.p.parameters.append(Parameter(name, dtype, dims, "values", "", True))
        return name, False

    def at(self, *axes: Axis) -> str:
        where = [a.slice for a in axes]
        return ", ".join([self.batch.var, *where] if self.batch else where)

    def output_dtype(self) -> str:
        if self.p.dtype == "i8":
            return "i32"
        return self.r.choice((self.p.dtype, "f32"))

    def cast(self, value: str, dtype: str) -> str:
        return value if dtype in ("f32", "i32") else f"({value}).to({dtype})"

    def mnk(self) -> tuple[Axis, Axis, Axis]:
        m = self.axis("m", "i", self.r.choice(TILES))
        n = self.axis("n", "j", self.r.choice(TILES))
        k = self.axis("k", "p", self.r.choice(DEPTHS))
        return m, n, k

    def wide(self) -> str:
        return "i32" if self.p.dtype == "i8" else "f32"

    def product(self, acc: str, m: Axis, n: Axis, k: Axis) -> None:
        """A product into an accumulator, at this depth."""
        self.p.products += 1
        a = self.matrix(m, k, self.p.dtype)
        b = self.matrix(k, n, self.p.dtype)
        how = self.r.randrange(4)
        if how == 0:
            a1, b1 = self.name("a"), self.name("b")
            self.line(f"{a1} = {a}")
            self.line(f"{b1} = {b}")
            a, b = a1, b1
        product = f"op.matmul({a}, {b})" if how == 1 else f"{a} @ {b}"
        self.line(f"{acc} += {product}" if self.r.random() < 0.8 else f"{acc} = {acc} + {product}")

    def zeros(self, m: Axis, n: Axis, start: str = "") -> str:
        acc = self.name("acc")
        self.line(f"{acc} = op.zeros(({m.tile}, {n.tile}), {self.wide()})")
        return acc

    def finished(self, out: str, returned: bool, depth: int, value: str, dtype: str, *axes: Axis) -> None:
        self.line(f"{out}[{self.at(*axes)}] = {self.cast(value, dtype)}")
        self.depth -= depth
        if returned:
            self.line(f"return {out}")

    def epilogue(self, acc: str, m: Axis, n: Axis) -> str:
        if self.p.dtype == "i8":
            return acc if self.r.random() < 0.5 else f"({acc} + {self.read('i32', n, batched=False)}[None, :])"
        return self.touched(acc, m, n)

    def single(self) -> None:
        """acc += a @ b."""
        m, n, k = self.mnk()
        dtype = self.output_dtype()
        if self.r.random() < 0.2:
            return self.into_array(m, n, k, dtype)
        out, returned = self.result(("m", "n"), dtype)
        depth = self.grid(m, n)
        acc = self.zeros(m, n)
        around = self.maybe_if(m, Axis("", "", 0))
        self.contraction(k, m)
        inner = self.maybe_if(m, k)
        self.product(acc, m, n, k)
        self.depth -= 1 + inner + around
        value = self.epilogue(acc, m, n)
        if self.p.dtype != "i8" and self.r.random() < 0.2:
            self.word("reduction")
            how = self.r.choice(("op.sum", "op.max", "op.mean"))
            self.line(f"v = {value}")
            value = f"v - {how}(v, axis=1)[:, None]"
        self.finished(out, returned, depth, value, dtype, m, n)

    def into_array(self, m: Axis, n: Axis, k: Axis, dtype: str) -> None:
        """C[...] += a @ b over all three loops."""
        self.word("sum into an array")
        dims = (self.batch.size, "m", "n") if self.batch else ("m", "n")
        out = self.array(dtype, dims, mut=True)
        depth = self.grid(m, n, k)
        self.p.products += 1
        a, b = self.matrix(m, k, self.p.dtype), self.matrix(k, n, self.p.dtype)
        self.line(f"{out}[{self.at(m, n)}] += {a} @ {b}")
        self.depth -= depth

    def independent(self) -> None:
        """Two sums over one loop, joined in the end."""
        self.word("independent")
        m, n, k = self.mnk()
        dtype = self.output_dtype()
        out, returned = self.result(("m", "n"), dtype)
        depth = self.grid(m, n)
        x, y = self.zeros(m, n), self.zeros(m, n)
        self.contraction(k, m)
        inner = self.maybe_if(m, k)
        if self.r.random() < 0.5:
            self.p.products += 2
            self.line(f"a = {self.matrix(m, k, self.p.dtype)}")
            self.line(f"{x} += a @ {self.matrix(k, n, self.p.dtype)}")
            self.line(f"{y} += a @ {self.matrix(k, n, self.p.dtype)}")
        else:
            self.product(x, m, n, k)
            self.product(y, m, n, k)
        self.depth -= 1 + inner
        join = f"{x} * {y}" if self.p.dtype != "i8" else f"{x} + {y}"
        if self.p.dtype != "i8" and self.r.random() < 0.5:
            join = f"op.silu({x}) * {y}"
        self.finished(out, returned, depth, self.epilogue(f"({join})", m, n), dtype, m, n)

    def summed(self) -> None:
        """Several products into one accumulator: in one loop, or in loops one behind the other."""
        self.word("summed")
        m, n, k = self.mnk()
        l = self.axis("l", "q", self.r.choice(DEPTHS))
        dtype = self.output_dtype()
        out, returned = self.result(("m", "n"), dtype)
        depth = self.grid(m, n)
        acc = self.zeros(m, n)
        self.contraction(k, m)
        self.product(acc, m, n, k)
        if self.r.random() < 0.4:
            inner = self.maybe_if(m, k)
            self.product(acc, m, n, k)
            self.depth -= 1 + inner
            del self.p.axes["l"]
        else:
            self.depth -= 1
            around = self.maybe_if(m, Axis("", "", 0))
            self.contraction(l, m)
            self.product(acc, m, n, l)
            self.depth -= 1 + around
        self.finished(out, returned, depth, self.epilogue(acc, m, n), dtype, m, n)

    def chained(self) -> None:
        """What a product gives is an operand of the next one, in one loop."""
        self.word("chained")
        if self.p.dtype == "i8":
            self.p.dtype = "bf16"
        dtype = self.p.dtype
        m = self.axis("m", "i", self.r.choice(TILES))
        t = self.axis("k", "p", self.r.choice(TILES))
        d = self.axis("d", "x", 0)
        e = self.axis("e", "y", 0)
        last = self.output_dtype()
        out, returned = self.result(("m", "e"), last)
        depth = self.grid(m)
        q = ""
        if self.r.random() < 0.6:
            self.line(f"q = {self.matrix(m, d, dtype)}")
            q = "q"
        online = self.r.random() < 0.35
        if online:
            self.word("softmax")
            self.line(f"top = op.full(({m.tile},), -inf, f32)")
            self.line(f"total = op.zeros(({m.tile},), f32)")
        acc = self.name("acc")
        self.line(f"{acc} = op.zeros(({m.tile}, e), f32)")
        self.contraction(t, m)
        inner = 0 if online else self.maybe_if(m, t)
        self.p.products += 2
        self.line(f"s = {q or self.matrix(m, d, dtype)} @ {self.matrix(d, t, dtype)}")
        if online:
            self.word("reduction")
            self.line("s2 = s.to(f32) * 0.25")
            self.line("top2 = max(top, op.max(s2, axis=1))")
            self.line("w = exp(s2 - top2[:, None])")
            self.line("shrink = exp(top - top2)")
            self.line("total = total * shrink + op.sum(w, axis=1)")
            self.line(f"{acc} = {acc} * shrink[:, None] + w @ {self.matrix(t, e, dtype)}")
            self.line("top = top2")
        else:
            value = self.touched("s", m, t)
            self.line(f"{acc} += {value} @ {self.matrix(t, e, dtype)}")
        self.depth -= 1 + inner
        value = f"{acc} / (total + 1.0)[:, None]" if online else self.touched(acc, m, e)
        self.finished(out, returned, depth, value, last, m, e)

    def behind(self) -> None:
        """A sum over a loop is an operand of a product behind it."""
        self.word("chained")
        if self.p.dtype == "i8":
            self.p.dtype = "f16"
        dtype = self.p.dtype
        m, _, k = self.mnk()
        n = self.axis("n", "j", 0)
        e = self.axis("e", "y", self.r.choice(TILES))
        last = self.output_dtype()
        out, returned = self.result(("m", "e"), last)
        depth = self.grid(m)
        acc = self.name("acc")
        self.line(f"{acc} = op.zeros(({m.tile}, n), f32)")
        self.contraction(k, m)
        self.product(acc, m, n, k)
        self.depth -= 1
        self.line(f"h = {self.cast(self.touched(acc, m, n), dtype)}")
        self.line(f"for {e.var} in op.tile_range(e, step={e.tile}):")
        self.depth += 1
        self.p.products += 1
        value = f"h @ {self.matrix(n, e, dtype)}"
        self.line(f"{out}[{self.at(m, e)}] = {self.cast(value, last)}")
        self.depth -= 1 + depth
        if returned:
            self.line(f"return {out}")

    def gated(self) -> None:
        """Three products: two sums, and what they make into a third."""
        self.word("chained")
        if self.p.dtype == "i8":
            self.p.dtype = "bf16"
        dtype = self.p.dtype
        m, n, k = self.mnk()
        e = self.axis("e", "y", 0)
        out, returned = self.result(("m", "e"), dtype)
        depth = self.grid(m)
        total = self.name("acc")
        self.line(f"{total} = op.zeros(({m.tile}, e), f32)")
        self.line(f"for {n.var} in range(0, n, {n.tile}):")
        self.depth += 1
        x, y = self.zeros(m, n), self.zeros(m, n)
        self.contraction(k, m)
        self.product(x, m, n, k)
        self.product(y, m, n, k)
        self.depth -= 1
        self.p.products += 1
        self.line(f"{total} += (op.silu({x}) * {y}) @ {self.matrix(n, e, dtype)}")
        self.depth -= 1
        if dtype == "f32":
            self.finished(out, returned, depth, total, dtype, m, e)
        else:
            self.finished(out, returned, depth, f"{total}", dtype, m, e)

    def split(self) -> None:
        """A sum over rows that are reduced: two results."""
        self.word("reduction")
        if self.p.dtype == "i8":
            self.p.dtype = "f32"
        m, n, k = self.mnk()
        dtype = self.output_dtype()
        out, returned = self.result(("m", "n"), dtype)
        dims = (self.batch.size, "m") if self.batch else ("m",)
        sums = self.array("f32", dims, mut=True)
        depth = self.grid(m, n)
        acc = self.zeros(m, n)
        self.contraction(k, m)
        self.product(acc, m, n, k)
        self.depth -= 1
        self.line(f"{sums}[{self.at(m)}] += op.sum({acc}, axis=1)")
        self.finished(out, returned, depth, acc, dtype, m, n)

    def whole(self) -> None:
        """Whole arrays: ``return A @ B + C``."""
        self.word("whole arrays")
        self.batch = None
        self.p.axes.pop("nb", None)
        m, n, k = (self.axis(s, s, 0) for s in "mnk")
        dtype = self.p.dtype = "f32" if self.p.dtype == "i8" else self.p.dtype
        self.p.products += 1

        def array(*axes: Axis) -> str:
            return self.array(dtype, tuple(a.size for a in axes))

        turned = self.r.randrange(3)
        a = array(k, m) + ".T" if turned == 1 else array(m, k)
        b = array(n, k) + ".T" if turned == 2 else array(k, n)
        value = f"{a} @ {b}"
        how = self.r.randrange(5)
        if how == 0:
            value = f"{value} + {array(m, n)}"
        elif how == 1:
            value = f"op.relu({value} + {array(n)}[None, :])"
        elif how == 2:
            value = f"op.tanh({value}) * {array(m)}[:, None]"
        elif how == 3:
            self.p.products += 1
            value = f"{value} + {array(m, k)} @ {array(k, n)}"
        if self.r.random() < 0.5:
            self.line(f"return {value}")
        else:
            name = self.array(dtype, ("m", "n"), mut=True)
            self.line(f"{name}[:] = {value}")

    def rows_only(self) -> None:
        """No product: rows reduced and made anew."""
        self.word("reduction")
        if self.p.dtype == "i8":
            self.p.dtype = "f32"
        m = self.axis("m", "i", self.r.choice((1, 2, 4, 8, 3, 16)))
        n = self.axis("n", "j", 0)
        dtype = self.p.dtype
        out, returned = self.result(("m", "n"), dtype)
        depth = self.grid(m)
        self.line(f"x = {self.read(dtype, m, n)}.to(f32)")
        how = self.r.randrange(3)
        if how == 0:
            self.line("e = exp(x - op.max(x, axis=1)[:, None])")
            value = "e / op.sum(e, axis=1)[:, None]"
        elif how == 1:
            self.line("mean = op.mean(x, axis=1)")
            self.line("c = x - mean[:, None]")
            self.line("v = op.mean(c * c, axis=1)")
            value = "c / op.sqrt(v + 0.01)[:, None]"
        else:
            value = f"x * {self.read('f32', m, batched=False)}[:, None] + op.max(x, axis=1)[:, None]"
        self.finished(out, returned, depth, value, dtype, m, n)


def generate(seed: int) -> TileProgram:
    return Tiles(seed).program()


PRIMES = (5, 7, 13, 29, 31, 61, 97, 127, 131)


def sizes_of(program: TileProgram, r: random.Random) -> dict[str, int]:
    """A size of each axis: at an edge of its tile, mostly."""
    found: dict[str, int] = {"g": r.choice((1, 3, 40))}
    for name, axis in program.axes.items():
        t = axis.tile
        if name == "nb":
            found[name] = r.choice((1, 2, 3))
        elif not t:
            found[name] = r.choice((1, 2, 3, 8, 16, 16, 32, 32, 64, 64, 20, 40, 33))
        else:
            edges = (1, 2, 3, t - 1, t, t, t, t + 1, 2 * t, 2 * t + 3, 3 * t, r.choice(PRIMES), 0)
            found[name] = max(0, r.choice(edges))
    return found
