"""Races on shared memory and reads of what nobody wrote: proved, shown, or neither.

The kinds of B75, B77, B80, B83, B91 and B93 are among them.
"""

from __future__ import annotations

import pytest

from tessera_lang.analysis import SharedMemoryCheck, check_shared
from tessera_lang.diagnostics import Diagnostic
from tests.unit.lowering import lower_source

HEAD = """
@kernel tile[({lanes},)] shared(16_KiB)
def k(x: f32[n], h: index, out: mut f32[grid_groups]):
    buf = tshared.alloc((128,), f32)
    t = tile_linear_id()
"""


def checked(body: str, lanes: int = 128) -> SharedMemoryCheck:
    text = HEAD.format(lanes=lanes) + "".join(f"    {line}\n" for line in body.splitlines())
    program, plan, _ = lower_source(text)
    return check_shared(program.operations[0], plan)


def verdicts(body: str, lanes: int = 128) -> tuple[str, str]:
    found = checked(body, lanes)
    return found.races, found.unwritten


def only_error(body: str, code: str) -> Diagnostic:
    (error,) = checked(body).errors
    assert error.code == code
    return error


REDUCTION = """
buf[t] = x[t]
tbarrier()
s = {start}
while s > 0:
    if t < s: buf[t] += buf[t + s]
    tbarrier()
    {step}
out[0] = buf[0]
"""


@pytest.mark.parametrize("step", ["s //= 2", "s >>= 1"])
@pytest.mark.parametrize("start", ["64", "group_tile_count() // 2", "h"])
def test_reductions_are_proved(start: str, step: str) -> None:
    """The start may be a scalar of the call: the guard parts the two places."""
    assert verdicts(REDUCTION.format(start=start, step=step)) == ("proved", "proved")


@pytest.mark.parametrize("limit", ["64", "n", "h"])
def test_reduction_with_continue(limit: str) -> None:
    """B93 uniform: gpuweb/gpuweb#5363."""
    body = f"""
buf[t] = x[t]
s = 1
while s <= {limit}:
    tbarrier()
    s2 = s
    s *= 2
    if t % (2 * s2) != 0: continue
    buf[t] += buf[t + s2]
tbarrier()
out[0] = buf[0]
"""
    races, unwritten = verdicts(body)
    assert races == "proved"
    assert unwritten != "witness"


def test_reduction_without_the_first_barrier() -> None:
    body = REDUCTION.format(start=64, step="s //= 2").replace("tbarrier()\ns", "s", 1)
    error = only_error(body, "T0410")
    assert "lanes 0 and 64 touch `buf[64]`" in error.message
    assert error.labels


def test_reduction_without_the_barrier_of_the_loop() -> None:
    body = REDUCTION.format(start=64, step="s //= 2").replace("    tbarrier()\n", "")
    notes = [note for error in checked(body).errors for note in error.notes]
    assert any("iterations 0 and 1" in note for note in notes)


TILES = """
acc = 0.0
for m in range(0, {end}, 128):
    if m + t < n: buf[t] = x[m + t]
    else: buf[t] = 0.0
    tbarrier()
    for j in range(128): acc += buf[j]
    {last}
out[0] = acc
"""


def test_missing_barrier_at_the_end_of_a_loop() -> None:
    """B83 race: ORNL/HeCBench#253. With one round there is no fault."""
    error = only_error(TILES.format(end="n", last="acc += 0.0"), "T0410")
    assert any("iterations 0 and 1" in note for note in error.notes)
    assert verdicts(TILES.format(end="n", last="tbarrier()")) == ("proved", "proved")
    assert verdicts(TILES.format(end="128", last="acc += 0.0")) == ("proved", "proved")
    assert verdicts(TILES.format(end="256", last="acc += 0.0"))[0] == "witness"


def test_half_a_group_reads_reversed() -> None:
    """B77 barrier: tile-ai/tilelang#2556."""
    body = "if t < 48: buf[t] = x[t]\ntbarrier()\nif t < 48: out[0] = buf[47 - t]"
    assert verdicts(body) == ("proved", "proved")
    assert verdicts(body.replace("tbarrier()\n", ""))[0] == "witness"


def test_read_of_what_nobody_wrote() -> None:
    """B75 barrier, its uninitialised read: tile-ai/tilelang#1026."""
    body = "if t % 2 == 0:\n    a = buf[t]\n    buf[t ^ 1] = a"
    error = only_error(body, "T0411")
    assert "lane 0 reads `buf[0]`" in error.message


