"""Random tile programs: one to three products, whatever is read, computed and looped around them.

Makes the text of a kernel and says what its parameters are. What the text computes is another
module's; which pass serves it is nobody's here.
"""

from __future__ import annotations

import random

from tests.fuzz.tile_programs_parts import DEPTHS, TILES, Axis, Operands, Parameter, TileProgram

__all__ = ["Axis", "Parameter", "TileProgram", "generate", "sizes_of"]


class Tiles(Operands):
    """Writes the text of one program."""

    # --- loops -------------------------------------------------------------------------------

    def contraction(self, k: Axis, rows: Axis) -> None:
        """The head of the loop over ``k``; the depth is one more afterwards."""
        if self.exits and rows.tile and self.r.random() < 0.35:
            self.left_early(k, rows)
            return
        how = self.r.choices(("tile", "range", "triangle", "data", "span"), (5, 3, 1.5, 1.5, 0.7))[
            0
        ]
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

    def left_early(self, k: Axis, rows: Axis) -> None:
        """A loop over tiles that a list names, or one that is left before its end."""
        if self.r.random() < 0.5:
            self.word("blocks")
            listed = self.array("i32", ("g",), "blocks", f"{k.size}/{k.tile}")
            at = self.name("at")
            self.line(f"for {at} in range(g):")
            self.depth += 1
            self.line(f"{k.var} = max({listed}[{at}], 0) * {k.tile}")
            if self.r.random() < 0.4:
                self.word("continue")
                self.line(f"if {k.var} > {rows.var}: continue")
            return
        self.word("break")
        count = self.array("i32", (rows.size,), "count", k.size)
        self.line(f"for {k.var} in range(0, {k.size}, {k.tile}):")
        self.depth += 1
        self.line(f"if {k.var} >= {count}[{rows.var}]: break")

    def maybe_if(self, rows: Axis, k: Axis) -> int:
        """Perhaps a uniform condition; how much deeper it is now."""
        if self.exits and rows.tile and k.tile and self.r.random() < 0.2:
            self.word("continue")
            flag = self.array("i32", (rows.size,), "flag")
            self.line(f"if {flag}[{rows.var}] > 0 and {k.var} % {2 * k.tile} == 0: continue")
            return 0
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
            self.line(
                f"out = op.empty(({', '.join(dims)}{',' if len(dims) == 1 else ''}), {dtype})"
            )
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
        if self.exits and m.tile and self.p.products < 2 and self.r.random() < 0.15:
            self.word("else")
            flag = self.array("i32", (m.size,), "flag")
            for line in (f"if {flag}[{m.var}] > 0:", "else:"):
                self.line(line)
                self.depth += 1
                self.one_product(acc, m, n, k)
                self.depth -= 1
            return
        self.one_product(acc, m, n, k)

    def one_product(self, acc: str, m: Axis, n: Axis, k: Axis) -> None:
        self.p.products += 1
        a = self.matrix(m, k, self.p.dtype)
        b = self.matrix(k, n, self.p.dtype)
        how = self.r.randrange(4)
        if how == 0:
            a1, b1 = self.name("a"), self.name("b")
            for name, value in ((a1, a), (b1, b)):
                if not value.startswith("buf"):  # which has one name
                    self.line(f"{name} = {value}")
            a, b = (v if v.startswith("buf") else n for n, v in ((a1, a), (b1, b)))
        product = f"op.matmul({a}, {b})" if how == 1 else f"{a} @ {b}"
        self.line(f"{acc} += {product}" if self.r.random() < 0.8 else f"{acc} = {acc} + {product}")

    def zeros(self, m: Axis, n: Axis, start: str = "") -> str:
        acc = self.name("acc")
        self.line(f"{acc} = op.zeros(({m.tile}, {n.tile}), {self.wide()})")
        return acc

    def finished(
        self, out: str, returned: bool, depth: int, value: str, dtype: str, *axes: Axis
    ) -> None:
        self.line(f"{out}[{self.at(*axes)}] = {self.cast(value, dtype)}")
        self.depth -= depth
        if returned:
            self.line(f"return {out}")

    def epilogue(self, acc: str, m: Axis, n: Axis) -> str:
        if self.p.dtype == "i8":
            return (
                acc
                if self.r.random() < 0.5
                else f"({acc} + {self.read('i32', n, batched=False)}[None, :])"
            )
        return self.touched(acc, m, n)

    def single(self) -> None:
        """acc += a @ b."""
        m, n, k = self.mnk()
        dtype = self.output_dtype()
        if self.r.random() < 0.2:
            self.into_array(m, n, k, dtype)
            return
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
            a = self.matrix(m, k, self.p.dtype)
            if not a.startswith("buf"):
                self.line(f"a = {a}")
                a = "a"
            self.line(f"{x} += {a} @ {self.matrix(k, n, self.p.dtype)}")
            self.line(f"{y} += {a} @ {self.matrix(k, n, self.p.dtype)}")
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
        other = self.axis("l", "q", self.r.choice(DEPTHS))
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
            self.contraction(other, m)
            self.product(acc, m, n, other)
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
            q = self.matrix(m, d, dtype)
            self.line(f"q = {q}")
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
            value = (
                f"x * {self.read('f32', m, batched=False)}[:, None] + op.max(x, axis=1)[:, None]"
            )
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
