"""Launches: threads, scratch, grids, forks; loading of damaged objects."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from tessera_backend.cpu.backend import BACKEND
from tessera_backend.cpu.elf import ElfError, ElfObject
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.loader import load_object

from tessera_lang.diagnostics import TesseraError
from tessera_lang.ir.core import Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.dtype import F64, I32, INDEX
from tests.unit.backend.cpu.kernels import add, sum_reduce
from tests.unit.backend.tile_kernels import Kernel, Runner


def test_ids_of_a_grid_of_three_axes() -> None:
    def make(b: Builder, views: list[Value]) -> None:
        axes = [b.group_index(a) for a in range(3)]
        counts = [b.group_count(a) for a in range(3)]
        linear = axes[0]
        for axis, count in zip(axes[1:], counts[1:], strict=True):
            linear = b.binary("add", b.binary("mul", linear, count), axis)
        wrong = b.binary("sub", linear, b.group_linear())
        place = b.binary("mul", b.group_linear(), b.index(12))
        lane = b.lane_linear()
        row = b.binary("mul", b.lane_index(0), b.index(6))
        inner = b.binary("add", b.binary("mul", b.lane_index(1), b.index(3)), b.lane_index(2))
        again = b.binary("sub", b.binary("add", row, inner), lane)
        total = b.binary("add", b.binary("add", wrong, again), b.group_count(-1))
        b.store(total, views[0], [b.binary("add", place, lane)])

    run = Runner(Kernel((2, 2, 3), grid_rank=3).build([INDEX], make))
    out = np.zeros(2 * 3 * 4 * 12, np.int64)
    run(out, groups=(2, 3, 4), threads=3)
    np.testing.assert_array_equal(out, 24)
    assert run.fault[0] == 0


def test_many_launches_from_many_threads() -> None:
    run = Runner(add("guarded", condition=True))
    x, y = np.arange(5000, dtype=np.float32), np.ones(5000, np.float32)
    wrong: list[int] = []

    def work() -> None:
        out = np.zeros(5000, np.float32)
        fault = (ctypes.c_int64 * 8)()
        slots = (ctypes.c_int64 * 7)(
            x.ctypes.data, 5000, y.ctypes.data, 5000, out.ctypes.data, 5000,
            ctypes.addressof(fault),
        )  # fmt: skip
        for number in range(200):
            out[:] = 0
            run.kernel.launch(slots, (20,), 1 + number % 4)
            if not np.array_equal(out, x + 1):
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_groups_no_launch() -> None:
    run = Runner(sum_reduce("proved"))
    out = np.full(1, 5.0, np.float32)
    run(np.ones(10, np.float32), out, groups=(0,))
    assert out[0] == 5.0


def test_too_few_slots_are_refused() -> None:
    run = Runner(sum_reduce("proved"))
    with pytest.raises(ValueError, match="slots"):
        run.kernel.launch((ctypes.c_int64 * 2)(), (1,))


def test_large_shared_memory_and_many_lanes() -> None:
    """Scratch is no stack: a group may have a lot."""

    def make(b: Builder, views: list[Value]) -> None:
        shared = b.shared_alloc(F64, [1 << 17], "s")
        lane = b.lane_linear()
        with b.region(("i", INDEX)) as body:
            (i,) = body.arguments
            b.store(b.cast(i, F64), shared, [i], "proved")
            b.yield_()
        b.for_(lane, b.index(1 << 17), b.index(1024), [], body.region)
        b.barrier()
        back = b.binary("sub", b.index((1 << 17) - 1), lane)
        b.store(b.load(shared, [back], "proved"), views[0], [lane])

    run = Runner(Kernel((1024,)).build([F64], make))
    out = np.zeros(1024)
    run(out, groups=(3,), threads=2)
    np.testing.assert_array_equal(out, np.arange((1 << 17) - 1, (1 << 17) - 1025, -1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_its_own_threads() -> None:
    run = Runner(add("proved", condition=True))
    x = np.ones(100000, np.float32)
    out = np.zeros_like(x)
    run(x, x, out, groups=(391,), threads=4)

    def child() -> None:
        run(x, x, out, groups=(391,), threads=4)
        os._exit(0 if (out == 2).all() else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0


def test_running_needs_no_llvm(tmp_path: object) -> None:
    artifact = Runner(add("proved", condition=True)).artifact
    path = os.path.join(str(tmp_path), "k.o")
    with open(path, "wb") as file:
        file.write(artifact.code)
    program = (
        "import sys\n"
        "from tessera_backend.cpu.loader import load_object\n"
        "from tessera_backend.cpu.thread_pool import CpuKernel\n"
        "load_object(open(sys.argv[1], 'rb').read(), 'k')\n"
        "assert not {'llvmlite', 'numpy', 'lark'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)


def test_damaged_objects_are_refused() -> None:
    code = Runner(sum_reduce("guarded")).artifact.code
    ElfObject(code, host_machine()).image()
    for length in range(0, len(code), 97):
        with pytest.raises(ElfError):
            _load_all(code[:length])
    generator = np.random.default_rng(0)
    for _ in range(400):  # flipped bytes end in an error or in an object, never in a crash
        damaged = bytearray(code)
        for place in generator.integers(0, len(code), 3):
            damaged[place] ^= 1 << int(generator.integers(8))
        with suppress(ElfError):
            _load_all(bytes(damaged))


def _load_all(code: bytes) -> None:
    image = ElfObject(code, host_machine()).image()
    content = bytearray(image.content)
    image.resolve(content, 0x7F0000000000)


def test_the_wrong_machine_and_a_missing_entry() -> None:
    code = Runner(add("proved", condition=True)).artifact.code
    other = "aarch64" if host_machine() == "x86_64" else "x86_64"
    with pytest.raises(ElfError, match=other):
        ElfObject(code, other)
    with pytest.raises(ElfError, match="no function"):
        load_object(code, "other")


def test_an_unknown_cpu_is_a_diagnostic() -> None:
    program, plan = add("proved", condition=True)
    with pytest.raises(TesseraError) as caught:
        BACKEND.compile(program, plan, TargetOptions("cpu", arch="z80"), ())
    assert [d.code for d in caught.value.diagnostics] == ["T0891"]


def test_a_barrier_that_lanes_miss_is_a_diagnostic() -> None:
    def make(b: Builder, views: list[Value]) -> None:
        with b.region() as then:
            b.barrier()
            b.yield_()
        with b.region() as otherwise:
            b.yield_()
        b.if_(b.cmp("lt", b.lane_linear(), b.index(3)), then.region, otherwise.region)

    program, plan = Kernel((8,)).build([I32], make)
    with pytest.raises(TesseraError) as caught:
        BACKEND.compile(program, plan, TargetOptions("cpu"), ())
    assert [d.code for d in caught.value.diagnostics] == ["T0893"]


def test_named_cpus_compile() -> None:
    if host_machine() == "x86_64":
        program, plan = sum_reduce("guarded")
        for arch in ("x86-64-v3", "haswell", "znver4"):
            artifact = BACKEND.compile(program, plan, TargetOptions("cpu", arch=arch), ())
            assert ElfObject(artifact.code, "x86_64").image().entries


def test_identity_names_llvm_and_the_cpu() -> None:
    native = BACKEND.identity(TargetOptions("cpu"))
    named = BACKEND.identity(TargetOptions("cpu", arch="haswell"))
    assert native != named and native[0] == named[0] and "llvmlite" in native[0]
