"""Conditions and loops around barriers, made of the lane at random: what is accepted is the same in
all lanes of a group, for all sizes that are tried, and gives what Python gives."""

from __future__ import annotations

import random
from math import ceil

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.record import dataclass
from tests.unit.lowering import lower_source

LANES = 16


@dataclass(frozen=True, slots=True)
class Made:
    """An ``if`` or a loop around a barrier. ``divisor`` divides n."""

    kind: str
    parts: tuple[str, ...]
    divisor: int
    groups: int = 3

    def text(self) -> str:
        where = f" where n % {self.divisor} == 0" if self.divisor > 1 else ""
        lines = {
            "if": ["if {}:", "    tbarrier()", "    acc += 1"],
            "for": ["for j in range({}, {}, {}):", "    tbarrier()", "    acc += i32(j)"],
            "break": ["for k in range(6):", "    if {}: break", "    tbarrier()", "    acc += 1"],
            "while": ["j = {}", "while j - t < {} and acc < 900:", "    tbarrier()",
                      "    acc += 1", "    j += {}"],
            "count": ["j = {}", "while j < {}:", "    tbarrier()", "    acc += 1", "    j += {}"],
            "down": ["j = {1} - 1 - ({0})", "while j >= 0:", "    tbarrier()", "    acc += 1",
                     "    j -= {2}"],
        }[self.kind]  # fmt: skip
        body = "\n".join(f"    {line}" for line in lines).format(*self.parts)
        return (
            f"@kernel tile[({LANES},)] grid[({self.groups},)]\n"
            f"def k(x: f32[n], out: mut i32[{LANES * self.groups}]){where}:\n"
            "    t = tile_linear_id()\n    g = group_linear_id()\n    i = grid_tile_linear_id()\n"
            f"    acc = 0\n{body}\n    out[i] = acc\n"
        )

    def run(self, t: int, g: int, n: int) -> tuple[int, int]:
        """How often a lane comes to the barrier, and what it adds up."""
        names = {"t": t, "g": g, "n": n, "i": g * LANES + t}

        def number(text: str, **more: int) -> int:
            return int(eval(text, {}, {**names, **more}))

        match self.kind:
            case "if":
                times = number(self.parts[0])
                return times, times
            case "for":
                turns = range(*(number(p) for p in self.parts))
                return len(turns), sum(turns)
            case "break":
                times = next((k for k in range(6) if number(self.parts[0], k=k)), 6)
                return times, times
            case "count" | "down":
                start, most, step = (number(p) for p in self.parts)
                times = max(0, ceil((most - start) / step))
                return times, times
            case _:
                start, most, step = (number(p) for p in self.parts)
                times = min(900, max(0, ceil((most - start + t) / step)))
                return times, times

    def is_alike(self, n: int) -> bool:
        return all(
            len({self.run(t, g, n)[0] for t in range(LANES)}) == 1 for g in range(self.groups)
        )

    def sizes(self) -> list[int]:
        return [self.divisor * k for k in (1, 2, 3, 5, 8)]


def made(r: random.Random) -> Made:
    def offset() -> str:
        return r.choice(["0", "0", "t", "t", "i", "2 * t", "t // 2", "t % 8", "t + 3", "8 * g + t"])

    def limit() -> str:
        return r.choice(
            ["n", "n", "64", "60", "n - 16", "n + 16 * g", "2 * n", "n // 2", "n - n % 16"]
        )

    def step() -> str:
        return r.choice(["16", "16", "32", "8", "48", "16 * group_count(0)"])

    def compared(left: str) -> str:
        return f"{left} {r.choice(['<', '<=', '>', '>=', '==', '!='])} {limit()}"

    def part(shared: str) -> str:
        """A quotient or a remainder of what lanes share and multiples of the lane."""
        by = r.choice([2, 3, 4, 8])
        lane = f"{r.choice([by, by, 2 * by, r.randrange(1, 9)])} * {r.choice('tti')}"
        whole = f"({r.choice(['', '3 * '])}{shared} {r.choice('+-')} {lane} + {r.randrange(9)})"
        if by == 3 or r.random() < 0.6:
            taken = f"{whole} {r.choice(['%', '%', '//'])} {by}"
        else:
            taken = f"{whole} {r.choice(['& ' + str(by - 1), '>> ' + str(by.bit_length() - 1)])}"
        against = r.choice([str(r.randrange(by)), str(r.randrange(by)), "2 * t", "-t"])
        return f"({taken}) {r.choice(['==', '!=', '<', '>='])} {against}"

    divisor = r.choice([1, 8, 16, 16, 32, 48])
    match r.choice(["if", "if", "for", "for", "break", "while", "count", "down"]):
        case "if":
            some = r.choice(["i - t", "i", "t", "i + 16", "t - 16", "2 * i", "32 * g + 2 * t"])
            text = r.choice(
                [compared(some), part("n"), part("n"), part("g"),
                 f"{some} // 16 == {r.randrange(3)}",
                 f"t // {r.choice([8, 16, 32])} == 0", f"(t & {r.choice([1, 16, 48])}) == 0",
                 f"{some} % 16 == {offset()}", f"{compared(some)} and t < {r.choice([15, 16, 20])}"]
            )  # fmt: skip
            return Made("if", (text,), divisor)
        case "for":
            by = step()
            return Made("for", (offset(), limit(), by), divisor)
        case "break":
            text = compared(r.choice(["k * 16 + t", "k * 16 + i", "k * 8 + t"]))
            return Made("break", (r.choice([text, part("k")]),), divisor)
        case "count" | "down" as kind:
            return Made(kind, (offset(), limit(), step()), divisor)
        case _:
            return Made("while", (r.choice(["t", "t", "i", "0", "t + 5"]), limit(),
                                  r.choice(["16", "5", "32"])), divisor)  # fmt: skip


