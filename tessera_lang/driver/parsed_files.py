"""Files, their trees and their names: what the session's other answers rest on.

Owns the memory of parsed and resolved files, and the way of an import. Must not know how a
function is checked.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.diagnostics.render import in_order, render
from tessera_lang.driver.ignored import Used, heeded
from tessera_lang.driver.modules import ModuleFinder, Refused, standard_library
from tessera_lang.driver.source_overlay import Files
from tessera_lang.record import dataclass, field
from tessera_lang.sema.desugar_short_forms import Spelled, spelled_out
from tessera_lang.sema.module_scope import ImportNode, ModuleScope
from tessera_lang.sema.module_symbols import resolve_module
from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax import ParseCache, ParsedModule, ast, parse_module


@dataclass(slots=True, eq=False)
class _Parsed:
    file: SourceFile
    parsed: ParsedModule


@dataclass(slots=True, eq=False)
class _Scoped:
    parsed: ParsedModule
    scope: ModuleScope
    imports: dict[str, tuple[str, ModuleScope]] = field(
        default_factory=dict[str, "tuple[str, ModuleScope]"]
    )


@dataclass(slots=True, eq=False)
class _Held:
    """Answers that stay while a question lasts, by path as it was asked for."""

    trees: dict[str, ParsedModule] = field(default_factory=dict[str, ParsedModule])
    scopes: dict[str, ModuleScope] = field(default_factory=dict[str, ModuleScope])


_library: dict[str, _Parsed] = {}
"""Files of the standard library as first read: nothing changes a tree, so that the sessions of a
process share them. One that is edited is no longer that text, and gets a tree of its own."""


class Scopes:
    """Trees and scopes of one set of files. ``counts`` says how often work was really done."""

    def __init__(
        self, search_paths: Iterable[str] = (), overlay: Mapping[str, str] | None = None
    ) -> None:
        self.files = Files()
        self.finder = ModuleFinder(tuple(map(str, search_paths)), self.files.exists)
        self.counts: Counter[str] = Counter()
        self.origins: dict[str, Span] = {}
        """For texts that nobody wrote the part of a program that they come from."""
        self.ignored: Used = set()  # what comments took back since a file was last checked
        self.with_errors: set[str] = set()  # files whose last check had errors
        self.host_values: dict[str, Mapping[str, object]] = {}
        """What top-level names have at the end of a file's program, as a check follows it."""
        self._caches: dict[str, ParseCache] = {}
        self._spelled: dict[str, Spelled] = {}
        self._parsed: dict[str, _Parsed] = {}
        self._scopes: dict[str, _Scoped] = {}
        self._resolving: list[str] = []
        self._circles = 0  # how often an import led to a file that is being resolved
        self._held: _Held | None = None
        for path, text in (overlay or {}).items():
            self.set_text(path, text)

    def functions(self) -> set[ast.FunctionDef]:
        """The declarations of every file read so far."""
        return {f for p in self._parsed.values() for f in p.parsed.module.functions}

    def look_in(self, search_paths: Iterable[str]) -> None:
        """From now on imports are looked for in these folders; what was found elsewhere is looked
        for again."""
        self.finder = ModuleFinder(tuple(map(str, search_paths)), self.files.exists)
        self._scopes.clear()

    # --- texts -------------------------------------------------------------------------

    def set_text(self, path: str, text: str, version: int = 0) -> None:
        """Give a file an unsaved text."""
        self.files.set_text(path, text, version)

    def drop_text(self, path: str) -> None:
        """The file on disk counts again."""
        self.files.drop_text(path)

    def source(self, path: str) -> SourceFile:
        """The text of a file. Raises TesseraError where it cannot be read."""
        file, diagnostics = self.files.read(path)
        if file is None:
            raise self.error(diagnostics)
        return file

    def heeding(
        self, found: Iterable[Diagnostic], anew: str | None = None
    ) -> tuple[Diagnostic, ...]:
        """Diagnostics without those that comments ignore; comments of the file ``anew`` have
        spoken of nothing before."""
        kept = list(found)
        if anew is not None:
            self.ignored = {u for u in self.ignored if u[0] != anew}
            faulty = any(d.severity == "error" for d in kept)
            (self.with_errors.add if faulty else self.with_errors.discard)(anew)
        return tuple(heeded(kept, self.source, self.ignored))

    def error(self, diagnostics: Iterable[Diagnostic]) -> TesseraError:
        """Diagnostics as an exception whose text shows their lines."""
        items = tuple(in_order(diagnostics))
        return TesseraError(items, render(items, self.files.known()).rstrip())

    # --- trees and scopes --------------------------------------------------------------

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        """Within this, files are as they were when first asked for: one question about a
        file is thousands about its names, and each would look at the disk again."""
        if self._held is not None:
            yield
            return
        self._held = _Held()
        try:
            yield
        finally:
            self._held = None

    def parsed(self, path: str) -> ParsedModule:
        """The tree of a file. Raises TesseraError where it cannot be read."""
        held = self._held
        if held is None:
            return self._parsed_now(path)
        if path not in held.trees:
            held.trees[path] = self._parsed_now(path)
        return held.trees[path]

    def _parsed_now(self, path: str) -> ParsedModule:
        file = self.source(path)
        known = self._parsed.get(file.path)
        if known is None or (known.file is not file and known.file.text != file.text):
            self.counts["parse"] += 1
            known = self._parsed[file.path] = _Parsed(file, self._tree(file))
        known.file = file
        return known.parsed

    def _tree(self, file: SourceFile) -> ParsedModule:
        if self.files.is_given(file.path):  # an edit is to find all else of it as it was
            return self._own_tree(file)
        shared = _library.get(file.path)
        if shared is None and os.path.dirname(file.path) == standard_library():
            shared = _library[file.path] = _Parsed(file, spelled_out(parse_module(file), {})[0])
        if shared is not None and shared.file.text == file.text:
            return shared.parsed
        return self._own_tree(file)

    def _own_tree(self, file: SourceFile) -> ParsedModule:
        parsed = parse_module(file, self._caches.setdefault(file.path, ParseCache()))
        spelled, self._spelled[file.path] = spelled_out(parsed, self._spelled.get(file.path, {}))
        return spelled

    def scope(self, path: str) -> ModuleScope:
        """The names of a file. Raises TesseraError where it cannot be read."""
        held = self._held
        if held is None:
            with self.hold():
                return self.scope(path)
        if path in held.scopes:
            return held.scopes[path]
        circles = self._circles
        scope = self._scope_now(self.files.spelling(path))
        # One that is met on the way around a circle depends on where the way began.
        if not self._resolving or self._circles == circles:
            held.scopes[path] = scope
        return scope

    def _scope_now(self, path: str) -> ModuleScope:
        parsed = self.parsed(path)
        known = self._scopes.get(path)
        if known is not None and known.parsed is parsed and self._current(path, known):
            return known.scope
        self.counts["resolve"] += 1
        imports: dict[str, tuple[str, ModuleScope]] = {}

        def load(name: str, node: ImportNode, /) -> ModuleScope | Diagnostic:
            found = self._imported(name, path, node)
            if isinstance(found, ModuleScope):
                imports[name] = (found.path, found)
            return found

        self._resolving.append(path)
        try:
            scope = resolve_module(parsed.module, load)
        finally:
            self._resolving.pop()
        self._scopes[path] = _Scoped(parsed, scope, imports)
        return scope

    def _current(self, path: str, known: _Scoped) -> bool:
        """Whether all imports of a scope still are what they were."""
        if path in self._resolving:
            self._circles += 1
            return True
        self._resolving.append(path)
        try:
            for name, (target, scope) in known.imports.items():
                if self.finder.find(name, path) != target or self.scope(target) is not scope:
                    return False
        except TesseraError:
            return False
        finally:
            self._resolving.pop()
        return True

    def _imported(self, name: str, path: str, node: ImportNode) -> ModuleScope | Diagnostic:
        span = _span_of(node)
        found = self.finder.find(name, path)
        if isinstance(found, Refused):
            return Diagnostic(found.code, found.message, span, notes=found.notes,
                              helps=found.helps)  # fmt: skip
        found = self.files.spelling(found)
        if found in self._resolving:
            self._circles += 1
            circle = [*self._resolving[self._resolving.index(found) :], found]
            message = f"files import each other in a circle: {' -> '.join(circle)}"
            return Diagnostic("T0131", message, span)
        try:
            return self.scope(found)
        except TesseraError as error:
            return Diagnostic(error.diagnostics[0].code, error.diagnostics[0].message, span)

    # --- what the evaluator asks (evaluate.library.Library) ----------------------------

    def module(self, path: str) -> ast.Module:
        return self.parsed(path).module

    def imported(self, path: str, name: str) -> str | None:
        found = self.finder.find(name, path)
        return None if isinstance(found, Refused) else self.files.spelling(found)

    def closure(self, path: str) -> dict[str, str]:
        """The texts of a file and of all it imports, by path, in order of first import."""
        texts: dict[str, str] = {}
        pending = [self.files.spelling(path)]
        while pending:
            at = pending.pop(0)
            if at in texts:
                continue
            texts[at] = self.source(at).text
            self.scope(at)
            pending.extend(target for target, _ in self._scopes[at].imports.values())
        return texts


def _span_of(node: ImportNode) -> Span | None:
    if isinstance(node, ast.Module):
        return node.body[0].span if node.body else None
    return node.module_span if isinstance(node, ast.FromImport) else node.span
