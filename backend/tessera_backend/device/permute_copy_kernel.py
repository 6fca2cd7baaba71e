"""Copies of arrays whose lines run along another axis than those of the array.

Owns the kernel that makes them, one for each size of element, which serves every rank. A group
moves a rectangle through shared memory: it reads along the axis whose elements lie nearest to
each other, the *run*, and writes along the line. Must not know plans.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

from tessera_backend.device.driver import Device
from tessera_backend.device.module import Module
from tessera_lang.locks import once
from tessera_lang.target.arch import OLDEST
from tessera_lang.target.launch_plan import COPY_AXES

LANES = 256
LINE, RUN = 32, 64
"""Elements of a rectangle along a line and along a run."""
OUTER = COPY_AXES - 1
"""Axes around a rectangle, of which there is one fewer."""
ENTRY = "reorder"
(
    _TARGET, _SOURCE, _LINES, _RUNS, _LINE_STEP, _RUN_STEP, _PITCH, _ACROSS, _ALONG, _FIRST,
) = range(10)  # fmt: skip
ARGUMENTS = _FIRST + 3 * OUTER


class Copy(Protocol):
    """A copy to make. Axes outermost first, the last one contiguous; strides in elements."""

    @property
    def source(self) -> int:
        """The slot that holds the address of the array."""
        ...

    @property
    def targets(self) -> tuple[int, ...]:
        """The slots that take the address of the copy."""
        ...

    @property
    def element(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def pitch(self) -> int:
        """Bytes from line to line of the copy."""
        ...

    @property
    def at(self) -> int:
        """Where the copy begins in the memory of all copies of the launch."""
        ...


_Axis = tuple[int, int, int]
"""Elements, and bytes from one to the next in the array and in the copy."""


def is_reordered(copy: Copy) -> bool:
    """Whether lines of a copy are no lines of its array."""
    return copy.shape[-1] > 1 and copy.strides[-1] != 1


def geometry(copy: Copy) -> tuple[int, list[int]]:
    """Groups to launch, and the arguments behind the two addresses."""
    size, line = copy.element, copy.shape[-1]
    axes, pitch = list[_Axis](), copy.pitch
    for n, stride in zip(reversed(copy.shape[:-1]), reversed(copy.strides[:-1]), strict=True):
        axes.append((n, stride * size, pitch))
        pitch *= n
    joined = _joined(axes)
    run = min(joined, key=lambda a: abs(a[1]), default=(1, 0, 0))
    outer = [a for a in joined if a is not run]
    padded = [*outer, *([(1, 0, 0)] * (OUTER - len(outer)))]
    across, along = -(-line // LINE), -(-run[0] // RUN)
    groups = across * along * prod(n for n, _, _ in outer)
    return groups, [
        line, run[0], copy.strides[-1] * size, run[1], run[2], across, along,
        *(n for axis in padded for n in axis),
    ]  # fmt: skip


def _joined(axes: list[_Axis]) -> list[_Axis]:
    """The axes, innermost first; those that lie one behind the other in both arrays as one."""
    out: list[_Axis] = []
    for n, source, target in axes:
        if n == 1:
            continue
        if out and (source, target) == (out[-1][0] * out[-1][1], out[-1][0] * out[-1][2]):
            out[-1] = out[-1][0] * n, out[-1][1], out[-1][2]
        else:
            out.append((n, source, target))
    return out


@once
def reorder_module(device: Device, size: int) -> Module:
    """The kernel for elements of ``size`` bytes."""
    return Module(device, ptx(size).encode("ascii"), ENTRY)


def ptx(size: int) -> str:
    """The kernel: 64-bit arguments, fewer than 2**31 groups and elements along an axis."""
    parameters = ",\n".join(f"  .param .u64 p{i}" for i in range(ARGUMENTS))
    pitch = RUN * size + max(4, size)
    register = ".b16 %h" if size <= 2 else f".b{8 * size} %v"
    return f"""\
