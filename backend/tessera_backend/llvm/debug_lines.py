"""Which place of the program each instruction is of, as debug locations in LLVM text.

A location's line is the offset of a place in its file, and 1: texts are not known here, and who
shows the code makes lines of them.
"""

from __future__ import annotations

from tessera_backend.llvm.text import ModuleText
from tessera_lang.source import Span


class DebugLines:
    """The locations of one function. ``attachment`` stands behind its signature, ``footer`` in the
    module."""

    def __init__(self, module: ModuleText, name: str) -> None:
        self._module = module
        self._scopes: dict[str, str] = {}
        file = self._file("source")
        unit = module.distinct(
            f"!DICompileUnit(language: DW_LANG_C99, file: {file}, isOptimized: true, "
            "emissionKind: DebugDirectivesOnly)"
        )
        type_ = module.metadata(f"!DISubroutineType(types: {module.metadata('!{null}')})")
        self._function = module.distinct(
            f'!DISubprogram(name: "{name}", scope: {file}, file: {file}, line: 0, type: {type_}, '
            f"unit: {unit}, spFlags: DISPFlagDefinition | DISPFlagOptimized)"
        )
        version = module.metadata('!{i32 2, !"Debug Info Version", i32 3}')
        self.attachment = f" !dbg {self._function}"
        self.footer = f"!llvm.dbg.cu = !{{{unit}}}\n!llvm.module.flags = !{{{version}}}"

    def _file(self, path: str) -> str:
        name = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else
                       "".join(f"\\{byte:02X}" for byte in c.encode()) for c in path)  # fmt: skip
        return self._module.metadata(f'!DIFile(filename: "{name}", directory: "")')

    def of(self, span: Span | None) -> str:
        """What stands behind the instructions of an operation."""
        line, scope = 0, self._function
        if span is not None:
            line = span.lo + 1
            scope = self._scopes.get(span.file, "")
            if not scope:
                body = f"!DILexicalBlockFile(scope: {self._function}, file: "
                scope = self._module.metadata(f"{body}{self._file(span.file)}, discriminator: 0)")
                self._scopes[span.file] = scope
        return f", !dbg {self._module.metadata(f'!DILocation(line: {line}, scope: {scope})')}"
