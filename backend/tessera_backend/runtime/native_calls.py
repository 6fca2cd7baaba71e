"""Calls that machine code answers: tables for ``cpu/call_stub.py``, and the callables with them.

A call of a known layout whose launches are too small for a second thread takes 0.3 us this way, and
4 us in Python. What is not in the tables goes to the Python function behind them, which is given
every call unchanged. Used by CPython with a lock around its interpreter, where objects prove to be
as the code expects them; and where the code is in the cache, or LLVM is in the process anyway. Must
not know how a layout is checked.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from tessera_backend.cpu import call_stub as stub
from tessera_backend.cpu.elf import ElfError
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.interrupts import interrupts
from tessera_backend.cpu.loader import LoadedCode, load_object
from tessera_backend.cpu.thread_count import share_thread_count
from tessera_backend.runtime.numpy_address import address_function
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.locks import COMPILER, free_lock, free_reentrant_lock, once
from tessera_lang.record import dataclass, field

_ENTRIES = 8
_HEADER = object.__basicsize__
_TUPLE_ITEMS = tuple.__basicsize__
_FASTCALL_WITH_NAMES = 0x82
MOST_BYTES = 1 << 20  # that a layout keeps for its launches; the Python functions share theirs
_MACHINES = ("x86_64", "aarch64")  # whose clocks the code reads

Words = Any  # an array of ctypes.c_int64
Make = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as machine code begins it. ``slots``, ``scratch``, ``fault``: addresses; ``axes``:
    groups along x, y, z; ``group_time``: seconds of a group in the launch before; ``complain``
    raises what the fault record says; ``keep``: what owns the memory."""

    entry: int
    slots: int
    counter: int
    axes: tuple[int, int, int]
    scratch: int
    fault: int
    group_time: int
    complain: Make
    zeroed: tuple[tuple[int, int], ...] = ()
    keep: tuple[Any, ...] = ()


@dataclass(slots=True)
class Step:
    """A launch with what is filled in: (slot, place, bytes) and (slot, argument); or an array that
    ``make`` gives and ``place`` takes; or ``words`` words at an ``address`` that become ``each`` or
    must be zeros, else ``complain`` raises; or an array that is ``held`` and must have stayed
    where it is."""

    launch: Launch | None = None
    fills: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    encodes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    make: Make | None = None
    place: int = 0
    address: int = 0
    words: int = 0
    each: int = 0
    complain: Make | None = None
    held: Any = None


@dataclass(slots=True)
class Plan:
    """One layout of calls. ``raw``: the arguments, those of ``names`` last; ``encoders``: of the
    numbers among them, by argument, None where the number itself is part of the layout. ``pairs``:
    (argument, argument, distances of their addresses between which they meet). ``places``: of
    arguments and made arrays."""

    raw: Sequence[Any]
    names: Sequence[str]
    encoders: dict[int, Callable[[Any], int] | None]
    pairs: Sequence[tuple[int, int, int, int]]
    steps: Sequence[Step]
    places: int
    keep: tuple[Any, ...] = ()


class _Table(ctypes.c_int64 * stub.TABLE_WORDS):
    """The object that machine code gets: it owns all that the words show to."""

    keep: Any


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )  # fmt: skip


# A prototype of our own: what ``pythonapi`` gives is everybody's.
_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))


def new_call(
    name: str, general: Callable[..., Any]
) -> tuple[Callable[..., Any], NativeCall] | None:
    """A callable with nothing known yet; None where there is no such code. ``general`` gets every
    call that no plan is for."""
    found = interface()
    if found is None:
        return None
    table = _Table()
    table[stub.GENERAL] = id(general)
    table[stub.INTERFACE] = ctypes.addressof(found.words)
    call = NativeCall(table)
    table.keep = (general, found, call)
    return _new_function(_method(name), table, None), call


def _method(name: str) -> int:
    """Where Python finds what it calls. It looks there when it lets the callable go, perhaps after
    all that the callable holds: these words stay."""
    made = _methods.get(name)
    if made is None:
        entry = _known[0].entry
        made = _Method(name.encode("utf-8", "replace"), entry, _FASTCALL_WITH_NAMES, None)
        made = _methods.setdefault(name, made)
    return ctypes.addressof(made)


