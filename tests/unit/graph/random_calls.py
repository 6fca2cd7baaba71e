"""Random plain functions that call kernels: arrays with several names, slices and other axes of
them, kernels that write into those, and arithmetic in between."""

from __future__ import annotations

from random import Random

KERNELS = """
@kernel tile[(32,)]
def add_to(x: f64[n], out: mut f64[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] += x[i]


@kernel tile[(32,)]
def swap(a: mut f64[n], b: mut f64[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        t = a[i]
        a[i] = b[i]
        b[i] = t


@kernel tile[(32,)]
def blend(x: f64[n, m], out: mut f64[n, m], s: f64):
    for i in range(grid_tile_linear_id(), n * m, grid_tile_count()):
        out[i // m, i % m] = out[i // m, i % m] * 0.5 + x[i // m, i % m] * s


@op.kernel
def halves(x: f64[n, m]):
    return op.tanh(x), op.sum(x, axis=1)
"""
_N = 4


def random_function(seed: int) -> str:
    """The text of ``f(x, y)`` of two arrays of 4 x 4 elements."""
    random = Random(seed)
    own: list[str] = []  # arrays that kernels may write
    every = ["x", "y"]
    lines: list[str] = []

    def value() -> str:
        a, b = random.choice(every), random.choice(every)
        return random.choice((
            f"{a} + {b}.T", f"{a} * 0.5 - {b}", f"op.sin({a})", f"{a} @ {b}",
            f"op.softmax({a} @ {b}, axis=1)", f"{a} - op.mean({b}, axis=1)[:, None]",
            f"op.zeros_like({a})", f"op.ones(({_N}, {_N}), dtype=f64)", f"halves({a})[0]",
            f"{a} * halves({b})[1][None, :]",
        ))  # fmt: skip

    def row(array: str) -> str:
        k = random.randrange(_N)
        first = random.randrange(_N - 1)
        line = f"{array}.reshape({_N * _N})[{_N * first}:{_N * first + _N}]"
        return random.choice((f"{array}[{k}]", f"{array}.T[{k}]", f"{array}[:, {k}]", line))

    for number in range(random.randint(5, 12)):
        kind = random.random()
        if not own or kind < 0.35:
            lines.append(f"a{number} = {value()} + 0.0")
            own.append(f"a{number}")
            every.append(f"a{number}")
        elif kind < 0.45:
            lines.append(f"a{number} = {random.choice(own)}")  # one more name
            own.append(f"a{number}")
            every.append(f"a{number}")
        elif kind < 0.55:
            lines.append(f"a{number} = {random.choice(own)}[0:4]")  # its elements of now
            every.append(f"a{number}")
        elif kind < 0.7:
            lines.append(f"add_to[1]({row(random.choice(['x', 'y']))}, {row(random.choice(own))})")
        elif kind < 0.8:
            target = random.choice(own)
            lines.append(f"add_to[1](({value()}).reshape({_N * _N}), {target}.reshape({_N * _N}))")
        elif kind < 0.9:
            target = random.choice(own)
            number_of = random.choice(["0.25", f"op.sum({random.choice(every)}) * 0.01"])
            side = random.choice((target, f"{target}.T"))
            lines.append(f"blend[1](({value()}) * 1.0, {side}, {number_of})")
        else:
            lines.append(f"b{number} = op.cos({value()})")
            lines.append(f"swap[1](b{number}[1], {row(random.choice(own))})")
            every.append(f"b{number}")
    lines.append(f"return {', '.join(every[2:])},")
    return "def f(x, y):\n" + "".join(f"    {line}\n" for line in lines)
