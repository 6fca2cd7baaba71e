"""Plain functions called from Python.

The evaluator runs the first call of a layout, which records what it allocates and launches, and
later calls only do that: on a device (``recorded_calls.py``) and over NumPy arrays
(``host_tapes.py``, where a call that looks at elements is evaluated each time). Must not know how
a file is parsed or checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from tessera_backend.device.driver import device
from tessera_backend.device.memory import zero_function
from tessera_backend.device.workspace import workspace
from tessera_backend.runtime import scalars
from tessera_backend.runtime.arrays import HOST, ArrayView, describe, is_torch, torch_stream
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import show_to_caller
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.function_fast_path import (
    Quick,
    SharedMemory,
    host_key,
)
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.launch_fast_path import OFTEN
from tessera_backend.runtime.native_calls import NativeCall, interface, new_call
from tessera_backend.runtime.recorded_calls import (
    Allocation,
    Handle,
    Step,
    Tape,
    make_own,
    make_torch,
    part_of,
)
from tessera_backend.runtime.recorded_shortcuts import (
    MISSED,
    constant_key,
    handed_back,
    shortcut,
)
from tessera_backend.runtime.reshaping import reshaped
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.modules import standard_library
from tessera_lang.locks import COMPILER, free_lock
from tessera_lang.target.arange_count import arange_count
from tessera_lang.target.host_world import Filling, Index, KernelReference, WorldFault
from tessera_lang.types.dtype import DTYPES, F32, F64, DType, dtype_named, float_beside

if TYPE_CHECKING:
    import inspect

    from tessera_backend.runtime.host_tapes import HostTape
    from tessera_backend.runtime.module_interface import FunctionInterface
    from tessera_lang.evaluate.modules import Modules
    from tessera_lang.evaluate.value import Derivative, HostFunction
    from tessera_lang.source import Span

_TAPES = 1024


class _OnDevice:
    __slots__ = ("_view",)

    def __init__(self, view: ArrayView) -> None:
        self._view = view

    def __tessera_view__(self) -> ArrayView:
        return self._view


class TracedWorld:
    """The world of one recorded call: arrays are handles, launches happen and are kept."""

    floats: DType = F32

    def __init__(
        self, kernel: Callable[[KernelReference], Launcher], ordinal: int, stream: int, make: Any
    ) -> None:
        self._kernel = kernel
        self._ordinal = ordinal
        self._stream = stream
        self._make = make
        self.pointers: list[int] = []
        self.owners: list[Any] = []
        self.read_only: list[bool] = []
        self._parts: dict[int, Handle] = {}
        target = device(ordinal)
        self.tape = Tape(zero_function(target), functools.partial(workspace, target))

    def input(self, view: ArrayView) -> Any:
        """A handle for an argument."""
        self.pointers.append(view.pointer)
        self.owners.append(view.owner)
        self.read_only.append(view.read_only)
        self.tape.inputs = len(self.pointers)
        return Handle(len(self.pointers) - 1, 0, view.dtype, view.shape, view.strides)

    # --- what the evaluator asks (tessera_lang.target.host_world.World) -------------------------

    def is_array(self, value: object) -> bool:
        return isinstance(value, Handle)

    def dtype(self, array: Any) -> DType:
        return array.dtype

    def shape(self, array: Any) -> tuple[object, ...]:
        return array.shape

    def device(self, array: object) -> str:
        return "cuda"

    def fill(
        self, kind: Filling, shape: tuple[int, ...], dtype: DType, value: object = None
    ) -> object:
        if any(n < 0 for n in shape):
            raise WorldFault(f"an array cannot have the shape {shape}", code="T0846")
        zero = kind == "zeros" or (kind == "full" and value == 0 and not str(value).startswith("-"))
        if kind not in ("empty", "zeros", "workspace") and not zero:
            made = self.fill("empty", shape, dtype)
            flat = self.view("reshape", made, (-1,))
            self._library("elementwise", "fill", 1 if kind == "ones" else value, flat)
            return made
        shared = kind == "workspace"
        wanted = Allocation(dtype, shape, zero or shared, len(self.tape.steps), shared)
        owner, pointer = self._make(wanted, self._ordinal, self._stream)
        self.owners.append(owner)
        self.pointers.append(pointer)
        self.read_only.append(False)
        self.tape.allocations.append(wanted)
        return Handle(len(self.pointers) - 1, 0, dtype, shape, row_major(shape))

    def of_numbers(self, array: object, numbers: object = None) -> object:
        return array

    def beside(self, array: object, dtype: DType) -> object:
        return array

    def is_of_numbers(self, array: object) -> bool:
        return False

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> object:
        made = self.fill("empty", (arange_count(start, stop, step, dtype),), dtype)
        if dtype.is_float:
            self._library("layout", "count_in_floats", float(start), float(step), made)
        else:
            self._library("layout", "count", int(start), int(step), made)
        return made

    def view(self, kind: str, array: Any, shape: tuple[int, ...] = ()) -> object:
        from tessera_lang.record import replace

        match kind:
            case "T" if len(array.shape) == 2:
                return replace(array, shape=array.shape[::-1], strides=array.strides[::-1])
            case "mT" if len(array.shape) >= 2:
                a, b = array.shape, array.strides
                return replace(array, shape=(*a[:-2], a[-1], a[-2]),
                               strides=(*b[:-2], b[-1], b[-2]))  # fmt: skip
            case "contiguous" if array.contiguous:
                return array
            case "contiguous" if len(array.shape) <= _PACKED_RANKS:
                packed = self.fill("empty", array.shape, array.dtype)
                self._library("layout", f"pack{len(array.shape)}", array, packed)
                return packed
            case "reshape":
                found = _resolved(shape, array)
                strides = reshaped(array.shape, array.strides, found)
                if strides is not None:
                    return replace(array, shape=found, strides=strides)
                return self.view("reshape", self.view("contiguous", array), found)
            case _:
                raise _not_here(f"`{kind}` of an array that is not contiguous",
                                "pass x.contiguous()")  # fmt: skip

    def read(self, array: Any, items: tuple[Index, ...]) -> object:
        """A part of an array, as a view of it."""
        slices = [i for i in items if isinstance(i, slice)]
        if len(slices) < len(items):
            raise _not_here("reading an element")
        if len(items) > len(array.shape):
            raise WorldFault(f"an array with {len(array.shape)} axes has no {len(items)}",
                             code="T0846")  # fmt: skip
        found = part_of(array, slices)
        self._parts[id(found)] = found
        return found

    def named(self, array: object) -> object:
        """A part that gets a name is a value: later writes of its array do not change it."""
        part = self._parts.get(id(array))
        if part is not array or part is None:
            return array
        if len(part.shape) > _PACKED_RANKS:
            raise _not_here(f"a name for a part with {len(part.shape)} axes")
        copy = self.fill("empty", part.shape, part.dtype)
        self._library("layout", f"pack{len(part.shape)}", part, copy)
        return copy

    def value_of(self, array: object) -> object:
        return None

    def release(self, array: object) -> None:
        pass

    def viewed(self, array: object, of: object) -> object:
        return array

    def shares(self, a: Any, b: Any) -> bool:
        return a.base == b.base

    def _library(self, module: str, kernel: str, *arguments: object) -> None:
        """Launch a kernel of the standard library."""
        root = standard_library()
        if root is None:
            raise WorldFault("the standard library is not installed", code="T0903",
                             helps=("install tessera-lang again",))  # fmt: skip
        reference = KernelReference(str(Path(root) / f"{module}.tessera"), kernel)
        self.launch(reference, arguments, {}, None)

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> object:  # fmt: skip
        launcher = self._kernel(kernel)
        if groups is not None:
            launcher = launcher[groups]
        given = [
            _OnDevice(a.view(self.pointers[a.base], self._ordinal, None, self.read_only[a.base]))
            if isinstance(a, Handle) else a.name if isinstance(a, DType) else a
            for a in arguments
        ]  # fmt: skip
        named = {k: v.name if isinstance(v, DType) else v for k, v in constants.items()}
        values, prepared = launcher.on(self._stream).prepare(given, named, self._ordinal)
        results = [cast("Handle", self.fill("empty", shape, dtype))
                   for dtype, shape in prepared.results]  # fmt: skip
        views = [r.view(self.pointers[r.base], self._ordinal, None) for r in results]
        prepared.run([*values, *views], self._stream)
        self.tape.steps.append(_step(prepared, (*arguments, *results), values))
        return results[0] if len(results) == 1 else tuple(results) or None

    def print(self, text: str) -> None:
        raise _not_here("`print`")

    def finish(self) -> None:
        """Calls on a device return before the work is done."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _not_here(f"`{name}` of arrays")


