"""Emits ``tile.dot_into``: a product of buffers, blocked for registers and caches.

The columns of the accumulator are cut into panels of a few vectors, a panel's rows into blocks
whose accumulators are held in registers (``micro_kernels``). A panel of b stays in the first cache
while the rows go by. Where b is given transposed each panel is transposed into scratch memory
first. The sum over the contraction begins at 0 and is added to the accumulator once, term after
term in order, fused where the CPU fuses. Must not know Tile IR beyond this operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.cpu.lane_loops import Scratch
from tessera_backend.cpu.micro_kernels import PITCHES, Block, Matrices, micro_kernel
from tessera_backend.cpu.pack_transposed import packing
from tessera_backend.cpu.simd_target import VectorUnit
from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.llvm.text import ModuleText
from tessera_backend.llvm.types import register_type
from tessera_lang.ir.core import BufferType, Operation, Value


def product_rules(unit: VectorUnit, scratch: Scratch) -> dict[str, Rule]:
    """The rule of ``tile.dot_into`` for a CPU with this vector unit."""

    def rule(e: LaneEmitter, op: Operation) -> None:
        _dot_into(e, op, unit, scratch)

    return {"tile.dot_into": rule}


def _dot_into(e: LaneEmitter, op: Operation, unit: VectorUnit, scratch: Scratch) -> None:
    buffers = op.operands[:3]
    rows, columns, terms, *batch = map(e.operand, op.operands[3:])
    addresses = [_matrix(e, v, batch) for v in buffers]
    dtype = _buffer(buffers[0]).dtype
    (_, a_last), (_, b_last), (_, c_last) = (_buffer(v).shape[-2:] for v in buffers)
    turned_a, turned_b = (bool(op.attributes[f"transpose_{x}"]) for x in "ab")
    panel = unit.lanes(dtype) * unit.columns
    packed = scratch.take(b_last * panel * dtype.bytes) if turned_b else "null"
    # Where rows of c and b are whole vectors, what is behind the last column may be written.
    lanes = unit.lanes(dtype)
    padded = c_last % lanes == 0 and (turned_b or b_last % lanes == 0)
    name = _panels(e.module, unit, Matrices(dtype, turned_a), turned_b, padded)
    joined = ", ".join(f"ptr {address}" for address in (*addresses, packed))
    numbers = ", ".join(f"i64 {n}" for n in (rows, columns, terms, a_last, b_last, c_last))
    e.f.line(f"call void {name}({joined}, {numbers})")


def _buffer(value: Value) -> BufferType:
    if not isinstance(value.type, BufferType):
        raise TypeError("a product multiplies buffers")
    return value.type


def _matrix(e: LaneEmitter, value: Value, batch: Sequence[str]) -> str:
    """Address of the matrix at the indices ``batch``."""
    place, t = e.places[value], _buffer(value)
    if not batch:
        return place.pointer
    offset = batch[0]
    for size, index in zip(t.shape[1:-2], batch[1:], strict=True):
        scaled = e.f.value(f"mul nuw nsw i64 {offset}, {size}")
        offset = e.f.value(f"add nuw nsw i64 {scaled}, {index}")
    whole = e.f.value(f"mul nuw nsw i64 {offset}, {t.shape[-2] * t.shape[-1]}")
    kind = register_type(t.dtype)
    return e.f.value(f"getelementptr inbounds {kind}, ptr {place.pointer}, i64 {whole}")


def _panels(
    module: ModuleText, unit: VectorUnit, m: Matrices, turned: bool, padded: bool
) -> str:  # fmt: skip
    """Name of ``void (ptr a, ptr b, ptr c, ptr packed, i64 m, i64 n, i64 k, pitches)``; ``turned``:
    b is given transposed."""
    name = f'@"product.{m.name}.{"t" if turned else "n"}.{"padded" if padded else "exact"}"'
    kind, lanes = register_type(m.dtype), unit.lanes(m.dtype)
    lines = [
        "entry:", "  br label %panel", "panel:",
        "  %j = phi i64 [ 0, %entry ], [ %j.next, %next ]",
        "  %rest = sub i64 %n, %j", "  %some = icmp sgt i64 %rest, 0",
        "  br i1 %some, label %work, label %done", "work:",
        f"  %pc = getelementptr inbounds {kind}, ptr %c, i64 %j",
    ]  # fmt: skip
    if turned:
        panel = lanes * unit.columns
        pack = packing(module, unit, m.dtype, panel)
        lines += [
            "  %row = mul nuw nsw i64 %j, %pitch.b",
            f"  %pb = getelementptr inbounds {kind}, ptr %b, i64 %row",
            f"  %more = icmp sgt i64 %rest, {panel}",
            f"  %width = select i1 %more, i64 {panel}, i64 %rest",
            f"  call void {pack}(ptr %pb, ptr %packed, i64 %width, i64 %k, i64 %pitch.b)",
        ]
    else:
        lines.append(f"  %pb = getelementptr inbounds {kind}, ptr %b, i64 %j")
    panel_b = "%packed" if turned else "%pb"
    pitches = f"i64 %pitch.a, i64 {lanes * unit.columns}, i64 %pitch.c" if turned else PITCHES
    forms = [(v, lanes) for v in range(unit.columns, 0, -1)] + ([] if padded else [(1, 1)])
    arms: list[str] = []
    for number, (vectors, width) in enumerate(forms):
        last = number == len(forms) - 1
        least = (vectors - 1) * width + 1 if padded else vectors * width
        if not last:
            lines += [f"  %fits.{number} = icmp sge i64 %rest, {least}",
                      f"  br i1 %fits.{number}, label %arm.{number}, label %try.{number}",
                      f"try.{number}:"]  # fmt: skip
        else:
            lines.append(f"  br label %arm.{number}")
        rows = _rows(module, unit, m, vectors, width)
        arms += [f"arm.{number}:",
                 f"  call void {rows}(ptr %a, ptr {panel_b}, ptr %pc, i64 %m, i64 %k, {pitches})",
                 "  br label %next"]  # fmt: skip
    steps = ", ".join(f"[ {v * w}, %arm.{n} ]" for n, (v, w) in enumerate(forms))
    lines += [*arms, "next:", f"  %step = phi i64 {steps}",
              "  %j.next = add nuw nsw i64 %j, %step", "  br label %panel", "done:",
              "  ret void"]  # fmt: skip
    body = "\n".join(lines)
    module.add_shared(
        name,
        f"define internal void {name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, "
        f"ptr noalias %packed, i64 %m, i64 %n, i64 %k, {PITCHES}) noinline {unit.attributes} "
        f"{{\n{body}\n}}",
        f"void {name}(ptr noalias nocapture readonly, ptr noalias nocapture readonly, "
        "ptr noalias nocapture, ptr noalias nocapture, i64, i64, i64, i64, i64, i64) "
        "nounwind willreturn nosync nofree nocallback memory(argmem: readwrite)",
    )
    return name


def _rows(module: ModuleText, unit: VectorUnit, m: Matrices, vectors: int, lanes: int) -> str:
    """Name of ``void (ptr a, ptr b, ptr c, i64 m, i64 k, pitches)``: a panel, block by block."""
    name = f'@"rows.{m.name}.{vectors}x{lanes}"'
    kind = register_type(m.dtype)
    step_a = "1" if m.transpose_a else "%pitch.a"
    lines = ["entry:", "  br label %head.0"]
    before, sizes = "entry", _row_blocks(unit.rows)
    for number, rows in enumerate(sizes):
        kernel = micro_kernel(module, unit, m, Block(rows, vectors, lanes))
        start = "0" if number == 0 else f"%i.{number - 1}"
        following = f"head.{number + 1}" if number + 1 < len(sizes) else "done"
        lines += [
            f"head.{number}:",
            f"  %i.{number} = phi i64 [ {start}, %{before} ], [ %n.{number}, %body.{number} ]",
            f"  %n.{number} = add nuw nsw i64 %i.{number}, {rows}",
            f"  %fits.{number} = icmp sle i64 %n.{number}, %m",
            f"  br i1 %fits.{number}, label %body.{number}, label %{following}",
            f"body.{number}:",
            f"  %oa.{number} = mul nuw nsw i64 %i.{number}, {step_a}",
            f"  %a.{number} = getelementptr inbounds {kind}, ptr %a, i64 %oa.{number}",
            f"  %oc.{number} = mul nuw nsw i64 %i.{number}, %pitch.c",
            f"  %c.{number} = getelementptr inbounds {kind}, ptr %c, i64 %oc.{number}",
            f"  call void {kernel}(ptr %a.{number}, ptr %b, ptr %c.{number}, i64 %k, {PITCHES})",
            f"  br label %head.{number}",
        ]
        before = f"head.{number}"
    body = "\n".join([*lines, "done:", "  ret void"])
    module.add_shared(
        name,
        f"define internal void {name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %m, "
        f"i64 %k, {PITCHES}) noinline {unit.attributes} {{\n{body}\n}}",
    )
    return name


def _row_blocks(most: int) -> list[int]:
    """Numbers of rows of micro-kernels, largest first, that together make every number."""
    sizes = [most]
    while sizes[-1] > 1:
        sizes.append(max(1, sizes[-1] // 2))
    return sizes