_methods: dict[str, _Method] = {}


class NativeCall:
    """The layouts that a callable knows, the newest first."""

    def __init__(self, table: _Table) -> None:
        self._address = ctypes.addressof(table)
        self._entries: list[_Entry] = []
        self._forgotten: list[_Entry] = []

    def add(self, plan: Plan) -> None:
        """From the next call on; for one thread at a time. A layout that is in use while it is
        forgotten stays in memory, and the code sees whole lists only."""
        entry = _Entry(plan)
        known = [e for e in self._entries if e.words[stub.POSITIONAL] != stub.RETIRED]
        kept = [entry, *known[: _ENTRIES - 1]]
        gone = [e for e in (*self._entries, *self._forgotten) if e not in kept]
        for before, behind in pairwise(kept):
            before.words[stub.NEXT] = ctypes.addressof(behind.words)
        kept[-1].words[stub.NEXT] = 0
        words = ctypes.c_int64 * stub.TABLE_WORDS
        words.from_address(self._address)[stub.FIRST_ENTRY] = ctypes.addressof(entry.words)
        self._entries, self._forgotten = kept, [e for e in gone if e.words[stub.BUSY]]


class _Entry:
    """The words of a plan, and what they show to."""

    def __init__(self, plan: Plan) -> None:
        # Not the arguments: their layout is all that is known of arrays.
        self._keep: list[Any] = [plan.steps, plan.keep]
        named = len(plan.names)
        words = self._words(stub.ENTRY_WORDS)
        names = [sys.intern(name) for name in plan.names]
        self._keep.append(names)
        words[stub.POSITIONAL], words[stub.NAMED] = len(plan.raw) - named, named
        words[stub.NAMES] = self._list([id(name) for name in names])
        arguments: list[int] = []
        low = 0
        for i, value in enumerate(plan.raw):
            arguments += self._argument(value, plan.encoders.get(i), i in plan.encoders)
            if value.__class__ is np.ndarray:
                low |= address_function()(value)
        words[stub.ARGUMENTS] = self._list(arguments)
        words[stub.ALIGNED] = int(low & 15 == 0)
        words[stub.PAIRS] = len(plan.pairs)
        words[stub.PAIR_LIST] = self._list([n for pair in plan.pairs for n in pair])
        words[stub.STEPS] = len(plan.steps)
        words[stub.STEP_LIST] = self._list([n for step in plan.steps for n in self._step(step)])
        words[stub.RESULT] = int(any(step.make for step in plan.steps))
        words[stub.PLACES] = self._list([0] * plan.places)
        words[stub.OBJECTS] = self._list([0])
        self.words = words

    def _words(self, count: int) -> Words:
        made = (ctypes.c_int64 * max(count, 1))()
        self._keep.append(made)
        return made

    def _list(self, numbers: Sequence[int]) -> int:
        made = self._words(len(numbers))
        for i, number in enumerate(numbers):
            made[i] = number
        return ctypes.addressof(made)

    def _object(self, value: Any) -> int:
        self._keep.append(value)
        return id(value)

    def _argument(self, value: Any, encode: Any, number: bool) -> list[int]:
        words = [0] * stub.ARGUMENT_WORDS
        kind = value.__class__
        if kind is np.ndarray:
            words[stub.KIND], words[stub.TYPE] = stub.ARRAY, id(kind)
            words[stub.DTYPE], words[stub.RANK] = self._object(value.dtype), value.ndim
            words[stub.SIZES], words[stub.STRIDES] = (
                self._list(value.shape),
                self._list(value.strides),
            )
            words[stub.FLAGS] = 0x100 * value.flags.aligned + 0x400 * value.flags.writeable
            # Code may rely on 16 bytes, of each array that had them, and on whole elements.
            words[stub.LOW] = 15 if not address_function()(value) & 15 else value.itemsize - 1
        elif number and encode is not None:
            words[stub.KIND], words[stub.TYPE] = stub.NUMBER, self._object(kind)
            words[stub.ENCODER] = self._object(encode)
        else:
            words[stub.KIND], words[stub.TYPE] = stub.SAME, self._object(value)
        return words

    def _step(self, step: Step) -> list[int]:
        words = [0] * stub.STEP_WORDS
        launch = step.launch
        if step.make is not None:
            words[stub.STEP_KIND], words[stub.ENTRY] = stub.MAKE, self._object(step.make)
            words[stub.SLOTS] = step.place
        elif step.held is not None:
            words[stub.STEP_KIND], words[stub.ENTRY] = stub.HELD, self._object(step.held)
            words[stub.SLOTS], words[stub.COUNT] = address_function()(step.held), step.held.ndim
            words[stub.TOTAL] = self._list(step.held.shape)
        elif launch is None:
            words[stub.STEP_KIND] = stub.FILL if step.complain is None else stub.CLEAN
            words[stub.ENTRY], words[stub.SLOTS] = step.address, step.words
            words[stub.COUNT] = step.each
            words[stub.COMPLAINT] = self._object(step.complain)
        else:
            x, y, z = launch.axes
            words[stub.STEP_KIND], words[stub.ENTRY] = stub.LAUNCH, launch.entry
            words[stub.SLOTS], words[stub.COUNT] = launch.slots, launch.counter
            words[stub.TOTAL], words[stub.AXES] = x * y * z, self._list(launch.axes)
            words[stub.SCRATCH], words[stub.FAULT] = launch.scratch, launch.fault
            words[stub.FILLED] = len(step.fills)
            words[stub.FILLS] = self._list([n for fill in step.fills for n in fill])
            words[stub.ENCODED] = len(step.encodes)
            words[stub.ENCODES] = self._list([n for pair in step.encodes for n in pair])
            words[stub.COMPLAINT] = self._object(launch.complain)
            words[stub.GROUP_TIME] = launch.group_time
            words[stub.ZEROED] = len(launch.zeroed)
            words[stub.ZEROS] = self._list([n for zero in launch.zeroed for n in zero])
        return words