@pytest.mark.parametrize(
    "body",
    ["buf[t] += x[t]", "buf[t] = buf[t] + 1.0", "for k in range(4): buf[t] = buf[t] * x[k]",
     "atomic_add(buf[t % 4], 1.0)", "if t == 0: atomic_max(buf[0], x[0])",
     "a = atomic_cas(buf[0], 0.0, 1.0)"],
)  # fmt: skip
def test_what_a_lane_writes_later_is_not_there_before(body: str) -> None:
    only_error(body + "\ntbarrier()\nout[0] = buf[0]", "T0411")
    assert verdicts("buf[t] = 0.0\ntbarrier()\n" + body)[1] == "proved"


@pytest.mark.parametrize("put", ["atomic_store(buf[t], 1.0)", "atomic_exchange(buf[t], 1.0)"])
def test_an_atomic_that_puts_a_value_is_no_read(put: str) -> None:
    found = checked(put + "\ntbarrier()\nout[0] = buf[127 - t]")
    assert found.unwritten == "proved"


def test_the_result_of_an_exchange_is_read() -> None:
    error = only_error("a = atomic_exchange(buf[t], 1.0)\nout[0] = a", "T0411")
    assert "lane 0 reads `buf[0]`" in error.message


@pytest.mark.parametrize("use", ["atomic_add(buf[t % 4], 1.0)", "a = atomic_load(buf[0])"])
def test_what_an_atomic_puts_is_there_behind_a_barrier(use: str) -> None:
    body = "if t < 4: atomic_store(buf[t], 0.0)\n{}" + use
    assert checked(body.format("tbarrier()\n")).unwritten == "proved"
    assert checked(body.format("")).unwritten == "not proved"


def test_written_by_three_lanes() -> None:
    """B80 uninit: numba/numba#1626."""
    body = """
a = 0.0
if t == 1:
    for i in range(h): a += 1.0
buf[t] = -999.0
tbarrier()
if t == 0:
    for i in range(3): out[0] = buf[i]
"""
    assert verdicts(body, lanes=3) == ("proved", "proved")


def test_tile_is_written_again_while_it_is_read() -> None:
    """B91 race: tile-ai/tilelang#2699."""
    body = """
acc = 0.0
buf[t] = 1.0
tbarrier()
for r in range({rounds}):
    acc += buf[127 - t]
    {between}
    buf[t] = f32(r)
    tbarrier()
out[0] = acc
"""
    assert verdicts(body.format(rounds=4, between="tbarrier()")) == ("proved", "proved")
    assert verdicts(body.format(rounds="h", between="tbarrier()")) == ("proved", "proved")
    assert verdicts(body.format(rounds=4, between="acc += 0.0"))[0] == "witness"


def test_lanes_of_one_warp_do_not_run_in_step() -> None:
    assert verdicts("buf[t] = x[t]\nout[0] = buf[t ^ 1]", lanes=32)[0] == "witness"


def test_one_value_from_all_lanes() -> None:
    found = checked("buf[0] = 1.0\nbuf[1] = f32(h)\ntbarrier()\nout[0] = buf[0] + buf[1]")
    assert (found.races, found.unwritten) == ("proved", "proved")
    assert {d.code for d in found.unproved} == {"T0413"}
    assert verdicts("buf[0] = x[t]\ntbarrier()\nout[0] = buf[0]")[0] == "witness"
    assert verdicts("buf[0] = 1.0\nif t == 5: buf[0] = 2.0")[0] == "witness"


def test_atomics_do_not_race_with_each_other() -> None:
    body = "buf[t] = 0.0\ntbarrier()\natomic_add(buf[i32(x[t]) % 4], 1.0)\n{}out[0] = buf[t]"
    assert verdicts(body.format("tbarrier()\n")) == ("proved", "proved")
    assert verdicts(body.format(""))[0] == "not proved"
    certain = "buf[t] = 0.0\ntbarrier()\natomic_add(buf[t // 2], 1.0)\nout[0] = buf[t]"
    assert verdicts(certain)[0] == "witness"


def test_what_depends_on_data_is_no_error() -> None:
    body = "buf[t] = 0.0\ntbarrier()\nbuf[i32(x[t])] = x[t]"
    found = checked(body)
    assert (found.races, found.errors) == ("not proved", [])
    assert {d.code for d in found.unproved} == {"T0412"}


