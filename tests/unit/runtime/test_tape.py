"""Recorded calls on a memory of our own: what a call computes, where, and who keeps it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from tessera_backend.runtime import recorded_shortcuts
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.function_fast_path import Quick
from tessera_backend.runtime.recorded_calls import Allocation, Handle, Step, Tape, part_of
from tessera_backend.runtime.recorded_shortcuts import MISSED, Shortcut, constant_key, shortcut

from tessera_lang.target.call_arena import ALIGNMENT, Arena, Need, arena_of
from tessera_lang.types.dtype import F32, I64, U8, dtype_named

COUNT = 40
"""Elements (i64) of every array of these programs."""
BYTES = 8 * COUNT


class Memory:
    """Addresses that mean something: memory that is handed out is poisoned."""

    def __init__(self) -> None:
        self.words = np.full(1 << 16, -1, np.int64)
        self.top = 64
        self.made: list[Allocation] = []
        self.streams: list[int] = []
        self.zeros: list[tuple[int, int]] = []

    def make(self, wanted: Allocation, ordinal: int, stream: int) -> tuple[object, int]:
        count = -(-max(wanted.bytes, 1) // ALIGNMENT) * ALIGNMENT // 8
        start, self.top = self.top, self.top + count
        self.words[start : self.top] = 0 if wanted.zeroed else -(10**9)
        self.made.append(wanted)
        self.streams.append(stream)
        return object(), 8 * start

    def zero(self, address: int, size: int, stream: int) -> None:
        self.zeros.append((address, size))
        self.words[address // 8 : (address + size) // 8] = 0

    def at(self, address: int) -> Any:
        return self.words[address // 8 : address // 8 + COUNT]


class Kernel:
    """``out = out + a * number + 1``, looking like what a launch is prepared as."""

    flags = quiet = ()
    code: Any = None

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def frame(self) -> tuple[list[int], Callable[[int], None]]:
        block = [0, 0, 0]

        def fire(stream: int) -> None:
            self.memory.at(block[0])[:] += self.memory.at(block[1]) * block[2] + 1

        return block, fire


class Program:
    """A random program: its tape, and what it gives, computed plainly."""

    def __init__(self, seed: int) -> None:
        self.memory = Memory()
        self.inputs = 2
        choose = random.Random(seed)
        tape = self.tape = Tape(self.memory.zero)
        tape.inputs = self.inputs
        self.steps: list[tuple[int, int, int]] = []
        written: list[int] = []
        for _ in range(choose.randint(1, 12)):
            if choose.random() < 0.6 or not written:
                tape.allocations.append(Allocation(I64, (COUNT,), True, len(self.steps)))
                written.append(self.inputs + len(tape.allocations) - 1)
            out = choose.choice(written[-3:])
            source = choose.choice([0, 1, *(w for w in written if w != out)])
            number = choose.randint(-2, 3)
            self.steps.append((out, source, number))
            tape.steps.append(Step(
                cast("Any", Kernel(self.memory)), ((0, out, 0), (1, source, 0)), ((2, number),),
                ((out, source, -BYTES, BYTES),),
            ))  # fmt: skip
        self.results = choose.sample(written, choose.randint(1, min(2, len(written))))
        tape.close(tuple(Handle(base, 0, I64, (COUNT,), (1,)) for base in self.results))

    def expected(self, x: Any, y: Any) -> list[Any]:
        bases = [x.copy(), y.copy(), *(np.zeros(COUNT, np.int64) for _ in self.tape.allocations)]
        for out, source, number in self.steps:
            bases[out] += bases[source] * number + 1
        return [bases[base] for base in self.results]

    def call(self, x: int, y: int, stream: int = 0) -> list[int]:
        """The addresses of the results."""
        pointers, owners = [x, y], cast("list[Any]", ["x", "y"])
        assert self.tape.play(pointers, owners, 0, stream, self.memory.make)
        handles = cast("tuple[Handle, ...]", self.tape.result)
        assert all(owners[h.base] not in ("x", "y") for h in handles)
        return [pointers[h.base] for h in handles]


@pytest.mark.parametrize("seed", range(60))
def test_calls_in_a_row_give_what_the_program_says_and_keep_it(seed: int) -> None:
    program = Program(seed)
    memory = program.memory
    kept: list[tuple[Any, int]] = []
    for n in range(4):
        _, x = memory.make(Allocation(I64, (COUNT,), False), 0, 0)
        _, y = memory.make(Allocation(I64, (COUNT,), False), 0, 0)
        memory.at(x)[:], memory.at(y)[:] = np.arange(COUNT) + n, 3 - n
        wanted = program.expected(memory.at(x), memory.at(y))
        kept += zip(wanted, program.call(x, y), strict=True)
    for wanted, got in kept:
        assert np.array_equal(memory.at(got), wanted)
    assert len({address for _, address in kept}) == len(kept)


@pytest.mark.parametrize("seed", range(60))
def test_memory_in_use_at_one_step_lies_apart(seed: int) -> None:
    choose = random.Random(seed)
    needs: list[Need] = []
    for base in range(choose.randint(0, 12)):
        born = choose.randint(0, 6)
        size = choose.choice([0, 1, 255, 256, 5000, 9 << 20])
        needs.append(Need(base, size, choose.random() < 0.5, born, born + choose.randint(0, 4)))
    arena = arena_of(needs)
    for a in needs:
        start = arena.offsets[a.base]
        assert start % ALIGNMENT == 0 and start + a.size <= arena.size
        for b in needs:
            if a.base < b.base and a.born <= b.last and b.born <= a.last and a.size and b.size:
                other = arena.offsets[b.base]
                assert start + a.size <= other or other + b.size <= start
        if a.zeroed and a.size:
            assert _filled_in_time(arena, a)
    for step, start, size in arena.fills:
        for b in needs:
            inside = start < arena.offsets[b.base] + b.size and arena.offsets[b.base] < start + size
            assert not (inside and b.born < step <= b.last), "zeros over what is in use"


def _filled_in_time(arena: Arena, need: Need) -> bool:
    at = arena.offsets[need.base]
    return any(
        step <= need.born and start <= at and at + need.size <= start + size
        for step, start, size in arena.fills
    )


def test_many_small_zeros_are_one_fill_and_large_ones_wait() -> None:
    small = [Need(n, 1000, True, n, n + 1) for n in range(6)]
    assert [step for step, _, _ in arena_of(small).fills] == [0]
    large = [Need(n, 7 << 20, True, n, n) for n in range(3)]
    assert [step for step, _, _ in arena_of(large).fills] == [0, 1, 2]
    assert arena_of(large).size == 7 << 20  # one after the other in the same place


def test_a_call_allocates_its_results_and_one_block() -> None:
    memory = Memory()
    tape = Tape(memory.zero)
    tape.inputs = 1
    tape.allocations = [
        Allocation(F32, (7,), True), Allocation(F32, (3,), False), Allocation(F32, (6,), True),
        Allocation(F32, (5,), True),
    ]  # fmt: skip
    tape.close((Handle(3, 0, F32, (2, 3), (3, 1)), Handle(0, 0, F32, (2,), (1,)), 5))
    for stream in (0, 7):
        pointers, owners = [0x10], [object()]
        assert tape.play(pointers, owners, 0, stream, memory.make)
        assert len(owners) == 2
    assert [a.shape for a in memory.made] == [(2, 3), (768,)] * 2
    assert memory.streams == [0, 0, 7, 7]
    assert [size for _, size in memory.zeros] == [24, 512] * 2
    shapes = [h.base if isinstance(h, Handle) else h for h in cast("Any", tape.result)]
    assert shapes == [1, 0, 5]


def test_written_arguments_that_meet_are_left_to_the_checks() -> None:
    program = Program(0)
    tape = Tape(program.memory.zero)
    tape.inputs = 2
    kernel = cast("Any", Kernel(program.memory))
    tape.steps = [Step(kernel, ((0, 0, 0), (1, 1, 0)), (), ((0, 1, -BYTES, BYTES),))]
    tape.close(None)
    before = program.memory.words.copy()
    assert not tape.play([640, 640 + BYTES - 8], [None, None], 0, 0, program.memory.make)
    assert np.array_equal(before, program.memory.words)
    assert tape.play([640, 640 + BYTES], [None, None], 0, 0, program.memory.make)


def test_a_launch_that_fails_leaves_its_blocks() -> None:
    """The next call makes new ones: what stands in them is not known."""
    memory = Memory()
    tape = Tape(memory.zero)
    tape.inputs = 1
    failing = [True]

    class Failing(Kernel):
        def frame(self) -> tuple[list[int], Callable[[int], None]]:
            block, fire = super().frame()

            def fire_once(stream: int) -> None:
                if failing:
                    block[0] = block[1] = 0
                    raise RuntimeError(failing.pop())
                fire(stream)

            return block, fire_once

    tape.allocations = [Allocation(I64, (COUNT,), True)]
    tape.steps = [Step(cast("Any", Failing(memory)), ((0, 1, 0), (1, 0, 0)), ((2, 1),), ())]
    tape.close(Handle(1, 0, I64, (COUNT,), row_major((COUNT,))))
    _, x = memory.make(Allocation(I64, (COUNT,), False), 0, 0)
    memory.at(x)[:] = 4
    with pytest.raises(RuntimeError):
        tape.play([x], [None], 0, 0, memory.make)
    pointers = [x]
    assert tape.play(pointers, [None], 0, 0, memory.make)
    assert (memory.at(pointers[1]) == 5).all()


def test_constants_that_look_alike_are_told_apart() -> None:
    alike = [0, 0.0, -0.0, False, 1, 1.0, True, "", "1", np.float32(0.0), np.float32(-0.0), None]
    assert len({constant_key(value) for value in alike}) == len(alike)
    assert constant_key(2.5) == constant_key(2.5)


class Tensor:
    """An array at an address, as torch would have one."""

    def __init__(self, address: int, shape: tuple[int, ...] = (COUNT,)) -> None:
        self.address, self.shape = address, shape

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        return row_major(self.shape)

    def storage_offset(self) -> int:
        return 0

    def as_strided(self, *_: object) -> Tensor:
        return self


def shortened(program: Program, monkeypatch: pytest.MonkeyPatch, *others: Any) -> Shortcut:
    """A shortcut for calls of a program, with fakes of what torch does."""
    memory = program.memory

    def guard(tensors: list[Tensor]) -> Callable[..., bool]:
        def check(*given: Tensor) -> bool:
            return [t.shape for t in given] == [t.shape for t in tensors]

        return check

    def maker(dtype: str, shape: tuple[int, ...], ordinal: int) -> Callable[[], Tensor]:
        wanted = Allocation(dtype_named(dtype) or U8, shape, False)
        return lambda: Tensor(memory.make(wanted, ordinal, 0)[1])

    def is_fake(kind: type) -> bool:
        return kind is Tensor

    for name, fake in (
        ("is_torch", is_fake), ("guards_work", lambda: True), ("tensor_guard", guard),
        ("direct_stream", lambda: None), ("tensor_maker", maker),
    ):  # fmt: skip
        monkeypatch.setattr(recorded_shortcuts, name, fake)
    first = [Tensor(memory.make(Allocation(I64, (COUNT,), False), 0, 0)[1]) for _ in range(2)]
    return shortcut(program.tape, [*first, *others], 0, lambda _: 0)


@pytest.mark.parametrize("seed", range(30))
def test_a_shortcut_does_what_a_call_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(seed)
    memory = program.memory
    made = shortened(program, monkeypatch)
    assert made.guarded is not None
    kept: list[tuple[Any, Tensor]] = []
    for n, call in enumerate((made.plain, made.guarded, made.guarded)):
        x, y = (Tensor(memory.make(Allocation(I64, (COUNT,), False), 0, 0)[1]) for _ in range(2))
        memory.at(x.address)[:], memory.at(y.address)[:] = np.arange(COUNT) - n, n
        wanted = program.expected(memory.at(x.address), memory.at(y.address))
        kept += zip(wanted, call(x, y), strict=True)
    for wanted, got in kept:
        assert np.array_equal(memory.at(got.address), wanted)


def test_a_shortcut_misses_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(3)
    made = shortened(program, monkeypatch, 1, "rows")
    assert made.guarded is not None
    x, y = Tensor(512), Tensor(4096)
    assert made.guarded(x, y, 1, "rows") is not MISSED
    others: list[tuple[Any, ...]] = [
        (), (x,), (x, y), (x, y, 1), (x, y, 1, "rows", 2), (x, y, True, "rows"),
        (x, y, 1.0, "rows"), (x, y, 1, "columns"), (x, 5, 1, "rows"), (Tensor(520), y, 1, "rows"),
        (Tensor(512, (3,)), y, 1, "rows"),
    ]  # fmt: skip
    for other in others:
        assert made.guarded(*other) is MISSED, other


def test_calls_without_tensors_are_not_looked_up() -> None:
    quick = Quick()
    assert quick.answer((np.zeros(3), 1)) is MISSED
    assert quick.answer(()) is MISSED


def test_workspaces_lie_apart_in_the_memory_of_the_stream_and_are_not_filled() -> None:
    memory, asked = Memory(), list[tuple[int, int]]()
    _, shared = memory.make(Allocation(U8, (1 << 12,), True), 0, 0)

    def space(stream: int, size: int) -> int:
        asked.append((stream, size))
        return shared

    tape = Tape(memory.zero, space)
    tape.inputs = 1
    ours = Allocation(I64, (COUNT,), True, workspace=True)
    tape.allocations = [ours, Allocation(I64, (COUNT,), False), ours, ours]
    tape.steps = [
        Step(cast("Any", Kernel(memory)), ((0, base, 0), (1, 0, 0)), ((2, base),), ())
        for base in (1, 2, 3)
    ]
    # One that is handed back is memory of its own.
    tape.close(Handle(4, 0, I64, (COUNT,), row_major((COUNT,))))
    _, x = memory.make(Allocation(I64, (COUNT,), False), 0, 0)
    memory.at(x)[:] = 1
    pointers = [x]
    assert tape.play(pointers, [None], 0, 7, memory.make)
    padded = -(-BYTES // ALIGNMENT) * ALIGNMENT
    assert asked == [(7, 2 * padded)]
    assert (memory.at(shared) == 2).all() and (memory.at(shared + padded) == 4).all()
    assert [size for _, size in memory.zeros] == [BYTES]  # of the one that is handed back
    assert (memory.at(pointers[1]) == 0).all()


@pytest.mark.parametrize("items", [
    (slice(1, 3),), (slice(None), slice(-2, None)), (slice(0, 4, 2), slice(5, 1)),
    (slice(None, None, -1), slice(1, None, 2)), (slice(9, 20),),
])  # fmt: skip
def test_parts_of_arrays_are_as_numpy_has_them(items: tuple[slice, ...]) -> None:
    whole = np.arange(120, dtype=np.int64).reshape(4, 6, 5)
    part = part_of(Handle(0, 16, I64, whole.shape, row_major(whole.shape)), items)
    wanted = whole[items]
    assert part.shape == wanted.shape
    if wanted.size:
        assert part.offset == 16 + 8 * int(wanted.flat[0])
        assert tuple(8 * n for n in part.strides) == wanted.strides
