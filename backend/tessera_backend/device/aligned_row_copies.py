"""Copies of arrays with aligned lines, for code that can read no others.

Owns the kernel that copies, which serves every element type and rank, and its launch. Each lane
writes 16 bytes: it reads the one or two aligned words that hold them and shifts. A word that
reaches beyond the array is not read; those bytes are copied one by one. Must not know plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.device import permute_copy_kernel
from tessera_backend.device.driver import Device
from tessera_backend.device.module import Module
from tessera_backend.device.permute_copy_kernel import Copy
from tessera_backend.device.workspace import copies as memory_of_copies
from tessera_lang.locks import free_lock, once
from tessera_lang.target.arch import OLDEST
from tessera_lang.target.launch_plan import COPY_AXES

LANES = permute_copy_kernel.LANES
CHUNK = 16
OUTER = COPY_AXES - 1
"""Axes around a line."""

LOCK = free_lock()
"""Held from the first copy to the launch that reads them: threads of one stream share the
memory of copies."""


Copying = tuple[Any, Callable[[int], None]]
"""The arguments of a kernel that copies, which may change, and ``launch(stream)``."""
Launcher = Callable[[Module, Sequence[int], int], Copying]
"""``launcher(module, arguments, groups)``."""


def repacker(
    device: Device, block: Any, copies: Sequence[Copy], launcher: Launcher
) -> Callable[[int], None]:
    """``make(stream)``: copies the arrays whose addresses are in ``block``, and puts those of the
    copies there."""
    total = max((c.at + c.pitch * _lines(c) for c in copies), default=0)
    made = [(c, *_copier(device, c, launcher)) for c in copies]

    def make(stream: int) -> None:
        base = memory_of_copies(device, stream, total)
        for copy, groups, copied in made:
            address = base + copy.at
            for slot in copy.targets:
                block[slot] = address
            if groups:
                copied(address, block[copy.source], stream)

    return make


def _copier(
    device: Device, copy: Copy, launcher: Launcher
) -> tuple[int, Callable[[int, int, int], None]]:
    """Groups to launch, and ``copied(target, source, stream)``."""
    if permute_copy_kernel.is_reordered(copy):
        groups, values = permute_copy_kernel.geometry(copy)
        block, launch = launcher(
            permute_copy_kernel.reorder_module(device, copy.element), (0, 0, *values), groups
        )

        def reordered(target: int, source: int, stream: int) -> None:
            block[0], block[1] = target, source
            launch(stream)

        return groups, reordered
    groups, (low, high, *rest) = _geometry(copy)
    block, launch = launcher(repack_module(device), (0, 0, 0, 0, *rest), groups)

    def lines(target: int, source: int, stream: int) -> None:
        block[0], block[1], block[2], block[3] = target, source, source + low, source + high
        launch(stream)

    return groups, lines


def _lines(copy: Copy) -> int:
    lines = 1
    for n in copy.shape[:-1]:
        lines *= n
    return lines


def _geometry(copy: Copy) -> tuple[int, list[int]]:
    """Groups to launch, and the arguments behind the two addresses."""
    size = copy.element
    line = copy.shape[-1] * size
    chunks = -(-line // CHUNK)
    total = chunks * _lines(copy)
    reach = [(n - 1) * s * size for n, s in zip(copy.shape, copy.strides, strict=True)]
    low = sum(min(0, r) for r in reach)
    high = sum(max(0, r) for r in reach) + size
    outer = _joined([(n, s * size) for n, s in zip(copy.shape[:-1], copy.strides, strict=False)])
    padded = [*outer, *([(1, 0)] * (OUTER - len(outer)))]
    values = [low, high, total, chunks, line, copy.pitch, *(n for n, _ in padded),
              *(s for _, s in padded)]  # fmt: skip
    return -(-total // LANES), values


def _joined(outer: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sizes and strides of the axes around a line, innermost first, those that lie one behind
    the other as one."""
    out: list[tuple[int, int]] = []
    for n, stride in reversed(outer):
        if n == 1:
            continue
        if out and stride == out[-1][0] * out[-1][1]:
            out[-1] = out[-1][0] * n, out[-1][1]
        else:
            out.append((n, stride))
    return out


@once
def repack_module(device: Device) -> Module:
    return Module(device, ptx().encode("ascii"), ENTRY)


ENTRY = "repack"
_TARGET, _SOURCE, _LOW, _HIGH, _TOTAL, _CHUNKS, _LINE, _PITCH = range(8)
ARGUMENTS = _PITCH + 1 + 2 * OUTER


def ptx() -> str:
    """The kernel: 64-bit arguments, fewer than 2**32 pieces of 16 bytes."""
    parameters = ",\n".join(f"  .param .u64 p{i}" for i in range(ARGUMENTS))
    return f"""\
.version 7.0
.target {OLDEST.name}
.address_size 64
.visible .entry {ENTRY}(
{parameters}
)
.maxntid {LANES}, 1, 1
{{
  .reg .pred %p<16>;
  .reg .b32 %r<64>;
  .reg .b64 %d<40>;
  .reg .b16 %h<2>;
{_place()}
{_words()}
{_bytes()}
done:
  ret;
}}
"""


