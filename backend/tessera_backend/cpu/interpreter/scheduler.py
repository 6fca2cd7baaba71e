"""Tasks that run one at a time, in a fixed order, and what happens late.

A task that waits hands over. Where none can go on, the next late thing happens (a copy lands);
where there is nothing late either, the program is stuck. With a seed the order is another one:
any task that can go on may be next, and what is late may happen, in any order, before it has to.
Must not know what tasks do.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_lang.ir.core import Operation

Ready = Callable[[], bool]


class _Stopped(BaseException):
    """Another task has failed."""


class Task:
    """What runs while it has the turn, in a thread of its own but for the first one: most groups
    are one task, and a thread for each would take longer than what they do."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.name = name
        self.done = False
        self.ready: Ready = _always
        self.waits_in: Operation | None = None
        self.body = body
        self.thread: threading.Thread | None = None
        if scheduler.tasks:
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()

    def run(self) -> None:
        scheduler = self.scheduler
        try:
            with scheduler.turn:
                scheduler.sleep(self)
            with np.errstate(all="ignore"):
                self.body()
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  # handed to whoever started the tasks
            scheduler.failure = scheduler.failure or error
        with scheduler.turn:
            self.done = True
            if scheduler.failure is None:
                scheduler.hand_over()
            scheduler.turn.notify_all()


def _always() -> bool:
    return True


class Scheduler:
    """The tasks of one cluster."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self.turn = threading.Condition()
        self.tasks: list[Task] = []
        self.running: Task | None = None
        self.late: deque[Callable[[], None]] = deque()
        self.failure: BaseException | None = None

    def add(self, name: str, body: Callable[[], None]) -> Task:
        task = Task(self, name, body)
        self.tasks.append(task)
        return task

    def run(self) -> None:
        """Until all tasks, those that tasks add too, are done. Raises what one raised."""
        with self.turn:
            self.hand_over()
        self.tasks[0].run()
        with self.turn:
            while self.failure is None and any(not t.done for t in self.tasks):
                self.turn.wait()
            self.turn.notify_all()
        for task in self.tasks:
            if task.thread is not None:
                task.thread.join()
        if self.failure is not None:
            raise self.failure

    def block(self, ready: Ready, operation: Operation | None) -> None:
        """The running task waits until ``ready``; ``operation`` is what it waits in."""
        task = self.running
        if task is None:
            raise RuntimeError("only a task waits")
        if ready():
            return
        task.ready, task.waits_in = ready, operation
        with self.turn:
            self.hand_over()
            self.sleep(task)

    def sleep(self, task: Task) -> None:
        while self.running is not task:
            if self.failure is not None:
                raise _Stopped
            self.turn.wait()

    def hand_over(self) -> None:
        """Let the next task that can go on run."""
        start = self.tasks.index(self.running) + 1 if self.running in self.tasks else 0
        order = [t for t in (*self.tasks[start:], *self.tasks[:start]) if not t.done]
        try:
            self.running = self._next(order)
        except BaseException as error:  # noqa: BLE001  # a late thing may meet a fault
            self.failure = self.failure or error
            self.running = None
        self.turn.notify_all()

    def _next(self, order: list[Task]) -> Task | None:
        while order:
            if self._random is not None:
                self._random.shuffle(order)
                if self.late and self._random.random() < 0.5:
                    self.late.rotate(self._random.randrange(len(self.late)))
                    self.late.popleft()()
            following = next((t for t in order if t.ready()), None)
            if following is not None:
                following.ready, following.waits_in = _always, None
                return following
            if not self.late:
                raise _stuck(order)
            self.late.popleft()()
        return None


def _stuck(waiting: list[Task]) -> AsynchronousFault:
    inside = [t for t in waiting if t.waits_in is not None and t.waits_in.name != "tile.roles"]
    first, second = (*(t.waits_in for t in inside), None, None)[:2]
    names = ", ".join(t.name for t in inside)
    return AsynchronousFault(f"nothing can go on (deadlock): these wait: {names}", first, second)
