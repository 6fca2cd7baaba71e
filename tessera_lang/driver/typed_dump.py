"""The printed form of checked functions: ``tesserac emit --stage=typed``.

Owns the text. Must not know how types are found.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.sema.side_tables import (
    Argument,
    ConstantArgument,
    TensorArgument,
    TileInfo,
    TypedFunction,
)  # fmt: skip
from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax.dump import source_text


def typed_text(typed: TypedFunction, files: Mapping[str, SourceFile]) -> str:
    """Signature, variables and calls of one instance, each with its line."""
    d = typed.declaration
    kind = "function" if typed.kernel is None and typed.tile is None else "kernel"
    lines = [f"{kind} {d.name}  {_place(d.name_span, files)}"]
    if typed.kernel is not None:
        lines.append(f"  group {_tuple(typed.kernel.group)}")
        if typed.kernel.grid is not None:
            lines.append(f"  grid {_tuple(typed.kernel.grid)}")
        if typed.kernel.shared_budget is not None:
            lines.append(f"  shared {typed.kernel.shared_budget} bytes")
        if typed.kernel.registers is not None:
            lines.append(f"  registers {typed.kernel.registers}")
    if typed.tile is not None:
        lines += _tile_lines(typed.tile)
    lines.append("  signature")
    for p, argument in zip((*d.brackets, *d.parameters), typed.signature, strict=False):
        lines.append(f"    {p.name}: {_argument(argument)}  {_place(p.span, files)}")
    if not typed.signature:
        for local, t in zip(typed.parameters, typed.parameter_types, strict=True):
            lines.append(f"    {local.name}: {t}{_behind(local.span, files)}")
    lines.append(f"  returns {typed.returns}")
    parts = (
        ("variables", [
            f"{v.name}: {t}{_behind(v.span, files)}" for v, t in typed.variables.items()
        ]),
        ("conversions", [
            f"{source_text(e)}: {typed.types.get(e)} -> {t}  {_place(e.span, files)}"
            for e, t in typed.coercions.items()
        ]),
        ("calls", [
            f"{source_text(call)} -> {inner.returns}  {_place(call.span, files)}"
            for call, inner in typed.calls.items()
        ]),
    )  # fmt: skip
    for title, items in parts:
        if items:
            lines += [f"  {title}", *(f"    {item}" for item in items)]
    return "\n".join(lines) + "\n"


def _tile_lines(tile: TileInfo) -> list[str]:
    """What a tile kernel says beside its body."""
    lines = [f"  schedule {d.name} {d.value}" for d in tile.directives]
    lines += [f"  agreement {a.text}" for a in tile.agreements]
    lines += [f"  result {dtype}[{', '.join(map(str, dims))}]" for dtype, dims in tile.results]
    lines += [f"  compiled for {name}.shape[{axis}]" for name, axis in tile.needed]
    return lines


def _argument(argument: Argument) -> str:
    if isinstance(argument, TensorArgument):
        facts = [w for w, holds in (("contiguous", argument.contiguous),
                                    ("aligned", argument.aligned),
                                    ("small", argument.small)) if holds]  # fmt: skip
        if argument.unit >= 0 and not argument.contiguous:
            facts.append(f"unit stride along {argument.unit}")
        if argument.pitches:
            facts.append("pitches of 16 bytes")
        rows = zip(argument.sizes, argument.hints, argument.divisors, strict=False)
        sizes = [f"{'~' if size is None else ''}{size or hint} (/{by})" for size, hint, by in rows]
        if sizes:
            facts.append("sizes " + ", ".join(sizes))
        return " ".join((f"{argument.dtype}, rank {argument.rank}", *facts))
    if isinstance(argument, ConstantArgument):
        return f"= {argument.value}"
    return str(argument.dtype)


def _tuple(items: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, items))})"


def _place(span: Span, files: Mapping[str, SourceFile]) -> str:
    file = files.get(span.file)
    if file is None:
        return ""
    line, column = file.position(span.lo)
    return f"# {file.path}:{line + 1}:{column + 1}"


def _behind(span: Span | None, files: Mapping[str, SourceFile]) -> str:
    return f"  {_place(span, files)}" if span is not None else ""