# --- what the code needs of the process -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interface:
    """Where the code begins, and its table of addresses."""

    entry: int
    words: Words
    code: LoadedCode


_FUNCTIONS = {
    stub.VECTORCALL: "PyObject_Vectorcall", stub.SAVE_THREAD: "PyEval_SaveThread",
    stub.RESTORE_THREAD: "PyEval_RestoreThread", stub.THREAD_IDENT: "PyThread_get_thread_ident",
    stub.AS_WORD: "PyLong_AsUnsignedLongLongMask", stub.CLEAR_ERROR: "PyErr_Clear",
    stub.ERROR_IS: "PyErr_ExceptionMatches",
    stub.INCREF: "Py_IncRef", stub.DECREF: "Py_DecRef",
}  # fmt: skip
_known: list[Interface] = []
_refused: list[bool] = []
_making = free_reentrant_lock()


def interface() -> Interface | None:
    """The code in memory; None while it would have to be compiled by a process without LLVM, and
    where there cannot be any. Not to be asked while a lock is held: it may compile."""
    if _known:
        return _known[0]
    if _refused:
        return None
    # One for all: the words are shared with what waits for Ctrl-C.
    with _making:
        made = None if _known else _loaded()
        if made is not None and not _known:
            words = made.words
            interrupts.share(words, stub.MAIN_THREAD, stub.WATCHING, stub.COUNTER)
            share_thread_count(words, stub.ALONE)
            _known.append(made)
    return _known[0] if _known else None


def _loaded() -> Interface | None:
    """What cannot be made here is not tried again: the Python functions do the same."""
    if _refused or host_machine() not in _MACHINES or not _as_expected():
        _refused.append(True)
        return None
    try:
        code = _code("llvmlite.binding" in sys.modules)
        if code is None:
            return None
        return _made(load_object(code, stub.CALL), load_object(code, stub.TICKS).address)
    except (ElfError, OSError, ValueError, KeyError, TypeError, TesseraError, RuntimeError):
        _refused.append(True)
        return None


