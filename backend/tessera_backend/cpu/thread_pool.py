"""Runs compiled kernels on the CPU: a pool of threads that take groups in order.

``CpuKernel.launch`` returns when every group has run. The calling thread works too; a worker
that has not woken when the groups are gone is not waited for. Needs no LLVM.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter

from tessera_backend.cpu.call_stub import WORTH_WAKING
from tessera_backend.cpu.interrupts import interrupts
from tessera_backend.cpu.loader import load_object
from tessera_backend.cpu.thread_count import thread_count
from tessera_lang.target.backend import Artifact

Slots = ctypes.Array[ctypes.c_int64] | ctypes.Array[ctypes.c_uint64] | bytes | bytearray

# Without argument types: what is passed has the right ctypes type, and conversions take time.
_ENTRY = ctypes.CFUNCTYPE(None)


class _Local(threading.local):
    """Scratch memory of a thread, grown as kernels need it."""

    room = -1
    pointer = ctypes.c_void_p()
    buffer: ctypes.Array[ctypes.c_char] | None = None

    def scratch(self, size: int) -> ctypes.c_void_p:
        if self.room < size:
            self.buffer = (ctypes.c_char * (size + 64))()
            self.pointer = ctypes.c_void_p(-(-ctypes.addressof(self.buffer) // 64) * 64)
            self.room = size
        return self.pointer


_LOCAL = _Local()


class _Job:
    """One launch: ``tickets`` hold a place for each worker that may still join."""

    __slots__ = ("done", "failure", "tickets", "times", "work")

    def __init__(self, work: Callable[[], None], helpers: int) -> None:
        self.work = work
        self.tickets = [None] * helpers
        self.done = threading.Semaphore(0)
        self.failure: BaseException | None = None
        self.times: list[float] = []  # seconds that each worker worked

    def join_in(self) -> None:
        """What a worker does with a job it was woken for."""
        try:
            self.tickets.pop()
        except IndexError:
            return  # the groups are gone
        begin = perf_counter()
        try:
            self.work()
            self.times.append(perf_counter() - begin)
        except BaseException as error:
            self.failure = error
        finally:
            self.done.release()


class _Pool:
    """Threads that wait for jobs; made when first needed, grown on demand."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()

    def _grow(self, count: int) -> None:
        with self._lock:
            while self._threads < count:
                name = f"tessera-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._threads += 1

    def _serve(self) -> None:
        jobs = self._jobs
        while True:
            jobs.get().join_in()

    def run(self, work: Callable[[], None], threads: int) -> float:
        """Runs ``work`` in this thread and in up to ``threads - 1`` others. Seconds that all of
        them worked, without the time to wake and to wait."""
        helpers = threads - 1
        if self._threads < helpers:
            self._grow(helpers)
        job = _Job(work, helpers)
        for _ in range(helpers):
            self._jobs.put(job)
        begin, worked = perf_counter(), 0.0
        try:
            work()
            worked = perf_counter() - begin
        finally:
            late = 0
            while job.tickets:
                try:
                    job.tickets.pop()
                    late += 1
                except IndexError:
                    break
            for _ in range(helpers - late):
                job.done.acquire()
        if job.failure is not None:
            raise job.failure
        return worked + sum(job.times)


_pool = _Pool()


def _forget_pool() -> None:
    """A forked child has none of the threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


class CpuKernel:
    """A compiled kernel in memory. Raises ElfError or OSError where it cannot be loaded."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.plan = artifact.plan
        self._loaded = load_object(artifact.code, artifact.entry)
        self._call = _ENTRY(self._loaded.address)
        self._scratch = max(0, artifact.resources.local_bytes)
        self._slots = len(artifact.plan.slots)
        # Seconds a group took in the last launch; machine code reads and writes it too.
        self.group_time = ctypes.c_double(WORTH_WAKING)

    @property
    def address(self) -> int:
        """Address of the entry (see ``entry.py`` for its signature)."""
        return self._loaded.address

    @property
    def scratch_bytes(self) -> int:
        """Memory that a thread in the entry needs for itself."""
        return self._scratch

    def launch(self, slots: Slots, groups: tuple[int, ...], threads: int = 0) -> None:
        """Runs all groups; ``slots`` holds the plan's 64-bit arguments in order.

        ``groups`` along each axis (1 to 3); ``threads`` 0 means as many as ``thread_count``
        says. Returns when every group has run.
        """
        if isinstance(slots, (bytes, bytearray)):
            slots = (ctypes.c_int64 * (len(slots) // 8)).from_buffer_copy(slots)
        if len(slots) < self._slots:
            raise ValueError(f"{self._slots} slots are needed, {len(slots)} are there")
        self.prepare(slots, groups, threads)()

    def prepare(
        self, slots: ctypes.Array[ctypes.c_int64] | ctypes.Array[ctypes.c_uint64],
        groups: tuple[int, ...], threads: int = 0,
    ) -> Callable[[], None]:  # fmt: skip
        """What runs all groups on these slots, again and again, by one thread at a time."""
        gx, gy, gz = (*groups, 1, 1)[:3]
        total = gx * gy * gz
        if total <= 0:
            return _run_nothing
        counter = ctypes.c_int64(0)
        call, size = self._call, self._scratch
        arguments = (ctypes.byref(slots), ctypes.byref(counter),
                     *map(ctypes.c_int64, (total, gx, gy, gz)))  # fmt: skip
        everything = ctypes.c_int64(total)
        chunk, chunk_of = ctypes.c_int64(0), 0
        scratch, group_time = _LOCAL.scratch, self.group_time

        def work() -> None:
            call(*arguments, chunk, scratch(size))

        def run() -> None:
            nonlocal chunk_of
            most = threads or thread_count()
            if most != chunk_of:
                chunk_of = most
                chunk.value = max(1, min(total // (min(most, total) * 8), 4096))
            counter.value = 0
            watched = interrupts.watch(counter)
            begin = perf_counter()
            # Waking a thread takes longer than a small launch, judged by the one before.
            small = total * group_time.value < WORTH_WAKING
            if most <= 1 or total == 1 or (not threads and small):
                call(*arguments, everything if small else chunk, scratch(size))
                group_time.value = (perf_counter() - begin) / total
            else:
                most = min(most, total)
                worked = _pool.run(work, most)
                group_time.value = worked / total
            if watched:
                interrupts.done(counter)

        return run

    def run_each(
        self, blocks: Sequence[ctypes.Array[ctypes.c_int64]], groups: tuple[int, ...]
    ) -> None:
        """Runs all groups, each thread with the slots of a block of its own."""
        gx, gy, gz = (*groups, 1, 1)[:3]
        total, left = gx * gy * gz, list(blocks)
        counter = ctypes.c_int64(0)
        sizes = tuple(map(ctypes.c_int64, (total, gx, gy, gz)))
        chunk = ctypes.c_int64(max(1, min(total // (len(left) * 8), 4096)))
        call, size, scratch = self._call, self._scratch, _LOCAL.scratch

        def work() -> None:
            call(ctypes.byref(left.pop()), ctypes.byref(counter), *sizes, chunk, scratch(size))

        _pool.run(work, len(left))


def _run_nothing() -> None:
    """A launch of no groups."""
