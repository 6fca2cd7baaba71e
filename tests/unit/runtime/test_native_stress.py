"""Calls that machine code answers, beside the same calls of the Python functions: random kernels,
random arguments that change from call to call, threads, and what long loops leave."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.native_calls import interface

import tessera_lang as tessera

N, M = 24, 3
DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "u8": np.uint8,
    "i16": np.int16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -1, 7, 127, 128, 255, 256, -128, -129, 65504, 65536, (1 << 31) - 1, 1 << 31, -(1 << 31),
    1 << 32, (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 64) - 1, 1 << 64, 1 << 200,
    0.0, -0.0, 1.0, 0.1, -2.5, 1e-45, 3.4028235e38, 3.5e38, 1e300, float("inf"), float("-inf"),
    float("nan"), True, False, None, "1", 1j, b"1", [1],
    *(t(1) for t in DTYPES.values()), np.float32("nan"), np.float64(1e300), np.int64(-1),
    np.uint64((1 << 64) - 1), np.bool_(True), np.complex64(1), np.str_("1"), np.array(1.5),
]  # fmt: skip


class Real(float):
    """A number of a class of its own."""


class Whole(int):
    """Another."""


class Sub(np.ndarray):
    """An array of a class of its own."""


NUMBERS += [Real(1.5), Whole(3)]


class Made:
    """A module: kernels and functions over random dtypes, and arguments for each."""

    def __init__(self, seed: int) -> None:
        r = self.random = random.Random(seed)
        self.parts: list[str] = []
        self.signatures: dict[str, list[tuple[str, Any]]] = {}
        for k in range(3):
            self._kernel(f"k{k}", r)
        self._result(r)
        self._functions(r)
        self.text = "\n".join(self.parts)

    def _kernel(self, name: str, r: random.Random) -> None:
        """Of arrays of a rank each and numbers, one or two of them written."""
        kinds = [
            ("array", r.choice([*DTYPES]), r.choice([1, 1, 2])) for _ in range(r.choice([1, 2, 3]))
        ]
        scalars = [
            (("number", r.choice([*DTYPES, "bool", "index"]))) for _ in range(r.choice([0, 1, 2]))
        ]
        written = ("written", r.choice([*DTYPES]), 1)
        parameters: list[Any] = [*kinds, *scalars, written]
        r.shuffle(parameters)
        declared, terms, target = [], [], ""
        for i, p in enumerate(parameters):
            if p[0] == "number":
                declared.append(f"p{i}: {p[1]}")
                terms.append(f"p{i}")
                continue
            sizes = "n" if p[2] == 1 else "m, n"
            declared.append(f"p{i}: {'mut ' if p[0] == 'written' else ''}{p[1]}[{sizes}]")
            if p[0] == "written":
                target = f"p{i}"
            else:
                terms.append(f"p{i}[i]" if p[2] == 1 else f"p{i}[i % m, i]")
        dtype = written[1]
        total = " + ".join(f"{dtype}({t})" for t in terms)
        groups = r.choice([1, 3])
        self.parts.append(
            f"@kernel tile[(8,)] grid[({groups},)]\n"
            f"def {name}({', '.join(declared)}):\n"
            f"    i = group_linear_id() * 8 + tile_id(0)\n"
            f"    while i < n:\n"
            f"        {target}[i] = {target}[i] + {total}\n"
            f"        i = i + {8 * groups}\n"
        )
        self.signatures[name] = [
            (p[0], p[1] if p[0] == "number" else (p[1], p[2])) for p in parameters
        ]

    def _result(self, r: random.Random) -> None:
        dtype = r.choice(["f32", "f64", "i32"])
        self.parts.append(
            f"@op.kernel\ndef made(x: {dtype}[n], y: {dtype}[n], by: {dtype}) -> {dtype}[n]:\n"
            f"    return x * by + y\n"
        )
        given = ("array", (dtype, 1))
        self.signatures["made"] = [given, given, ("number", dtype)]

    def _functions(self, r: random.Random) -> None:
        self.parts.append("""
