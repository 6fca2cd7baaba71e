"""Kernels as Python calls them: arguments in, a launch out.

Owns the general way of a call (recognise, choose the device, compile, check, launch) and
the choice of the short one. Must not know how code is compiled or cached: a ``Provider``
gives artifacts.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from tessera_backend.runtime import launch_fast_path
from tessera_backend.runtime.alias_checks import check_sharing
from tessera_backend.runtime.arguments import Placed, order_arguments, place_arguments
from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.call_diagnostics import diagnostic, error, rendered, tell
from tessera_backend.runtime.caller_errors import ends_at_the_caller, show_to_caller
from tessera_backend.runtime.effects import has_effect, no_effect
from tessera_backend.runtime.launch import Prepared, compile_plan, pointers_of
from tessera_backend.runtime.loaded_code import Code, Fire
from tessera_backend.runtime.missing_variant_help import NothingFits
from tessera_backend.runtime.module_interface import KernelInterface
from tessera_backend.runtime.native_calls import NativeCall, interface, new_call
from tessera_backend.runtime.native_launches import bound_plan, kernel_plan
from tessera_backend.runtime.premise_checks import UnmetPremise
from tessera_backend.runtime.results import handed_over, make_results
from tessera_backend.runtime.signature import Asked, Signature, with_facts
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.locks import free_lock, free_reentrant_lock
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact

if TYPE_CHECKING:
    import inspect

_LAYOUTS = 4096
"""Layouts remembered per kernel; beyond, all are forgotten and made again as needed."""


def load_code(artifact: Artifact, device: int) -> Code:
    """An artifact made ready to launch. Raises TesseraError where the device refuses it."""
    if artifact.then or any(r.kept for r in artifact.plan.results):
        from tessera_backend.runtime.launch_sequence import CodeSequence

        first = _one_launch(replace(artifact, then=()), device, None)
        return CodeSequence([first, *(_one_launch(a, device, first) for a in artifact.then)])
    return _one_launch(artifact, device, None)


def _one_launch(artifact: Artifact, device: int, first: Code | None) -> Code:
    """One of the launches of a call; ``first``: the one that it begins with."""
    if artifact.kind == "tile":
        from tessera_backend.runtime.emulated_code import AsynchronousCode

        return AsynchronousCode(artifact)
    if artifact.kind == "checked":
        from tessera_backend.runtime.checked_code import CheckedCode

        return CheckedCode(artifact)
    if device == HOST:
        from tessera_backend.runtime.cpu_code import HostCode

        return HostCode(artifact)
    from tessera_backend.runtime.cuda_code import CudaCode

    return CudaCode(artifact, device, first.fault if isinstance(first, CudaCode) else None)


class Provider(Protocol):
    """Where artifacts come from: the compiler behind its cache, or a folder."""

    def interface(self, name: str) -> KernelInterface: ...
    def asked(self, name: str, wanted: Signature) -> Asked:
        """Which sizes code of a tile kernel is made for; ``wanted`` is without facts."""
        ...

    def settled(self, name: str, wanted: Signature) -> Signature:
        """The signature to make code for: this one, or one of fewer classes that it belongs to."""
        ...

    def artifact(self, name: str, wanted: Signature, device: int, grid_rank: int = 0) -> Artifact:
        """Code for a signature on a device (HOST or a CUDA ordinal), for launches whose grid has
        ``grid_rank`` axes; 0 where the kernel says what its grid is."""
        ...


class _Family:
    """What all launchers of one kernel share: compiled code per signature and device."""

    def __init__(
        self, name: str, provider: Provider, target: str, load: Callable[[Artifact, int], Code]
    ) -> None:
        self.name = name
        self.provider = provider
        self.target = target
        self.load = load
        self.codes: dict[tuple[Signature, int, int], Code] = {}
        self.lock = free_reentrant_lock()
        self.locks: dict[tuple[Signature, int, int], threading.Lock] = {}
        self.known: KernelInterface | None = None
        self.module: ModuleType | None = None
        self.sized: frozenset[int] = frozenset()
        self.asked: dict[Signature, Asked] = {}
        self.told = False

    @property
    def interface(self) -> KernelInterface:
        if self.known is None:
            self.known = self.provider.interface(self.name)
        return self.known

    def signature(self, placed: Placed) -> Signature:
        """What a call compiles the kernel for: twice, where sizes that it asks for are part."""
        if self.interface.level == "lane":
            return placed.signature(placed.small)
        wanted = placed.signature()
        asked = self.asked.get(wanted)
        if asked is None:
            asked = self.asked[wanted] = self.provider.asked(self.name, wanted)
        names = [p.name for p in self.interface.parameters]
        facts = with_facts(wanted, names, placed.values, asked)
        return self.provider.settled(self.name, facts)

    def code(self, wanted: Signature, device: int, groups: tuple[int, ...] | None) -> Code:
        """Compiled code for calls with so many groups, None where a call does not say it; two
        threads that want the same compile it once."""
        rank = 0 if groups is None or self.interface.says_grid else len(groups)
        key = (wanted, device, rank)
        found = self.codes.get(key)
        if found is not None:
            return found
        with self.lock:
            lock = self.locks.setdefault(key, free_lock())
        with lock:
            found = self.codes.get(key)
            if found is None:
                artifact = self.provider.artifact(self.name, wanted, device, rank)
                found = self.load(artifact, device)
                with self.lock:
                    self._note_sized(found)
                self.codes[key] = found
                if not has_effect(found.plan) and not self.told:
                    self.told = True
                    tell(rendered((no_effect(found.plan, self.interface.level),)))
        with self.lock:
            self.locks.pop(key, None)
        return found

    def _note_sized(self, code: Code) -> None:
        """Numbers that sizes or conditions are made of decide the layout too."""
        plan = code.plan
        named = frozenset[str]().union(*(names_in_sizes(p) for p in (plan, *code.then)))
        sized = {i for i, p in enumerate(plan.parameters) if p.kind != "tensor" and p.name in named}
        self.sized = self.sized | frozenset(sized)


def names_in_sizes(plan: Any) -> frozenset[str]:
    """Symbols that the sizes, conditions and the grid of a plan are made of."""
    from tessera_lang.types.shape import symbols_of

    dims = [d for p in plan.parameters for d in p.dims]
    dims += [d for c in plan.conditions for a, _, b in c.alternatives for d in (a, b)]
    dims += [*(plan.grid or ()), *(d for r in plan.results for d in r.dims)]
    dims += [plan.workspace, plan.scratch]
    named = frozenset[str]().union(*(symbols_of(d) for d in dims))
    return named | frozenset(s.symbol for s in plan.slots if s.symbol)


class Launcher:
    """A kernel with a grid and a stream, or without: ``k(...)``, ``k[groups](...)``.

    Each launcher is of a class of its own, so that its call can be the short way itself.
    """

    def __init__(self, family: _Family, groups: tuple[int, ...] | None, stream: int | None) -> None:
        self._family = family
        self.__qualname__ = family.name
        self._groups = groups
        self._stream = stream
        self._memo: dict[Any, Prepared] = {}
        self._fast_memo: dict[Any, Any] = {}
        self._pattern: launch_fast_path.Pattern | None = None
        self._answer: Callable[..., Any] = Launcher.__call__
        self._native: NativeCall | None = None
        # Held for what a call is answered by. Nobody waits for it: who holds it may be further up
        # in the same thread, when a finalizer or a handler of a signal calls the kernel.
        self._answering = free_lock()
        self._views: dict[tuple[Any, Any], Launcher] = {}

    @property
    def __name__(self) -> str:
        return self._family.name

    @property
    def __signature__(self) -> inspect.Signature:
        from tessera_backend.runtime.python_signature import python_signature

        known = self.interface
        return python_signature(known.parameters, known.brackets, known.returns, launches=True)

    @property
    def interface(self) -> KernelInterface:
        """The parameters, before anything is compiled."""
        return self._family.interface

    @property
    def origin(self) -> tuple[Provider, str, ModuleType | None, tuple[int, ...] | None]:
        """Where its code comes from, the target, the module that has it, and its groups."""
        family = self._family
        return family.provider, family.target, family.module, self._groups

    def __get__(self, instance: object, owner: type | None = None) -> Launcher:
        """A kernel kept in a class is no method of it; and ``help`` takes it for a function."""
        return self

    def belongs_to(self, module: ModuleType) -> None:
        """Say where the kernel is found: in messages of Python, and by another process."""
        self._family.module = module
        self.__module__ = module.__name__

    def __copy__(self) -> Launcher:
        """Of a kernel there is one, as of a function."""
        return self

    def __deepcopy__(self, memo: object) -> Launcher:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        module = self._family.module
        if module is None or self._stream is not None:
            why = "its stream is of this process" if module else "it belongs to no module"
            raise TypeError(f"{self!r} cannot be pickled: {why}")
        return _found_again, (module, self._family.name, self._groups)

    def __repr__(self) -> str:
        grid = "" if self._groups is None else f"[{', '.join(map(str, self._groups))}]"
        return f"<kernel {self._family.name}{grid}>"

    @ends_at_the_caller
    def __call__(self, *arguments: Any, stream: object = None, **named: Any) -> Any:
        """Launch, and what the kernel returns. On a device this is before it has run."""
        return self._general(*arguments, stream=stream, **named)

    @ends_at_the_caller
    def __getitem__(self, groups: int | tuple[int, ...]) -> Launcher:
        """The kernel with its number of groups, per axis, last fastest."""
        axes = groups if isinstance(groups, tuple) else (groups,)
        if self._family.interface.level == "tile":
            raise error(diagnostic(
                "T0839", f"`{self._family.name}` is a tile kernel: its loops make the groups",
                helps=(f"call it: {self._family.name}(...)",
                       "compile-time parameters are named in the call"),
            ))  # fmt: skip
        if not axes or len(axes) > 3 or not all(_is_count(n) for n in axes):
            raise error(diagnostic(
                "T0839", f"`{self._family.name}[{groups!r}]` is not a number of groups",
                helps=("give one to three integers: k[groups](...), k[rows, columns](...)",),
            ))  # fmt: skip
        return self._view(tuple(int(n) for n in axes), self._stream)

    @ends_at_the_caller
    def on(self, stream: object) -> Launcher:
        """The kernel on a stream: a handle, or a stream object of torch or cupy."""
        return self._view(self._groups, stream_handle(stream))

    def _view(self, groups: tuple[int, ...] | None, stream: int | None) -> Launcher:
        found = self._views.get((groups, stream))
        if found is None:
            if len(self._views) >= 256:
                self._views.clear()
            found = self._views[groups, stream] = new_launcher(self._family, groups, stream)
        return found

    # --- the general way ----------------------------------------------------------------

    def _general(self, *arguments: Any, stream: object = None, **named: Any) -> Any:
        if stream is not None:
            return self.on(stream)(*arguments, **named)
        placed, prepared = self._ready(arguments, named, by_value=True)
        if not prepared.results:
            prepared.run(placed.values, placed.stream)
            placed.finish()
            return None
        made = make_results(prepared, placed)
        prepared.run([*placed.values, *(r.view for r in made)], placed.stream)
        placed.finish()
        return handed_over(made)

    def _ready(
        self, arguments: Sequence[Any], named: dict[str, Any], *, by_value: bool = False,
        usual: int | None = None,
    ) -> tuple[Placed, Prepared]:  # fmt: skip
        """Everything before the launch itself. Raises TesseraError with what is wrong."""
        family = self._family
        ordered = order_arguments(
            family.interface, [a for a in arguments if a is not launch_fast_path.MISSING], named
        )
        placed = place_arguments(
            family.interface, ordered, family.target, self._stream, by_value, usual
        )
        key = placed.key(family.sized)
        prepared = self._memo.get(key)
        if prepared is None:
            prepared = self._prepared(placed)
            if len(self._memo) >= _LAYOUTS:
                self._memo.clear()
            self._memo[placed.key(family.sized)] = prepared
        if placed.staged:
            # Copies never overlap: what counts is the memory of the caller.
            check_sharing(prepared.plan, placed.given)
            placed.written = tuple(p.mut for p in prepared.plan.parameters)
        # Calls of a kernel without arrays do not say which device they are for.
        if not named and not placed.staged and usual is None:
            self._remember_fast(tuple(arguments), placed, prepared)
        return placed, prepared

    def _prepared(self, placed: Placed) -> Prepared:
        """The launch of a layout. A grid of more lanes than 32 bits count takes other code."""
        family = self._family
        wanted = family.signature(placed)
        code = self._code(wanted, placed)
        try:
            return compile_plan(code)(placed.values, self._groups)
        except UnmetPremise:
            plain = placed.signature()
            if family.interface.level != "lane" or plain == wanted:
                raise
            return compile_plan(self._code(plain, placed))(placed.values, self._groups)

    def _code(self, wanted: Signature, placed: Placed) -> Code:
        try:
            return self._family.code(wanted, placed.device, self._groups)
        except NothingFits as fault:
            raise fault.of_call(placed.values) from None

    def prepare(
        self, arguments: Sequence[Any], named: dict[str, Any], device: int | None = None
    ) -> tuple[list[Any], Prepared]:
        """The checked arguments and the prepared launch, not launched. What it returns is to be
        allocated as ``prepared.results`` say, and run behind the arguments. ``device``: where a
        kernel runs whose arguments have no device."""
        placed, prepared = self._ready(arguments, named, usual=device)
        return placed.values, prepared

    def begin(self, arguments: Sequence[Any]) -> None:
        """Begin the code for calls with arguments of this layout, which are not read."""
        family = self._family
        begin = getattr(family.provider, "begin", None)
        if begin is None:
            return
        ordered = order_arguments(family.interface, list(arguments), {})
        placed = place_arguments(family.interface, ordered, family.target, self._stream)
        begin(family.name, family.signature(placed), placed.device)

    def _remember_fast(self, raw: tuple[Any, ...], placed: Placed, prepared: Prepared) -> None:
        # Compile-time values not named in the call follow from the layouts, which are the key.
        fixed = any(p.kind == "constant" for p in self._family.interface.parameters)
        if len(raw) != len(placed.values) or fixed or self._family.sized:
            return
        pattern = launch_fast_path.pattern_of(raw, placed.values, prepared)
        if pattern is None:
            return
        entry = launch_fast_path.entry_of(pattern, prepared, raw, placed.values, self._stream)
        if not self._answering.acquire(blocking=False):
            return  # the next call will do
        try:
            # A call unpacks entries of its own pattern: both are put in place together.
            if self._pattern != pattern:
                self._pattern = pattern
                self._fast_memo = {}
                call = launch_fast_path.make_call(pattern, self._fast_memo, entry, self._general)
                type(self).__call__ = self._answer = call
                self._native = None
            if len(self._fast_memo) >= _LAYOUTS:
                self._fast_memo.clear()
            self._fast_memo[launch_fast_path.key_of(pattern.kinds, raw)] = entry
        finally:
            self._answering.release()

    def _answer_natively(self, raw: tuple[Any, ...], prepared: Prepared) -> None:
        """Have machine code answer calls like this one, where they are short."""
        plan = kernel_plan(raw, prepared)
        if plan is None or interface() is None or not self._answering.acquire(blocking=False):
            return
        try:
            if self._native is None:
                made = new_call(self._family.name, MethodType(self._answer, self))
                if made is not None:
                    type(self).__call__, self._native = made
            if self._native is not None:
                self._native.add(plan)
        finally:
            self._answering.release()

    @ends_at_the_caller
    def bind(self, *arguments: Any, stream: object = None, **named: Any) -> Callable[[], Any]:
        """A launch with everything decided: call the result to run it again and again, into
        the same results.

        It keeps the arrays, and refuses to run once one has moved to other memory.
        """
        if stream is not None:
            return self.on(stream).bind(*arguments, **named)
        placed, prepared = self._ready(arguments, named)
        if placed.staged:
            raise error(diagnostic(
                "T0844", f"`{self._family.name}.bind` was given an array in host memory for a "
                "launch on a device", helps=("bind device arrays: tessera.to_device(x)",),
            ))  # fmt: skip
        prepared.check_pairs(placed.values)
        made = make_results(prepared, placed)
        placed.values += [r.view for r in made]
        return _bound_call(placed, prepared, self._stream, handed_over(made))


def _doc(launcher: Launcher) -> str | None:
    return launcher.interface.doc or None


def _found_again(module: ModuleType, name: str, groups: tuple[int, ...] | None) -> Launcher:
    """What ``pickle`` calls."""
    found: Launcher = getattr(module, name)
    return found if groups is None else found[groups]


def new_launcher(
    family: _Family, groups: tuple[int, ...] | None = None, stream: int | None = None
) -> Launcher:
    """A launcher of a class of its own."""
    kind = type("Kernel", (Launcher,), {"__slots__": (), "__doc__": property(_doc)})
    return cast("Launcher", kind(family, groups, stream))


def new_kernel(
    name: str, provider: Provider, target: str,
    load: Callable[[Artifact, int], Code] = load_code,
) -> Launcher:  # fmt: skip
    """The kernel of that name. ``target`` is ``auto``, ``cpu`` or ``cuda``."""
    return new_launcher(_Family(name, provider, target, load))


def _bound_call(
    placed: Placed, prepared: Prepared, stream: int | None, results: Any
) -> Callable[[], Any]:
    flags, quiet, moved = prepared.flags, prepared.quiet, placed.moved()
    device, handle = prepared.code.device, placed.stream
    # A block holds the stream too: each thread that is launching has one of its own.
    pool: list[Fire] = []
    follow = launch_fast_path.direct_stream() if stream is None and device != HOST else None
    stream_of: Callable[[int], int] = follow or (lambda _: handle)

    def fill() -> Fire:
        return prepared.filled(pointers_of(placed.values), placed.values)[1]

    def refuse_or_report() -> None:
        if moved():
            raise error(diagnostic(
                "T0851", f"an array that `{prepared.plan.kernel}` was bound to has moved to other "
                "memory", helps=("bind again after resizing or replacing an array's storage",),
            ))  # fmt: skip
        prepared.code.report()

    def call() -> Any:
        try:
            if moved() or flags != quiet:
                refuse_or_report()
            fire = pool.pop() if pool else fill()
            fire(stream_of(device))
        except TesseraError as failure:
            show_to_caller(failure)
            raise
        pool.append(fire)
        return results

    call.__name__, call.__qualname__ = prepared.plan.kernel, f"{prepared.plan.kernel}.bind"
    call.__doc__ = f"A launch of `{prepared.plan.kernel}` on the arrays that it was bound to."
    plan = bound_plan(placed.values, prepared)
    made = None if plan is None else new_call(f"{prepared.plan.kernel}.bind", call)
    if plan is None or made is None:
        return call
    native, tables = made
    tables.add(plan)
    return cast("Callable[[], Any]", functools.update_wrapper(functools.partial(native), call))


def _is_count(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def stream_handle(stream: object) -> int:
    """The handle of a stream of any library."""
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
        return int(protocol()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    raise error(diagnostic("T0852", f"{stream!r} is not a CUDA stream", helps=(
        "give a stream of torch or cupy, or its handle as an integer",)))  # fmt: skip
