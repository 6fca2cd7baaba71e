"""Who touches which cell of shared memory between two barriers, and what was written so far.

Owns the log of the accesses since the last barrier, the search for two of them that conflict,
and which cells have been written. A conflict found here is a suspicion: the lanes may not both
get there. None found means that there is none. Must not know control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd
from typing import Literal, TypeAlias, cast

from tessera_lang.analysis.lanes.guarded_writes import Guarded, are_written
from tessera_lang.analysis.lanes.lane_forms import Mask, Space, Terms
from tessera_lang.analysis.ranges.linear import Interval, Knowledge, Linear
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.ir.definitions import effect_of
from tessera_lang.record import dataclass, field

Kind = Literal["read", "write", "atomic"]
Tell: TypeAlias = tuple[int, object, "tuple[int, ...] | None"]
"""What an index says of the lane along an axis. With its unknowns as the key: the rest of it in
each lane; with a number: the remainder by that. With another key, each access has another index."""
_MOST_PROOFS = 4000  # of two accesses that they are apart; what is left is not proved


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One access by the lanes of ``mask``: of cell ``place`` in each, None if not known.

    ``facts``: what is at least 0 in every such lane. ``value``: what is stored, where all
    lanes store the same. ``tells``: what its indices along single axes say of the lane.
    ``guard``: what is at least 0 in those lanes of ``mask.must`` that do it, and in no others; None
    where that is not known.
    """

    operation: Operation
    kind: Kind
    mask: Mask
    place: Linear | None
    facts: tuple[Linear, ...] = ()
    value: Linear | None = None
    tells: tuple[Tell, ...] = ()
    guard: tuple[Linear, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Two accesses that may meet in a cell; the lanes where evaluation found some."""

    first: Record
    second: Record
    lanes: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A read of a cell that nothing may have written before, in this iteration of a loop."""

    record: Record
    lane: int
    cell: int


_Marks: TypeAlias = tuple[tuple[int, Record], ...]
"""Up to two accesses of a cell, by different lanes."""


@dataclass(slots=True)
class _Table:
    """Accesses of one buffer whose places have the same symbols: these cancel, so the rest
    can be compared cell by cell. Reads wait until something is written."""

    cells: dict[Kind, dict[int, _Marks]] = field(
        default_factory=lambda: {"read": {}, "write": {}, "atomic": {}}
    )
    records: list[Record] = field(default_factory=list[Record])
    waiting: list[Record] = field(default_factory=list[Record])
    seen: set[object] = field(default_factory=set[object])

    def copy(self) -> _Table:
        cells: dict[Kind, dict[int, _Marks]] = {k: dict(v) for k, v in self.cells.items()}
        return _Table(cells, list(self.records), list(self.waiting), set(self.seen))

    def add(self, other: _Table) -> None:
        """What another way through the program has touched."""
        known = set(self.records)
        self.records.extend(r for r in other.records if r not in known)
        self.waiting.extend(r for r in other.waiting if r not in known)
        self.seen &= other.seen
        for kind, cells in other.cells.items():
            mine = self.cells[kind]
            for cell, marks in cells.items():
                for lane, record in marks:
                    _mark(mine, cell, lane, record)


def _mark(cells: dict[int, _Marks], cell: int, lane: int, record: Record) -> None:
    marks = cells.get(cell)
    if marks is None:
        cells[cell] = ((lane, record),)
    elif len(marks) == 1 and marks[0][0] != lane:
        cells[cell] = (marks[0], (lane, record))


Log: TypeAlias = dict[Value, dict[Terms | None, _Table]]


@dataclass(slots=True)
class Written:
    """Cells of one buffer: surely written, and possibly written. ``put``: those that since the last
    barrier got their first value by an atomic. ``guarded``: written under a condition."""

    surely: set[int] = field(default_factory=set[int])
    guarded: set[Guarded] = field(default_factory=set[Guarded])
    possibly: set[int] = field(default_factory=set[int])
    put: set[int] = field(default_factory=set[int])
    anywhere: bool = False  # something was written at a place that is not known


Sure: TypeAlias = "dict[Value, set[int | Guarded]]"
"""Of each buffer the cells that are surely written, also those under a condition."""
Way: TypeAlias = tuple[Log, Sure, int]
"""At the end of one way: its log, what was surely written on it, the barriers surely passed."""
Write: TypeAlias = tuple[Value, int, int]
"""A buffer, a lane, and a cell that it writes."""


@dataclass(slots=True)
class SharedMemory:
    """The state at a place of the program.

    ``untraced``: accesses of which ``lane_trace`` shows nothing. ``only_writing``: exchanges whose
    result nothing uses. ``ordered``: whether atomics bring two accesses into an order.
    ``atomics``: the lanes that may do each. ``collected``: where a lane may be on either of two
    ways, what it writes on this one if it is there; that counts as written once it is known of
    both ways. ``counted``: of a buffer, how many elements are written from the first on.
    """

    space: Space
    untraced: frozenset[Operation] = frozenset()
    only_writing: frozenset[Operation] = frozenset()
    ordered: Callable[[Record, Record], bool] | None = None
    atomics: dict[Operation, int] = field(default_factory=dict[Operation, int])
    collected: set[Write] | None = None
    log: Log = field(default_factory=dict[Value, dict["Terms | None", _Table]])
    written: dict[Value, Written] = field(default_factory=dict[Value, Written])
    barriers: int = 0  # how many have surely been passed
    suspicions: list[Suspicion] = field(default_factory=list[Suspicion])
    unwritten: list[Unwritten] = field(default_factory=list[Unwritten])
    uncertain_reads: dict[Operation, Value] = field(default_factory=dict[Operation, Value])
    puts: set[Value] = field(default_factory=set[Value])  # where atomics put values
    same_value: dict[Operation, Record] = field(default_factory=dict[Operation, Record])
    counted: dict[Value, list[Linear]] = field(default_factory=dict[Value, list[Linear]])
    _apart: dict[tuple[Record, Record], bool] = field(
        default_factory=dict[tuple[Record, Record], bool]
    )
    _reported: set[tuple[Operation, Operation]] = field(
        default_factory=set[tuple[Operation, Operation]]
    )
    _doubted: set[tuple[Operation, bool]] = field(default_factory=set[tuple[Operation, bool]])
    proofs: int = 0

    # --- control ----------------------------------------------------------------------------

    def barrier(self) -> None:
        self.log = {}
        self.barriers += 1
        for buffer in self.puts:
            self.written[buffer].put.clear()

    def copied_log(self) -> Log:
        return {
            buffer: {terms: table.copy() for terms, table in tables.items()}
            for buffer, tables in self.log.items()
        }

    def join(self, *others: Log) -> None:
        """The log of this way and of others that come together here."""
        for other in others:
            for buffer, tables in other.items():
                mine = self.log.setdefault(buffer, {})
                for terms, table in tables.items():
                    if terms in mine:
                        mine[terms].add(table)
                    else:
                        mine[terms] = table.copy()

    def way(self) -> Way:
        return self.copied_log(), self.surely_written(), self.barriers

    def join_ways(self, ways: Iterable[Way]) -> None:
        """What is so on this way and on others that come together here."""
        for log, sure, barriers in ways:
            self.join(log)
            self.keep_sure(sure)
            self.barriers = min(self.barriers, barriers)

    def surely_written(self) -> Sure:
        return {buffer: {*w.surely, *w.guarded} for buffer, w in self.written.items()}

    def keep_sure(self, *before: Sure) -> None:
        """Only what was written on every way counts as surely written."""
        for buffer, w in self.written.items():
            for state in before:
                known = state.get(buffer, set())
                w.surely.intersection_update(known)
                w.guarded.intersection_update(known)

    def guarded(self) -> dict[Value, set[Guarded]]:
        return {buffer: set(w.guarded) for buffer, w in self.written.items() if w.guarded}

    def add_guarded(self, found: dict[Value, set[Guarded]]) -> None:
        """What other ways have written, under conditions that do not hold on this one."""
        for buffer, guarded in found.items():
            self.written[buffer].guarded |= guarded

    # --- accesses ---------------------------------------------------------------------------

    def touch(self, buffer: Value, extent: int, record: Record) -> None:
        """Log one access to a buffer, or to an array by its pointer, compare it with those before
        it, note what it writes."""
        lanes, cells, terms = self._cells(extent, record)
        if record.place is not None and not lanes:
            return
        if record.kind == "atomic":
            self.atomics[record.operation] = self.atomics.get(record.operation, 0) | record.mask.may
        if isinstance(buffer.type, BufferType):  # what is in an array was there before
            self._written_and_read(buffer, extent, record, lanes, cells, terms)
            if buffer.type.space == "local":
                return  # each lane has its own cells: nobody meets there
        tables = self.log.setdefault(buffer, {})
        self._compare_with_others(tables, terms, record)
        table = tables.setdefault(terms, _Table())
        key = (record.operation, record.place, record.mask, record.kind)
        if key in table.seen:
            return
        table.seen.add(key)
        table.records.append(record)
        if terms is None:
            return
        if record.kind == "read" and not (table.cells["write"] or table.cells["atomic"]):
            table.waiting.append(record)
            return
        for read in table.waiting:
            more, places, _ = self._cells(extent, read)
            for lane, cell in zip(more, places, strict=True):
                _mark(table.cells["read"], cell, lane, read)
        table.waiting.clear()
        self._evaluate(table, extent, record, lanes, cells)

    def _written_and_read(
        self, buffer: Value, extent: int, record: Record,
        lanes: tuple[int, ...], cells: list[int], terms: Terms | None,
    ) -> None:  # fmt: skip
        written = self.written.setdefault(buffer, Written())
        if effect_of(record.operation) != "write" and record.operation not in self.only_writing:
            self._check_written(written, buffer, extent, record, lanes, cells, terms)
        if record.kind != "read":
            self._note_written(buffer, record, lanes, cells, terms)

    def _cells(
        self, extent: int, record: Record
    ) -> tuple[tuple[int, ...], list[int], Terms | None]:
        """Lanes that may do the access, the cell of each beside its symbols, the symbols.
        Where all is known, what is outside is left out: it is skipped."""
        if record.place is None:
            return (), [], None
        terms, values = self.space.split(record.place)
        lanes = self.space.members(record.mask.may)
        if not terms and (min(values) < 0 or max(values) >= extent):
            lanes = tuple(i for i in lanes if 0 <= values[i] < extent)
        return lanes, [values[i] for i in lanes], terms

    def _evaluate(
        self, table: _Table, extent: int, record: Record, lanes: Iterable[int],
        cells: Iterable[int],
    ) -> None:  # fmt: skip
        mine = table.cells[record.kind]
        others = [table.cells[k] for k in _CONFLICTING[record.kind] if table.cells[k]]
        if record.kind == "write" and mine not in others:
            others.append(mine)
        cleared = False
        for lane, cell in zip(lanes, cells, strict=True):
            for other in others:
                for earlier, by in other.get(cell, ()):
                    if earlier != lane:
                        cleared |= not self._suspect(by, record, (earlier, lane))
            _mark(mine, cell, lane, record)
        if cleared:
            self._compare_each(table, extent, record)

    def _compare_each(self, table: _Table, extent: int, record: Record) -> None:
        """With every other access, as a cell names two lanes only, and those may not meet."""
        lanes, cells, _ = self._cells(extent, record)
        mine: dict[int, _Marks] = {}
        for lane, cell in zip(lanes, cells, strict=True):
            _mark(mine, cell, lane, record)
        for other in table.records:
            if other is record or other.kind not in _CONFLICTING[record.kind]:
                continue
            more, places, _ = self._cells(extent, other)
            pairs = (
                (lane, one) for lane, cell in zip(more, places, strict=True)
                for one, _ in mine.get(cell, ()) if one != lane
            )  # fmt: skip
            for pair in pairs:
                self._suspect(other, record, pair)
                break

    def _compare_with_others(
        self, tables: dict[Terms | None, _Table], terms: Terms | None, record: Record
    ) -> None:
        """With accesses whose places have other symbols; one that it may meet is enough."""
        for theirs, table in tables.items():
            if theirs == terms and terms is not None:
                continue
            for other in table.records:
                if other.kind not in _CONFLICTING[record.kind]:
                    continue
                if self._doubt(other, record) not in self._doubted:
                    self._suspect(other, record, None)
        if terms is None and record.kind == "write":
            self._suspect(record, record, None)

    def _suspect(self, first: Record, second: Record, lanes: tuple[int, int] | None) -> bool:
        """Note that two accesses may meet; False where it is shown that they do not."""
        if (first.operation, second.operation) in self._reported:
            return True
        apart = self._apart.get((first, second))
        if apart is None:
            apart = _by_tells(self.space, first, second)
            apart = apart or (first is not second and self._is_apart(first, second))
            apart = apart or (self.ordered is not None and self.ordered(first, second))
            self._apart[first, second] = apart
        if apart:
            return False
        if first.kind == second.kind == "write" and first.value is not None:
            if first.value == second.value:
                self.same_value.setdefault(second.operation, second)
                return self.ordered is None
        self._reported.add((first.operation, second.operation))
        if lanes is None:
            self._doubted.add(self._doubt(first, second))
        self.suspicions.append(Suspicion(first, second, lanes))
        return True

    def _doubt(self, first: Record, second: Record) -> tuple[Operation, bool]:
        """What of a pair is said once: the later access, and whether lanes can show it."""
        return second.operation, self.can_show(first.operation, second.operation)

    def can_show(self, *operations: Operation) -> bool:
        """Whether lanes that are followed may be seen to do all of these."""
        return self.untraced.isdisjoint(operations)

    def _is_apart(self, first: Record, second: Record) -> bool:
        self.proofs += 1
        return self.proofs <= _MOST_PROOFS and _apart(self.space, first, second)

    # --- what is written --------------------------------------------------------------------

    def _check_written(
        self, written: Written, buffer: Value, extent: int, record: Record,
        lanes: tuple[int, ...], cells: list[int], terms: Terms | None,
    ) -> None:  # fmt: skip
        sure = len(written.surely) >= extent
        if sure or (terms == () and written.surely.issuperset(cells)):
            put = written.put if terms != () else written.put.intersection(cells)
            if not put or not self._put_by_others(buffer, lanes, cells, terms):
                return
        elif self._is_guarded(written, record, lanes, cells, terms):
            return
        if not written.put and self._is_counted(buffer, record):
            return
        self.uncertain_reads.setdefault(record.operation, buffer)
        if terms != () or written.anywhere:
            return
        for lane, cell in zip(lanes, cells, strict=True):
            if cell not in written.possibly:
                self.unwritten.append(Unwritten(record, lane, cell))
                return

    def _is_guarded(
        self, written: Written, record: Record, lanes: tuple[int, ...], cells: list[int],
        terms: Terms | None,
    ) -> bool:  # fmt: skip
        """Whether the lanes that read are those for which the conditions of the writes hold."""
        if terms != () or not written.guarded or written.put.intersection(cells):
            return False
        pairs = zip(lanes, cells, strict=True)
        asked = [(lane, cell) for lane, cell in pairs if cell not in written.surely]
        return are_written(self.space, written.guarded, record.facts, asked)

    def _is_counted(self, buffer: Value, record: Record) -> bool:
        return any(_is_below(self.space, record, n) for n in self.counted.get(buffer, ()))

    def _put_by_others(
        self, buffer: Value, lanes: tuple[int, ...], cells: list[int], terms: Terms | None
    ) -> bool:
        """Whether since the last barrier another lane may have put a value where a lane reads.
        Of plain stores that is a race; an atomic may come before or after the read."""
        for theirs, table in self.log.get(buffer, {}).items():
            puts = {r for r in table.records if r.kind == "atomic" and puts_value(r.operation)}
            if not puts:
                continue
            if theirs != () or terms != ():
                return True
            marks = table.cells["atomic"]
            for lane, cell in zip(lanes, cells, strict=True):
                if any(other != lane and by in puts for other, by in marks.get(cell, ())):
                    return True
        return False

    def _note_written(
        self, buffer: Value, record: Record, lanes: tuple[int, ...], cells: list[int],
        terms: Terms | None,
    ) -> None:  # fmt: skip
        written = self.written[buffer]
        if record.kind == "atomic" and puts_value(record.operation):
            self.puts.add(buffer)
            if terms == ():
                written.put.update(c for c in cells if c not in written.surely)
        if terms != ():
            written.anywhere = True
            return
        written.possibly.update(cells)
        if record.mask.exact and self.collected is None:
            written.surely.update(cells)
            self._wrote_guarded(written, record, zip(lanes, cells, strict=True))
            return
        must = record.mask.must
        pairs = [(i, cell) for i, cell in zip(lanes, cells, strict=True) if must >> i & 1]
        self._wrote_guarded(written, record, pairs)
        self.wrote({(buffer, lane, cell) for lane, cell in pairs})

    def _wrote_guarded(
        self, written: Written, record: Record, pairs: Iterable[tuple[int, int]]
    ) -> None:
        if record.guard and record.kind == "write":
            written.guarded.add(Guarded(record.guard, tuple(pairs)))

    def may_write(self, buffer: Value, cell: int) -> bool:
        """Whether any lane may have written a cell, on any way up to here."""
        written = self.written.get(buffer)
        return written is not None and (written.anywhere or cell in written.possibly)

    def wrote(self, writes: set[Write]) -> None:
        """Lanes surely write this, if they are here."""
        if self.collected is not None:
            self.collected |= writes
            return
        for buffer, _, cell in writes:
            self.written[buffer].surely.add(cell)


BUFFER_AT = {
    "tile.load": 0, "tile.store": 1, "tile.atomic": 1, "tile.atomic_cas": 2,
    "tile.atomic_load": 0, "tile.atomic_store": 1,
}  # fmt: skip
KINDS: dict[str, Kind] = {
    "tile.load": "read", "tile.store": "write", "tile.atomic": "atomic",
    "tile.atomic_cas": "atomic", "tile.atomic_load": "atomic", "tile.atomic_store": "atomic",
}  # fmt: skip


def puts_value(operation: Operation) -> bool:
    """Whether an atomic writes without need of what was there."""
    exchange = operation.name == "tile.atomic" and operation.attributes["kind"] == "exchange"
    return exchange or operation.name == "tile.atomic_store"


def reads_first(operation: Operation) -> bool:
    """Whether an access needs what was in the cell: an update does. Of an exchange nothing may
    be used but that it writes."""
    return operation.name != "tile.store" and not puts_value(operation)


def only_writing(kernel: Operation) -> frozenset[Operation]:
    """Exchanges whose result nothing uses."""
    used = {v for o in kernel.walk() for v in o.operands}
    return frozenset(
        o for o in kernel.nested("tile.atomic") if puts_value(o) and o.result not in used
    )


_CONFLICTING: dict[Kind, tuple[Kind, ...]] = {
    "read": ("write", "atomic"), "write": ("read", "write", "atomic"), "atomic": ("read", "write"),
}  # fmt: skip


def _apart(space: Space, first: Record, second: Record) -> bool:
    """Whether no lane of one and no lane of the other get to one cell, by what is known of
    the symbols. The same symbol is the same number in both."""
    if first.place is None or second.place is None:
        return False
    return _other_residue(space, first, second) or _by_facts(space, first, second)


def _by_tells(space: Space, first: Record, second: Record) -> bool:
    """Whether an axis shows that two lanes never get to one cell."""
    for axis, key, mine in first.tells:
        for also, other, theirs in second.tells:
            if axis != also:
                continue
            if mine is None or theirs is None:
                if key == other:
                    return True
                continue
            modulus = next((k for k in (key, other) if isinstance(k, int)), None)
            if modulus is None:
                same = key == other
            else:
                same = _is_multiple(key, modulus) and _is_multiple(other, modulus)
            if same and _other_numbers(space, first, mine, second, theirs, modulus):
                return True
    return False


def _is_multiple(key: object, modulus: int) -> bool:
    """Whether the unknowns of an index, or what its remainder leaves out, are multiples."""
    if isinstance(key, int):
        return key % modulus == 0
    return all(factor % modulus == 0 for _, factor in cast("Terms", key))


def _other_numbers(
    space: Space, first: Record, mine: tuple[int, ...], second: Record, theirs: tuple[int, ...],
    modulus: int | None,
) -> bool:  # fmt: skip
    """Whether no two lanes have one number."""
    at: dict[int, int] = {}
    for lane in space.members(first.mask.may):
        number = mine[lane] if modulus is None else mine[lane] % modulus
        if at.setdefault(number, lane) != lane:
            at[number] = -1
    return all(
        at.get(theirs[i] if modulus is None else theirs[i] % modulus, i) == i
        for i in space.members(second.mask.may)
    )


def _other_residue(space: Space, first: Record, second: Record) -> bool:
    """All symbols of the difference have a multiple of one number, the rest never has."""
    assert first.place is not None and second.place is not None
    (s, x), (t, y) = space.split(first.place), space.split(second.place)
    difference = Linear(s) - Linear(t)
    step = gcd(*(factor for _, factor in difference.terms)) if difference.terms else 0
    if step <= 1:
        return False
    mine = {x[i] % step for i in space.members(first.mask.may)}
    return mine.isdisjoint(y[i] % step for i in space.members(second.mask.may))


def _by_facts(space: Space, first: Record, second: Record) -> bool:
    """With an atom of its own for each lane vector of the second access."""
    assert first.place is not None and second.place is not None
    intervals = list(space.intervals)
    others: dict[int, int] = {}

    def renamed(form: Linear) -> Linear:
        terms: list[tuple[int, int]] = []
        for atom, factor in form.terms:
            if atom in space.vectors:
                if atom not in others:
                    others[atom] = len(intervals)
                    intervals.append(space.intervals[atom])
                atom = others[atom]
            terms.append((atom, factor))
        return Linear(tuple(sorted(terms)), form.constant)

    difference = first.place - renamed(second.place)
    facts = [*first.facts, *(renamed(f) for f in second.facts)]
    _narrow(space, intervals, {atom: atom for atom in space.vectors}, first.mask)
    _narrow(space, intervals, others, second.mask)
    known = Knowledge(intervals, facts)
    return known.proves(difference.shifted(-1)) or known.proves(difference.scaled(-1).shifted(-1))


def _is_below(space: Space, record: Record, count: Linear) -> bool:
    """Whether the place of an access is from 0 to below a number in every lane that does it."""
    if record.place is None:
        return False
    intervals = list(space.intervals)
    _narrow(space, intervals, {atom: atom for atom in space.vectors}, record.mask)
    known = Knowledge(intervals, list(record.facts))
    return known.proves((count - record.place).shifted(-1)) and known.proves(record.place)


def _narrow(space: Space, intervals: list[Interval], names: dict[int, int], mask: Mask) -> None:
    """Bounds of lane vectors over the lanes that may be there."""
    members = space.members(mask.may)
    if mask.may == space.everyone or not members:
        return
    for atom, place in names.items():
        vector = space.vectors[atom]
        values = [vector[i] for i in members]
        intervals[place] = (min(values), max(values))