@kernel tile[(8,)] grid[(1,)]
def add(x: f32[n], at: i32[1], w: mut u32[2], out: mut f32[n]):
    i = tile_id(0)
    while i < n:
        out[i] = out[i] + x[i]
        i = i + 8
    if tile_id(0) == 0:
        w[0] = w[0] + 1
        if x[index(at[0])] < 100.0: w[0] = 0

def chain(x, at, by=2):
    w = op.workspace((2,), dtype=u32)
    out = op.zeros((len(x),), dtype=f32)
    add(x, at, w, out)
    if by > 1: add(x, at, w, out)
    return op.reshape(out, (1, len(x)))

def into(x, at, out):
    w = op.workspace((2,), dtype=u32)
    add(x, at, w, out)
    return out
""")
        self.signatures["chain"] = [("array", ("f32", 1)), ("place", None), ("constant", None)]
        self.signatures["into"] = [("array", ("f32", 1)), ("place", None), ("written", ("f32", 1))]


def place(count: int, dtype: Any, shift: int) -> np.ndarray:
    """Memory at a multiple of 64 bytes and ``shift``, so that both sides are aligned alike."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(count * size + 192, np.uint8)
    at = -raw.ctypes.data % 64 + shift
    return raw[at : at + count * size].view(dtype)


def array(r: random.Random, dtype: Any, shape: tuple[int, ...], shift: int = 0) -> np.ndarray:
    made = place(int(np.prod(shape)), dtype, shift).reshape(shape)
    made[...] = np.array([r.randrange(0, 9) for _ in range(made.size)]).reshape(shape)
    return made


def value(r: random.Random, kind: str, of: Any) -> Any:
    match kind:
        case "number":
            return r.choice([1, 2, 5]) if of != "bool" else r.choice([True, False])
        case "place":
            return array(r, np.int32, (1,))
        case "constant":
            return 2
        case _:
            return array(r, DTYPES[of[0]], (N,) if of[1] == 1 else (M, N))


def other_array(r: random.Random, a: np.ndarray) -> Any:
    """An array that differs from this one in one thing."""
    shape, dtype = a.shape, a.dtype
    choice = r.randrange(20)
    if choice == 0:
        return array(r, r.choice([*DTYPES.values()]), shape)
    if choice == 1:
        return a.astype(dtype.newbyteorder())
    if choice == 2:
        return array(r, dtype, (*shape[:-1], r.choice([0, 1, 5, N - 1, N + 1])))
    if choice == 3:
        return array(r, dtype, (*shape[:-1], 2 * shape[-1]))[..., ::2]
    if choice == 4:
        return array(r, dtype, shape)[..., ::-1]
    if choice == 5:
        return array(r, dtype, shape, r.choice([1, 2, 4, 8, 16, 32]))
    if choice == 6:
        a.flags.writeable = False
        return a
    if choice == 7:
        return a.view(Sub)
    if choice == 8:
        return a.reshape((*shape, 1)) if r.random() < 0.5 else a.reshape(-1)
    if choice == 9:
        return a.tolist()
    if choice == 10:
        return np.broadcast_to(a[..., :1], shape)
    if choice == 11:
        return np.from_dlpack(a)
    if choice == 12:
        return np.ma.array(a)
    if choice == 13:
        return np.broadcast_arrays(a, np.zeros((1, *shape)))[0].reshape(shape)
    if choice == 14:
        return memoryview(np.ascontiguousarray(a))
    if choice == 15:
        return a[..., 0] if a.ndim == 1 else a[0]
    if choice == 16:
        return np.array(r.randrange(9), dtype)
    if choice == 17:
        return np.dtype(dtype, metadata={"a": 1}) and a.view(np.dtype(dtype, metadata={"a": 1}))
    if choice == 18 and a.base is not None and dtype.itemsize > 1:
        return array(r, np.uint8, (a.nbytes + 1,))[1:].view(dtype).reshape(shape)
    return r.choice([None, "x", 1.0, object])


def changed(r: random.Random, a: np.ndarray) -> None:
    """The same object, another layout or other memory."""
    choice = r.randrange(6)
    if choice == 0:
        a.shape = (*a.shape, 1)
    elif choice == 1:
        a.dtype = r.choice([np.uint8, a.dtype.newbyteorder(), np.dtype(f"i{a.dtype.itemsize}")])
    elif choice == 2:
        a.flags.writeable = False
    elif choice == 3 and a.ndim == 2:
        a.shape = a.shape[::-1]
    elif choice == 4:
        a.flags.aligned = False
    else:
        a.shape = (a.size,)