def _made(code: LoadedCode, ticks: int) -> Interface:
    words = (ctypes.c_int64 * stub.INTERFACE_WORDS)()
    for at, name in _FUNCTIONS.items():
        words[at] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    words[stub.NONE], words[stub.REFUSAL] = id(None), id(TesseraError)
    words[stub.LIMIT] = int(_ticks_a_second(ticks) * stub.WORTH_WAKING)
    return Interface(code.address, words, code)


def _ticks_a_second(address: int) -> float:
    """The largest of three: a pause between two of these lines makes it less."""
    ticks = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
    found: list[float] = []
    for _ in range(3):
        begin, first = perf_counter(), ticks()
        while perf_counter() - begin < 1e-4:
            pass
        found.append((ticks() - first) / (perf_counter() - begin))
    return max(found)


@once
def _code(compiles: bool) -> bytes | None:
    from tessera_backend.cpu.host_cpu import cpu_identity
    from tessera_backend.runtime.cache import key_of, shared_cache
    from tessera_lang.target.installed import version_of

    places = f"{_HEADER} {_TUPLE_ITEMS}"
    key = key_of(("call stub", _source(), cpu_identity(), version_of("llvmlite") or "", places))
    cache = shared_cache()
    found = cache.get(key)
    if found is not None:
        return found.payload
    if not compiles:
        return None
    with COMPILER:
        from tessera_backend.cpu.llvm_codegen import code_target, compile_text

        target = code_target("native")
        made = compile_text(stub.stub_text(target, _HEADER, _TUPLE_ITEMS), target, 2, ()).code
    cache.put(key, {}, made)
    return made


def _source() -> str:
    from pathlib import Path

    return Path(stub.__file__).read_text(encoding="utf-8")


def _as_expected() -> bool:
    """Whether objects of this process are laid out as the C interfaces of Python and NumPy say."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    table, two = _Table(), ("a", "b")
    array = np.zeros((3, 5), np.float32)[:, ::2]
    fields = [
        (id(table), _HEADER, ctypes.addressof(table)),
        (id(two), _HEADER, 2),
        (id(two), _TUPLE_ITEMS, id(two[0])),
        (id(two), _TUPLE_ITEMS + 8, id(two[1])),
        (id(array), _HEADER - 8, id(np.ndarray)),
        (id(array), _HEADER, array.__array_interface__["data"][0]),
        (id(array), _HEADER + 40, id(array.dtype)),
    ]
    if any(_word(base + offset) != wanted for base, offset, wanted in fields):
        return False
    rank = ctypes.c_int32.from_address(id(array) + _HEADER + 8).value
    sizes, strides = _word(id(array) + _HEADER + 16), _word(id(array) + _HEADER + 24)
    if rank != 2 or [_word(sizes), _word(sizes + 8)] != [3, 3]:
        return False
    if [_word(strides), _word(strides + 8)] != [20, 8]:
        return False
    return _flags(array) == 0x500 and _flags(_read_only()) == 0x100


def _read_only() -> Any:
    array = np.zeros(4)
    array.flags.writeable = False
    return array


def _flags(array: Any) -> int:
    return ctypes.c_int32.from_address(id(array) + _HEADER + 48).value & stub.FLAG_MASK


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


# --- memory of launches ---------------------------------------------------------------------


_free_counters: list[Any] = []
_counters_lock = free_lock()


class Counter:
    """The word that a launch counts its groups in. Its memory is never given back, only used
    again: the thread that waits for Ctrl-C may write into it when the launch has just ended."""

    def __init__(self) -> None:
        with _counters_lock:
            self.word = _free_counters.pop() if _free_counters else ctypes.c_int64()
        self.address = ctypes.addressof(self.word)

    def __del__(self, give_back: Callable[[Any], None] = _free_counters.append) -> None:
        # Names of a module are gone when the last ones go at the end of the process.
        give_back(self.word)


def aligned_memory(size: int) -> tuple[Any, int]:
    """Memory, and an address in it, a multiple of 128, from which ``size`` bytes are there."""
    memory = (ctypes.c_char * (size + 128))()
    return memory, -(-ctypes.addressof(memory) // 128) * 128