.version 7.0
.target {OLDEST.name}
.address_size 64
.visible .entry {ENTRY}(
{parameters}
)
.maxntid {LANES}, 1, 1
{{
  .reg .pred %p<8>;
  .reg .b32 %r<24>;
  .reg .b64 %d<24>;
  .reg {register}<{LINE * RUN // LANES}>;
  .shared .align 16 .b8 rectangle[{LINE * pitch}];
{_place()}
{_read(size, pitch)}
  bar.sync 0;
{_write(size, pitch)}
  ret;
}}
"""


def _place() -> str:
    """%d0, %d1: the copy and the array at the rectangle's outer axes; %r1, %r2: where it begins
    along the line and the run."""
    lines = [
        "  mov.u32 %r0, %ctaid.x;",
        "  mov.u32 %r10, %tid.x;",
        f"  ld.param.u64 %d0, [p{_TARGET}];",
        f"  ld.param.u64 %d1, [p{_SOURCE}];",
    ]
    for out, count, width in (("%r1", _ACROSS, LINE), ("%r2", _ALONG, RUN)):
        lines += [
            f"  ld.param.u32 %r3, [p{count}];",
            "  div.u32 %r4, %r0, %r3;",
            "  mul.lo.u32 %r5, %r4, %r3;",
            "  sub.u32 %r5, %r0, %r5;",
            f"  mul.lo.u32 {out}, %r5, {width};",
            "  mov.u32 %r0, %r4;",
        ]
    for i in range(OUTER):
        size, source, target = (_FIRST + 3 * i + j for j in range(3))
        lines += [
            f"  ld.param.u32 %r3, [p{size}];",
            "  setp.eq.u32 %p0, %r3, 1;",
            f"  @%p0 bra axis{i};",
            "  div.u32 %r4, %r0, %r3;",
            "  mul.lo.u32 %r5, %r4, %r3;",
            "  sub.u32 %r5, %r0, %r5;",
            "  cvt.u64.u32 %d2, %r5;",
            f"  ld.param.u64 %d3, [p{source}];",
            f"  ld.param.u64 %d4, [p{target}];",
            "  mad.lo.s64 %d1, %d3, %d2, %d1;",
            "  mad.lo.s64 %d0, %d4, %d2, %d0;",
            "  mov.u32 %r0, %r4;",
            f"axis{i}:",
        ]
    return "\n".join(lines)


def _register(size: int, i: int) -> str:
    return f"%h{i}" if size <= 2 else f"%v{i}"


def _read(size: int, pitch: int) -> str:
    """Lanes along the run: %r12 is a lane's place there, %r11 its place in the line."""
    step = LANES // RUN
    kind = f"u{8 * size}"
    lines = [
        f"  shr.u32 %r11, %r10, {RUN.bit_length() - 1};",
        f"  and.b32 %r12, %r10, {RUN - 1};",
        f"  mul.lo.u32 %r13, %r11, {pitch};",
        f"  mad.lo.u32 %r13, %r12, {size}, %r13;",
        "  mov.u32 %r14, rectangle;",
        "  add.u32 %r13, %r13, %r14;",
        "  add.u32 %r11, %r11, %r1;",
        "  add.u32 %r12, %r12, %r2;",
        f"  ld.param.u32 %r15, [p{_LINES}];",
        f"  ld.param.u32 %r16, [p{_RUNS}];",
        "  setp.lt.u32 %p1, %r12, %r16;",
        f"  ld.param.u64 %d5, [p{_LINE_STEP}];",
        f"  ld.param.u64 %d6, [p{_RUN_STEP}];",
        "  cvt.u64.u32 %d7, %r11;",
        "  mad.lo.s64 %d1, %d5, %d7, %d1;",
        "  cvt.u64.u32 %d7, %r12;",
        "  mad.lo.s64 %d1, %d6, %d7, %d1;",
        f"  mul.lo.s64 %d5, %d5, {step};",
    ]
    count = LINE // step
    for i in range(count):
        register = _register(size, i)
        zero = f"mov.b{max(16, 8 * size)} {register}, 0;"
        lines += [
            f"  {zero}",
            "  setp.lt.and.u32 %p2, %r11, %r15, %p1;",
            f"  @%p2 ld.global.nc.{kind} {register}, [%d1];",
            f"  add.u32 %r11, %r11, {step};",
            "  add.s64 %d1, %d1, %d5;",
        ]
    lines += [
        f"  st.shared.{kind} [%r13+{i * step * pitch}], {_register(size, i)};"
        for i in range(count)
    ]  # fmt: skip
    return "\n".join(lines)


def _write(size: int, pitch: int) -> str:
    """Lanes along the line."""
    step = LANES // LINE
    kind = f"u{8 * size}"
    lines = [
        f"  and.b32 %r11, %r10, {LINE - 1};",
        f"  shr.u32 %r12, %r10, {LINE.bit_length() - 1};",
        f"  mul.lo.u32 %r13, %r11, {pitch};",
        f"  mad.lo.u32 %r13, %r12, {size}, %r13;",
        "  add.u32 %r13, %r13, %r14;",
        "  add.u32 %r11, %r11, %r1;",
        "  add.u32 %r12, %r12, %r2;",
        "  setp.lt.u32 %p1, %r11, %r15;",
        f"  ld.param.u64 %d5, [p{_PITCH}];",
        "  cvt.u64.u32 %d7, %r12;",
        "  mad.lo.s64 %d0, %d5, %d7, %d0;",
        f"  mul.wide.u32 %d7, %r11, {size};",
        "  add.s64 %d0, %d0, %d7;",
        f"  mul.lo.s64 %d5, %d5, {step};",
    ]
    for i in range(RUN // step):
        register = _register(size, i)
        lines += [
            f"  ld.shared.{kind} {register}, [%r13+{i * step * size}];",
            "  setp.lt.and.u32 %p2, %r12, %r16, %p1;",
            f"  @%p2 st.global.{kind} [%d0], {register};",
            f"  add.u32 %r12, %r12, {step};",
            "  add.s64 %d0, %d0, %d5;",
        ]
    return "\n".join(lines)
