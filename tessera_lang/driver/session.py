"""The session: remembered answers about files, for the command line, hosts and the editor.

Owns the queries and what each is kept under, so that an edit computes again only what depends
on it. Must not know how an answer is shown, and loads no backend before code is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tessera_lang.cancellation import pause
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.diagnostics.render import in_order
from tessera_lang.driver import pipeline
from tessera_lang.driver.code_generation import begin_code, begin_launches
from tessera_lang.driver.function_keys import Key
from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.driver.kernel_instances import (
    Instance,
    Instances,
    has_errors,
    kernels_of,
)
from tessera_lang.driver.signatures import (
    BadSignature,
    complete_signature,
    knows_sizes,
    read_signature,
    with_sizes,
)  # fmt: skip
from tessera_lang.driver.size_examples import whatever_sizes
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.driver.warning_filter import told, told_anywhere
from tessera_lang.evaluate.modules import is_test, kernel_level
from tessera_lang.ir.core import Program
from tessera_lang.lower.ast_to_tile.kernel import finish_plan
from tessera_lang.record import dataclass, replace
from tessera_lang.sema.generic_check import check_function_structure
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Signature, TypedFunction
from tessera_lang.sema.signature import signature_of_annotations
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax import ParsedModule, ast
from tessera_lang.target.arch import find_architecture, specific_to, unknown_architecture
from tessera_lang.target.backend import (
    Artifact,
    Backend,
    TargetOptions,
    backend_named,
    backend_names,
    passes_of,
)
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine, machine_named, machine_of

if TYPE_CHECKING:
    from tessera_lang.analysis.kept_findings import Kept
    from tessera_lang.driver.static_launch_checks import Checked
    from tessera_lang.target.host_world import World


_TRIED = (128, 16, 1024)
"""Sizes of which one is taken for all that nothing says."""


class Session(Instances):
    """Answers about one set of files; ``counts`` says how often work was really done."""

    def __init__(
        self, search_paths: Iterable[str] = (), overlay: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(search_paths, overlay)
        self.faults: list[InternalFault] = []  # for the report of whoever shows them
        self.shown: set[tuple[str, str]] = set()  # code and message of what a command has printed
        self.lints: dict[str, Kept] = {}  # see ``advice``
        self._structures: dict[str, dict[ast.FunctionDef, tuple[Key, tuple[Diagnostic, ...]]]] = {}

    # --- checks ------------------------------------------------------------------------

    def check(
        self, path: str, signatures: Iterable[str] = (), given: frozenset[str] = frozenset(),
        tests: bool = True,
    ) -> tuple[Diagnostic, ...]:  # fmt: skip
        """Everything that is wrong with a file; raises nothing but Dropped.

        ``signatures`` (as text) are checked for the kernels they fit, beside those that
        annotations fix. ``given`` are top-level names that get a value from outside. Without
        ``tests`` only what needs no test of the file is said, which is known sooner.
        """
        path = self.files.spelling(path)
        found: list[Diagnostic] = []
        try:
            with self.hold(), self.collecting(path, tests or not self.tests(path)):
                self._check(path, tuple(signatures), given, found, tests)
        except TesseraError as error:
            found.extend(error.diagnostics)
        except BadSignature as error:
            found.extend(error.diagnostics)
        except InternalFault as error:
            self.faults.append(error)
            found.append(error.diagnostic())
        except RecursionError:
            found.append(_too_deep(path))
        found = self._without_echoes(path, found)
        return self.heeding((d for d in in_order(found) if not _names_given(d, given)), path)

    def _without_echoes(self, path: str, found: list[Diagnostic]) -> list[Diagnostic]:
        """Of a line that could not be read, what it may mean is not judged."""
        damaged = [d.span for d in found if d.span and d.code.startswith("T00")]
        if not damaged:
            return found
        source = self.source(path)
        lines = {source.line_of(span.lo) for span in damaged if span.file == path}

        def echoes(d: Diagnostic) -> bool:
            spans = (d.span, *(label.span for label in d.labels))
            return any(s and s.file == path and source.line_of(s.lo) in lines for s in spans)

        return [d for d in found if d.code.startswith("T00") or not echoes(d)]

    def _check(
        self, path: str, signatures: tuple[str, ...], given: frozenset[str],
        found: list[Diagnostic], tests: bool,
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
            pause()
            with self._costing(function.name_span, found):
                found.extend(self._structure(path, scope, function))
        fits: dict[str, BadSignature | None] = {}
        doubtful: list[_Doubtful] = []
        for function in kernels_of(parsed.module):
            pause()
            with self._costing(function.name_span, found):
                every = self._signatures_of(function, scope, signatures, fits)
                for signature, said in every.items():
                    judged = self._judged(path, function, signature, said)
                    if isinstance(judged, _Doubtful):
                        doubtful.append(judged)
                    else:
                        found.extend(judged)
            with self._costing(function.name_span, found):
                found.extend(self._of_open_sizes(path, function))
        found.extend(d for error in fits.values() if error for d in error.diagnostics)
        tests_of_file = self.tests(path)
        found.extend(self._check_host(path, given, found, tests_of_file if tests else ()))
        # Whether such a kernel is right is known when every call of it was seen.
        for one in doubtful if tests or not tests_of_file else ():
            right = self.is_right_somewhere(path, one.function, one.tried)
            found.extend(one.otherwise if right else one.as_warnings())
        self._forget_old(path, parsed.module)
        kept = self._structures.get(path, {})
        now = set(parsed.module.functions)
        self._structures[path] = {f: v for f, v in kept.items() if f in now}

    def _of_open_sizes(self, path: str, function: ast.FunctionDef) -> tuple[Diagnostic, ...]:
        """What calls of a tile kernel are told whatever the sizes are that its head leaves open."""
        own = signature_of_annotations(function, self.scope(path))
        if own is None or self.completed(path, function, own) is not None:
            return ()
        return whatever_sizes(path, function, own, self.completed, self._with_refusals)

    def sizes_that_build_needs(
        self, path: str, signatures: tuple[str, ...]
    ) -> tuple[Diagnostic, ...]:
        """Warnings for each tile kernel that `build` refuses with these signatures, as nothing
        says the sizes that it is compiled for, or that it has no form without."""
        scope, found = self.scope(path), list[Diagnostic]()
        for function in kernels_of(self.parsed(path).module):
            own = signature_of_annotations(function, scope)
            names = {p.name for p in (*function.brackets, *function.parameters)}
            if own is None or any(read_signature(s).keys() <= names for s in signatures):
                continue
            completed = self.completed(path, function, own)
            if completed is None:
                said = [d for d in self.instance(path, function.name, own)[2] if d.code == "T0650"]
            elif kernel_level(function) == "tile":
                said = self._with_refusals(path, function.name, completed)[2]
            else:
                continue
            note = "so it is where nothing says the sizes; calls compile it for theirs"
            found += [replace(d, severity="warning", notes=(*d.notes, note))
                      for d in said if d.severity == "error"]  # fmt: skip
        return tuple(found)

    @contextmanager
    def _costing(self, span: Span, found: list[Diagnostic]) -> Generator[None]:
        """A fault of ours costs the declaration at ``span``, and no other."""
        try:
            yield
        except (TesseraError, BadSignature, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is
            found.append(self._failed(error, span))

    def _failed(self, error: Exception, span: Span) -> Diagnostic:
        """A fault of ours, kept for the report, as its declaration shows it."""
        fault = error
        if not isinstance(fault, InternalFault):
            message = f"a fault of the compiler: {type(error).__name__}: {error}"
            fault = InternalFault("T0902", message, stage="check", span=span)
            fault.__cause__ = error
        self.faults.append(fault)
        said = fault.diagnostic()
        return said if said.span is not None else replace(said, span=span)

    def _judged(
        self, path: str, function: ast.FunctionDef, signature: Signature, said: Signature
    ) -> tuple[Diagnostic, ...] | _Doubtful:
        """What is wrong with a kernel for a signature, ``said`` without the facts of it. Where
        sizes are open and the kernel is right for some of them, calls may be right."""
        typed, plan, found = self._with_refusals(path, function.name, signature)
        if typed is not None and plan is not None and not has_errors(found):
            return (*found, *self.size_faults(function, typed, plan, said))
        is_open = kernel_level(function) == "tile" and not knows_sizes(signature)
        if not has_errors(found) or not is_open:
            return found
        if has_errors(self.instance(path, function.name, signature)[2]):
            short = self.short(path, function, signature)
            if short is not None:
                return short
        for size in _TRIED:
            sized = self.completed(path, function, with_sizes(function, said, size))
            if sized is not None:
                then = self._with_refusals(path, function.name, sized)[2]
                if not has_errors(then):
                    return _Doubtful(function, found, size, sized, then)
        return found

    def _with_refusals(
        self, path: str, name: str, signature: Signature, grid_rank: int = 0
    ) -> Checked:
        """``instance``, with what the target refuses that code is made for."""
        typed, plan, found = self.instance(path, name, signature, grid_rank)
        if plan is not None and not has_errors(found):
            found = (*found, *self.refusals(path, name, signature, grid_rank))
        return typed, plan, found

    def refusals(
        self, path: str, name: str, signature: Signature, grid_rank: int = 0
    ) -> tuple[Diagnostic, ...]:
        """What stands in the way of code for the session's target, of a kernel that is right for
        a signature; nothing where no target is known."""
        if self.options is None:
            return ()
        try:
            backend = self._backend(self.options)
            machine, options = self._machine_of(path, name, self.options)
            programs = self._programs(path, name, signature, machine, grid_rank)
            return tuple(d for p, plan in programs for d in backend.refusals(p, plan, options))
        except TesseraError as error:
            return tuple(d for d in error.diagnostics if d.severity == "error")

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
        self, function: ast.FunctionDef, scope: ModuleScope, texts: tuple[str, ...],
        fits: dict[str, BadSignature | None] | None = None,
    ) -> dict[Signature, Signature]:  # fmt: skip
        """Each signature with what was said of it. ``fits`` gets None for a text that says all of
        a kernel, and else what is missing."""
        found: dict[Signature, Signature] = {}
        own = signature_of_annotations(function, scope)
        if own is not None and (completed := self.completed(scope.path, function, own)):
            found[completed] = own
        names = {p.name for p in (*function.brackets, *function.parameters)}
        for text in texts:
            given = read_signature(text)
            if not set(given) <= names:
                continue
            try:
                signature = complete_signature(function, scope, given)
            except BadSignature as error:
                if fits is None:
                    raise
                fits.setdefault(text, error)
                continue
            if fits is not None:
                fits[text] = None
            completed = self.completed(scope.path, function, signature)
            found[completed or signature] = signature
        return found

    def _check_host(
        self, path: str, given: frozenset[str], before: list[Diagnostic],
        tests: tuple[ast.FunctionDef, ...],
    ) -> list[Diagnostic]:  # fmt: skip
        """The top-level statements and ``tests``, run without data. What was reported is not
        repeated."""
        from tessera_lang.driver.static_launch_checks import Launches
        from tessera_lang.evaluate.abstract_interpreter import SymbolicHost
        from tessera_lang.evaluate.abstract_world import SymbolicWorld

        launches = Launches(self.scope, self._with_refusals, self.completed, self.span_of_condition)
        whole = SymbolicHost(SymbolicWorld(launches), self, path)
        found = list(whole.check(given))
        self.host_values[path] = whole.top.values
        found.extend(self._failed(*failure) for failure in whole.failures)
        host = SymbolicHost(SymbolicWorld(launches), self, path)
        for function in tests:
            found.extend(host.check_test(function))
            found.extend(self._failed(*failure) for failure in host.failures)
        found.extend(launches.warnings)
        places = {(d.span.file, d.span.lo) for d in before if d.span and d.severity == "error"}
        damaged = _damaged_words(self.parsed(path))
        return [
            d
            for d in found
            if not (d.span and (d.span.file, d.span.lo) in places)
            and not (d.code == "T0101" and any(f"`{w}`" in d.message for w in damaged))
        ]

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
        for function, _, key, instance in self.instances_of(path, path, before=True):
            typed = instance.typed
            current = key == self._environment.key(function, scope)
            if current and typed is not None and typed.tile is not None:
                _add_with_calls(typed, found)
        return list(found)

    def kernels(self, path: str) -> tuple[ast.FunctionDef, ...]:
        """The kernels that a file declares, of both levels."""
        return kernels_of(self.parsed(path).module)

    def tests(self, path: str) -> tuple[ast.FunctionDef, ...]:
        """The tests that a file declares and that can be called; those of its imports are not
        its own."""
        tests = (f for f in self.parsed(path).module.functions if is_test(f))
        return tuple(f for f in tests if not (f.parameters or f.brackets or kernel_level(f)))

    def tile(
        self, path: str, kernel: str, signature: Signature, machine: Machine | None = None,
        grid_rank: int = 0,
    ) -> tuple[Program, LaunchPlan]:  # fmt: skip
        """Optimized Tile IR of a kernel and its plan. Raises TesseraError, InternalFault.

        That of a lane kernel is one for all machines, for a grid of ``grid_rank`` axes where the
        call gives one; of a tile kernel, without a machine, the CPU's.
        """
        instance = self._sound(path, kernel, signature)
        if instance.typed is not None and instance.typed.tile is not None:
            machine = machine or machine_named("cpu", "native")
            made = self.for_machine(path, kernel, signature, machine)
            if made.lowered is None:
                raise self.error(made.remarks)
            return made.lowered
        tile = self._tile(self.files.spelling(path), instance, True, grid_rank)
        if has_errors(tile.diagnostics):
            raise self.error((*instance.diagnostics, *tile.diagnostics))
        if tile.optimized is None:
            program = self.runner.run(tile.program, pipeline.TILE)
            tile.optimized = program, finish_plan(program, tile.plan)
        return tile.optimized

    def scheduled(self, path: str, kernel: str, signature: Signature) -> tuple[Program, ...]:
        """Schedule IR of a tile kernel before the decisions, one for each launch of a call. Raises
        as ``tile`` does."""
        instance = self._sound(path, kernel, signature)
        made = self._schedule(self.files.spelling(path), instance, fresh=True)
        return tuple(launch.program for launch in made.launches)

    def for_machine(
        self, path: str, kernel: str, signature: Signature, machine: Machine
    ) -> ForMachine:
        """A tile kernel for a machine: the decided schedule, Tile IR and remarks. Raises as
        ``tile`` does, but where the schedule is refused."""
        instance = self._sound(path, kernel, signature)
        return self._fitting(self.files.spelling(path), instance, machine)[1]

    def for_machines(self, path: str, machine: Machine) -> list[ForMachine]:
        """The tile kernels of a file that checks have lowered, for a machine, one for each
        instance that has no error; of a kernel that is called, only those of its calls and
        signatures. Raises InternalFault."""
        path = self.files.spelling(path)
        scheduled: dict[object, list[tuple[bool, Instance]]] = {}
        for function, signature, _, instance in self.instances_of(path, path):
            made = instance.schedule
            if made is not None and not has_errors(made.diagnostics):
                sized = knows_sizes(signature)
                scheduled.setdefault(function, []).append((sized, instance))
        return [
            self._fitting(path, instance, machine, fresh=False)[1]
            for instances in scheduled.values()
            for sized, instance in instances
            if sized or not any(other for other, _ in instances)
        ]

    def compile_kernel(
        self, path: str, name: str, signature: Signature, options: TargetOptions,
        stages: tuple[str, ...] = (), grid_rank: int = 0,
    ) -> Artifact:  # fmt: skip
        """Code of a kernel for a target. ``grid_rank``: axes of the grid that a call of a lane
        kernel gives, 0 for as many as the kernel asks for. Raises TesseraError, InternalFault."""
        return self.begin_kernel(path, name, signature, options, stages, grid_rank)()

    def begin_kernel(
        self, path: str, name: str, signature: Signature, options: TargetOptions,
        stages: tuple[str, ...] = (), grid_rank: int = 0,
    ) -> Callable[[], Artifact]:  # fmt: skip
        """What waits for the code of a kernel, on which another program or thread works meanwhile.
        Both raise as ``compile_kernel`` does."""
        machine, options = self._machine_of(path, name, options)
        backend = self._backend(options)

        def begun(program: Program, plan: LaunchPlan) -> Callable[[], Artifact]:
            passes = pipeline.UNGUARDED if options.bounds == "off" else ()
            if machine is None and options.target == "cuda":
                passes = (*passes, *pipeline.LANES_OF_A_GPU)
            passes = (*passes, *passes_of(backend, program, options))
            ready = self.runner.run(program, passes) if passes else program
            return begin_code(self.runner, backend, (ready, plan, options, stages))

        with self._told_of_faults():
            if machine is None:
                waiting = begun(*self.tile(path, name, signature, grid_rank=grid_rank))
            else:
                self.tile(path, name, signature, machine)
                instance = self._sound(path, name, signature)
                made, _ = self._fitting(self.files.spelling(path), instance, machine)
                waiting = begin_launches(made.launches, machine, begun, self.runner)

        def finished() -> Artifact:
            with self._told_of_faults():
                made = waiting()
                said = self._told(path, name, signature, machine) if machine is not None else ()
                return replace(made, diagnostics=(*said, *made.diagnostics))

        return finished

    @contextmanager
    def _told_of_faults(self) -> Generator[None]:
        try:
            yield
        except InternalFault as error:
            self.faults.append(error)
            raise
        except TesseraError as error:
            raise self.error(error.diagnostics) from error

    def _told(
        self, path: str, name: str, signature: Signature, machine: Machine
    ) -> tuple[Diagnostic, ...]:
        """What whoever compiles a kernel hears of its elements, and for a GPU of its form."""
        instance = self._sound(path, name, signature)
        if machine.target != "cuda":
            return told_anywhere(instance.diagnostics)
        scheduled, made = self._fitting(self.files.spelling(path), instance, machine)
        return told((*instance.diagnostics, *scheduled.diagnostics, *made.remarks))

    def _backend(self, options: TargetOptions) -> Backend:
        try:
            return backend_named(options.target)
        except KeyError:
            known = ", ".join(f"`{n}`" for n in backend_names())
            message = f"there is no target `{options.target}`"
            helps = (f"the installed targets are {known}",)
            raise self.error((Diagnostic("T0814", message, helps=helps),)) from None

    def _machine_of(
        self, path: str, name: str, options: TargetOptions
    ) -> tuple[Machine | None, TargetOptions]:
        """The machine that a tile kernel is scheduled for, None for a lane kernel, and the options
        with its architecture."""
        if kernel_level(self._function(path, self.scope(path), name).declaration) != "tile":
            return None, options
        if options.arch_as:
            return self.machine("cuda", options.arch_as), options
        machine = self.machine(options.target, options.arch)
        return machine, replace(options, arch=machine.arch)

    def _programs(
        self, path: str, name: str, signature: Signature, machine: Machine | None, grid_rank: int
    ) -> list[tuple[Program, LaunchPlan]]:
        """Tile IR of the launches of a call. Raises as ``tile`` does."""
        first = self.tile(path, name, signature, machine, grid_rank)
        if machine is None:
            return [first]
        made = self.for_machine(path, name, signature, machine)
        return [launch.lowered for launch in made.launches if launch.lowered is not None]

    def machine(self, target: str, arch: str) -> Machine:
        """The machine that a tile kernel is scheduled for. Raises TesseraError."""
        if target == "cuda" and arch in ("", "native"):
            arch = backend_named(target).default_arch()
        if target != "cuda":
            return machine_named(target, arch)
        row = find_architecture(arch)
        if row is None:
            raise self.error((unknown_architecture(arch),))
        # Code of a tile kernel is for the very architecture, whose units it uses.
        return machine_of(specific_to(row), arch)

    def run(self, path: str, world: World, given: Mapping[str, object] = {}) -> None:
        """Run a file's top-level statements. Raises evaluate.fault.HostFault, and what the
        world raises."""
        from tessera_lang.evaluate.host import Host

        Host(world, self, self.files.spelling(path)).run(given)

    def run_test(self, path: str, function: ast.FunctionDef, world: World) -> None:
        """Run a test of a file. Raises as ``run`` does."""
        from tessera_lang.evaluate.host import Host

        Host(world, self, self.files.spelling(path)).run_test(function)


@dataclass(frozen=True, slots=True)
class _Doubtful:
    """A tile kernel that is wrong as long as nobody says its sizes, and right for ``size``, which
    was ``tried``; what there is to say then is ``otherwise``."""

    function: ast.FunctionDef
    found: tuple[Diagnostic, ...]
    size: int
    tried: Signature
    otherwise: tuple[Diagnostic, ...]

    def as_warnings(self) -> tuple[Diagnostic, ...]:
        """The same faults, which stand in the way of code for any size."""
        note = f"so it is where nothing says the sizes; where they are {self.size} it is right"
        helps = ("calls compile it for their sizes; `--signature` says them to `build` too",)
        return tuple(
            replace(d, severity="warning", notes=(*d.notes, note), helps=(*d.helps, *helps))
            if d.severity == "error" else d
            for d in self.found
        )  # fmt: skip


def _damaged_words(parsed: ParsedModule) -> frozenset[str]:
    """Words of declarations that could not be read: any of them may be a definition."""
    texts = [chunk.text for chunk in parsed.chunks if has_errors(chunk.diagnostics)]
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
