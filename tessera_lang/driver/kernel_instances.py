"""Remembered instances: kernels checked for signatures, and lowered where asked for.

Owns what an instance is kept under, so that an edit computes again only what depends on it.
Must not know checks of whole files, hosts or backends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from tessera_lang.analysis.kept_findings import Findings
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver import pipeline, tile_compilation
from tessera_lang.driver.function_keys import Environment, Key
from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.driver.parsed_files import Scopes
from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.signatures import (
    Axes,
    BadSignature,
    complete_signature,
    knows_sizes,
    plan_with_facts,
    read_signature,
    with_facts,
    with_rooms,
    without_facts,
)
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.driver.warning_filter import LOOPS_OF_LANES
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.ir.core import Program
from tessera_lang.lower.ast_to_tile.kernel import finish_kernel, lower_body
from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema.instance import check_function, needed_sizes
from tessera_lang.sema.kernel_clauses import kernel_decorator, tile_decorator
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import FunctionSymbol, Signature, TensorArgument, TypedFunction
from tessera_lang.sema.tile.whole_array_bodies import is_of_arrays
from tessera_lang.source import Anchor, SourceFile, Span
from tessera_lang.syntax import ast
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.host_world import KernelEffects, KernelReference
from tessera_lang.target.launch_plan import Condition, LaunchPlan
from tessera_lang.target.machine import Machine
from tessera_lang.target.runtime import Proofs

if TYPE_CHECKING:
    from tessera_lang.driver.static_launch_checks import Checked
    from tessera_lang.driver.whole_array_fusion import Forms
    from tessera_lang.evaluate.host import Host
    from tessera_lang.evaluate.value import Derivative
    from tessera_lang.lower.ast_to_graph.derivative import Graphs

T = TypeVar("T")
Used = dict[tuple[object, ...], None]
"""Files, declarations and signatures of instances."""
SPARE = 64
"""Instances of a file that no call asks for any more and that are kept: calls are edited back."""


@dataclass(slots=True, eq=False)
class LoweredTile:
    """Tile IR of an instance as lowered, what was found on the way, and the optimized form
    where code was asked for."""

    program: Program
    plan: LaunchPlan
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[SourceFile, ...]
    optimized: tuple[Program, LaunchPlan] | None = None


@dataclass(slots=True, eq=False)
class Scheduled:
    """Schedule IR of an instance after the passes that know no machine, what was found on the
    way, and the rest of the way for each machine that was asked for. ``then``: the launches that
    follow, which are kernels of their own from here on."""

    program: Program
    plan: LaunchPlan
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[SourceFile, ...]
    machines: dict[Machine, ForMachine] = field(default_factory=dict[Machine, ForMachine])
    then: tuple[Scheduled, ...] = ()

    @property
    def launches(self) -> tuple[Scheduled, ...]:
        """All launches of a call, in order."""
        return self, *self.then


@dataclass(slots=True, eq=False)
class Instance:
    """A function checked for a signature; lowered where asked for: a lane kernel to ``tile``, and
    for launches whose grid has more axes than it asks for to ``wider``, a tile kernel to
    ``schedule``. ``loops``: a kernel of whole arrays as one loop, which is lowered then; in
    ``smaller`` what was lowered of its further forms."""

    typed: TypedFunction | None
    diagnostics: tuple[Diagnostic, ...]
    tile: LoweredTile | None = None
    wider: dict[int, LoweredTile] = field(default_factory=dict[int, LoweredTile])
    schedule: Scheduled | None = None
    loops: Forms | None = None
    smaller: dict[int, Scheduled] = field(default_factory=lambda: dict[int, Scheduled]())


class Instances(Scopes):
    """The instances of the kernels of a set of files. ``options``: what code will be made for,
    where that is known; signatures get the facts of that target, and checks find what it refuses.
    """

    def __init__(
        self, search_paths: Iterable[str] = (), overlay: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(search_paths, overlay)
        self.options: TargetOptions | None = None
        self.runner = PassRunner()
        self.proofs: Proofs | None = None  # of processes before
        self._graphs: Graphs | None = None
        self.memory_budget = 0  # bytes of a call of fused functions that say none; 0: no limit
        self._environment = Environment(self.scope)
        self._instances: dict[str, dict[tuple[object, ...], tuple[Key, Instance]]] = {}
        self._used: dict[str, Used] = {}  # what the last check of each file asked for
        self._running: tuple[str, Used] | None = None  # the file that is checked, and what it asks
        self._asked: dict[str, dict[tuple[object, ...], tuple[Key, tuple[Axes, Axes]]]] = {}
        self._checks: dict[str, Findings] = {}

    def differentiated(
        self, host: Host, derivative: Derivative, values: dict[str, object], call: ast.Call,
        cotangent: object,
    ) -> object:  # fmt: skip
        """What ``grad(f)`` gives; see ``evaluate.modules.Library``."""
        from tessera_lang.driver.graph_verification import graphs_of
        from tessera_lang.lower.ast_to_graph.derivative import differentiated

        if self._graphs is None:
            self._graphs = graphs_of(self.runner, self.memory_budget)
        return differentiated(host, derivative, values, call, cotangent, self._graphs)

    def effects(
        self, kernel: KernelReference, arguments: Sequence[object],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> KernelEffects | None:  # fmt: skip
        """What a call of a kernel does; see ``evaluate.modules.Library``."""
        from tessera_lang.driver.static_launch_checks import Launches

        launches = Launches(self.scope, self.instance, self.completed, self.span_of_condition)
        return launches.effects(kernel, arguments, constants, groups)

    def profiled(
        self, host: Host, derivative: Derivative, values: dict[str, object], call: ast.Call,
        trace: str,
    ) -> None:  # fmt: skip
        """Prints what the kernels of ``f`` take; see ``evaluate.modules.Library``."""
        from tessera_lang.driver.graph_verification import graphs_of
        from tessera_lang.driver.kernel_profiling import Compiler, profiled

        if self._graphs is None:
            self._graphs = graphs_of(self.runner, self.memory_budget)
        profiled(cast("Compiler", self), host, derivative, values, call, self._graphs, trace)

    @property
    def target(self) -> str:
        """What signatures are completed for. Where no target is known it is the one that takes
        the longest rows: what is wrong then is wrong everywhere."""
        return "cuda" if self.options is None else self.options.target

    def asked(self, path: str, name: str, signature: Signature) -> tuple[Axes, Axes]:
        """The axes whose size a tile kernel is compiled for, and those of which it takes a
        bound; the signature says nothing of sizes."""
        return self._remembered(
            self._asked, path, name, signature,
            lambda symbol: self._needed(symbol, signature),
        )  # fmt: skip

    def _needed(self, symbol: FunctionSymbol, signature: Signature) -> tuple[Axes, Axes]:
        needed, whole = needed_sizes(symbol, signature, self.scope)
        if not needed and is_tile_of_arrays(symbol):
            from tessera_lang.driver.whole_array_fusion import loop_symbol, sized_for_loop

            sized = sized_for_loop(self, symbol, signature)
            loop = None if sized is None else loop_symbol(self, symbol, sized[0])
            if sized is not None and loop is not None:
                more, whole = needed_sizes(loop, sized[0], self.scope)
                needed = tuple(dict.fromkeys((*sized[1], *more)))
        return needed, tuple(a for a in whole if a not in needed)

    def signature(self, path: str, name: str, text: str = "") -> Signature:
        """The signature of a kernel by its annotations and ``text``. Raises TesseraError."""
        return self._read_signature(path, name, text)[0]

    def signature_of_launches(self, path: str, name: str, text: str = "") -> Signature:
        """``signature``, of sizes that some launch takes. Raises TesseraError where each would be
        refused for them."""
        signature, said = self._read_signature(path, name, text)
        if any(n is not None for a in said if isinstance(a, TensorArgument) for n in a.sizes):
            typed, plan, found = self.instance(path, name, signature)
            if typed is not None and plan is not None and not has_errors(found):
                faults = self.size_faults(typed.declaration, typed, plan, said)
                if faults:
                    raise self.error(faults)
        return signature

    def _read_signature(self, path: str, name: str, text: str) -> tuple[Signature, Signature]:
        """The signature of a kernel, and the same without the facts of its sizes."""
        scope = self.scope(path)
        function = self._function(path, scope, name).declaration
        try:
            given = read_signature(text) if text else {}
            said = complete_signature(function, scope, given)
        except BadSignature as error:
            raise self.error(error.diagnostics) from None
        return self.completed(path, function, said) or without_facts(said), said

    def size_faults(
        self, function: ast.FunctionDef, typed: TypedFunction, plan: LaunchPlan, said: Signature
    ) -> tuple[Diagnostic, ...]:
        """What every launch of arrays with the sizes of ``said`` would be refused for."""
        from tessera_lang.driver.static_launch_checks import signature_faults

        return signature_faults(function, typed, plan, said, self.span_of_condition)

    def span_of_condition(self, condition: Condition) -> Span | None:
        """Where a condition of a plan stands in its file."""
        path, line, column = condition.span
        if line < 1:
            return None
        source = self.source(path)
        lo = source.offset_at(line - 1, column - 1)
        is_its_text = source.text.startswith(condition.text, lo)
        return Span(Anchor(path), lo, lo + (len(condition.text) if is_its_text else 1))

    def completed(
        self, path: str, function: ast.FunctionDef, signature: Signature
    ) -> Signature | None:
        """The signature with the facts that its kernel is compiled for; None where it lacks a
        size that the kernel needs."""
        bare = without_facts(signature, self.target)
        if kernel_level(function) != "tile":
            return bare
        needed, whole = self.asked(path, function.name, without_facts(signature))
        return with_facts(function, signature, needed, whole)

    def short(
        self, path: str, function: ast.FunctionDef, signature: Signature
    ) -> tuple[Diagnostic, ...] | None:
        """What there is to say of a tile kernel where the axes that it takes whole, and whose size
        nothing says, are short; None where it is wrong for these too."""
        _, whole = self.asked(path, function.name, without_facts(signature))
        short = with_rooms(function, signature, whole)
        if short is None:
            return None
        found = self.instance(path, function.name, short)[2]
        return None if has_errors(found) else found

    def is_right_somewhere(self, path: str, function: ast.FunctionDef, tried: Signature) -> bool:
        """Whether a function was found right for some signature with sizes beside the one that was
        tried."""
        return any(
            known is function and signature != tried
            and knows_sizes(signature)
            and instance.schedule is not None
            and not has_errors((*instance.diagnostics, *instance.schedule.diagnostics))
            for known, signature, _, instance in self.instances_of(path, path)
        )  # fmt: skip

    def instance(self, path: str, name: str, signature: Signature, grid_rank: int = 0) -> Checked:
        """A kernel checked for a signature and, without errors, lowered: its types, its plan
        and all diagnostics. ``grid_rank``: axes of the grid that a call gives, 0 for none."""
        instance = self._instance(path, name, signature)
        typed = instance.typed
        if typed is None or has_errors(instance.diagnostics):
            return typed, None, instance.diagnostics
        if typed.tile is not None:
            scheduled = self._schedule(path, instance)
            return typed, scheduled.plan, (*instance.diagnostics, *scheduled.diagnostics)
        if typed.kernel is None:
            return typed, None, instance.diagnostics
        tile = self._tile(path, instance, grid_rank=grid_rank)
        return typed, tile.plan, (*instance.diagnostics, *tile.diagnostics)

    def seen(self, path: str) -> list[tuple[ast.FunctionDef, Signature]]:
        """What was checked of a file: functions with signatures."""
        return [(f, s) for f, s, _, _ in self.instances_of(path)]

    def instances_of(
        self, path: str, checked: str | None = None, before: bool = False
    ) -> Iterator[tuple[ast.FunctionDef, Signature, Key, Instance]]:
        """The instances of a file that the last check of ``checked``, or of any file, asked for,
        with what they depend on. Those of calls that were edited since are kept, and are no longer
        part of any answer. ``before``: also those of the check before one that runs."""
        path = self.files.spelling(path)
        used = self._asked_by(None if checked is None else self.files.spelling(checked), before)
        for (function, signature), (key, instance) in self._instances.get(path, {}).items():
            if (path, function, signature) in used:
                yield cast("ast.FunctionDef", function), cast("Signature", signature), key, instance

    def _asked_by(self, checked: str | None, before: bool) -> Used:
        running = self._running
        if checked is None:
            every = [*self._used.values(), running[1] if running else {}]
            return {key: None for one in every for key in one}
        known = self._used.get(checked, {})
        if running is None or running[0] != checked:
            return known
        return {**known, **running[1]} if before else running[1]

    @contextmanager
    def collecting(self, path: str, final: bool) -> Generator[None]:
        """What is asked for within this is what the last check of a file asked for. If not
        ``final``, what the check before asked for counts again behind it."""
        outer, own = self._running, Used()
        self._running = path, own
        whole = False
        try:
            yield
            whole = final
        finally:
            self._running = outer
            self._used[path] = own if whole else {**self._used.get(path, {}), **own}

    def has_instance(self, path: str, function: ast.FunctionDef) -> bool:
        """Whether a function was checked for some signature."""
        return any(known is function for known, _, _, _ in self.instances_of(path, path))

    def lowered(self, path: str, checked: str | None = None) -> list[tuple[Program, LaunchPlan]]:
        """Tile IR before the passes of the kernels of a file that the last check of ``checked``, or
        of any file, has lowered, one for each instance that has no error."""
        found = (instance.tile for _, _, _, instance in self.instances_of(path, checked))
        tiles = [tile for tile in found if tile is not None]
        return [(t.program, t.plan) for t in tiles if not has_errors(t.diagnostics)]

    def _instance(self, path: str, name: str, signature: Signature) -> Instance:
        def make(symbol: FunctionSymbol) -> Instance:
            return self._checked(symbol, signature)

        found = self._remembered(self._instances, path, name, signature, make)
        path = self.files.spelling(path)
        declaration = self._function(path, self.scope(path), name).declaration
        used = self._running[1] if self._running else self._used.setdefault(path, {})
        used[path, declaration, signature] = None
        return found

    def _checked(self, symbol: FunctionSymbol, signature: Signature) -> Instance:
        self.counts["check"] += 1
        typed, diagnostics = check_function(symbol, signature, self.scope)
        made = Instance(typed, tuple(diagnostics))
        if typed is not None and is_tile_of_arrays(symbol) and not has_errors(diagnostics):
            from tessera_lang.driver.whole_array_fusion import Forms

            forms = Forms(self, symbol, signature, typed)
            made.loops = forms if forms.get(0) is not None else None
        return made

    def _remembered(
        self, store: dict[str, dict[tuple[object, ...], tuple[Key, T]]], path: str, name: str,
        signature: Signature, make: Callable[[FunctionSymbol], T],
    ) -> T:  # fmt: skip
        """What was made of a function for a signature; made again where anything that it depends
        on has changed."""
        path = self.files.spelling(path)
        scope = self.scope(path)
        symbol = self._function(path, scope, name)
        key = self._environment.key(symbol.declaration, scope)
        kept = store.setdefault(path, {})
        known = kept.get((symbol.declaration, signature))
        if known is None or known[0] != key:
            known = kept[symbol.declaration, signature] = (key, make(symbol))
        return known[1]

    def _function(self, path: str, scope: ModuleScope, name: str) -> FunctionSymbol:
        symbol = scope.names.get(name)
        if isinstance(symbol, FunctionSymbol):
            return symbol
        raise self.no_kernel(path, scope, name)

    def no_kernel(self, path: str, scope: ModuleScope, name: str) -> TesseraError:
        """There is no kernel of this name: what it has, and what the name is instead."""
        kernels = ", ".join(f"`{f.name}`" for f in kernels_of(scope.module))
        helps = (f"it has {kernels}",) if kernels else ()
        message = f"{path} has no kernel `{name}`"
        if isinstance(scope.names.get(name), FunctionSymbol):
            message += ": that is a function without `@kernel` or `@op.kernel`"
        return self.error((Diagnostic("T0819", message, helps=helps),))

    def _tile(
        self, path: str, instance: Instance, fresh: bool = False, grid_rank: int = 0
    ) -> LoweredTile:
        """Tile IR of an instance without errors. ``fresh``: with the lines as they are now.
        ``grid_rank``: axes of the grid that the call gives, 0 for those that the kernel asks for.
        """
        own = instance.tile = self._lowered(path, instance, instance.tile, fresh, 0)
        if own.plan.grid is not None or grid_rank <= own.plan.grid_rank:
            return own
        known = instance.wider.get(grid_rank)
        made = instance.wider[grid_rank] = self._lowered(path, instance, known, fresh, grid_rank)
        return made

    def _lowered(
        self, path: str, instance: Instance, known: LoweredTile | None, fresh: bool, grid_rank: int
    ) -> LoweredTile:
        typed = instance.typed
        assert typed is not None
        if known is not None and not fresh:
            return known
        files = {p: self.source(p) for p in self.closure(path)}
        if known is None or known.sources != tuple(files.values()):
            self.counts["lower"] += 1
            with self._faults_of_lowering(typed):
                damaged = any(has_errors(self.parsed(p).diagnostics) for p in files)
                known_checks = self._checks.setdefault(self.files.spelling(path), Findings())
                made = self._lower_lanes(typed, files, grid_rank, damaged, known_checks)
            known = LoweredTile(*made, tuple(files.values()))
        return known

    def _lower_lanes(
        self, typed: TypedFunction, files: Mapping[str, SourceFile], grid_rank: int, damaged: bool,
        known: Findings,
    ) -> tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]:  # fmt: skip
        program, body = self.runner.step(
            pipeline.AST_TO_TILE, lambda: lower_body(typed, files, grid_rank), None,
            refused=lambda made: damaged or made[1].has_errors,
        )  # fmt: skip
        if damaged or body.has_errors:
            return finish_kernel(program, body)
        share = pipeline.SHARE_REDUCTIONS
        shared = self.runner.step(share, lambda: body.shared(program), program)
        return finish_kernel(shared, body, known, self.proofs)

    def _schedule(
        self, path: str, instance: Instance, fresh: bool = False, number: int = 0
    ) -> Scheduled:  # fmt: skip
        """Schedule IR of an instance of a tile kernel, as ``_tile`` gives Tile IR. ``number``: of
        the forms of one that is made a loop."""
        from tessera_lang.lower.ast_to_schedule import lower_tile_kernel

        form = None if instance.loops is None else instance.loops.get(number)
        typed, known = instance.typed if form is None else form.typed, instance.schedule
        if number:
            known = instance.smaller.get(number)
        assert typed is not None
        if known is not None and not fresh:
            return known
        files = {p: self.source(p) for p in self.closure(path)}
        if known is None or known.sources != tuple(files.values()):
            self.counts["lower"] += 1
            with self._faults_of_lowering(typed):
                program, plan, found = self.runner.step(
                    pipeline.AST_TO_SCHEDULE, lambda: lower_tile_kernel(typed, files), None,
                    refused=lambda made: has_errors(made[2]),
                )  # fmt: skip
            plan = plan_with_facts(plan, typed.signature)
            parts: tuple[tuple[Program, LaunchPlan], ...] = ((program, plan),)
            if not has_errors(found):
                parts, more = tile_compilation.launches(program, plan, self.runner)
                found = (*found, *more)
            sources = tuple(files.values())
            known, *then = (Scheduled(p, own, found, sources) for p, own in parts)
            known.then = tuple(then)
            if number:
                instance.smaller[number] = known
            else:
                instance.schedule = known
        return known

    def _fitting(
        self, path: str, instance: Instance, machine: Machine, fresh: bool = True
    ) -> tuple[Scheduled, ForMachine]:
        """What is lowered of an instance for a machine; of a kernel that is made a loop the first
        form that the machine has room for. Raises TesseraError, InternalFault."""
        best: tuple[Scheduled, ForMachine] | None = None
        refused: tuple[Diagnostic, ...] = ()
        number = 0
        while True:
            scheduled = self._schedule(path, instance, fresh, number)
            if has_errors(scheduled.diagnostics):
                raise self.error((*instance.diagnostics, *scheduled.diagnostics))
            made = self._made_for(scheduled, machine)
            form = None if instance.loops is None else instance.loops.get(number)
            if instance.loops is None or form is None:
                return scheduled, made
            if made.lowered is not None:
                made = replace(made, remarks=(*form.notes(refused), *form.of_program(made.remarks)))
            is_slow = any(d.code == LOOPS_OF_LANES for d in made.remarks)
            if made.lowered is not None and not is_slow:
                return scheduled, made
            if best is None or best[1].lowered is None and made.lowered is not None:
                best = scheduled, made
            refused = refused or made.remarks
            number += 1
            if instance.loops.get(number) is None:
                return best

    def _made_for(self, made: Scheduled, machine: Machine) -> ForMachine:
        """Of a kernel of several launches the first, with the others behind it."""
        for launch in made.launches:
            if machine not in launch.machines:
                found = tile_compilation.for_machine(
                    launch.program, launch.plan, machine, self.runner
                )
                launch.machines[machine] = found
        return tile_compilation.joined([launch.machines[machine] for launch in made.launches])

    def _sound(self, path: str, kernel: str, signature: Signature) -> Instance:
        """An instance without errors. Raises TesseraError."""
        path = self.files.spelling(path)
        faults = [d for p in self.closure(path) for d in self.parsed(p).diagnostics]
        if has_errors(faults):
            raise self.error(faults)
        instance = self._instance(path, kernel, signature)
        if instance.typed is None or has_errors(instance.diagnostics):
            raise self.error(instance.diagnostics)
        return instance

    @contextmanager
    def _faults_of_lowering(self, typed: TypedFunction) -> Generator[None]:
        try:
            yield
        except TesseraError:
            raise
        except RecursionError:
            name = typed.declaration.name
            raise self.error((Diagnostic(
                "T0316", f"an expression of `{name}` is too long to be computed as one",
                typed.declaration.name_span,
                helps=("give its parts names in a loop over tiles, or store them into an array",),
            ),)) from None  # fmt: skip
        except Exception as error:
            raise InternalFault(
                "T0901", f"lowering failed: {type(error).__name__}: {error}",
                stage="lower", span=typed.declaration.name_span,
            ) from error  # fmt: skip

    def _forget_old(self, path: str, module: ast.Module) -> None:
        """Drop what is kept for declarations that are gone."""
        now = set(module.functions)
        kept = self._instances.get(path, {})
        used = self._asked_by(None, before=True)
        unused = [k for k in kept if (path, *k) not in used]
        old = set(unused[:-SPARE])
        self._instances[path] = {k: v for k, v in kept.items() if k[0] in now and k not in old}
        asked = self._asked.get(path, {})
        self._asked[path] = {k: v for k, v in asked.items() if k[0] in now}
        self._environment.keep_only(self.functions())


def kernels_of(module: ast.Module) -> tuple[ast.FunctionDef, ...]:
    return tuple(f for f in module.functions if kernel_decorator(f) or tile_decorator(f))


def is_tile_of_arrays(symbol: FunctionSymbol) -> bool:
    """Whether a kernel may be one loop over cascaded reductions."""
    return tile_decorator(symbol.declaration) is not None and is_of_arrays(symbol)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in diagnostics)