def in_python(text: str, groups: int) -> str:
    return text.replace("group_count(0)", str(groups))


def checked(one: Made, run: bool) -> bool:
    """Whether a kernel is accepted; what is accepted holds."""
    found = lower_source(one.text())[2]
    if any(d.code == "T0401" for d in found):
        return False
    python = Made(one.kind, tuple(in_python(p, one.groups) for p in one.parts), one.divisor)
    for n in one.sizes():
        assert python.is_alike(n), (one.text(), n)
    if run:
        kernel = tessera.compile(one.text(), target="cpu").k
        for n in one.sizes()[:3]:
            out = np.zeros(LANES * one.groups, np.int32)
            kernel(np.zeros(n, np.float32), out)
            there = ((t, g) for g in range(one.groups) for t in range(LANES))
            assert out.tolist() == [python.run(t, g, n)[1] for t, g in there], one.text()
    return True


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(1)
def test_accepted_conditions_are_alike(seed: int) -> None:
    r = random.Random(seed)
    taken = [checked(made(r), k < 3) for k in range(25)]
    assert any(taken)


@pytest.mark.parametrize(("condition", "alike"), [
    ("(k + 2 * t) % 2 == 0", True), ("(k + t) % 2 == 0", False), ("(k - 4 * t) % 4 < 2", True),
    ("(n + 4 * t) & 3 == 1", True), ("(n + 4 * t) & 7 == 1", False),
    ("(n + 8 * t) // 8 - t > 2", True), ("((n + 8 * t) >> 3) - t > 2", True),
    ("(n + 8 * t) // 8 > 2", False), ("(3 * n + 6 * t + 5) % 6 == 2", True),
])  # fmt: skip
def test_parts_of_what_lanes_share_and_multiples(condition: str, alike: bool) -> None:
    one = Made("break", (condition,), 1)
    assert ("T0401" not in [d.code for d in lower_source(one.text())[2]]) == alike


@pytest.mark.parametrize(("lanes", "step"), [(128, 128), (96, 96), (96, 3), (64, 16), (33, 33)])
def test_a_loop_with_a_counter_is_taken_as_one_over_a_range(lanes: int, step: int) -> None:
    start = "t" if step == lanes else f"t // {lanes // step}"
    head = (
        f"@kernel tile[({lanes},)]{{}}\ndef k(x: f32[n], out: mut f32[n]){{}}:\n"
        f"    t = tile_linear_id()\n    s = tshared.alloc(({lanes},), f32)\n"
    )
    body = "        s[t] = x[j]\n        tbarrier()\n        v = s[{}]\n        tbarrier()\n"
    body = body.format(f"{lanes - 1} - t") + "        if j == t: out[j] = v\n"
    loops = (
        f"    for j in range({start}, n, {step}):\n{body}",
        f"    j = {start}\n    while j < n:\n{body}        j += {step}\n",
        f"    j = {start}\n    while n > j:\n{body}        j = {step} + j\n",
    )
    shared = " shared(2_KiB) grid[(1,)]"
    for loop in loops:
        for where, right in ((f" where n % {step} == 0", True), ("", False)):
            found = lower_source(head.format(shared, where) + loop)[2]
            assert ("T0401" not in [d.code for d in found]) == right, loop
