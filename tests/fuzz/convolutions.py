"""Convolutions as somebody writes them: a product of channels for each tap, in any layout.

``random_convolution`` gives a program, arguments of small whole numbers (so that every sum is
exact) and what NumPy makes of them. Taps are loops over a kernel of one to three axes; strides,
dilations, groups, layouts of both arrays and what is done with the sums are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from tessera_lang.record import dataclass
from tests.tile_programs_by_hand.program import DTYPES

Array = np.ndarray[Any, np.dtype[Any]]
LETTERS = ("d", "h", "w")


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """``wanted``: the results in float64; ``rounded``: whether the first is rounded to the dtype of
    the image."""

    text: str
    arguments: tuple[Array, ...]
    wanted: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """``stride`` and ``dilation`` by spatial axis, the last one's steps are those of a slice.
    ``image`` and ``weights``: how the arrays lie. ``then``: what is done with the sums."""

    rank: int
    dtype: str
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    image: str
    weights: str
    then: str
    tile: tuple[int, int, int]
    sizes: tuple[int, ...]


IMAGES = ("first", "last")
WEIGHTS = ("o i k", "i o k", "k o i", "k i o", "o k i")
THENS = ("plain", "bias", "sums", "twice")


def random_choice(r: np.random.Generator) -> Choice:
    rank = int(r.integers(1, 4))
    inner = int(r.choice((1, 1, 1, 2)))
    stride = (*(int(n) for n in r.integers(1, 3, rank - 1)), inner)
    dilation = tuple(int(n) for n in r.integers(1, 3, rank))
    small = tuple(int(n) for n in r.integers(3, 6, rank - 1))
    sizes = (
        int(r.integers(1, 3)), int(r.integers(1, 40)), int(r.integers(1, 99)),
        *(int(n) for n in r.integers(1, 4, rank)), *small, int(r.integers(8, 90)),
    )  # fmt: skip
    return Choice(
        rank, str(r.choice(("bf16", "f16", "f32"))), stride, dilation, int(r.choice((1, 1, 2))),
        str(r.choice(IMAGES)), str(r.choice(WEIGHTS)), str(r.choice(THENS)),
        tuple(int(n) for n in (r.choice((16, 64)), r.choice((16, 32)), r.choice((16, 64)))),
        sizes,
    )  # fmt: skip


def convolution(c: Choice, r: np.random.Generator) -> Convolution:
    b, ci, co, *rest = c.sizes
    taps, extra = rest[: c.rank], rest[c.rank :]
    spatial = [n + (k - 1) * d for n, k, d in zip(extra, taps, c.dilation, strict=True)]
    x = r.integers(-3, 4, (b, c.groups * ci, *spatial)).astype(np.float64)
    f = r.integers(-2, 3, (c.groups * co, ci, *taps)).astype(np.float64)
    out = _right(c, x, f)
    dtype = DTYPES[c.dtype]
    order = _weight_axes(c)
    given = [
        np.ascontiguousarray(np.moveaxis(x, 1, -1) if c.image == "last" else x),
        np.ascontiguousarray(np.transpose(f, order)),
    ]  # fmt: skip
    if c.then == "bias":
        bias = r.integers(-3, 4, c.groups * co).astype(np.float64)
        given.append(bias)
        out = np.maximum(out + bias.reshape(-1, *[1] * c.rank), 0)
    wanted = [out.astype(np.float32).astype(dtype).astype(np.float64)]
    if c.then == "sums":
        wanted.append(out.sum(axis=-1))
    if c.then == "twice":
        wanted[0] = (2 * out).astype(np.float32).astype(dtype).astype(np.float64)
    arguments = tuple(a.astype(dtype) for a in given)
    return Convolution(text_of(c), arguments, tuple(wanted))


def shapes_of(c: Choice) -> dict[str, tuple[int, ...]]:
    """The arguments' shapes by name."""
    b, ci, co, *rest = c.sizes
    taps, extra = rest[: c.rank], rest[c.rank :]
    spatial = [n + (k - 1) * d for n, k, d in zip(extra, taps, c.dilation, strict=True)]
    image = (c.groups * ci, *spatial) if c.image == "first" else (*spatial, c.groups * ci)
    weights = (c.groups * co, ci, *taps)
    found = {"x": (b, *image), "f": tuple(weights[a] for a in _weight_axes(c))}
    return {**found, "bias": (c.groups * co,)} if c.then == "bias" else found


def _right(c: Choice, x: Array, f: Array) -> Array:
    b, co, taps = x.shape[0], f.shape[0], f.shape[2:]
    size = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], taps, c.dilation, c.stride, strict=True)
    ]
    out = np.zeros((b, co, *size))
    for at in product(*map(range, taps)):
        cut = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(at, c.dilation, size, c.stride, strict=True)
        )
        part = x[(slice(None), slice(None), *cut)].reshape(b, c.groups, -1, *size)
        weights = f[(slice(None), slice(None), *at)].reshape(c.groups, -1, f.shape[1])
        out += np.einsum("bgc...,goc->bgo...", part, weights).reshape(out.shape)
    return out


def _weight_axes(c: Choice) -> tuple[int, ...]:
    places = {"o": (0,), "i": (1,), "k": tuple(range(2, 2 + c.rank))}
    return tuple(a for letter in c.weights.split() for a in places[letter])


