"""Functions that checked code calls where its fast test does not decide. LLVM text.

``begin`` and ``barrier`` move the time; ``meet`` looks at two touches, ``ordered`` whether an
earlier group's touch comes before what this group does, ``lanes_ordered`` the same of two lanes
of a group: the one has released since, and the other acquired after that; ``record`` keeps the
first fault, but rather the lane that writes an element than that another read it before. Must not
know Tile IR.
"""

from __future__ import annotations

from tessera_backend.cpu.checked import shadow_words as w
from tessera_backend.llvm.text import ModuleText


def _word(name: str, index: int) -> str:
    return f"  %{name}.at = getelementptr inbounds i64, ptr %ctx, i64 {index}"


def _load(name: str, index: int) -> str:
    return f"{_word(name, index)}\n  %{name} = load i64, ptr %{name}.at"


def _store(name: str, index: int, value: str) -> str:
    return f"{_word(name, index)}\n  store i64 {value}, ptr %{name}.at"


_ROW = f"""
{_load("rows", w.ROWS)}
{_load("count", w.ROW_COUNT)}
  %turn = lshr i64 %now.next, {w.TIME_SHIFT}
  %which = urem i64 %turn, %count
  %skip = mul i64 %which, %bytes
  %row = add i64 %rows, %skip
{_store("row.word", w.ROW, "%row")}"""

_BEGIN = f"""
define internal i64 @checked.begin(ptr %ctx, i64 %position, i64 %bytes) noinline #0 {{
{_load("now", w.NOW)}
  %now.next = add i64 %now, {w.TICK}
  store i64 %now.next, ptr %now.at
{_store("barrier", w.BARRIER, "%now.next")}
{_store("start", w.BEGIN, "%now.next")}
{_store("acquired", w.ACQUIRED, "0")}
{_store("position.word", w.POSITION, "%position")}
{_load("starts", w.STARTS)}
{_load("released", w.RELEASED)}
  %starts.ptr = inttoptr i64 %starts to ptr
  %released.ptr = inttoptr i64 %released to ptr
  %starts.mine = getelementptr inbounds i64, ptr %starts.ptr, i64 %position
  %released.mine = getelementptr inbounds i64, ptr %released.ptr, i64 %position
  store i64 %now.next, ptr %starts.mine
  store i64 0, ptr %released.mine
{_ROW}
{_load("groups", w.GROUPS)}
  %groups.ptr = inttoptr i64 %groups to ptr
  %groups.mine = getelementptr inbounds i64, ptr %groups.ptr, i64 %position
  %group = load i64, ptr %groups.mine
  ret i64 %group
}}"""

_BARRIER = f"""
define internal void @checked.barrier(ptr %ctx, i64 %bytes) noinline #0 {{
{_load("now", w.NOW)}
  %now.next = add i64 %now, {w.TICK}
  store i64 %now.next, ptr %now.at
{_store("barrier", w.BARRIER, "%now.next")}
{_ROW}
  ret void
}}"""

_RELEASE = f"""
define internal void @checked.release(ptr %ctx) noinline #0 {{
{_load("now", w.NOW)}
{_load("position", w.POSITION)}
{_load("released", w.RELEASED)}
  %released.ptr = inttoptr i64 %released to ptr
  %mine = getelementptr inbounds i64, ptr %released.ptr, i64 %position
  store i64 %now, ptr %mine
  %now.next = add i64 %now, {w.TICK}
  store i64 %now.next, ptr %now.at
  ret void
}}"""

_LANE_RELEASE = f"""
define internal void @checked.lane_release(ptr %ctx, i64 %lane) noinline #0 {{
{_load("now", w.NOW)}
{_load("released", w.LANES_RELEASED)}
  %released.ptr = inttoptr i64 %released to ptr
  %mine = getelementptr inbounds i64, ptr %released.ptr, i64 %lane
  store i64 %now, ptr %mine
  %any = getelementptr inbounds i64, ptr %released.ptr, i64 -1
  store i64 %now, ptr %any
  %now.next = add i64 %now, {w.TICK}
  store i64 %now.next, ptr %now.at
  ret void
}}"""

_LANE_ACQUIRE = f"""
define internal void @checked.lane_acquire(ptr %ctx, i64 %lane) noinline #0 {{
{_load("now", w.NOW)}
{_load("acquired", w.LANES_ACQUIRED)}
  %acquired.ptr = inttoptr i64 %acquired to ptr
  %mine = getelementptr inbounds i64, ptr %acquired.ptr, i64 %lane
  store i64 %now, ptr %mine
  ret void
}}"""

_LANES_ORDERED = f"""
define internal i1 @checked.lanes_ordered(ptr %ctx, i64 %old, i64 %mine) noinline #0 {{
{_load("lanes.released", w.LANES_RELEASED)}
{_load("lanes.acquired", w.LANES_ACQUIRED)}
  %they = and i64 %old, {w.LANE_MASK}
  %several = icmp eq i64 %they, {w.MANY}
  %base.ptr = inttoptr i64 %lanes.released to ptr
  %any.at = getelementptr inbounds i64, ptr %base.ptr, i64 -1
  %one.at = getelementptr inbounds i64, ptr %base.ptr, i64 %they
  %release.at = select i1 %several, ptr %any.at, ptr %one.at
  %release = load i64, ptr %release.at
  %me = and i64 %mine, {w.LANE_MASK}
  %many = icmp eq i64 %me, {w.MANY}
  %who = select i1 %many, i64 0, i64 %me
  %acquired.ptr = inttoptr i64 %lanes.acquired to ptr
  %acquire.at = getelementptr inbounds i64, ptr %acquired.ptr, i64 %who
  %acquire = load i64, ptr %acquire.at
  %old.time = lshr i64 %old, {w.TIME_SHIFT}
  %release.time = lshr i64 %release, {w.TIME_SHIFT}
  %acquire.time = lshr i64 %acquire, {w.TIME_SHIFT}
  %before = icmp ule i64 %old.time, %release.time
  %after = icmp ult i64 %release.time, %acquire.time
  %both = and i1 %before, %after
  ret i1 %both
}}"""

