"""Micro-kernels: a block of an accumulator, held in registers over the whole contraction.

Owns their LLVM text. ``c[0:rows, 0:vectors*lanes] += a[0:rows, 0:k] @ b[0:k, ...]``. Pitches are
arguments, so that all products of a module share them; where there is one product, LLVM finds
them constant. Must not know what calls them.
"""

from __future__ import annotations

from tessera_backend.cpu.simd_target import VectorUnit
from tessera_backend.llvm.text import ModuleText
from tessera_backend.llvm.types import register_type
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class Matrices:
    """What is multiplied; with ``transpose_a`` the rows of a are the terms of the contraction."""

    dtype: DType
    transpose_a: bool = False

    @property
    def name(self) -> str:
        return f"{self.dtype}.{'t' if self.transpose_a else 'n'}"


PITCHES = "i64 %pitch.a, i64 %pitch.b, i64 %pitch.c"
"""Parameters, and as what they are handed on: elements from row to row."""


@dataclass(frozen=True, slots=True)
class Block:
    rows: int
    vectors: int
    lanes: int


def micro_kernel(module: ModuleText, unit: VectorUnit, m: Matrices, block: Block) -> str:
    """Name of ``void (ptr a, ptr b, ptr c, i64 k, i64 pitch_a, i64 pitch_b, i64 pitch_c)``."""
    name = f'@"dot.{m.name}.{block.rows}x{block.vectors}x{block.lanes}"'
    module.add_shared(name, _Text(module, unit, m, block).function(name))
    return name


class _Text:
    def __init__(self, module: ModuleText, unit: VectorUnit, m: Matrices, block: Block) -> None:
        self.m, self.block = m, block
        self.element = register_type(m.dtype)
        self.vector = f"<{block.lanes} x {self.element}>"
        self.attributes = unit.attributes
        self.fused = m.dtype.is_float and unit.has_fma
        suffix = "f32" if self.element == "float" else "f64"
        self.fma = f"@llvm.fma.v{block.lanes}{suffix}"
        if self.fused:
            module.declare(f"{self.vector} {self.fma}({self.vector}, {self.vector}, {self.vector})")
        # Blocked by hand: unrolling would only take time and registers.
        alone = ", ".join(
            module.metadata(f'!{{!"llvm.loop.{what}"{value}}}')
            for what, value in (("unroll.disable", ""), ("vectorize.width", ", i32 1"),
                                ("interleave.count", ", i32 1"))
        )  # fmt: skip
        self.loop = module.distinct(f"!{{{{self}}, {alone}}}")
        self.lines: list[str] = []

    def function(self, name: str) -> str:
        cells = [(r, v) for r in range(self.block.rows) for v in range(self.block.vectors)]
        for r in range(2, self.block.rows):
            if not self.m.transpose_a:
                self._line(f"%away.a.{r} = mul nuw nsw i64 %pitch.a, {r}")
            self._line(f"%away.c.{r} = mul nuw nsw i64 %pitch.c, {r}")
        self._line("%empty = icmp sle i64 %k, 0")
        self._line("br i1 %empty, label %done, label %terms")
        self.lines.append("terms:")
        self._line("%p = phi i64 [ 0, %entry ], [ %p.next, %terms ]")
        for r, v in cells:
            self._line(f"%s.{r}.{v} = phi {self.vector} [ zeroinitializer, %entry ], "
                       f"[ %n.{r}.{v}, %terms ]")  # fmt: skip
        self._term(cells)
        self._line("%p.next = add nuw nsw i64 %p, 1")
        self._line("%more = icmp ult i64 %p.next, %k")
        self._line(f"br i1 %more, label %terms, label %add, !llvm.loop {self.loop}")
        self.lines.append("add:")
        for r, v in cells:
            self._take_in(r, v)
        self._line("br label %done")
        body = "\n".join(["entry:", *self.lines, "done:", "  ret void"])
        return (
            f"define internal void {name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %k, "
            f"{PITCHES}) noinline {self.attributes} {{\n{body}\n}}"
        )

    def _row(self, matrix: str, r: int) -> str:
        """How far the row is away from the first."""
        return "0" if r == 0 else f"%pitch.{matrix}" if r == 1 else f"%away.{matrix}.{r}"

    def _line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def _term(self, cells: list[tuple[int, int]]) -> None:
        """One term of the contraction for every cell."""
        m, kind, vector, lanes = self.m, self.element, self.vector, self.block.lanes
        self._line("%row.b = mul nuw nsw i64 %p, %pitch.b")
        self._line(f"%at.b = getelementptr inbounds {kind}, ptr %b, i64 %row.b")
        for v in range(self.block.vectors):
            self._line(f"%at.b.{v} = getelementptr inbounds {kind}, ptr %at.b, i64 {v * lanes}")
            self._line(f"%b.{v} = load {vector}, ptr %at.b.{v}, align {m.dtype.bytes}")
        if m.transpose_a:
            self._line("%row.a = mul nuw nsw i64 %p, %pitch.a")
        row = "%row.a" if m.transpose_a else "%p"
        self._line(f"%at.a = getelementptr inbounds {kind}, ptr %a, i64 {row}")
        for r in range(self.block.rows):
            away = r if m.transpose_a else self._row("a", r)
            self._line(f"%at.a.{r} = getelementptr inbounds {kind}, ptr %at.a, i64 {away}")
            self._line(f"%x.{r} = load {kind}, ptr %at.a.{r}, align {m.dtype.bytes}")
            self._line(f"%one.{r} = insertelement {vector} poison, {kind} %x.{r}, i64 0")
            self._line(f"%a.{r} = shufflevector {vector} %one.{r}, {vector} poison, "
                       f"<{lanes} x i32> zeroinitializer")  # fmt: skip
        for r, v in cells:
            self._multiply(r, v)

    def _multiply(self, r: int, v: int) -> None:
        vector = self.vector
        if self.fused:
            self._line(f"%n.{r}.{v} = call {vector} {self.fma}({vector} %a.{r}, {vector} %b.{v}, "
                       f"{vector} %s.{r}.{v})")  # fmt: skip
            return
        prefix = "f" if self.m.dtype.is_float else ""
        self._line(f"%m.{r}.{v} = {prefix}mul {vector} %a.{r}, %b.{v}")
        self._line(f"%n.{r}.{v} = {prefix}add {vector} %s.{r}.{v}, %m.{r}.{v}")

    def _take_in(self, r: int, v: int) -> None:
        kind, vector, align = self.element, self.vector, self.m.dtype.bytes
        if v == 0:
            row = self._row("c", r)
            self._line(f"%at.c.{r} = getelementptr inbounds {kind}, ptr %c, i64 {row}")
        away = v * self.block.lanes
        self._line(f"%at.c.{r}.{v} = getelementptr inbounds {kind}, ptr %at.c.{r}, i64 {away}")
        self._line(f"%c.{r}.{v} = load {vector}, ptr %at.c.{r}.{v}, align {align}")
        add = "fadd" if self.m.dtype.is_float else "add"
        self._line(f"%d.{r}.{v} = {add} {vector} %c.{r}.{v}, %n.{r}.{v}")
        self._line(f"store {vector} %d.{r}.{v}, ptr %at.c.{r}.{v}, align {align}")
