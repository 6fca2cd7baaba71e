"""Transposing part of a matrix into packed rows, in blocks held in registers.

Owns the LLVM text of ``packed[t, j] = b[j, t]``. A square of vectors is transposed by exchanging
halves of pairs of rows, at distance 1, 2, 4 ... Must not know what is done with it.
"""

from __future__ import annotations

from tessera_backend.cpu.simd_target import VectorUnit
from tessera_backend.llvm.text import ModuleText
from tessera_backend.llvm.types import register_type
from tessera_lang.types.dtype import DType


def packing(module: ModuleText, unit: VectorUnit, dtype: DType, packed: int) -> str:
    """Name of ``void (ptr b, ptr packed, i64 rows, i64 k, i64 pitch)``: ``rows`` rows of b,
    ``pitch`` apart, become columns of ``packed``, whose rows are ``packed`` elements apart."""
    name = f'@"pack.{dtype}.{packed}"'
    square = _square(module, unit, dtype, packed)
    kind, lanes = register_type(dtype), unit.lanes(dtype)
    module.add_shared(name, f"""define internal void {name}(ptr noalias %b, ptr noalias %packed, \
i64 %rows, i64 %k, i64 %pitch) noinline {unit.attributes} {{
entry:
  %whole = and i64 %k, {-lanes}
  br label %rows.head
rows.head:
  %j = phi i64 [ 0, %entry ], [ %j.next, %rows.next ]
  %rest = sub i64 %rows, %j
  %some = icmp sgt i64 %rest, 0
  br i1 %some, label %rows.body, label %done
rows.body:
  %j.next = add nuw nsw i64 %j, {lanes}
  %full = icmp sge i64 %rest, {lanes}
  %last = select i1 %full, i64 {lanes}, i64 %rest
  %squares = select i1 %full, i64 %whole, i64 0
  br label %square.head
square.head:
  %t = phi i64 [ 0, %rows.body ], [ %t.next, %square.body ]
  %more = icmp slt i64 %t, %squares
  br i1 %more, label %square.body, label %single.head
square.body:
  %row = mul nuw nsw i64 %j, %pitch
  %from = add nuw nsw i64 %row, %t
  %at.b = getelementptr inbounds {kind}, ptr %b, i64 %from
  %line = mul nuw nsw i64 %t, {packed}
  %to = add nuw nsw i64 %line, %j
  %at.p = getelementptr inbounds {kind}, ptr %packed, i64 %to
  call void {square}(ptr %at.b, ptr %at.p, i64 %pitch)
  %t.next = add nuw nsw i64 %t, {lanes}
  br label %square.head
{_one_by_one(kind, dtype, packed)}
rows.next:
  br label %rows.head
done:
  ret void
}}""")  # fmt: skip
    return name


def _one_by_one(kind: str, dtype: DType, packed: int) -> str:
    """The blocks that move what no square of vectors covers, element by element."""
    return f"""single.head:
  %u = phi i64 [ %squares, %square.head ], [ %u.next, %single.next ]
  %u.some = icmp slt i64 %u, %k
  br i1 %u.some, label %single.body, label %rows.next
single.body:
  %i = phi i64 [ 0, %single.head ], [ %i.next, %single.body ]
  %ji = add nuw nsw i64 %j, %i
  %row.s = mul nuw nsw i64 %ji, %pitch
  %from.s = add nuw nsw i64 %row.s, %u
  %at.bs = getelementptr inbounds {kind}, ptr %b, i64 %from.s
  %x = load {kind}, ptr %at.bs, align {dtype.bytes}
  %line.s = mul nuw nsw i64 %u, {packed}
  %to.s = add nuw nsw i64 %line.s, %ji
  %at.ps = getelementptr inbounds {kind}, ptr %packed, i64 %to.s
  store {kind} %x, ptr %at.ps, align {dtype.bytes}
  %i.next = add nuw nsw i64 %i, 1
  %i.more = icmp slt i64 %i.next, %last
  br i1 %i.more, label %single.body, label %single.next
single.next:
  %u.next = add nuw nsw i64 %u, 1
  br label %single.head"""


def _square(module: ModuleText, unit: VectorUnit, dtype: DType, packed: int) -> str:
    """Name of the function that transposes one square of vectors."""
    name = f'@"square.{dtype}.{packed}"'
    kind, lanes = register_type(dtype), unit.lanes(dtype)
    vector = f"<{lanes} x {kind}>"
    lines = ["entry:"]
    rows: list[str] = []
    for r in range(lanes):
        lines.append(f"  %row.{r} = mul nuw nsw i64 %pitch, {r}")
        lines.append(f"  %at.{r} = getelementptr inbounds {kind}, ptr %b, i64 %row.{r}")
        lines.append(f"  %r.{r} = load {vector}, ptr %at.{r}, align {dtype.bytes}")
        rows.append(f"%r.{r}")
    distance = lanes // 2
    while distance:
        following = list(rows)
        for low in (r for r in range(lanes) if not r & distance):
            high = low + distance
            for row, other in ((low, False), (high, True)):
                order = ", ".join(f"i32 {_source(i, distance, lanes, other)}" for i in range(lanes))
                new = f"%s.{distance}.{row}"
                lines.append(f"  {new} = shufflevector {vector} {rows[low]}, {vector} "
                             f"{rows[high]}, <{lanes} x i32> <{order}>")  # fmt: skip
                following[row] = new
        rows = following
        distance //= 2
    for r, row in enumerate(rows):
        lines.append(f"  %to.{r} = getelementptr inbounds {kind}, ptr %p, i64 {r * packed}")
        lines.append(f"  store {vector} {row}, ptr %to.{r}, align {dtype.bytes}")
    body = "\n".join([*lines, "  ret void"])
    module.add_shared(
        name,
        f"define internal void {name}(ptr noalias %b, ptr noalias %p, i64 %pitch) alwaysinline "
        f"{unit.attributes} {{\n{body}\n}}",
    )
    return name


def _source(lane: int, distance: int, lanes: int, high: bool) -> int:
    """Which of the 2 * lanes elements of a pair of rows comes to ``lane`` of its lower row (or
    its upper one): off the diagonal the halves of ``distance`` are exchanged."""
    if not high:
        return lanes + lane - distance if lane & distance else lane
    return lanes + lane if lane & distance else lane + distance