_PACKED_RANKS = 4  # std.layout has a kernel for each of these


def _not_here(what: str, *helps: str) -> WorldFault:
    return WorldFault(f"{what} is not possible in a function that Python calls with device arrays",
                      code="T0809", helps=helps)  # fmt: skip


def _resolved(shape: tuple[int, ...], array: Any) -> tuple[int, ...]:
    size = known = 1
    for n in array.shape:
        size *= n
    for n in shape:
        known *= n if n >= 0 else 1
    open_axes = [i for i, n in enumerate(shape) if n < 0]
    if len(open_axes) == 1 and known and size % known == 0:
        at = open_axes[0]
        shape = (*shape[:at], size // known, *shape[at + 1 :])
        known = size
    if len(open_axes) > 1 or known != size:
        raise WorldFault(f"{size} elements do not make an array of shape {shape}", code="T0834")
    return shape


def _step(prepared: Any, arguments: tuple[Any, ...], values: list[Any]) -> Any:
    apart: list[tuple[int, int, int, int]] = []
    for i, j, i_low, i_high, j_low, j_high in prepared.pairs:
        p, q = arguments[i], arguments[j]
        shift = p.offset - q.offset
        apart.append((p.base, q.base, i_low - j_high + shift, i_high - j_low + shift))
    return Step(
        prepared,
        tuple((at, arguments[i].base, arguments[i].offset) for i, at in prepared.slots),
        tuple((at, encode(values[i])) for at, i, encode in prepared.encoders),
        tuple(apart),
    )


def new_function(
    interface: FunctionInterface, provider: Any, target: str, module: ModuleType
) -> Function:
    """A function of a class of its own, so that machine code can be its call."""
    return cast("Function", type("Function", (Function,), {})(interface, provider, target, module))


class Function:
    """A plain function of a module, to be called from Python."""

    def __init__(
        self, interface: FunctionInterface, provider: Any, target: str, module: ModuleType
    ) -> None:
        self.__name__ = self.__qualname__ = interface.name
        self.__doc__ = interface.doc or None
        self.__module__ = module.__name__
        self._interface = interface
        self._module = module
        self._provider = provider
        self._target = target
        self._tapes: dict[Any, Tape] = {}
        self._host_tapes: dict[Any, HostTape | None] = {}
        self._modules: Modules | None = None
        self._native: NativeCall | None = None
        self._native_lock = free_lock()
        self._quick = Quick()

    def copy_to(self, other: Function) -> None:
        """Have ``other`` be of the same function of the same module, and record calls of its
        own."""
        Function.__init__(other, self._interface, self._provider, self._target, self._module)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"

    @property
    def __signature__(self) -> inspect.Signature:
        from tessera_backend.runtime.python_signature import python_signature

        known = self._interface
        return python_signature(known.parameters, known.brackets, known.returns, launches=False)

    def __get__(self, instance: object, owner: type | None = None) -> Function:
        """A function kept in a class is no method of it; and ``help`` takes it for a function."""
        return self

    def __copy__(self) -> Function:
        """Of a function there is one."""
        return self

    def __deepcopy__(self, memo: object) -> Function:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, self.__name__)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the function. On a device this returns before the work is done."""
        try:
            recent = self._quick.recent
            if recent is not None and not named and (found := recent(*arguments)) is not MISSED:
                return found
            if self._host_tapes:
                known = self._host_tapes.get(host_key(arguments, named))
                if known is not None:
                    known.hits += 1
                    if known.hits >= OFTEN and not known.hits & known.hits - 1:
                        self._answer_natively(known, arguments, named)
                    with suppress(SharedMemory):
                        return known.play([*arguments, *named.values()] if named else arguments)
            if not named and (found := self._quick.answer(arguments)) is not MISSED:
                return found
            return self._general(arguments, named)
        except TesseraError as failure:
            show_to_caller(failure)
            raise

    def _answer_natively(
        self, tape: HostTape, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Have machine code answer calls like this one, where they are short."""
        plan = tape.plan([*arguments, *named.values()], tuple(named))
        if plan is None or interface() is None or not self._native_lock.acquire(blocking=False):
            return  # the next call will do; who holds the lock may be further up in this thread
        try:
            if self._native is None:
                made = new_call(self.__name__, MethodType(Function.__call__, self))
                if made is not None:
                    type(self).__call__, self._native = made
            if self._native is not None:
                self._native.add(plan)
        finally:
            self._native_lock.release()

    def _general(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        values = [*arguments, *named.values()]
        views = [describe(v, "argument") for v in values]
        devices = sorted({v.device for v in views if v is not None and v.device != HOST})
        if len(devices) > 1 or devices and any(v is not None and v.device == HOST for v in views):
            raise error(diagnostic(
                "T0844", f"the arguments of `{self.__name__}` are on different devices",
                helps=("bring them to one device before the call",),
            ))  # fmt: skip
        if not devices:
            return self._on_host(arguments, named)
        keys = [_key(v, raw) for v, raw in zip(views, values, strict=True)]
        key = (devices[0], tuple(named), *keys)
        try:
            hash(key)
        except TypeError:
            several = [v.__class__.__name__ for v in values if v.__class__ in (tuple, list, dict)]
            given = " or ".join(sorted(set(several))) or "value that is no number"
            raise error(diagnostic(
                "T0809", f"a {given} is no argument of `{self.__name__}` beside device arrays",
                helps=("pass each array as an argument of its own",),
            )) from None  # fmt: skip
        return self._on_device(key, arguments, named, [v for v in views if v is not None])

    # --- on a device ----------------------------------------------------------------------

    def _on_device(
        self, key: Any, arguments: tuple[Any, ...], named: dict[str, Any], views: list[ArrayView]
    ) -> Any:
        ordinal = key[0]
        owners: list[Any] = [v.owner for v in views]
        with_torch = any(is_torch(o.__class__) for o in owners)
        make = make_torch if with_torch else make_own
        said = (v.stream for v in views)
        stream = (torch_stream(ordinal) if with_torch else None) or next(
            (s for s in said if s is not None), 0)  # fmt: skip
        known = self._tapes.get(key)
        if known is not None:
            pointers = [v.pointer for v in views]
            known.report_faults()
            if known.play(pointers, owners, ordinal, stream, make):
                return handed_back(known.result, owners)
        tape, result = self._record(key, arguments, named, views, ordinal, stream, make)
        if all(is_torch(v.owner.__class__) for v in views) and not named:
            self._quick.remember(arguments, shortcut(tape, arguments, ordinal, torch_stream))
        return result

    def _record(
        self, key: Any, arguments: tuple[Any, ...], named: dict[str, Any],
        views: list[ArrayView], ordinal: int, stream: int, make: Any,
    ) -> tuple[Tape, Any]:  # fmt: skip
        """The call itself, recorded. Threads that make it at the same moment record it each."""
        world = TracedWorld(self._kernel, ordinal, stream, make)
        result = self.traced(world, arguments, named, views)
        world.tape.close(result)
        if len(self._tapes) >= _TAPES:
            self._tapes.clear()
        self._tapes[key] = world.tape
        return world.tape, handed_back(result, world.owners)

    def traced(
        self, world: TracedWorld, arguments: tuple[Any, ...], named: dict[str, Any],
        views: Sequence[ArrayView],
    ) -> Any:  # fmt: skip
        """The result of the body, with handles for its arrays. ``views``: of the arrays given."""
        handles = iter([world.input(v) for v in views])

        def given(value: Any) -> Any:
            return _plain(value) if describe(value, "argument") is None else next(handles)

        positional = [given(a) for a in arguments]
        keyword = {name: given(a) for name, a in named.items()}
        world.floats = self._floats([v.dtype for v in views])
        return self._evaluate(world, positional, keyword)

    def _floats(self, arrays: list[DType]) -> DType:
        """What arrays of numbers are in a call with these, where they meet none."""
        return float_beside(arrays, DTYPES[self._interface.alone])

    def _kernel(self, kernel: KernelReference) -> Launcher:
        launcher: Launcher = self._provider.beside(kernel.path).kernel(kernel.name, "auto")
        return launcher

    # --- on the host ----------------------------------------------------------------------

    def _on_host(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with COMPILER:
            from tessera_backend.runtime.host_environment import HostWorld
            from tessera_backend.runtime.host_tapes import RecordingWorld

        target = "cuda" if self._target == "cuda" else "cpu"
        session = self._provider.session()
        key = host_key(arguments, named) if target == "cpu" else None
        seen = key is None or key in self._host_tapes
        made = HostWorld if seen else RecordingWorld
        world = made(session, target, _print, self._provider.beside)
        positional = [world.adopt(_plain(a)) for a in arguments]
        keyword = {k: world.adopt(_plain(a)) for k, a in named.items()}
        arrays = [world.dtype(v) for v in (*positional, *keyword.values()) if world.is_array(v)]
        world.floats = self._floats(arrays)
        result = self._evaluate(world, positional, keyword)
        if world.floats == F64:
            result = _in_f64(world, result)
        world.finish()
        world.check_sharing()
        for raw, own in zip((*arguments, *named.values()), (*positional, *keyword.values()),
                            strict=True):  # fmt: skip
            world.give_back(raw, own)
        if isinstance(world, RecordingWorld):
            if len(self._host_tapes) >= _TAPES:
                self._host_tapes.clear()
            self._host_tapes[key] = world.tape(result)
            result = world.handed_back(result)
            world.forget()
            return result
        return world.handed_back(result)

    def _evaluate(self, world: Any, positional: list[Any], keyword: dict[str, Any]) -> Any:
        with COMPILER:
            from tessera_backend.runtime.host_tapes import RecordingWorld
            from tessera_lang.evaluate.arguments import Arguments
            from tessera_lang.evaluate.derivatives import check_returned
            from tessera_lang.evaluate.fault import HostFault
            from tessera_lang.evaluate.host import Host, room_for_calls
            from tessera_lang.evaluate.value import HostFunction
            from tessera_lang.syntax import ast

        session = self._provider.session()
        try:
            with COMPILER:
                host = Host(world, session, self._provider.path)
                # What a file defines stays as it is: definitions, imports and constants.
                self._modules = host.modules = self._modules or host.modules
            function = host.modules.scope(self._provider.path).values[self.__name__]
            function = cast("HostFunction | Derivative", function)
            inner = function if isinstance(function, HostFunction) else function.innermost
            declaration = cast("ast.FunctionDef", inner.declaration)
            span = declaration.name_span
            keywords = tuple(ast.Keyword(span, name, span, ast.NoneLit(span)) for name in keyword)
            call = ast.Call(span, ast.Name(span, self.__name__), (), keywords)
            with room_for_calls():
                arguments = Arguments(call, tuple(positional), keyword)
                called = self.of_program(function, span)
                if isinstance(world, RecordingWorld):
                    world.hands_on = not isinstance(called, HostFunction)
                found = host.call_value(called, arguments)
                check_returned(found, self.__name__, span)
                return found
        except HostFault as fault:
            with COMPILER:
                raise session.error(fault.diagnostics) from None

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        """What the evaluator calls, of the plain function of the file. Raises HostFault."""
        return function


def _in_f64(world: Any, result: Any) -> Any:
    """Arrays of numbers with all their bits, as arrays that were made of the arguments have."""
    if isinstance(result, tuple | list):
        items = [_in_f64(world, v) for v in cast("tuple[Any, ...]", result)]
        return tuple(items) if isinstance(result, tuple) else items
    if world.is_array(result) and world.dtype(result) == F32:
        return world.beside(result, F64)
    return result


def _print(text: str) -> None:
    print(text, end="")  # as it is bound now: a caller may have another in its place


def _plain(value: Any) -> Any:
    if scalars.is_number(value):
        return scalars.plain(value)
    if isinstance(value, str):
        return dtype_named(value) or value
    if hasattr(value, "__module__") and str(value).startswith("torch."):
        return dtype_named(str(value).removeprefix("torch.")) or value
    return value


def _key(view: ArrayView | None, raw: Any) -> object:
    if view is None:
        return constant_key(raw)
    return (view.dtype.name, view.shape, view.strides, view.device, view.read_only,
            not view.pointer & 15)  # fmt: skip