def test_what_depends_on_a_scalar_of_the_call_is_no_error() -> None:
    body = "buf[t] = x[t]\nif t < h: out[0] = buf[t + 1]"
    found = checked(body)
    assert (found.races, found.errors) == ("not proved", [])


def test_ways_that_exclude_each_other_do_not_meet() -> None:
    body = "buf[t] = x[t]\ntbarrier()\nif h > 3: buf[t] = 1.0\nelse: out[0] = buf[127 - t]"
    assert verdicts(body) == ("proved", "proved")


def test_barrier_on_one_way_only() -> None:
    body = "buf[t] = x[t]\nif h > 3: tbarrier()\nout[0] = buf[127 - t]"
    assert verdicts(body)[0] == "not proved"


def test_places_outside_are_not_touched() -> None:
    body = "buf[t] = x[t]\ntbarrier()\nbuf[t + 127] = 1.0"
    assert verdicts(body) == ("proved", "proved")


def test_strided_shares_of_any_length() -> None:
    """Lanes go on at their own pace; residues part them."""
    body = "for i in range(t, h, 128): buf[i % 128] = x[i]"
    assert verdicts(body)[0] != "witness"
    text = """
@kernel tile[(32,)] shared(16_KiB)
def k(x: f32[n], out: mut f32[grid_groups]):
    buf = tshared.alloc((4096,), f32)
    t = tile_linear_id()
    for i in range(t, n, 32): buf[i] = x[i]
"""
    program, plan, _ = lower_source(text)
    assert check_shared(program.operations[0], plan).races == "proved"
    program, plan, _ = lower_source(text.replace("n, 32", "n, 31"))
    assert check_shared(program.operations[0], plan).races == "witness"


def test_two_axes() -> None:
    text = """
@kernel tile[(16, 16)] shared(4_KiB)
def k(x: f32[n], out: mut f32[grid_groups]):
    a = tshared.alloc((16, 17), f32)
    r = tile_id(0)
    c = tile_id(1)
    a[r, c] = x[r * 16 + c]
    tbarrier()
    out[0] = a[c, r]
"""
    program, plan, _ = lower_source(text)
    found = check_shared(program.operations[0], plan)
    assert (found.races, found.unwritten) == ("proved", "proved")
    program, plan, _ = lower_source(text.replace("    tbarrier()\n", ""))
    found = check_shared(program.operations[0], plan)
    assert found.races == "witness"
    assert "`a[" in found.errors[0].message


def test_loop_that_leaves_at_an_unknown_time() -> None:
    body = """
buf[t] = x[t]
r = 0
while r < 1000000:
    tbarrier()
    a = buf[127 - t]
    tbarrier()
    buf[t] = a
    if r == h: break
    r += 1
"""
    assert verdicts(body) == ("proved", "proved")


def test_sizes_of_a_witness_keep_the_conditions() -> None:
    """What only a size that `where` excludes would show is no error."""
    text = """
@kernel tile[(64,)] shared(4_KiB)
def k(x: f32[n], out: mut f32[grid_groups]){where}:
    buf = tshared.alloc((64,), f32)
    t = tile_linear_id()
    for m in range(0, n, 64):
        buf[t] = x[m]
        tbarrier()
        out[0] = buf[63 - t]
"""
    program, plan, _ = lower_source(text.format(where=""))
    assert check_shared(program.operations[0], plan).races == "witness"
    program, plan, _ = lower_source(text.format(where=" where n <= 64"))
    assert check_shared(program.operations[0], plan).races != "witness"


def test_a_barrier_helps_no_lanes_that_do_one_statement() -> None:
    def helps(body: str) -> tuple[str, ...]:
        return checked(body).errors[0].helps

    own = "let one lane write, or give each lane an element of its own"
    assert helps("buf[t // 2] = f32(t)") == (own,)
    loop = "for k in range(2): buf[(t + k) % 128] = f32(t)"
    assert helps(loop) == (f"{own}, or put a `tbarrier()` into the loop",)
    (apart,) = helps("buf[t] = 1.0 + f32(t)\nout[0] = buf[127 - t]")
    assert apart.startswith("put a `tbarrier()` between the two")


def test_buffers_of_one_assignment_have_their_names() -> None:
    race, *_ = checked(
        "one, two = tshared.alloc((128,), f32), tshared.alloc((128,), f32)\n"
        "one[t] = 1.0\ntwo[t] = f32(t)\nout[0] = two[127 - t] + one[t]"
    ).errors
    assert "`two[" in race.message