def text_of(c: Choice) -> str:
    """The program. Names of sizes of a spatial axis end in its letter: ``kw``, ``ow``, ``pw``."""
    axes = LETTERS[-c.rank :]
    channels, co = (f"{c.groups}*ci", "oc") if c.groups > 1 else ("ci", "co")
    sizes = [f"n{a}" for a in axes]
    image = [channels, *sizes] if c.image == "first" else [*sizes, channels]
    places = {"o": [co], "i": ["ci"], "k": [f"k{a}" for a in axes]}
    weights = [name for letter in c.weights.split() for name in places[letter]]
    outs = [
        f"({n} - (k{a} - 1)*{d} - 1)//{s} + 1"
        for n, a, d, s in zip(sizes, axes, c.dilation, c.stride, strict=True)
    ]
    bias = f", bias: T[{co}]" if c.then == "bias" else ""
    result = f"T[b, {co}, {', '.join(outs)}]"
    if c.then == "sums":
        result = f"({result}, f32[b, {', '.join([co, *outs[:-1]])}])"
    m, k, n = c.tile
    head = (
        f"@op.kernel\ndef kernel[T: dtype, M: int = {m}, K: int = {k}, N: int = {n}]"
        f"(x: T[b, {', '.join(image)}], f: T[{', '.join(weights)}]{bias}) -> {result}:\n"
    )
    return head + "\n".join(_body(c, axes, outs, co)) + "\n"


def _body(c: Choice, axes: tuple[str, ...], outs: list[str], co: str) -> Iterator[str]:
    last = axes[-1]
    if c.groups > 1:
        yield f"    co = {co} // {c.groups}"
    for a, out in zip(axes, outs, strict=True):
        yield f"    o{a} = {out}"
    yield f"    y = op.empty((b, {co}, {', '.join(f'o{a}' for a in axes)}), T)"
    outer = axes[:-1]
    if c.then == "sums":
        yield f"    z = op.zeros((b, {', '.join([co, *(f'o{a}' for a in outer)])}), f32)"
    loops = ["b", *(f"o{a}" for a in outer), *([str(c.groups)] if c.groups > 1 else []), "co"]
    names = ["i", *(f"p{a}" for a in outer), *(["e"] if c.groups > 1 else []), "m"]
    if c.then != "sums":
        loops.append(f"o{last}")
        names.append("q")
    step = ", ".join("M" if n == "m" else "N" if n == "q" else "1" for n in names)
    yield f"    for {', '.join(names)} in op.tile_range({', '.join(loops)}, step=({step})):"
    indent = "        "
    if c.then == "sums":
        yield f"{indent}total = op.zeros((M,), f32)"
        yield f"{indent}for q in op.tile_range(o{last}, step=N):"
        indent += "    "
    yield f"{indent}acc = op.zeros((M, N), f32)"
    deeper = indent
    for a in axes:
        yield f"{deeper}for r{a} in range(k{a}):"
        deeper += "    "
    yield f"{deeper}for c in op.tile_range(ci, step=K):"
    yield f"{deeper}    acc += {_factor(c, axes)} @ {_window(c, axes)}"
    yield from _stores(c, axes, indent)


def _channels(c: Choice, size: str, start: str, width: str) -> str:
    """A slice of channels, of a group where there are several."""
    if c.groups == 1:
        return f"{start}:{start}+{width}"
    return f"e*{size}+{start}:e*{size}+min({start}+{width}, {size})"


def _factor(c: Choice, axes: tuple[str, ...]) -> str:
    parts = {
        "o": [_channels(c, "co", "m", "M")], "i": ["c:c+K"], "k": [f"r{a}" for a in axes],
    }  # fmt: skip
    order = c.weights.split()
    text = f"f[{', '.join(t for letter in order for t in parts[letter])}]"
    return text if order.index("o") < order.index("i") else text + ".T"


def _window(c: Choice, axes: tuple[str, ...]) -> str:
    last, s, d = axes[-1], c.stride[-1], c.dilation[-1]
    scalars = [
        f"p{a}*{st}+r{a}*{di}"
        for a, st, di in zip(axes[:-1], c.stride[:-1], c.dilation[:-1], strict=True)
    ]
    end = f"min(q+N, o{last})"
    if s == 1:
        along = f"q+r{last}*{d}:{end}+r{last}*{d}"
    else:
        along = f"q*{s}+r{last}*{d}:({end}-1)*{s}+r{last}*{d}+1:{s}"
    channels = _channels(c, "ci", "c", "K")
    if c.image == "first":
        return f"x[i, {', '.join([channels, *scalars, along])}]"
    return f"x[i, {', '.join([*scalars, along, channels])}].T"


def _stores(c: Choice, axes: tuple[str, ...], indent: str) -> Iterator[str]:
    channels = _channels(c, "co", "m", "M")
    at = ", ".join(["i", channels, *(f"p{a}" for a in axes[:-1])])
    value = "acc.to(T)"
    if c.then == "bias":
        own = _channels(c, "co", "m", "M")
        value = f"op.maximum(acc + bias[{own}].to(f32)[:, None], 0.0).to(T)"
    if c.then == "twice":
        value = "(2.0 * acc).to(T)"
    yield f"{indent}y[{at}, q:q+N] = {value}"
    if c.then == "sums":
        yield f"{indent}total += op.sum(acc, axis=1)"
        yield f"        z[{at}] = total"
        yield "    return y, z"
    else:
        yield "    return y"


Run = Callable[[str, tuple[Array, ...]], Any]


def differs(c: Convolution, run: Run) -> str:
    """Where results are not those of NumPy; empty where they are."""
    found = run(c.text, c.arguments)
    for got, wanted in zip(found if isinstance(found, tuple) else (found,), c.wanted, strict=True):
        array = np.asarray(got).astype(np.float64)
        if array.shape != wanted.shape:
            return f"shape {array.shape}, not {wanted.shape}"
        wrong = np.argwhere(array != wanted)
        if len(wrong):
            at = tuple(int(n) for n in wrong[0])
            return f"{len(wrong)} wrong; {at}: {array[at]}, not {wanted[at]}"
    return ""
