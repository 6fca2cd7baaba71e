"""Races in spite of atomics and fences: two accesses of a launch that none of them orders.

Owns T0415, and the words of what is missing: a release, an acquire, a wider scope, a barrier in
front of the atomic. Launches are run; whoever asks says which arrays and buffers are open. Must
not know how they came to be open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Launch
from tessera_lang.analysis.lanes.hand_overs import decides
from tessera_lang.analysis.lanes.launch_samples import sample_launches
from tessera_lang.analysis.races.run_records import Done, Late, Meeting, Synced
from tessera_lang.analysis.races.simulated_launch import MOST_LANES, Order, Run
from tessera_lang.analysis.races.stored_values import Values
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.diagnostics import Diagnostic, Label, Severity
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass
from tessera_lang.target.launch_plan import LaunchPlan

_MOST_LAUNCHES = 2
_ORDERS: tuple[Order, ...] = ("in turn", "reverse", "mixed")
_RUN_STEPS = 16_000  # operations of one run, and of all that are done for a kernel
_STEPS = 40_000
_DOES = {"read": "reads", "write": "writes", "atomic": "updates"}


@dataclass(frozen=True, slots=True)
class Shown:
    """``begins``: elements of arrays that must begin with 0 for this, as text."""

    launch: Launch
    meeting: Meeting
    begins: tuple[str, ...]


@dataclass(slots=True)
class Runs:
    """The launches of a kernel that are run, the smallest first, up to one that comes to its end.
    None where no atomic decides what lanes do. They are run when first asked for."""

    kernel: Operation
    plan: LaunchPlan
    uniform: Uniformity
    _done: list[Run] | None = None

    @property
    def done(self) -> list[Run]:
        if self._done is None:
            self._done = list(self._run()) if decides(self.kernel) else []
        return self._done

    def _run(self) -> Iterator[Run]:
        group = prod(self.kernel.integers("group"))
        launches = [
            x for x in sample_launches(self.kernel, self.plan)
            if 0 < group * prod(x.groups) <= MOST_LANES
        ]  # fmt: skip
        launches.sort(key=lambda x: (prod(x.groups) < 2, prod(x.groups)))
        values = Values(self.uniform.definitions, self.kernel.regions[0].arguments)
        left = _STEPS
        for launch in launches[:_MOST_LAUNCHES]:
            whole = True
            for order in _ORDERS:
                given = min(left, _RUN_STEPS)
                run = Run(self.kernel, launch, values, left=given)
                run.go(order)
                left -= given - max(run.left, 0)
                whole &= run.whole
                yield run
            run = Run(self.kernel, launch, values, left=_RUN_STEPS)
            if run.may_wait():
                run.go("eager")
                yield run
            if whole:
                return

    def shown(self, wanted: Callable[[Meeting], bool]) -> list[Shown]:
        """One meeting for each array or buffer, of the first run that has one."""
        for run in self.done:
            found: dict[Value, Meeting] = {}
            for meeting in filter(wanted, run.met):
                found.setdefault(meeting.second.root, meeting)
            if found:
                begins = begins_with(run)
                return [Shown(run.launch, m, begins) for m in found.values()]
        return []

    def waits(self) -> list[Diagnostic]:
        """A lane that waits for lanes which a target may run after it."""
        for run in self.done:
            if run.late is not None:
                return [_waits(run, run.late)]
        return []


def begins_with(run: Run) -> tuple[str, ...]:
    """The elements that begin with 0, as text."""
    return tuple(sorted(f"`{element_of_root(r, (n,))}`" for r, _, n in run.assumed))


def _known(launch: Launch, wide: bool, begins: Sequence[str]) -> list[str]:
    known = [launch.text] if launch.text else []
    if wide:
        known.insert(0, f"{prod(launch.groups)} groups")
    if begins:
        known.append(f"{_listed(begins)} 0 before")
    return known


def _waits(run: Run, late: Late) -> Diagnostic:
    group, lane = late.who
    several = prod(run.launch.groups) > 1
    who = f"lane {lane}" + (f" of group {group}" if several else "")
    known = _known(run.launch, several, begins_with(run))
    notes = [
        "a target may run a lane up to the next barrier before the next lane begins, and a group"
        " before the next group"
    ]
    if known:
        notes.append(f"this happens, for example, in a launch with {' and '.join(known)}")
    return Diagnostic(
        "T0415",
        f"{who} waits here for what only later lanes do, and may wait for ever",
        late.loop.span, "this loop does not end before a later lane has run", "warning",
        notes=tuple(notes),
        helps=(
            "let lanes wait at a `tbarrier()`, and groups for groups with lower numbers only",
        ),
    )  # fmt: skip


def report(shown: Shown, code: str, severity: Severity) -> Diagnostic:
    """What meets, and what would have ordered it."""
    a, b = shown.meeting.first, shown.meeting.second
    if b.changes and not a.changes:
        a, b = b, a
    place = f"`{element_of_root(b.root, b.place)}`"
    wide = a.who[0] != b.who[0]
    what = "and one of them writes"
    if a.kind == b.kind == "write":
        what = "and both write"
    missing = _missing(shown.meeting)
    labels: list[Label] = []
    if a.operation.span is not None and a.operation.span != b.operation.span:
        does = _DOES[a.kind]
        labels.append(Label(a.operation.span, f"{_lane(a, wide)} {does} {place} here"))
    if missing.at is not None and missing.at.span is not None:
        labels.append(Label(missing.at.span, missing.label))
    known = _known(shown.launch, wide, shown.begins)
    notes = [f"this happens, for example, in a launch with {' and '.join(known)}"] if known else []
    return Diagnostic(
        code,
        f"{_lane(a, wide)} and {_lane(b, wide)} touch {place}, {what}: {missing.why}",
        b.operation.span, f"{_lane(b, wide)} {_DOES[b.kind]} {place} here", severity,
        labels=tuple(labels), notes=tuple(notes), helps=(missing.help,),
    )  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{', '.join(names[:2])} and {len(names) - 2} more elements"
    return " and ".join(names)


def _lane(done: Done, wide: bool) -> str:
    return f"lane {done.who[1]}" + (f" of group {done.who[0]}" if wide else "")


def element_of_root(root: Value, place: tuple[int, ...]) -> str:
    """An element of an array or a buffer, as in the source."""
    return f"{root.name or 'array'}[{', '.join(map(str, place))}]"


# --- what is missing ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Missing:
    why: str
    help: str
    at: Operation | None = None
    label: str = ""


def _missing(meeting: Meeting) -> _Missing:
    """Why atomics and fences do not order two accesses: the first thing that fails on the way."""
    first, second = meeting.first, meeting.second
    wide = first.who[0] != second.who[0]
    if meeting.by_scope:
        at = first.operation if first.narrow else second.operation
        return _Missing(
            "these atomics are of one group only", 'write `scope="device"`', at,
            "this is seen as one by the lanes of the group only",
        )  # fmt: skip
    if not wide and not meeting.given and not meeting.taken:
        hint = "put a `tbarrier()` between the two, where every lane of the group gets to it"
        if meeting.both_write and first.operation is second.operation:
            hint = "let one lane write, or give each lane an element of its own"
        return _Missing("no barrier is between the two", hint)
    if not first.changes:
        return _Missing(
            f"lane {first.who[1]} does not wait until lane {second.who[1]} has written it",
            "let it wait, with an acquire, for an atomic that the other does behind its access with"
            " a release, or put a `tbarrier()` between the two",
        )
    releasing = _giving(meeting, wide)
    if isinstance(releasing, _Missing):
        return releasing
    acquiring = _taking(meeting)
    if isinstance(acquiring, _Missing):
        return acquiring
    narrow = next((s for s in (*releasing, *acquiring) if wide and s.narrow), None)
    if narrow is not None:
        return _Missing(
            f"`{narrow.name}` orders the lanes of one group only", 'write `scope="device"`',
            narrow.operation, "this is of one group only",
        )  # fmt: skip
    return _Missing(
        "what they hand over and take over does not order these two",
        "let the one wait, with an acquire, for the very value that the other stores with a"
        " release behind its access",
    )


def _giving(meeting: Meeting, wide: bool) -> _Missing | list[Synced]:
    """What hands the first access over, or what is missing for that."""
    first = meeting.first
    behind = [s for s in meeting.given if s.interval > first.interval or s.who == first.who]
    writing = [s for s in behind if s.writes]
    if not writing:
        hint = "put a `tbarrier()` between the two, where every lane of the group gets to it"
        if any(s.writes for s in meeting.given):
            hint = (
                "put a `tbarrier()` between this access and the atomic of the lane that hands over,"
                f" or let lane {first.who[1]} hand over itself"
            )
        elif wide:
            hint = "let the lane that writes hand over: an atomic with a release behind the access"
        return _Missing(f"lane {first.who[1]} hands nothing over behind it", hint)
    releasing = [s for s in writing if _releases(s, behind)]
    if releasing:
        return releasing
    order = "acq_rel" if writing[-1].reads else "release"
    return _Missing(
        f"`{writing[-1].name}` is relaxed and hands nothing over", f'write `order="{order}"`',
        writing[-1].operation, "this releases nothing",
    )  # fmt: skip


def _taking(meeting: Meeting) -> _Missing | list[Synced]:
    """What takes over before the second access, or what is missing for that."""
    second = meeting.second
    before = [s for s in meeting.taken if s.interval < second.interval or s.who == second.who]
    reading = [s for s in before if s.reads]
    if not reading:
        return _Missing(
            f"lane {second.who[1]} waits for nothing before",
            'let it wait for the atomic of the other lane with `order="acquire"`, or put a'
            " `tbarrier()` between the two where every lane of the group gets to it",
        )
    acquiring = [s for s in reading if _acquires(s, before)]
    if acquiring:
        return acquiring
    order = "acq_rel" if reading[-1].writes else "acquire"
    return _Missing(
        f"`{reading[-1].name}` is relaxed and takes nothing over", f'write `order="{order}"`',
        reading[-1].operation, "this acquires nothing",
    )  # fmt: skip


def _releases(sync: Synced, syncs: Iterable[Synced]) -> bool:
    return sync.order in ("release", "acq_rel") or any(
        s.fence and s.time <= sync.time for s in syncs if s.who == sync.who
    )


def _acquires(sync: Synced, syncs: Iterable[Synced]) -> bool:
    return sync.order in ("acquire", "acq_rel") or any(
        s.fence and s.time >= sync.time for s in syncs if s.who == sync.who
    )