def _place() -> str:
    """%d0: where to write; %d1: where to read; %r4: bytes of the line from there on."""
    lines = [
        "  mov.u32 %r0, %ctaid.x;",
        "  mov.u32 %r1, %tid.x;",
        f"  mad.lo.u32 %r0, %r0, {LANES}, %r1;",
        f"  ld.param.u32 %r1, [p{_TOTAL}];",
        "  setp.ge.u32 %p0, %r0, %r1;",
        "  @%p0 bra done;",
        f"  ld.param.u32 %r2, [p{_CHUNKS}];",
        "  div.u32 %r3, %r0, %r2;",
        "  mul.lo.u32 %r5, %r3, %r2;",
        "  sub.u32 %r5, %r0, %r5;",
        f"  mul.wide.u32 %d2, %r5, {CHUNK};",
        f"  ld.param.u64 %d0, [p{_TARGET}];",
        f"  ld.param.u64 %d3, [p{_PITCH}];",
        "  cvt.u64.u32 %d4, %r3;",
        "  mad.lo.s64 %d0, %d3, %d4, %d0;",
        "  add.s64 %d0, %d0, %d2;",
        f"  ld.param.u64 %d1, [p{_SOURCE}];",
        "  add.s64 %d1, %d1, %d2;",
        f"  ld.param.u64 %d5, [p{_LINE}];",
        "  sub.s64 %d5, %d5, %d2;",
        f"  min.s64 %d5, %d5, {CHUNK};",
        "  cvt.u32.u64 %r4, %d5;",
    ]
    for i in range(OUTER):
        size, stride = _PITCH + 1 + i, _PITCH + 1 + OUTER + i
        lines += [
            f"  ld.param.u32 %r6, [p{size}];",
            "  setp.eq.u32 %p1, %r6, 1;",
            f"  @%p1 bra axis{i};",
            "  div.u32 %r7, %r3, %r6;",
            "  mul.lo.u32 %r8, %r7, %r6;",
            "  sub.u32 %r8, %r3, %r8;",
            f"  ld.param.u64 %d6, [p{stride}];",
            "  cvt.u64.u32 %d7, %r8;",
            "  mad.lo.s64 %d1, %d6, %d7, %d1;",
            "  mov.u32 %r3, %r7;",
            f"axis{i}:",
        ]
    return "\n".join(lines)


def _words() -> str:
    """The aligned words around %d1, if both lie in the array, shifted and written."""
    first = ", ".join(f"%r{i}" for i in range(16, 20))
    second = ", ".join(f"%r{i}" for i in range(20, 24))
    lines = [
        f"  and.b64 %d8, %d1, {CHUNK - 1};",
        "  sub.s64 %d9, %d1, %d8;",
        "  cvt.u32.u64 %r9, %d8;",
        "  add.u32 %r10, %r9, %r4;",
        f"  setp.gt.u32 %p2, %r10, {CHUNK};",
        f"  selp.b64 %d10, {2 * CHUNK}, {CHUNK}, %p2;",
        "  add.s64 %d10, %d9, %d10;",
        f"  ld.param.u64 %d11, [p{_LOW}];",
        f"  ld.param.u64 %d12, [p{_HIGH}];",
        "  setp.lt.u64 %p3, %d9, %d11;",
        "  @%p3 bra bytes;",
        "  setp.gt.u64 %p3, %d10, %d12;",
        "  @%p3 bra bytes;",
        *(f"  mov.u32 %r{i}, 0;" for i in range(20, 24)),
        f"  ld.global.nc.v4.u32 {{{first}}}, [%d9];",
        f"  @%p2 ld.global.nc.v4.u32 {{{second}}}, [%d9+{CHUNK}];",
        "  and.b32 %r11, %r9, 8;",
        "  setp.ne.u32 %p4, %r11, 0;",
        *(f"  selp.b32 %r{24 + i}, %r{18 + i}, %r{16 + i}, %p4;" for i in range(6)),
        "  and.b32 %r11, %r9, 4;",
        "  setp.ne.u32 %p4, %r11, 0;",
        *(f"  selp.b32 %r{32 + i}, %r{25 + i}, %r{24 + i}, %p4;" for i in range(5)),
        "  and.b32 %r11, %r9, 3;",
        "  shl.b32 %r11, %r11, 3;",
        *(f"  shf.r.wrap.b32 %r{40 + i}, %r{32 + i}, %r{33 + i}, %r11;" for i in range(4)),
        "  st.global.v4.u32 [%d0], {%r40, %r41, %r42, %r43};",
        "  bra done;",
    ]
    return "\n".join(lines)


def _bytes() -> str:
    return "\n".join([
        "bytes:",
        "  ld.global.u8 %h0, [%d1];",
        "  st.global.u8 [%d0], %h0;",
        "  add.s64 %d1, %d1, 1;",
        "  add.s64 %d0, %d0, 1;",
        "  sub.u32 %r4, %r4, 1;",
        "  setp.ne.u32 %p5, %r4, 0;",
        "  @%p5 bra bytes;",
    ])  # fmt: skip