class Calls:
    """Random calls of a function: the same ones for the same seed."""

    def __init__(self, signature: list[tuple[str, Any]], seed: int) -> None:
        self.signature = signature
        self.random = random.Random(seed)

    def next(self, plain: bool) -> tuple[list[Any], dict[str, Any], list[Callable[[], object]]]:
        """Arguments, those by name, and what is done to the arrays before a second call."""
        r = self.random
        given = [value(r, *kind) for kind in self.signature]
        named: dict[str, Any] = {}
        later: list[Callable[[], object]] = []
        if plain:
            return given, named, later
        arrays = [i for i, a in enumerate(given) if isinstance(a, np.ndarray)]
        others = [i for i in range(len(given)) if i not in arrays]
        choice = r.randrange(9)
        at = r.choice(arrays)
        if choice <= 2:
            given[at] = other_array(r, given[at])
        elif choice == 3 and others:
            given[r.choice(others)] = r.choice(NUMBERS)
        elif choice == 4:
            given[at] = given[r.choice(arrays)]
        elif choice == 5:
            i, j = r.choice(arrays), r.choice(arrays)
            a, b = given[i], given[j]
            memory = array(r, a.dtype, (3 * a.size + 3 * b.size,))
            step = r.choice([0, 1, 4, a.size - 1, a.size, a.size + 4])
            given[i] = memory[: a.size].reshape(a.shape)
            if a.dtype == b.dtype:
                given[j] = memory[step : step + b.size].reshape(b.shape)
        elif choice == 6:
            if r.random() < 0.5:
                given.pop()
            else:
                given.append(r.choice([1, None, given[at]]))
        elif choice == 7:
            named[r.choice([f"p{len(given) - 1}", "out", "by", "at", "q"])] = given.pop()
        else:
            later.append(lambda: changed(r, given[at]))
        return given, named, later


def said(function: Any, given: list[Any], named: dict[str, Any]) -> Any:
    """What a call gives and leaves, refusals and faults included."""
    try:
        result = function(*given, **named)
    except (tessera.TesseraError, TypeError, ValueError, AttributeError) as fault:
        told = (type(fault).__name__, str(fault), fault.__context__, fault.__cause__)
        frames = 0
        while fault.__traceback__ is not None and (following := fault.__traceback__.tb_next):
            fault.__traceback__, frames = following, frames + 1
        result = (*told, frames)
    if isinstance(result, np.ndarray):
        own = next((i for i, a in enumerate(given) if a is result), -1)
        counted = sys.getrefcount(result) if own < 0 else 0
        flags = (result.flags.c_contiguous, result.flags.writeable, result.flags.aligned)
        result = (own, result.dtype, result.shape, flags, counted, result.tobytes())
    left = [(a.dtype, a.shape, a.strides, a.tobytes()) if isinstance(a, np.ndarray)
            else type(a).__name__
            for a in (*given, *named.values())]  # fmt: skip
    counts = [sys.getrefcount(a) for a in given if isinstance(a, np.ndarray)]
    return result, left, counts


def by_python(m: Any, names: Any) -> Any:
    """A module whose calls machine code never answers."""
    for name in names:
        type(getattr(m, name))._answer_natively = lambda *_: None
    return m


