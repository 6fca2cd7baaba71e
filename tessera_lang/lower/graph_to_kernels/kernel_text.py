"""The text of a kernel around a loop over cascaded reductions, or of whole rows.

Owns the head, the loops over rows, and the stores. Must not know how the loop is found.
"""

from __future__ import annotations

from collections.abc import Collection

from tessera_lang.ir.core import Value
from tessera_lang.lower.graph_to_kernels.cascaded_reductions import StreamKernel
from tessera_lang.lower.graph_to_kernels.clusters import NAME
from tessera_lang.lower.graph_to_kernels.indexing_maps import Windows, sizes_of
from tessera_lang.lower.graph_to_kernels.mask_ranges import Masks
from tessera_lang.record import dataclass


@dataclass(slots=True)
class KernelText:
    """The kernel around a loop."""

    kernel: StreamKernel
    windows: Windows
    sizes: tuple[int, ...]
    results: dict[Value, tuple[str, Windows]]

    def source(self) -> str:
        k = self.kernel
        parameters = ", ".join(
            f"{k.names[v]}: {v.tensor_type.dtype}[{', '.join(map(k.size, sizes_of(v)))}]"
            if v.tensor_type.rank
            else f"{k.names[v]}: {v.tensor_type.dtype}{'' if v in k.numbers else '[]'}"
            for v in k.arguments
        )  # fmt: skip
        loops = [(w.index, k.size(n), "1") for w, n in zip(self.windows, self.sizes, strict=True)
                 if w.index.startswith("b")]  # fmt: skip
        rows = next(n for w, n in zip(self.windows, self.sizes, strict=True) if w.index[0] == "i")
        loops.append(("i", k.size(rows), str(k.rows)))
        names, ends, steps = (", ".join(x) for x in zip(*loops, strict=True))
        step = steps if len(loops) == 1 else f"({steps})"
        made = [self._made(n, v) for n, v in enumerate(self.results)]
        stored = [self._stored(n, v) for n, v in enumerate(self.results)]
        lines = [
            f"@op.kernel\ndef {NAME}({parameters}):", *_indented(1, made),
            f"    for {names} in op.tile_range({ends}, step={step}):",
            *_indented(2, self._loop()), *_indented(2, (*k.behind, *stored)),
            f"    return {', '.join(f'o{n}' for n in range(len(self.results)))}",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _loop(self) -> list[str]:
        k = self.kernel
        if k.terms.held:
            return k.body
        places = Masks(k.terms, k.rows, k.steps).range_of(k.reduced)
        end = _one_of("min", (*places.ends, k.size(k.terms.stream)))
        head = f"for j in range({_one_of('max', ('0', *places.begins))}, {end}, {k.steps}):"
        return [*k.before, head, *_indented(1, (*k.body, *k.updates))]

    def _made(self, number: int, value: Value) -> str:
        shape = ", ".join(map(self.kernel.size, sizes_of(value)))
        comma = "," * (value.tensor_type.rank == 1)
        return f"o{number} = op.empty(({shape}{comma}), dtype={value.tensor_type.dtype})"

    def _stored(self, number: int, value: Value) -> str:
        text, windows = self.results[value]
        at = ", ".join(w.index for w in windows)
        dtype = value.tensor_type.dtype
        if not any(w.label for w in windows):
            return f"o{number}[{at}] = {dtype}({text})"
        return f"o{number}[{at}] = {text}.to({dtype})"


def _one_of(word: str, texts: tuple[str, ...]) -> str:
    """The least or the greatest of numbers."""
    first, *rest = texts
    return f"{word}({first}, {_one_of(word, tuple(rest))})" if rest else first


def _indented(depth: int, lines: Collection[str]) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]