_ORDERED = f"""
define internal i1 @checked.ordered(ptr %ctx, i64 %old) noinline #0 {{
entry:
{_load("acquired", w.ACQUIRED)}
{_load("position", w.POSITION)}
{_load("starts", w.STARTS)}
{_load("released", w.RELEASED)}
  %starts.ptr = inttoptr i64 %starts to ptr
  %released.ptr = inttoptr i64 %released to ptr
  %some = icmp ne i64 %acquired, 0
  br i1 %some, label %search, label %no
search:
  %low = phi i64 [ 0, %entry ], [ %low.next, %step ]
  %high = phi i64 [ %position, %entry ], [ %high.next, %step ]
  %gap = sub i64 %high, %low
  %more = icmp ugt i64 %gap, 1
  br i1 %more, label %step, label %found
step:
  %half = lshr i64 %gap, 1
  %middle = add i64 %low, %half
  %middle.at = getelementptr inbounds i64, ptr %starts.ptr, i64 %middle
  %start = load i64, ptr %middle.at
  %behind = icmp ule i64 %start, %old
  %low.next = select i1 %behind, i64 %middle, i64 %low
  %high.next = select i1 %behind, i64 %high, i64 %middle
  br label %search
found:
  %theirs.at = getelementptr inbounds i64, ptr %released.ptr, i64 %low
  %theirs = load i64, ptr %theirs.at
  %theirs.time = lshr i64 %theirs, {w.TIME_SHIFT}
  %time = lshr i64 %old, {w.TIME_SHIFT}
  %before = icmp ule i64 %time, %theirs.time
  ret i1 %before
no:
  ret i1 false
}}"""

_RECORD = f"""
define internal void @checked.record(ptr %ctx, i64 %what, i64 %mine, i64 %old, i64 %cell)
    noinline #0 {{
{_load("stop", w.STOP)}
{_load("what.word", w.RECORD)}
{_load("cell.word", w.RECORD + 3)}
{_load("turns", w.TURNS)}
{_load("waits", w.WAITS)}
  %free = icmp eq i64 %stop, 0
  %open = icmp eq i64 %stop, {w.MAY_BE_A_RACE}
  %root.old = lshr i64 %what.word, {w.ROOT_SHIFT}
  %root.new = lshr i64 %what, {w.ROOT_SHIFT}
  %root.same = icmp eq i64 %root.old, %root.new
  %cell.same = icmp eq i64 %cell.word, %cell
  %element = and i1 %root.same, %cell.same
  %raced = icmp ne i64 %old, 0
  %pair = and i1 %element, %raced
  %better = and i1 %open, %pair
  %takes = or i1 %free, %better
  br i1 %takes, label %write, label %done
write:
  %case = and i64 %what, {(1 << w.ROOT_SHIFT) - 1}
  %unwritten = icmp eq i64 %case, {w.UNWRITTEN}
  %state = select i1 %unwritten, i64 {w.MAY_BE_A_RACE}, i64 1
  %turns.left = select i1 %unwritten, i64 %turns, i64 0
  %waits.left = select i1 %unwritten, i64 %waits, i64 0
  store i64 %state, ptr %stop.at
  store i64 %turns.left, ptr %turns.at
  store i64 %waits.left, ptr %waits.at
{_load("position", w.POSITION)}
  store i64 %what, ptr %what.word.at
{_store("mine.word", w.RECORD + 1, "%mine")}
{_store("old.word", w.RECORD + 2, "%old")}
  store i64 %cell, ptr %cell.word.at
{_store("position.word", w.RECORD + 4, "%position")}
  br label %done
done:
  ret void
}}"""

_MEET = f"""
define internal void @checked.meet(ptr %ctx, i64 %old, i64 %mine, i64 %cell, i64 %what)
    noinline #0 {{
{_load("begin", w.BEGIN)}
{_load("barrier", w.BARRIER)}
{_load("launch", w.LAUNCH)}
  %own = icmp uge i64 %old, %begin
  br i1 %own, label %inside, label %outside
inside:
  %late = icmp uge i64 %old, %barrier
  %differ = xor i64 %old, %mine
  %lanes = and i64 %differ, {w.LANE_MASK}
  %other = icmp ne i64 %lanes, 0
  %own.wrong = and i1 %late, %other
  br i1 %own.wrong, label %lanes.between, label %done
lanes.between:
  %handed = call i1 @checked.lanes_ordered(ptr %ctx, i64 %old, i64 %mine)
  br i1 %handed, label %done, label %fault
outside:
  %now = icmp uge i64 %old, %launch
  br i1 %now, label %foreign, label %done
foreign:
  %before = call i1 @checked.ordered(ptr %ctx, i64 %old)
  br i1 %before, label %done, label %fault
fault:
  call void @checked.record(ptr %ctx, i64 %what, i64 %mine, i64 %old, i64 %cell)
  br label %done
done:
  ret void
}}"""

_TEXTS = {
    "begin": _BEGIN, "barrier": _BARRIER, "release": _RELEASE,
    "lane_release": _LANE_RELEASE, "lane_acquire": _LANE_ACQUIRE,
    "lanes_ordered": _LANES_ORDERED, "ordered": _ORDERED,
    "record": _RECORD, "meet": _MEET,
}  # fmt: skip


def add_slow_paths(module: ModuleText) -> None:
    for name, text in _TEXTS.items():
        module.add_helper(f"@checked.{name}", text.strip())
