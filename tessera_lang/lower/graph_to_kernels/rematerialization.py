"""Kernels that run again, so that what they give need not be in memory in between.

Where the kernels of a graph need more memory than there is, values that are alive at the peak and
not needed there are computed again before they are: by the same kernel, so with the same bits. The
values that cost least time for each byte that is then too many go first. Owns the choice. Must not
know what a kernel computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel, cost_of
from tessera_lang.lower.graph_to_kernels.live_memory import arrays, beside, bytes_of
from tessera_lang.record import dataclass, field, replace


class OverBudget(Exception):
    """No order of kernels needs as little memory as it should. ``least``: the least bytes that were
    found, ``alive``: the values in memory then, the largest first; ``kernel``: the kernel that
    runs."""

    def __init__(self, least: int, alive: tuple[Value, ...], kernel: GraphKernel) -> None:
        self.least = least
        self.alive = alive
        self.kernel = kernel
        super().__init__()


def within_budget(
    function: Operation, kernels: Sequence[GraphKernel], budget: int
) -> tuple[GraphKernel, ...]:
    """The kernels in an order, some of them more than once, in which a call has no more than
    ``budget`` bytes in memory with its arguments. Raises OverBudget."""
    order = _Order(function, kernels, budget)
    while max(order.sizes, default=0) > budget:
        if not order.improve():
            n = max(range(len(order.steps)), key=lambda i: order.sizes[i])
            alive = sorted(order.alive_at(n), key=lambda v: (-bytes_of(v), order.place(v)))
            raise OverBudget(order.sizes[n], tuple(alive), order.steps[n])
    order.drop_what_is_not_needed()
    return order.renamed()


@dataclass(slots=True, eq=False)
class _Order:
    """Kernels in an order. A value is what the last step before its reader made of it: from that
    step to its last reader before it is made again it is in memory. ``sizes``: bytes at each
    step."""

    function: Operation
    given: Sequence[GraphKernel]
    budget: int
    steps: list[GraphKernel] = field(default_factory=list[GraphKernel])
    sizes: list[int] = field(default_factory=list[int])
    _makers: dict[Value, GraphKernel] = field(default_factory=dict[Value, GraphKernel])
    _costs: dict[int, float] = field(default_factory=dict[int, float])
    _places: dict[Value, int] = field(default_factory=dict[Value, int])
    _readers: Counter[Value] = field(default_factory=Counter[Value])

    def __post_init__(self) -> None:
        self._readers = Counter(v for k in self.given for v in {*arrays(k)})
        self.steps = min(list(self.given), self.early(), key=lambda x: _worst(self.measured(x)))
        self._makers = {v: k for k in self.given for v in k.results}
        self._places = {v: i for i, v in enumerate(self._makers)}
        self.sizes = self.measured(self.steps)

    @property
    def results(self) -> Collection[Value]:
        return self.function.regions[0].terminator.operands

    def place(self, value: Value) -> int:
        return self._places.get(value, -1)

    # --- what is in memory -------------------------------------------------------------

    def lives(self, steps: Sequence[GraphKernel]) -> Iterator[tuple[Value, int, int]]:
        """Each value with a step that makes it, and the last that reads that; results of the
        function are read behind all."""
        born, last = dict[Value, int](), dict[Value, int]()
        kept = set(self.results)
        for n, kernel in enumerate(steps):
            for v in arrays(kernel):
                if v in born:
                    last[v] = n
            for v in kernel.results:
                if v in born and v in kept:  # the first is the result
                    yield v, n, n
                    continue
                if v in born:
                    yield v, born[v], last[v]
                born[v] = last[v] = n
        for v, n in born.items():
            yield v, n, len(steps) if v in kept else last[v]

    def measured(self, steps: Sequence[GraphKernel]) -> list[int]:
        """Bytes in memory while each step runs."""
        changes = [0] * (len(steps) + 2)
        for v, born, last in self.lives(steps):
            changes[born] += bytes_of(v)
            changes[last + 1] -= bytes_of(v)
        total = sum(map(bytes_of, {*self.function.regions[0].arguments}))
        sizes: list[int] = []
        for kernel, change in zip(steps, changes, strict=False):
            total += change
            sizes.append(total + beside(kernel))
        return sizes

    def alive_at(self, n: int) -> list[Value]:
        lives = self.lives(self.steps)
        return [*self.function.regions[0].arguments, *(v for v, a, b in lives if a <= n <= b)]

    def early(self) -> list[GraphKernel]:
        """The kernels in their order, but for those that leave no more in memory than before: each
        of these runs as soon as it may."""
        made = {v for k in self.given for v in k.results}
        left, readers = list(self.given), Counter(self._readers)
        readers.update(self.results)
        there, found = set[Value](), list[GraphKernel]()
        while left:
            ready = [k for k in left if all(v in there or v not in made for v in arrays(k))]
            best = min(ready, key=lambda k: self._more(k, readers, made))
            kernel = best if self._more(best, readers, made) <= 0 else ready[0]
            left = [k for k in left if k is not kernel]
            found.append(kernel)
            there.update(kernel.results)
            readers.subtract({*arrays(kernel)})
        return found

    def _more(self, kernel: GraphKernel, readers: Counter[Value], made: set[Value]) -> int:
        """Bytes that are in memory behind a kernel, and are not before it."""
        freed = (v for v in {*arrays(kernel)} if v in made and readers[v] == 1)
        return sum(map(bytes_of, kernel.results)) - sum(map(bytes_of, freed))

    # --- steps that run again ----------------------------------------------------------

    def improve(self) -> bool:
        """One value less at the worst step, so that the most is less or there are fewer such steps;
        whether there was one."""
        worst = max(range(len(self.sizes)), key=self.sizes.__getitem__)
        found: list[tuple[float, int, list[GraphKernel], int]] = []
        kept, lives = set(self.results), list(self.lives(self.steps))
        for v, born, last in lives:
            if v in kept or not born < worst < last or v in arrays(self.steps[worst]):
                continue
            reader = next(
                n for n in range(worst + 1, last + 1) if v in arrays(self.steps[n])
            )  # fmt: skip
            again = self._again(v, {w for w, a, b in lives if a < reader <= b} - {v})
            if again is not None:
                cost = sum(map(self._cost, again)) / max(1, bytes_of(v))
                found.append((cost, self.place(v), again, reader))
        for _, _, again, reader in sorted(found, key=lambda x: x[:2]):
            steps = [*self.steps[:reader], *again, *self.steps[reader:]]
            sizes = self.measured(steps)
            if _worst(sizes) < _worst(self.sizes):
                self.steps, self.sizes = steps, sizes
                return True
        return False

    def _again(self, value: Value, there: Collection[Value]) -> list[GraphKernel] | None:
        """The kernels that compute a value again of what is ``there``; None where one of them may
        not run twice."""
        found: list[GraphKernel] = []
        done = set[Value](there)
        left: list[tuple[Value, bool]] = [(value, False)]
        while left:
            at, ready = left.pop()
            maker = self._makers.get(at)
            if maker is None or at in done:
                continue
            if ready:
                done.update(maker.results)
                found.append(maker)
                continue
            if maker.call is not None or maker.regions:
                return None
            left.append((at, True))
            left.extend((v, False) for v in arrays(maker) if v not in done)
        return found

    def _cost(self, kernel: GraphKernel) -> float:
        if id(kernel) not in self._costs:
            self._costs[id(kernel)] = cost_of(self.function, (kernel,))
        return self._costs[id(kernel)]

    def drop_what_is_not_needed(self) -> None:
        """Without each step that runs again where there is room for what it gives, the dearest
        first."""
        seen, again = set[int](), list[tuple[float, int]]()
        for n, kernel in enumerate(self.steps):
            if id(kernel) in seen:
                again.append((-self._cost(kernel), n))
            seen.add(id(kernel))
        gone = set[int]()
        for _, n in sorted(again):
            steps = [k for i, k in enumerate(self.steps) if i not in gone and i != n]
            if max(self.measured(steps)) <= self.budget:
                gone.add(n)
        self.steps = [k for i, k in enumerate(self.steps) if i not in gone]
        self.sizes = self.measured(self.steps)

    def renamed(self) -> tuple[GraphKernel, ...]:
        """The kernels, with values of their own for what a step gives again."""
        names, seen = dict[Value, Value](), set[int]()
        found: list[GraphKernel] = []
        for kernel in self.steps:
            given = tuple(names.get(v, v) if isinstance(v, Value) else v for v in kernel.arguments)
            own, first = kernel.results, None
            if id(kernel) in seen:
                kept = set(self.results)
                first = kernel
                own = tuple(Value(v.type, v.name) for v in own)
                names.update({v: w for v, w in zip(kernel.results, own, strict=True)
                              if v not in kept})  # fmt: skip
            seen.add(id(kernel))
            found.append(replace(kernel, arguments=given, results=own, first=first))
        return tuple(found)


def _worst(sizes: Sequence[int]) -> tuple[int, int]:
    most = max(sizes)
    return most, sizes.count(most)
