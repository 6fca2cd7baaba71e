"""Random kernels of Schedule IR over square arrays: every one is right by construction.

Each tile keeps what of it is there along both axes ("i", "j", or "full"); what is combined agrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tessera_lang.ir.core import Region, Value
from tessera_lang.types.dtype import F32, INDEX
from tests.unit.lower.schedule_to_lanes.lanes import ArrayBuilder, Built, build, clip

ARRAYS = 5  # the last two are written


@dataclass(frozen=True)
class Tile:
    value: Value
    extents: tuple[str, str]
    zeros: bool = False  # beyond the extents


class Maker:
    """One kernel. Tiles of ``capacity`` x ``capacity`` at (i, j) of arrays of n x n."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.capacity = random.choice((3, 4, 8, 13))
        self.b = ArrayBuilder()
        self.views: list[Value] = []
        self.at: dict[str, Value] = {}
        self.depth = 0

    def kernel(self) -> Built:
        return build([(F32, 2)] * ARRAYS, self.body, self.random.random() < 0.3)

    def body(self, b: ArrayBuilder, views: list[Value]) -> None:
        self.b, self.views = b, views
        zero, t = b.index(0), b.index(self.capacity)
        n = b.sizes[views[0]]
        with b.region(("i", INDEX), ("j", INDEX)) as region:
            i, j = region.arguments
            self.at = {"i": i, "j": j}
            tiles = self.statements([self.load(), self.load()], 4)
            for view in views[-2:]:
                self.store(view, tiles)
            if self.random.random() < 0.5:  # read what was written, then write again
                back = Tile(self.load_from(views[-1], "i", "j"), ("i", "j"), True)
                self.store(views[-2], [back, *tiles])
            b.yield_()
        how = self.random.choice((["grid", "grid"], ["grid", "loop"], ["loop", "loop"]))
        b.loops([zero, zero], list(n), [t, t], [], region.region, ["i", "j"], mapping=how)

    # --- tiles --------------------------------------------------------------------------------

    def extent(self, view: Value, axis: int, name: str) -> Value:
        if name == "full":
            return self.b.index(self.capacity)
        return clip(self.b, view, axis, self.at[name], self.capacity)

    def load_from(self, view: Value, first: str, second: str) -> Value:
        extents = [self.extent(view, 0, first), self.extent(view, 1, second)]
        starts = [self.at[first], self.at[second]]
        return self.b.load_tile(view, starts, extents, [self.capacity] * 2)

    def load(self) -> Tile:
        first, second = self.random.choice((("i", "j"), ("i", "j"), ("j", "i"), ("i", "i")))
        return Tile(self.load_from(self.random.choice(self.views[:3]), first, second),
                    (first, second), True)  # fmt: skip

    def full(self) -> Value:
        number = self.b.constant(self.random.choice((0.5, -1.0, 2.0)), F32)
        return self.b.full(number, [self.capacity] * 2)

    def store(self, view: Value, tiles: list[Tile]) -> None:
        fits = [
            t for t in tiles if all(e in ("full", n) for e, n in zip(t.extents, "ij", strict=True))
        ]
        tile = self.random.choice(fits).value if fits else self.full()
        starts = [self.at["i"], self.at["j"]]
        extents = [self.extent(view, axis, name) for axis, name in enumerate("ij")]
        self.b.store_tile(tile, view, starts, extents)

    # --- statements ---------------------------------------------------------------------------

    def statements(self, tiles: list[Tile], count: int) -> list[Tile]:
        tiles = list(tiles)
        for _ in range(count):
            choices = [self.combine, self.combine, self.one, self.turn, self.masked, self.lines,
                       self.product, self.product, self.part]  # fmt: skip
            if self.depth < 2:
                choices += [self.loop, self.branch]
            tiles.append(self.random.choice(choices)(tiles))
        return tiles

    def pick(self, tiles: list[Tile]) -> Tile:
        return self.random.choice(tiles[-6:]) if self.random.random() < 0.8 else self.load()

    def combine(self, tiles: list[Tile]) -> Tile:
        a, b = self.pick(tiles), self.pick(tiles)
        pairs = list(zip(a.extents, b.extents, strict=True))
        if any(x != y and "full" not in (x, y) for x, y in pairs):
            return self.one([a])
        name = self.random.choice(("add", "sub", "min", "max"))
        extents = tuple(y if x == "full" else x for x, y in pairs)
        return Tile(self.b.binary(name, a.value, b.value), (extents[0], extents[1]))

    def one(self, tiles: list[Tile]) -> Tile:
        a = self.pick(tiles)
        match self.random.randrange(4):
            case 0:
                value = self.b.unary("abs", a.value)
            case 1:
                value = self.b.binary("mul", a.value, self.full())
            case 2:
                value = self.b.select(self.b.cmp("lt", a.value, self.full()), a.value, self.full())
            case _:
                places = self.b.cast(self.b.iota([self.capacity] * 2, 1), F32)
                value = self.b.binary("add", a.value, places)
        return Tile(value, a.extents)

    def turn(self, tiles: list[Tile]) -> Tile:
        a = self.pick(tiles)
        return Tile(self.b.transpose(a.value, [1, 0]), (a.extents[1], a.extents[0]), a.zeros)

    def mask_of(self, a: Tile, fill: float) -> Value:
        extents = [self.extent(self.views[2], axis, name) for axis, name in enumerate(a.extents)]
        return self.b.mask(a.value, self.b.constant(fill, F32), extents)

    def masked(self, tiles: list[Tile]) -> Tile:
        a = self.pick(tiles)
        fill = self.random.choice((0.0, 1.0))
        return Tile(self.mask_of(a, fill), ("full", "full"))

    def lines(self, tiles: list[Tile]) -> Tile:
        """A reduction, spread out again."""
        a, axis = self.pick(tiles), self.random.randrange(2)
        kind = self.random.choice(("add", "max", "min"))
        extent = self.extent(self.views[1], axis, a.extents[axis])
        some = self.b.reduce(kind, a.value, extent, axis)
        wide = self.b.broadcast(self.b.expand(some, axis), [self.capacity] * 2)
        kept = [a.extents[0], a.extents[1]]
        kept[axis] = "full"
        scaled = self.b.binary("mul", wide, self.full())
        return Tile(scaled, (kept[0], kept[1]))

    def product(self, tiles: list[Tile]) -> Tile:
        a, c = self.pick(tiles), self.pick(tiles)
        x = a.value if a.zeros else self.mask_of(a, 0.0)
        y = c.value if c.zeros else self.mask_of(c, 0.0)
        start = self.b.full(self.b.constant(0, F32), [self.capacity] * 2)
        rows = a.extents[0] if a.zeros else "full"
        columns = c.extents[1] if c.zeros else "full"
        first = [t for t in tiles if t.extents == (rows, columns)]
        if first and self.random.random() < 0.5:
            start = self.random.choice(first).value
        made = self.b.dot(x, y, start)
        tenth = self.b.full(self.b.constant(0.1, F32), [self.capacity] * 2)
        return Tile(self.b.binary("mul", made, tenth), (rows, columns))

    def part(self, tiles: list[Tile]) -> Tile:
        """A corner of one tile in another that is all there."""
        base = Tile(self.mask_of(self.pick(tiles), 0.0), ("full", "full"))
        other = Tile(self.mask_of(self.pick(tiles), 1.0), ("full", "full"))
        b, size = self.b, max(1, self.capacity // 2)
        at = [b.index(self.random.randrange(self.capacity - size + 1)) for _ in range(2)]
        corner = b.extract(other.value, at, [size, size])
        to = [b.index(self.random.randrange(self.capacity - size + 1)) for _ in range(2)]
        extents = [b.index(self.random.randint(0, size)), b.index(size)]
        return Tile(b.insert(base.value, corner, to, extents), ("full", "full"))

    # --- control ------------------------------------------------------------------------------

    def loop(self, tiles: list[Tile]) -> Tile:
        """A loop that carries two tiles and perhaps lets them change places."""
        b = self.b
        carried = [self.pick(tiles)]
        carried.append(self.random.choice([t for t in tiles if t.extents == carried[0].extents]
                                          or carried))  # fmt: skip
        types = [(f"c{n}", t.value.type) for n, t in enumerate(carried)]
        self.depth += 1
        with b.region(("p", INDEX), *types) as region:
            inside = [Tile(v, carried[0].extents) for v in region.arguments[1:]]
            made = self.statements([*tiles[-2:], *inside], 3)
            fits = [t for t in [*inside, *made[-4:]] if t.extents == carried[0].extents]
            b.yield_(self.random.choice(fits).value, self.random.choice(fits).value)
        self.depth -= 1
        lower, upper, step = b.index(0), b.index(self.random.randrange(4)), b.index(1)
        results = b.loops([lower], [upper], [step], [t.value for t in carried], region.region,
                          ["p"], mapping=["loop"])  # fmt: skip
        return Tile(self.random.choice(results), carried[0].extents)

    def branch(self, tiles: list[Tile]) -> Tile:
        b, a = self.b, self.pick(tiles)
        odd = b.cmp("eq", b.binary("mod", self.at["i"], b.index(2)), b.index(0))
        self.depth += 1
        sides: list[Region] = []
        for _ in range(2):
            with b.region() as side:
                made = self.statements([*tiles[-2:], a], 2)
                fits = [t for t in [a, *made[-3:]] if t.extents == a.extents]
                b.yield_(self.random.choice(fits).value)
            sides.append(side.region)
        self.depth -= 1
        return Tile(b.if_(odd, sides[0], sides[1])[0], a.extents)


def random_kernel(seed: int) -> Built:
    return Maker(Random(seed)).kernel()
