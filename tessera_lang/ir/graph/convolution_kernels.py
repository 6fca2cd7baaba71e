"""The text of the kernels of convolutions: products of tiles, one for each place of the weights.

What a place meets is read where it is, with zeros outside, so that nothing is stored padded or
unfolded. Inputs that are spread have no kernel (``opt.graph.decompose`` makes others of them).
Owns the text. Must not know how a kernel is compiled.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.ir.core import Operation

NAME = "call"
_TILE, _LONG = 32, 64
"""Channels of a tile, and the most places along the last axis, as in ``std.conv``."""


def convolution(o: Operation) -> str:
    """Of ``graph.conv``: tiles of output channels by places of the last axis."""
    k = _Geometry(o, 1)
    size = k.size[-1]
    wide = k.places(size)
    grid = [("i", "n", 1), *k.groups, *((f"p{a}", str(k.size[a]), 1) for a in k.outer),
            ("m", k.channels, _TILE), ("q", str(size), wide)]  # fmt: skip
    at = "".join(f"t{a}, " for a in k.outer)
    body = [
        f"acc = op.zeros(({_TILE}, {wide}), {k.wide})",
        *k.through(
            [(f"t{a}", f"k{a}") for a in k.outer],
            [
                f"for t in range(k{k.last}):",
                f"    a = t * {k.dilation[-1]} - {k.before[-1]}",
                f"    for c in op.tile_range(ci, step={_TILE}):",
                f"        met = {k.met(_TILE, wide)}[:min({_TILE}, ci-c), :min({wide}, {size}-q)]",
                f"        acc += w[{k.row}, c:c+{_TILE}, {at}t] @ met",
            ],
        ),
        f"y[i, {k.row}, {''.join(f'p{a}, ' for a in k.outer)}q:q+{wide}] = acc.to({k.dtype})",
    ]
    return k.kernel(f"w: {k.dtype}[co, ci, {k.axes('k')}]", "n, co", grid, body)


def weights_of_convolution(o: Operation) -> str:
    """Of ``graph.conv_weights``: tiles of output channels by input channels of a group."""
    k = _Geometry(o, 2)
    wide = k.places(cast("int", o.operands[1].tensor_type.shape[-1]))
    channels = f"c0 // {k.count}"
    grid = [*k.groups, *((f"t{a}", str(k.size[a]), 1) for a in k.outer), ("t", str(k.size[-1]), 1),
            ("m", k.channels, _TILE), ("c", channels, _TILE)]  # fmt: skip
    at = "".join(f"p{a}, " for a in k.outer)
    body = [
        f"acc = op.zeros(({_TILE}, {_TILE}), {k.wide})",
        f"a = t * {k.dilation[-1]} - {k.before[-1]}",
        "for i in range(n):",
        *_indented(k.through(
            [(f"p{a}", f"k{a}") for a in k.outer],
            [
                f"for q in op.tile_range(k{k.last}, step={wide}):",
                f"    met = {k.met(_TILE, wide)}"
                f"[:min({_TILE}, {channels}-c), :min({wide}, k{k.last}-q)]",
                f"    acc += w[i, {k.row}, {at}q:q+{wide}] @ met.T",
            ],
        )),
        f"y[{k.row}, c:c+{_TILE}, {''.join(f't{a}, ' for a in k.outer)}t] = acc.to({k.dtype})",
    ]  # fmt: skip
    head = f"w: {k.dtype}[n, co, {k.axes('k')}]"
    return k.kernel(head, f"co, {channels}", grid, body)


class _Geometry:
    """What both kernels say of a convolution. ``c0``: all input channels; ``ci``, ``channels``:
    those of a group, going in and coming out; ``row``: output channels of a tile."""

    def __init__(self, o: Operation, ways: int) -> None:
        assert all(n == 1 for n in o.integers("spread")), "a spread input has no kernel"
        self.dtype = str(o.operands[0].tensor_type.dtype)
        self.wide = "f64" if self.dtype == "f64" else "f32"
        self.size = [int(n) for n in o.strings("size")]
        self.stride, self.before = o.integers("stride"), o.integers("before")
        self.dilation = o.integers("dilation")
        self.last = len(self.size) - 1
        self.outer = range(self.last)
        self.count = cast("int", o.attributes["groups"])
        self.groups = [("g", str(self.count), 1)] if self.count > 1 else []
        self.channels = f"co // {self.count}" if self.groups else "co"
        self.row = f"m:m+{_TILE}"
        if self.groups:
            begin = f"g * ({self.channels})"
            self.row = f"{begin} + m:{begin} + min(m+{_TILE}, {self.channels})"
        self.of_group = "c:c+{0}"
        if self.groups:
            self.of_group = "g * ({1}) + c:g * ({1}) + min(c+{0}, {1})"
        self.inner = "ci" if ways == 1 else f"c0 // {self.count}"

    def places(self, size: int) -> int:
        """Along the last axis of a tile: a power of two."""
        return max(16, min(_LONG, 1 << (size - 1).bit_length()))

    def axes(self, letter: str) -> str:
        return ", ".join(f"{letter}{a}" for a in range(self.last + 1))

    def met(self, channels: int, places: int) -> str:
        """What a place of the weights meets along the last axis: a slice in steps."""
        step = self.stride[-1]
        outer = "".join(f"u{a}, " for a in self.outer)
        part = f"x[i, {self.of_group.format(channels, self.inner)}, {outer}a % {step}::{step}]"
        return f"op.window({part}, (0, q + a // {step}), ({channels}, {places}))"

    def through(self, loops: list[tuple[str, str]], body: list[str]) -> list[str]:
        """Loops along the other axes, where what is met is inside."""
        for a in reversed(self.outer):
            name, end = loops[a]
            meets = f"p{a} * {self.stride[a]} + t{a} * {self.dilation[a]} - {self.before[a]}"
            body = [
                f"for {name} in range({end}):",
                f"    u{a} = {meets}",
                f"    if u{a} >= 0 and u{a} < h{a}:",
                *_indented(body, 2),
            ]
        return body

    def kernel(
        self, operand: str, front: str, grid: list[tuple[str, str, int]], body: list[str]
    ) -> str:
        """The function. ``front``: sizes of the result before those that are said; ``grid``: names,
        ends and steps of its loops over tiles."""
        names, ends, steps = (", ".join(map(str, x)) for x in zip(*grid, strict=True))
        apart = ', independent=("g", "m")' if self.groups else ""
        shape = f"({front}, {', '.join(map(str, self.size))})"
        lines = [
            "@op.kernel",
            f"def {NAME}(x: {self.dtype}[n, c0, {self.axes('h')}], {operand}):",
            f"    y = op.empty({shape}, dtype={self.dtype})",
            f"    for {names} in op.tile_range({ends}, step=({steps}){apart}):",
            *_indented(body, 2), "    return y",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def _indented(lines: list[str], depth: int = 1) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]
