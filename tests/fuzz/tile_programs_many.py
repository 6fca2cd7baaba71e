"""Random tile programs of up to four products that follow each other, exclude each other, lie in
each other's loops, or are computed from each other; with masks. Seeds from ``MANY_FROM``.
"""

from __future__ import annotations

from tests.fuzz.tile_programs_generate import Tiles
from tests.fuzz.tile_programs_parts import DEPTHS, Axis, TileProgram

MANY_FROM = 20000
_SIDES = (32, 64, 64, 64, 128, 128, 48, 80, 96)
_NARROW = (32, 64, 64, 48)
_HIDDEN = "-1000.0"
"""What a softmax gets in place of a masked score: a row may be masked as a whole."""


class ManyProducts(Tiles):
    """Writes the text of one program."""

    depth: int

    def program(self) -> TileProgram:
        self.p.dtype = self.r.choices(("f16", "bf16", "i8", "f32"), (5, 5, 1.5, 0.5))[0]
        self.exits = False
        if self.r.random() < 0.2:
            self.batch = self.axis("nb", "z", 1)
            self.word("batch")
        kinds = (self.sequential, self.exclusive, self.nested, self.in_a_chain, self.by_hand,
                 self.beside, self.single)  # fmt: skip
        self.r.choices(kinds, (3, 3, 3, 3, 2, 1, 1))[0]()
        return self.p

    # --- parts -------------------------------------------------------------------------------

    def sides(self, tiles: tuple[int, ...] = _SIDES) -> tuple[Axis, Axis, str, bool, str]:
        """Rows and columns, the dtype of the result, whether it is returned, and its name."""
        m = self.axis("m", "i", self.r.choice(tiles))
        n = self.axis("n", "j", self.r.choice(tiles))
        dtype = self.output_dtype()
        out, returned = self.result(("m", "n"), dtype)
        return m, n, dtype, returned, out

    def loop(self, acc: str, m: Axis, n: Axis, k: Axis, triangle: bool = False) -> None:
        """A loop that adds products to an accumulator, at this depth."""
        if triangle:
            self.word("triangular")
            end = f"min({k.size}, {m.var} + {m.tile})"
            self.line(f"for {k.var} in op.tile_range({end}, step={k.tile}):")
        else:
            head = (f"op.tile_range({k.size}, step={k.tile})", f"range(0, {k.size}, {k.tile})")
            self.line(f"for {k.var} in {self.r.choice(head)}:")
        self.depth += 1
        self.one_product(acc, m, n, k)
        self.depth -= 1

    def condition(self, m: Axis, n: Axis) -> str:
        """One that is the same in a whole tile."""
        how = self.r.randrange(3)
        if how == 0:
            return f"{self.array('i32', (m.size,), 'flag')}[{m.var}] > 0"
        return f"{m.var} >= {n.var}" if how == 1 else f"{m.var} % {2 * m.tile} == 0"

    def masked(self, value: str, rows: Axis, columns: Axis, other: str = "0.0") -> str:
        """Some elements by their places: a triangle, a window, a padding."""
        self.word("masked")
        row = f"({rows.var} + op.arange({rows.tile}))[:, None]"
        column = f"({columns.var} + op.arange({columns.tile}))[None, :]"
        how = self.r.randrange(4)
        if how == 0:
            return f"op.where({row} >= {column}, {value}, {other})"
        if how == 1:
            ahead = self.r.choice((1, 17, 64))
            return f"op.where({row} + {ahead} >= {column}, {value}, {other})"
        if how == 2:
            inner = f"op.where({column} + {self.r.choice((40, 128))} >= {row}, {value}, {other})"
            return f"op.where({row} >= {column}, {inner}, {other})"
        return f"op.where({column} < {columns.size} - {self.r.choice((1, 5, 9))}, {value}, {other})"

    def maybe_masked(self, value: str, rows: Axis, columns: Axis) -> str:
        if self.p.dtype == "i8" or self.r.random() > 0.3:
            return value
        return self.masked(value, rows, columns)

    def depths(self) -> Axis:
        """A contraction that may be another loop's too."""
        size = self.r.choice(("k", "l"))
        return self.p.axes.get(size) or self.axis(
            size, {"k": "p", "l": "q"}[size], self.r.choice(DEPTHS)
        )

    def joined(self, found: list[str]) -> str:
        if self.p.dtype == "i8":
            return "(" + " + ".join(found) + ")"
        first, *rest = found
        for other in rest:
            how = self.r.randrange(3)
            first = (f"({first} + {other})", f"({first} * 0.5 - {other})",
                     f"(op.relu({first}) + {other})")[how]  # fmt: skip
        return first

    # --- the whole ---------------------------------------------------------------------------

    def sequential(self) -> None:
        """Two to four loops, one behind the other, with sums of their own or one sum."""
        self.word("sequential")
        many = self.r.choice((2, 3, 3, 4))
        m, n, dtype, returned, out = self.sides(_SIDES if many < 4 else _NARROW)
        depth = self.grid(m, n)
        apart = self.r.random() < 0.6
        found = [self.zeros(m, n)]
        for at in range(many):
            if at and apart:
                found.append(self.zeros(m, n))
            self.loop(found[-1], m, n, self.depths(), self.r.random() < 0.2)
        value = self.epilogue(self.joined(found), m, n)
        self.finished(out, returned, depth, self.maybe_masked(value, m, n), dtype, m, n)

    def exclusive(self) -> None:
        """Loops of which one runs: the arms of conditions."""
        self.word("exclusive")
        many = self.r.choice((2, 2, 3, 4))
        m, n, dtype, returned, out = self.sides()
        depth = self.grid(m, n)
        acc = self.zeros(m, n)
        if many > 2 and self.r.random() < 0.5:
            self.loop(acc, m, n, self.depths())
            many -= 1
        self.line(f"if {self.condition(m, n)}:")
        self.depth += 1
        for _ in range(many - many // 2):
            self.loop(acc, m, n, self.depths(), self.r.random() < 0.3)
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        for _ in range(many // 2):
            self.loop(acc, m, n, self.depths())
        if self.p.dtype != "i8" and self.r.random() < 0.3:
            self.line(f"{acc} = {self.touched(acc, m, n)}")
        self.depth -= 1
        value = self.epilogue(acc, m, n)
        self.finished(out, returned, depth, self.maybe_masked(value, m, n), dtype, m, n)

    def nested(self) -> None:
        """Sums of inner loops are factors of a product of the outer one, and that perhaps of one
        behind it."""
        self.word("nested")
        dtype = self.p.dtype = "bf16" if self.p.dtype == "i8" else self.p.dtype
        m = self.axis("m", "i", self.r.choice((64, 128, 128, 48)))
        n = self.axis("n", "j", self.r.choice((32, 64, 64, 48)))
        e = self.axis("e", "y", 0)
        last = self.r.random() < 0.3
        stored = self.axis("w", "v", 0) if last else e
        out, returned = self.result(("m", stored.size), dtype)
        depth = self.grid(m)
        total = self.name("acc")
        self.line(f"{total} = op.zeros(({m.tile}, e), f32)")
        self.line(f"for {n.var} in range(0, n, {n.tile}):")
        self.depth += 1
        inner = [self.zeros(m, n) for _ in range(self.r.choice((1, 2) if last else (1, 2, 2, 3)))]
        for acc in inner:
            self.loop(acc, m, n, self.depths())
        self.p.products += 1
        value = self.cast(self.maybe_masked(self.joined(inner), m, n), dtype)
        self.line(f"{total} += {value} @ {self.matrix(n, e, dtype)}")
        self.depth -= 1
        value = self.touched(total, m, e)
        if last:
            self.p.products += 1
            value = f"{self.cast(value, dtype)} @ {self.matrix(e, stored, dtype)}"
        self.finished(out, returned, depth, value, dtype, m, stored)

    def in_a_chain(self) -> None:
        """Two to four products of which each is a factor of the next one, in one loop."""
        self.word("chained")
        dtype = self.p.dtype = "f16" if self.p.dtype == "i8" else self.p.dtype
        m = self.axis("m", "i", self.r.choice((64, 128, 128, 64, 48)))
        t = self.axis("k", "p", self.r.choice((32, 64, 64, 128, 48)))
        d, e = self.axis("d", "x", 0), self.axis("e", "y", 0)
        more = self.r.choice((0, 0, 1))
        last = self.output_dtype()
        out, returned = self.result(("m", "e"), last)
        depth = self.grid(m)
        self.line(f"q = {self.matrix(m, d, dtype)}")
        acc = self.name("acc")
        self.line(f"{acc} = op.zeros(({m.tile}, e), f32)")
        self.line(f"for {t.var} in op.tile_range(k, step={t.tile}):")
        self.depth += 1
        self.p.products += 2 + 2 * more
        self.line(f"s = q @ {self.matrix(d, t, dtype)}")
        value = self.maybe_masked(self.touched("s", m, t), m, t)
        for _ in range(more):
            self.line(f"h = {self.cast(value, dtype)} @ {self.matrix(t, d, dtype)}")
            self.line(f"s = {self.cast(self.touched('h', m, d), dtype)} "
                      f"@ {self.matrix(d, t, dtype)}")  # fmt: skip
            value = self.touched("s", m, t, 1)
        self.line(f"{acc} += {self.cast(value, dtype)} @ {self.matrix(t, e, dtype)}")
        self.depth -= 1
        self.finished(out, returned, depth, self.touched(acc, m, e), last, m, e)

    def by_hand(self) -> None:
        """Attention with the loop over keys split by hand: without a mask, and with one."""
        self.word("split by hand")
        dtype = self.p.dtype = "bf16" if self.p.dtype in ("i8", "f32") else self.p.dtype
        m = self.axis("m", "i", self.r.choice((64, 128)))
        t = self.axis("k", "p", self.r.choice((32, 64, 64)))
        d, e = self.axis("d", "x", 0), self.axis("e", "y", 0)
        out, returned = self.result(("m", "e"), dtype)
        depth = self.grid(m)
        self.line(f"q = {self.matrix(m, d, dtype, simple=True)}")
        acc = self.name("acc")
        self.line(f"{acc} = op.zeros(({m.tile}, e), f32)")
        self.line(f"top = op.full(({m.tile},), -inf, f32)")
        self.line(f"total = op.zeros(({m.tile},), f32)")
        keys, values = self.matrix(d, t, dtype, simple=True), self.matrix(t, e, dtype, simple=True)
        for head, mask in (
            (f"range(0, min(k, {m.var}) // {t.tile} * {t.tile}, {t.tile})", False),
            (f"range(min(k, {m.var}) // {t.tile} * {t.tile}, min(k, {m.var} + {m.tile}), "
             f"{t.tile})", True),
        ):  # fmt: skip
            self.line(f"for {t.var} in {head}:")
            self.depth += 1
            self.p.products += 2
            self.line(f"s = (q @ {keys}).to(f32) * 0.25")
            if mask:
                self.word("masked")
                rows = f"({m.var} + op.arange({m.tile}))[:, None]"
                columns = f"({t.var} + op.arange({t.tile}))[None, :]"
                self.line(f"s = op.where({rows} >= {columns}, s, {_HIDDEN})")
            self.line("top2 = max(top, op.max(s, axis=1))")
            self.line("w = exp(s - top2[:, None])")
            self.line("shrink = exp(top - top2)")
            self.line("total = total * shrink + op.sum(w, axis=1)")
            self.line(f"{acc} = {acc} * shrink[:, None] + w.to({dtype}) @ {values}")
            self.line("top = top2")
            self.depth -= 1
        value = f"{acc} / (total + 1.0)[:, None]"
        self.finished(out, returned, depth, value, dtype, m, e)

    def beside(self) -> None:
        """Two to four sums in one loop."""
        self.word("beside")
        many = self.r.choice((2, 3, 4))
        m, n, dtype, returned, out = self.sides(_SIDES if many < 3 else _NARROW)
        k = self.axis("k", "p", self.r.choice(DEPTHS))
        depth = self.grid(m, n)
        found = [self.zeros(m, n) for _ in range(many)]
        self.line(f"for {k.var} in op.tile_range(k, step={k.tile}):")
        self.depth += 1
        for acc in found:
            self.one_product(acc, m, n, k)
        self.depth -= 1
        value = self.epilogue(self.joined(found), m, n)
        self.finished(out, returned, depth, self.maybe_masked(value, m, n), dtype, m, n)


def generate(seed: int) -> TileProgram:
    """The program of a seed, of either kind."""
    return (ManyProducts if seed >= MANY_FROM else Tiles)(seed).program()
