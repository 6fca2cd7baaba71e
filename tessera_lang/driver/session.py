"""The session: remembered answers about files, for the command line, hosts and the editor.

Owns the queries and what each is kept under, so that an edit computes again only what depends
on it. Must not know how an answer is shown, and loads no backend before code is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.diagnostics.render import in_order
from tessera_lang.driver import pipeline
from tessera_lang.driver.environment import Environment, Key
from tessera_lang.driver.fault import InternalFault
from tessera_lang.driver.pipeline import TILE, UNGUARDED, ForMachine, Timing, run_passes
from tessera_lang.driver.scopes import Scopes
from tessera_lang.driver.signatures import (
    Axes,
    BadSignature,
    complete_signature,
    knows_sizes,
    plan_with_facts,
    read_signature,
    with_facts,
    without_facts,
)  # fmt: skip
from tessera_lang.evaluate.library import is_test, kernel_level
from tessera_lang.ir.core import Program
from tessera_lang.lower.ast_to_tile import finish_plan, lower_kernel
from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema.clauses import kernel_decorator, tile_decorator
from tessera_lang.sema.instance import check_function, needed_sizes
from tessera_lang.sema.scope import ModuleScope
from tessera_lang.sema.signature import signature_of_annotations
from tessera_lang.sema.structure import check_function_structure
from tessera_lang.sema.typed import FunctionSymbol, Signature, TypedFunction
from tessera_lang.source import Anchor, SourceFile, Span
from tessera_lang.syntax import ParsedModule, ast
from tessera_lang.target.backend import Artifact, TargetOptions, backend_named, backend_names
from tessera_lang.target.machine import MACHINES, Machine, machine_named
from tessera_lang.target.plan import LaunchPlan

if TYPE_CHECKING:
    from tessera_lang.driver.launches import Checked
    from tessera_lang.target.world import World


@dataclass(slots=True, eq=False)
class _Tile:
    """Tile IR of an instance as lowered, what was found on the way, and the optimized form
    where code was asked for."""

    program: Program
    plan: LaunchPlan
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[SourceFile, ...]
    optimized: tuple[Program, LaunchPlan] | None = None


@dataclass(slots=True, eq=False)
class _Schedule:
    """Schedule IR of an instance after the passes that know no machine, what was found on the
    way, and the rest of the way for each machine that was asked for."""

    program: Program
    plan: LaunchPlan
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[SourceFile, ...]
    machines: dict[Machine, ForMachine] = field(default_factory=dict[Machine, ForMachine])


@dataclass(slots=True, eq=False)
class _Instance:
    """A function checked for a signature; lowered where asked for: a lane kernel to ``tile``, a
    tile kernel to ``schedule``."""

    typed: TypedFunction | None
    diagnostics: tuple[Diagnostic, ...]
    tile: _Tile | None = None
    schedule: _Schedule | None = None


class Session(Scopes):
    """Answers about one set of files; ``counts`` says how often work was really done."""

    def __init__(
        self, search_paths: Iterable[str] = (), overlay: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(search_paths, overlay)
        self.timings: list[Timing] = []
        self.faults: list[InternalFault] = []  # for the report of whoever shows them
        self._environment = Environment(self.scope)
        self._instances: dict[str, dict[tuple[object, ...], tuple[Key, _Instance]]] = {}
        self._asked: dict[str, dict[tuple[object, ...], tuple[Key, tuple[Axes, Axes]]]] = {}
        self._structures: dict[str, dict[ast.FunctionDef, tuple[Key, tuple[Diagnostic, ...]]]] = {}

    # --- checks ------------------------------------------------------------------------

    def check(
        self, path: str, signatures: Iterable[str] = (), given: frozenset[str] = frozenset()
    ) -> tuple[Diagnostic, ...]:
        """Everything that is wrong with a file; never raises.

        ``signatures`` (as text) are checked for the kernels they fit, beside those that
        annotations fix. ``given`` are top-level names that get a value from outside.
        """
        path = self.files.spelling(path)
        found: list[Diagnostic] = []
        try:
            with self.hold():
                self._check(path, tuple(signatures), given, found)
        except TesseraError as error:
            found.extend(error.diagnostics)
        except BadSignature as error:
            found.extend(error.diagnostics)
        except InternalFault as error:
            self.faults.append(error)
            found.append(error.diagnostic())
        except RecursionError:
            found.append(_too_deep(path))
        return tuple(d for d in in_order(found) if not _names_given(d, given))

    def _check(
        self, path: str, signatures: tuple[str, ...], given: frozenset[str],
        found: list[Diagnostic],
    ) -> None:  # fmt: skip
        parsed = self.parsed(path)
        found.extend(parsed.diagnostics)
        if any(d.code == "T0005" for d in parsed.diagnostics):
            return  # the rest of the file was not read: it may define anything
        if not (parsed.module.body or parsed.diagnostics):
            found.append(_empty(path))
            return
        scope = self.scope(path)
        found.extend(scope.diagnostics)
        found.extend(self._import_faults(path))
        for function in parsed.module.functions:
            found.extend(self._structure(path, scope, function))
        for function in _kernels(parsed.module):
            for signature in self._signatures_of(function, scope, signatures):
                found.extend(self.instance(path, function.name, signature)[2])
        found.extend(self._check_host(path, given, found))
        self._forget_old(path, parsed.module)

    def _import_faults(self, path: str) -> list[Diagnostic]:
        """The faults of files that this one needs."""
        found: list[Diagnostic] = []
        for other in self.closure(path):
            if other != path:
                faults = (*self.parsed(other).diagnostics, *self.scope(other).diagnostics)
                found.extend(d for d in faults if d.severity == "error")
        return found

    def _structure(
        self, path: str, scope: ModuleScope, function: ast.FunctionDef
    ) -> tuple[Diagnostic, ...]:
        """The generic check of one function."""
        key = self._environment.key(function, scope)
        kept = self._structures.setdefault(path, {})
        known = kept.get(function)
        if known is None or known[0] != key:
            self.counts["structure"] += 1
            known = kept[function] = (key, tuple(check_function_structure(scope, function)))
        return known[1]

    def _signatures_of(
        self, function: ast.FunctionDef, scope: ModuleScope, texts: tuple[str, ...]
    ) -> list[Signature]:
        found: dict[Signature, None] = {}
        own = signature_of_annotations(function, scope)
        if own is not None and (completed := self.completed(scope.path, function, own)):
            found[completed] = None
        names = {p.name for p in (*function.brackets, *function.parameters)}
        for text in texts:
            given = read_signature(text)
            if set(given) <= names:
                signature = complete_signature(function, scope, given)
                completed = self.completed(scope.path, function, signature)
                found[completed or signature] = None
        return list(found)

    def asked(self, path: str, name: str, signature: Signature) -> tuple[Axes, Axes]:
        """The axes whose size a tile kernel is compiled for, and those of which it takes a
        bound; the signature says nothing of sizes."""
        path = self.files.spelling(path)
        scope = self.scope(path)
        symbol = self._function(path, scope, name)
        key = self._environment.key(symbol.declaration, scope)
        kept = self._asked.setdefault(path, {})
        known = kept.get((symbol.declaration, signature))
        if known is None or known[0] != key:
            known = (key, needed_sizes(symbol, signature, self.scope))
            kept[(symbol.declaration, signature)] = known
        return known[1]

    def completed(
        self, path: str, function: ast.FunctionDef, signature: Signature
    ) -> Signature | None:
        """The signature with the facts that its kernel is compiled for; None where it lacks a
        size that the kernel needs."""
        bare = without_facts(signature)
        if kernel_level(function) != "tile":
            return bare
        needed, whole = self.asked(path, function.name, bare)
        return with_facts(function, signature, needed, whole)

    def instance(self, path: str, name: str, signature: Signature) -> Checked:
        """A kernel checked for a signature and, without errors, lowered: its types, its plan
        and all diagnostics."""
        instance = self._instance(path, name, signature)
        typed = instance.typed
        if typed is None or _has_errors(instance.diagnostics):
            return typed, None, instance.diagnostics
        if typed.tile is not None:
            scheduled = self._schedule(path, instance)
            return typed, scheduled.plan, (*instance.diagnostics, *scheduled.diagnostics)
        if typed.kernel is None:
            return typed, None, instance.diagnostics
        tile = self._tile(path, instance)
        return typed, tile.plan, (*instance.diagnostics, *tile.diagnostics)

    def lowered(self, path: str) -> list[tuple[Program, LaunchPlan]]:
        """Tile IR before the passes of the kernels of a file that checks have lowered, one for
        each instance that has no error."""
        kept = self._instances.get(self.files.spelling(path), {})
        tiles = [instance.tile for _, instance in kept.values() if instance.tile is not None]
        return [(t.program, t.plan) for t in tiles if not _has_errors(t.diagnostics)]

    def _instance(self, path: str, name: str, signature: Signature) -> _Instance:
        path = self.files.spelling(path)
        scope = self.scope(path)
        symbol = self._function(path, scope, name)
        key = self._environment.key(symbol.declaration, scope)
        kept = self._instances.setdefault(path, {})
        known = kept.get((symbol.declaration, signature))
        if known is None or known[0] != key:
            self.counts["check"] += 1
            typed, diagnostics = check_function(symbol, signature, self.scope)
            known = (key, _Instance(typed, tuple(diagnostics)))
            kept[(symbol.declaration, signature)] = known
        return known[1]

    def _function(self, path: str, scope: ModuleScope, name: str) -> FunctionSymbol:
        symbol = scope.names.get(name)
        if isinstance(symbol, FunctionSymbol):
            return symbol
        kernels = ", ".join(f"`{f.name}`" for f in _kernels(scope.module))
        helps = (f"it has {kernels}",) if kernels else ()
        message = f"{path} has no kernel `{name}`"
        raise self.error((Diagnostic("T0819", message, helps=helps),))

    def _tile(self, path: str, instance: _Instance, fresh: bool = False) -> _Tile:
        """Tile IR of an instance without errors. ``fresh``: with the lines as they are now."""
        typed = instance.typed
        assert typed is not None
        known = instance.tile
        if known is not None and not fresh:
            return known
        files = {p: self.source(p) for p in self.closure(path)}
        if known is None or known.sources != tuple(files.values()):
            self.counts["lower"] += 1
            with _faults_of_lowering(typed):
                known = _Tile(*lower_kernel(typed, files), tuple(files.values()))
            instance.tile = known
        return known

    def _schedule(self, path: str, instance: _Instance, fresh: bool = False) -> _Schedule:
        """Schedule IR of an instance of a tile kernel, as ``_tile`` gives Tile IR."""
        from tessera_lang.lower.ast_to_schedule import lower_tile_kernel

        typed, known = instance.typed, instance.schedule
        assert typed is not None
        if known is not None and not fresh:
            return known
        files = {p: self.source(p) for p in self.closure(path)}
        if known is None or known.sources != tuple(files.values()):
            self.counts["lower"] += 1
            with _faults_of_lowering(typed):
                program, plan, found = lower_tile_kernel(typed, files)
            if not _has_errors(found):
                program, more = pipeline.schedule(program, self.timings)
                found = (*found, *more)
            plan = plan_with_facts(plan, typed.signature)
            known = _Schedule(program, plan, found, tuple(files.values()))
            instance.schedule = known
        return known

    def _check_host(
        self, path: str, given: frozenset[str], before: list[Diagnostic]
    ) -> list[Diagnostic]:
        """The top-level statements and the tests, run without data. What was reported is not
        repeated."""
        from tessera_lang.driver.launches import Launches
        from tessera_lang.evaluate.symbolic import SymbolicHost
        from tessera_lang.evaluate.symbolic_world import SymbolicWorld

        launches = Launches(self.scope, self.instance, self.completed)
        found = list(SymbolicHost(SymbolicWorld(launches), self, path).check(given))
        for function in self.tests(path):
            host = SymbolicHost(SymbolicWorld(launches), self, path)
            found.extend(host.check_test(function))
        found.extend(launches.warnings)
        places = {(d.span.file, d.span.lo) for d in before if d.span and d.severity == "error"}
        damaged = _damaged_words(self.parsed(path))
        return [
            d
            for d in found
            if not (d.span and (d.span.file, d.span.lo) in places)
            and not (d.code == "T0101" and any(f"`{w}`" in d.message for w in damaged))
        ]

    def _forget_old(self, path: str, module: ast.Module) -> None:
        """Drop what is kept for declarations that are gone."""
        now = set(module.functions)
        kept = self._instances.get(path, {})
        self._instances[path] = {k: v for k, v in kept.items() if k[0] in now}
        asked = self._asked.get(path, {})
        self._asked[path] = {k: v for k, v in asked.items() if k[0] in now}
        structures = self._structures.get(path, {})
        self._structures[path] = {f: v for f, v in structures.items() if f in now}
        self._environment.keep_only(self.functions())

    # --- types and code ----------------------------------------------------------------

    def typed(self, path: str, signatures: Iterable[str] = ()) -> list[TypedFunction]:
        """The instances of a file that its annotations (and ``signatures``) fix and that
        have no error, and those of plain functions they call."""
        path = self.files.spelling(path)
        scope = self.scope(path)
        found: dict[TypedFunction, None] = {}
        for function in scope.module.functions:
            for signature in self._signatures_of(function, scope, tuple(signatures)):
                typed = self._instance(path, function.name, signature).typed
                if typed is not None:
                    _add_with_calls(typed, found)
        # A tile kernel is mostly written without annotations: its calls say what it takes.
        for (function, _), (key, instance) in self._instances.get(path, {}).items():
            typed = instance.typed
            current = isinstance(function, ast.FunctionDef) and key == self._environment.key(
                function, scope
            )
            if current and typed is not None and typed.tile is not None:
                _add_with_calls(typed, found)
        return list(found)

    def kernels(self, path: str) -> tuple[ast.FunctionDef, ...]:
        """The kernels that a file declares, of both levels."""
        return _kernels(self.parsed(path).module)

    def tests(self, path: str) -> tuple[ast.FunctionDef, ...]:
        """The tests that a file declares and that can be called; those of its imports are not
        its own."""
        tests = (f for f in self.parsed(path).module.functions if is_test(f))
        return tuple(f for f in tests if not (f.parameters or f.brackets or kernel_level(f)))

    def signature(self, path: str, name: str, text: str = "") -> Signature:
        """The signature of a kernel by its annotations and ``text``. Raises TesseraError."""
        scope = self.scope(path)
        function = self._function(path, scope, name).declaration
        try:
            given = read_signature(text) if text else {}
            signature = complete_signature(function, scope, given)
            return self.completed(path, function, signature) or without_facts(signature)
        except BadSignature as error:
            raise self.error(error.diagnostics) from None

    def tile(
        self, path: str, kernel: str, signature: Signature, machine: Machine | None = None
    ) -> tuple[Program, LaunchPlan]:
        """Optimized Tile IR of a kernel and its plan. Raises TesseraError, InternalFault.

        That of a lane kernel is one for all machines; of a tile kernel, without one, the CPU's.
        """
        instance = self._sound(path, kernel, signature)
        if instance.typed is not None and instance.typed.tile is not None:
            machine = machine or machine_named("cpu", "native")
            made = self.for_machine(path, kernel, signature, machine)
            if made.lowered is None:
                raise self.error(made.remarks)
            return made.lowered
        tile = self._tile(self.files.spelling(path), instance, fresh=True)
        if _has_errors(tile.diagnostics):
            raise self.error((*instance.diagnostics, *tile.diagnostics))
        if tile.optimized is None:
            program = run_passes(tile.program, TILE, self.timings)
            tile.optimized = program, finish_plan(program, tile.plan)
        return tile.optimized

    def _sound(self, path: str, kernel: str, signature: Signature) -> _Instance:
        """An instance without errors. Raises TesseraError."""
        path = self.files.spelling(path)
        faults = [d for p in self.closure(path) for d in self.parsed(p).diagnostics]
        if _has_errors(faults):
            raise self.error(faults)
        instance = self._instance(path, kernel, signature)
        if instance.typed is None or _has_errors(instance.diagnostics):
            raise self.error(instance.diagnostics)
        return instance

    def scheduled(self, path: str, kernel: str, signature: Signature) -> Program:
        """Schedule IR of a tile kernel before the decisions. Raises as ``tile`` does."""
        instance = self._sound(path, kernel, signature)
        return self._schedule(self.files.spelling(path), instance, fresh=True).program

    def for_machine(
        self, path: str, kernel: str, signature: Signature, machine: Machine
    ) -> ForMachine:
        """A tile kernel for a machine: the decided schedule, Tile IR and remarks. Raises as
        ``tile`` does, but where the schedule is refused."""
        instance = self._sound(path, kernel, signature)
        made = self._schedule(self.files.spelling(path), instance, fresh=True)
        if _has_errors(made.diagnostics):
            raise self.error((*instance.diagnostics, *made.diagnostics))
        return self._made_for(made, machine)

    def for_machines(self, path: str, machine: Machine) -> list[ForMachine]:
        """The tile kernels of a file that checks have lowered, for a machine, one for each
        instance that has no error; of a kernel that is called, only those of its calls and
        signatures. Raises InternalFault."""
        kept = self._instances.get(self.files.spelling(path), {})
        scheduled: dict[object, list[tuple[bool, _Schedule]]] = {}
        for (function, signature), (_, instance) in kept.items():
            made = instance.schedule
            if made is not None and not _has_errors(made.diagnostics):
                sized = knows_sizes(cast("Signature", signature))
                scheduled.setdefault(function, []).append((sized, made))
        return [
            self._made_for(made, machine)
            for instances in scheduled.values()
            for sized, made in instances
            if sized or not any(other for other, _ in instances)
        ]

    def _made_for(self, made: _Schedule, machine: Machine) -> ForMachine:
        known = made.machines.get(machine)
        if known is None:
            known = pipeline.for_machine(made.program, made.plan, machine, self.timings)
            made.machines[machine] = known
        return known

    def compile_kernel(
        self, path: str, name: str, signature: Signature, options: TargetOptions,
        stages: tuple[str, ...] = (),
    ) -> Artifact:  # fmt: skip
        """Code of a kernel for a target. Raises TesseraError, InternalFault."""
        machine: Machine | None = None
        if kernel_level(self._function(path, self.scope(path), name).declaration) == "tile":
            machine = self.machine(options.target, options.arch)
            options = replace(options, arch=machine.arch)
        try:
            program, plan = self.tile(path, name, signature, machine)
        except InternalFault as error:
            self.faults.append(error)
            raise
        if options.bounds == "off":
            program = run_passes(program, UNGUARDED, self.timings)
        try:
            backend = backend_named(options.target)
        except KeyError:
            known = ", ".join(f"`{n}`" for n in backend_names())
            message = f"there is no target `{options.target}`"
            helps = (f"the installed targets are {known}",)
            raise self.error((Diagnostic("T0814", message, helps=helps),)) from None
        try:
            return backend.compile(program, plan, options, stages)
        except TesseraError as error:
            raise self.error(error.diagnostics) from error

    def machine(self, target: str, arch: str) -> Machine:
        """The machine that a tile kernel is scheduled for. Raises TesseraError."""
        if target == "cuda" and arch in ("", "native"):
            arch = backend_named(target).default_arch()
        # Code of a tile kernel is for the very architecture, whose units it uses.
        arch = "sm_90a" if arch == "sm_90" else arch
        try:
            return machine_named(target, arch)
        except KeyError:
            message = f"`{arch}` is no architecture that tile kernels are made for"
            notes = ("they are made for " + ", ".join(MACHINES),)
            raise self.error((Diagnostic("T0880", message, notes=notes),)) from None

    def run(self, path: str, world: World, given: Mapping[str, object] = {}) -> None:
        """Run a file's top-level statements. Raises evaluate.fault.HostFault, and what the
        world raises."""
        from tessera_lang.evaluate.host import Host

        Host(world, self, self.files.spelling(path)).run(given)

    def run_test(self, path: str, function: ast.FunctionDef, world: World) -> None:
        """Run a test of a file. Raises as ``run`` does."""
        from tessera_lang.evaluate.host import Host

        Host(world, self, self.files.spelling(path)).run_test(function)


def _kernels(module: ast.Module) -> tuple[ast.FunctionDef, ...]:
    return tuple(f for f in module.functions if kernel_decorator(f) or tile_decorator(f))


@contextmanager
def _faults_of_lowering(typed: TypedFunction) -> Generator[None]:
    try:
        yield
    except TesseraError:
        raise
    except Exception as error:
        raise InternalFault(
            "T0901", f"lowering failed: {type(error).__name__}: {error}",
            stage="lower", span=typed.declaration.name_span,
        ) from error  # fmt: skip


def _has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in diagnostics)


def _damaged_words(parsed: ParsedModule) -> frozenset[str]:
    """Words of declarations that could not be read: any of them may be a definition."""
    texts = [chunk.text for chunk in parsed.chunks if _has_errors(chunk.diagnostics)]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def _names_given(diagnostic: Diagnostic, given: frozenset[str]) -> bool:
    """Whether this says that a name is undefined which ``--set`` defines."""
    return diagnostic.code == "T0101" and any(f"`{n}`" in diagnostic.message for n in given)


def _add_with_calls(typed: TypedFunction, found: dict[TypedFunction, None]) -> None:
    if typed in found:
        return
    found[typed] = None
    for inner in typed.calls.values():
        _add_with_calls(inner, found)


def _empty(path: str) -> Diagnostic:
    helps = ("write a kernel or a statement, or name another file",)
    span = Span(Anchor(path), 0, 0)
    return Diagnostic("T0811", "this file has no statement in it", span, helps=helps)


def _too_deep(path: str) -> Diagnostic:
    return Diagnostic("T0902", f"{path} nests deeper than the compiler can follow")