@pytest.fixture(scope="module", autouse=True)
def available() -> None:
    tessera.compile("@op.kernel\ndef f(x: f32[n]) -> f32[n]: return x", target="cpu").f(
        np.ones(4, np.float32))  # fmt: skip
    if sys.implementation.name != "cpython":
        pytest.skip("another Python")
    assert interface() is not None


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore")
def test_calls_that_change(seed: int) -> None:
    """Results, what is left in memory, messages and counts of references are the same."""
    made = Made(seed)
    m = tessera.compile(made.text, target="cpu")
    plain = by_python(tessera.compile(made.text, target="cpu"), made.signatures)
    answered = 0
    for name, signature in made.signatures.items():
        ours, theirs = Calls(signature, seed), Calls(signature, seed)
        native, python = getattr(m, name), getattr(plain, name)
        when = random.Random(seed)
        for turn in range(160):
            same = turn < 20 or when.random() < 0.5
            a, b = ours.next(same), theirs.next(same)
            found, wanted = said(native, *a[:2]), said(python, *b[:2])
            assert found == wanted, (made.text, name, turn, a)
            for change, alike in zip(a[2], b[2], strict=True):
                try:
                    change()
                except (ValueError, AttributeError, TypeError):
                    with pytest.raises((ValueError, AttributeError, TypeError)):
                        alike()
                    continue
                alike()
                assert said(native, *a[:2]) == said(python, *b[:2]), (made.text, name, turn, a)
        answered += native._native is not None
        assert python._native is None
    # Not those that give what they were given, nor launches that were long.
    assert answered >= 2


LOOPS = Made(0)
"""One module for the tests of many calls."""


def round_of(m: Any, seed: int) -> None:
    """Each function with arguments that fit, and with some that do not."""
    for name, signature in LOOPS.signatures.items():
        calls = Calls(signature, seed)
        for plain in (True, True, True, False):
            given, named, _ = calls.next(plain)
            with suppress(tessera.TesseraError, TypeError, ValueError, AttributeError):
                getattr(m, name)(*given, **named)


@pytest.mark.filterwarnings("ignore")
def test_long_loops_leave_nothing() -> None:
    """No objects, and no references to those that live for ever, also where calls are refused."""
    m = tessera.compile(LOOPS.text, target="cpu")
    kept: list[Any] = [None, np.ndarray, tessera.TesseraError, np.dtype(np.float32)]

    def state() -> list[int]:
        gc.collect()
        return [sys.getallocatedblocks(), *(sys.getrefcount(k) for k in kept)]

    # Layouts are learnt at calls 8, 16, 32 and so on: a few more objects now and then.
    for _ in range(200):
        round_of(m, 1)
    before = state()
    for _ in range(400):
        round_of(m, 1)
    grown = [b - a for a, b in zip(before, state(), strict=True)]
    assert max(grown) < 300, grown


@pytest.mark.filterwarnings("ignore")
def test_threads_that_call_differently(whole: bool) -> None:
    """While layouts come and go, a profiler looks on, and faults are raised."""
    m = tessera.compile(LOOPS.text, target="cpu")
    wrong: list[Any] = []

    def work(seed: int) -> None:
        if seed == 0:
            sys.setprofile(lambda *_: None)
        r = random.Random(seed)
        for turn in range(300 if whole else 100):
            n = r.choice([N, N, N, N + seed, N + turn % 13])
            x, at, by = array(r, np.float32, (n,)), np.zeros(1, np.int32), r.choice([1, 2])
            if not np.array_equal(m.chain(x, at, by), (by * x).reshape(1, n)):
                wrong.append((seed, turn))
            out = np.zeros(n, np.float32)
            m.into(x, at, out)
            at[0] = n
            try:
                m.chain(x, at, by)
                wrong.append((seed, turn, "no fault"))
            except tessera.TesseraError as fault:
                if "T0845" not in str(fault) or f"0 to {n - 1} are inside" not in str(fault):
                    wrong.append((seed, turn, str(fault)))
            if not np.array_equal(x, out):
                wrong.append((seed, turn, "into"))
            if turn % 50 == 0:
                gc.collect()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


AT_THE_END = """
import sys, threading
import numpy as np
import tessera_lang as tessera
m = tessera.compile(sys.argv[1], target="cpu")
x, at = np.ones(24, np.float32), np.zeros(1, np.int32)
for _ in range(40):
    m.chain(x, at)
assert m.chain._native is not None

class Late:
    def __del__(self, call=m.chain, x=x, at=at):
        call(x, at)

def work():
    while True:
        m.chain(x, at)

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
late = Late()
late.itself = late
for _ in range(200):
    m.chain(x, at)
print("ends", flush=True)
"""


@pytest.mark.timeout(60)
def test_the_end_of_the_process() -> None:
    """Threads of the background are in machine code when it ends; nothing is said."""
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END, LOOPS.text], capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
