"""Plain functions called from Python.

The evaluator runs the first call of a layout, which records what it allocates and launches, and
later calls only do that: on a device (``recorded_calls.py``) and over NumPy arrays
(``host_tapes.py``, where a call that looks at elements is evaluated each time). Must not know how
a file is parsed or checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from tessera_backend.runtime import scalars
from tessera_backend.runtime.arrays import HOST, ArrayView, describe, is_torch, torch_stream
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import show_to_caller
from tessera_backend.runtime.function_fast_path import (
    Quick,
    SharedMemory,
    host_key,
)
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.launch_fast_path import OFTEN
from tessera_backend.runtime.native_calls import NativeCall, interface, new_call
from tessera_backend.runtime.nested_arguments import (
    Form,
    containers,
    filled,
    form_of,
    is_given,
    is_nested,
    only_numpy,
)
from tessera_backend.runtime.recorded_calls import (
    Tape,
    make_own,
    make_torch,
)
from tessera_backend.runtime.recorded_shortcuts import (
    MISSED,
    constant_key,
    handed_back,
    shortcut,
)
from tessera_backend.runtime.traced_world import TracedWorld
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.locks import COMPILER, free_lock
from tessera_lang.target.host_world import KernelReference
from tessera_lang.types.dtype import DTYPES, F32, F64, DType, dtype_named, float_beside

if TYPE_CHECKING:
    import inspect

    from tessera_backend.runtime.host_tapes import HostTape
    from tessera_backend.runtime.module_interface import FunctionInterface
    from tessera_lang.evaluate.modules import Modules
    from tessera_lang.evaluate.value import Derivative, HostFunction, Scope
    from tessera_lang.source import Span

_TAPES = 1024


def new_function(
    interface: FunctionInterface, provider: Any, target: str, module: ModuleType
) -> Function:
    """A function of a class of its own, so that machine code can be its call."""
    return cast("Function", type("Function", (Function,), {})(interface, provider, target, module))


class Function:
    """A plain function of a module, to be called from Python. ``in_place``: it may change lists and
    dicts of its caller, as graphs may not."""

    in_place = True

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
        self._nested: dict[Any, Function] = {}

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

    @property
    def origin(self) -> tuple[Any, str, ModuleType]:
        """Where its code comes from, the target, and the module that has it."""
        return self._provider, self._target, self._module

    @property
    def interface(self) -> FunctionInterface:
        """Its parameters, as they are written."""
        return self._interface

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
        nested = self._by_leaves(values, tuple(named))
        if nested is not None:
            of_leaves, leaves = nested
            return of_leaves._general(leaves, {})
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
            raise error(diagnostic(
                "T0809", f"an argument of `{self.__name__}` is neither an array nor a number",
                helps=("arguments are arrays, numbers, and tuples, lists and dicts of these",),
            )) from None  # fmt: skip
        return self._on_device(key, arguments, named, [v for v in views if v is not None])

    def _by_leaves(
        self, values: list[Any], names: tuple[str, ...]
    ) -> tuple[Function, tuple[Any, ...]] | None:
        """What is called in the place of this, and its arguments, where arrays stand in tuples,
        lists and dicts. With NumPy arrays in them a plain function gets these themselves, and may
        change them."""
        if not is_nested(values) or (self.in_place and all(map(only_numpy, values))):
            return None
        found: list[Any] = []
        forms = tuple([form_of(v, found, is_given) for v in values])
        try:
            return self.of_leaves(forms, names), tuple(found)
        except TypeError:
            return None  # a value in it cannot be told from others

    def of_leaves(self, forms: tuple[Form, ...], names: tuple[str, ...] = ()) -> Function:
        """What is called with the leaves of arguments of these forms, the last of them by name, and
        does what a call of this one with the arguments does. Raises TypeError where a value that
        is no leaf is no key."""
        known = self._nested.get((forms, names))
        if known is None:
            made = type("OfLeaves", (_OfLeaves,), {})(self, forms, names)
            known = self._nested[forms, names] = made
        return known

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
        world.floats = self.floats_beside([v.dtype for v in views])
        return self.evaluate(world, positional, keyword)

    def floats_beside(self, arrays: list[DType]) -> DType:
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
        world.floats = self.floats_beside(arrays)
        result = self.evaluate(world, positional, keyword)
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

    def evaluate(self, world: Any, positional: list[Any], keyword: dict[str, Any]) -> Any:
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
            function = self.in_program(host.modules.scope(self._provider.path))
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

    def in_program(self, scope: Scope) -> HostFunction | Derivative:
        """The function, of what stands at the top of its file."""
        return cast("HostFunction | Derivative", scope.values[self.__name__])

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        """What the evaluator calls, of the plain function of the file. Raises HostFault."""
        return function


class _OfLeaves(Function):
    """A function that is called with what stands in its arguments. ``forms``: of the arguments, the
    last of them by ``names``."""

    def __init__(self, of: Function, forms: tuple[Form, ...], names: tuple[str, ...]) -> None:
        of.copy_to(self)
        self._of = of
        self._forms = forms
        self._names = names

    def evaluate(self, world: Any, positional: list[Any], keyword: dict[str, Any]) -> Any:
        leaves = iter(positional)
        values = [_plain(filled(form, leaves)) for form in self._forms]
        before = containers(values)
        count = len(values) - len(self._names)
        named = dict(zip(self._names, values[count:], strict=True))
        result = self._of.evaluate(world, values[:count], named)
        if containers(values) != before:
            raise error(diagnostic(
                "T0809", f"`{self.__name__}` changes a list or dict that it was given, and its"
                " caller would not see that", helps=("return what is new",),
            ))  # fmt: skip
        return result


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
