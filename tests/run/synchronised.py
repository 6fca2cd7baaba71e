"""Right kernels whose lanes and groups wait for each other by atomics, and what they compute.

    python -m tests.run.synchronised [--target cuda] [--launches 3] [NAME ...]

runs each with small whole numbers, which add up exactly in every order, and compares with NumPy.
``--others`` runs the other right programs with atomics, and says whether the result is that of the
CPU (it may be another one: who takes a lock first is left open). ``--all`` runs both, with one line
for each, "ok", "WRONG" or "another order", and the numbers of these. The kernels are in
``synchronised.tessera`` and in ``tests/cases/verdicts``. compute-sanitizer may watch it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tessera_lang as tessera
from tessera_lang.target.typing_protocols import Target
from tests.fuzz.agreement import module_of, unchecked
from tests.fuzz.verdicts import cases
from tests.stdlib.arrays import DTYPES

FILE = Path(__file__).with_suffix(".tessera")
SIZES = {"m": 5, "n": 12, "k": 2, "w": 2, "e": 12, "grid_groups": 4}
Expected = Callable[[Any], dict[str, Any]]
"""From ``x`` (or the other first input) to the arrays to compare, by their names."""


def _rows(x: Any) -> Any:
    """One number of each row, for all 64 lanes."""
    return np.repeat(x[:, None], 64, 1)


def _running(x: Any) -> dict[str, Any]:
    """Sums of the rows up to each one."""
    return {"sums": np.cumsum(x.sum(1)), "ready": np.ones(len(x))}


def _places(x: Any) -> dict[str, Any]:
    """Positive elements in some order: compared sorted."""
    return {"out": np.where(x > 0, x, 0)}


def _ladder(_: Any) -> dict[str, Any]:
    total = np.float32(0)
    for t in range(32):
        total = np.float32(total * 2 + t)
    return {"out": total}


def _clear_and_count(x: Any) -> dict[str, Any]:
    return {"hist": np.stack([np.bincount(row & 15, minlength=16) for row in x])}


EXPECTED: dict[str, Expected] = {
    "counting_flag_between_groups": lambda x: {
        "data": x * 2, "flag": 64, "out": [0, *[2 * x.sum()] * 3]},
    "two_phases_of_a_flag": lambda x: {"out": _rows(x.sum(1))},
    "flag_of_changing_sense": lambda x: {"out": _rows(x.sum(1))},
    "flag_for_each_round": lambda x: {"out": _rows(x.sum(1))},
    "flag_set_back_behind_a_barrier": lambda x: {"out": _rows(x.sum(1))},
    "lock_over_groups": lambda x: {"sum": x.sum(), "lock": 0},
    "barrier_before_the_release": lambda x: {"out": x[:32], "flag": 1},
    "one_look_at_the_flag": lambda x: {"data": x[0], "flag": 1},
    "filled_by_one_lane": lambda x: {"out": x[:, ::-1]},
    "fences_of_the_group": lambda x: {"out": _rows(x)},
    "lock_and_two_values": lambda x: {},
    "last_of_128_lanes": lambda x: {"out": x.sum(1)},
    "tickets_as_places": lambda x: {"out": x},
    "pairs_of_lanes": lambda x: {"out": x[:, ::2] + x[:, 1::2]},
    "chain_over_lanes": lambda x: {"out": np.cumsum(x, 1)},
    "hand_over_twice": lambda x: {
        "out": np.where(np.arange(64) < 2, 0, _rows(3 * x))},
    "ticket_lock": lambda x: {"out": x.sum(1)},
    "wider_scope_than_needed": lambda x: {"out": _rows(x)},
    "last_group_by_lane_0": lambda x: {"out": x.sum(), "count": 0},
    "last_group_by_all_lanes": lambda x: {"out": 2 * x.reshape(32, 128).sum(0), "count": 32},
    "chain_over_groups": _running,
    "chain_with_fences": _running,
    "histogram_of_the_device": lambda x: {"counts": np.bincount(x, minlength=256)},
    "compaction": lambda x: {**_places(x), "count": (x > 0).sum()},
    "relaxed_maxima": lambda x: {"out": x.max(), "best": x.max(), "count": 8},
    "as_many_as_were_given": _places,
    "waits_for_the_second": lambda x: {
        "out": np.where(np.arange(64) < 1, 0, _rows(2 * x))},
    "flag_that_counts_rounds": lambda x: {"out": _rows(x.sum(1))},
    "cleared_then_counted": _clear_and_count,
    "queue_of_a_group": lambda x: {"out": np.where(x > 0, x, 0).sum(1)},
    "lock_in_a_loop": lambda x: {"out": x.sum((1, 2))},
    "last_lane_in_each_round": lambda x: {"out": x.sum(2)},
    "slots_by_rounds": lambda x: {"out": 2 * x.sum(0), "ready": np.ones(len(x))},
    "look_back": lambda x: {"out": np.cumsum(x.sum(1)) - x.sum(1)},
    "last_group_with_fences": lambda x: {"out": (x * x).sum(), "count": 16},
    "lock_before_a_sum": lambda x: {"out": x},
    "lock_in_each_round": lambda x: {"out": x.sum(2)},
    "lock_of_some_lanes": lambda x: {"out": x[:, ::2].sum(1)},
    "flag_hands_over": lambda _: {"out": np.where(np.arange(64) == 1, 7, 0)},
    "flag_with_fences": lambda _: {"out": np.where(np.arange(64) == 1, 7, 0)},
    "last_to_come": lambda x: {"out": x.sum()},
    "spin_lock": lambda _: {"out": 64},
    "flag_in_an_array": lambda _: {"out": np.where(np.arange(64) == 40, 3, 0)},
    "one_to_all": lambda x: {"out": np.where(np.arange(64) == 0, 0, x[3])},
    "lane_after_lane": _ladder,
    "counted_arrival": lambda x: {"out": x[::-1]},
    "scope_wide_enough": lambda _: {"out": 256},
    "scope_of_the_group": lambda _: {"out": np.full(4, 64)},
    "last_group": lambda _: {"out": 6, "count": 4},
    "last_group_with_barrier": lambda _: {"out": 4 * np.arange(64).sum(), "count": 4},
    "group_flag": lambda _: {"out": 1, "flag": 1},
    "places_by_an_atomic": lambda x: {"out": x},
    "some_places_by_an_atomic": _places,
    "exchange_that_only_writes": lambda _: {},
}  # fmt: skip
IN_SOME_ORDER = {"tickets_as_places", "compaction", "as_many_as_were_given",
                 "places_by_an_atomic", "some_places_by_an_atomic"}  # fmt: skip
NOT_ON_A_CPU = {"counted_arrival"}
"""All lanes wait for all, which only a target that runs them at once bears."""


def programs() -> dict[str, str]:
    """The text of each kernel, by its name."""
    found = {
        c.name: c.text
        for c in cases()
        if c.right and c.name in EXPECTED and re.search("atomic_|tfence", c.text)
    }
    for text in re.split(r"\n\n(?=# )", FILE.read_text(encoding="utf-8")):
        found[re.findall(r"^def (\w+)", text, re.MULTILINE)[-1]] = text
    return found


def arguments(text: str, launch: int) -> dict[str, Any]:
    """An array for each parameter: whole numbers from -4 to 8 for what is read, zeros otherwise."""
    head = re.findall(r"^def \w+\(([^)]*)\)", text, re.MULTILINE)[-1]
    random = np.random.default_rng(launch)
    made: dict[str, Any] = {}
    sizes_of = dict(SIZES)
    for name, size in re.findall(r"where (\w+) == ([\w +*]+?)(?: and |:)", text):
        sizes_of[name] = eval(size, dict(SIZES))
    for name, mut, dtype, sizes in re.findall(r"(\w+): (mut )?(\w+)\[([^\]]*)\]", head):
        shape = tuple(eval(size, dict(sizes_of)) for size in sizes.split(","))
        low = 0 if dtype.startswith("u") else -4
        made[name] = (np.zeros(shape) if mut else random.integers(low, 9, shape)).astype(
            DTYPES[dtype]
        )
    return made


def others() -> dict[str, str]:
    """The other right programs with atomics that may be run."""
    return {
        c.name: c.text
        for c in cases()
        if c.right and "not run" not in c.hint and c.name not in EXPECTED
        and re.search("atomic_|tfence", c.text)
    }  # fmt: skip


def like_on_a_cpu(text: str, name: str, target: Target) -> bool:
    """Whether a launch gives what one on the CPU gives."""
    results: list[list[Any]] = []
    for where in (target, "cpu"):
        given = list(arguments(text, 0).values())
        compiled(text, name, where)(*given)
        tessera.synchronize()
        results.append(given)
    return all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def compiled(text: str, name: str, target: Target) -> Any:
    """The kernel, with the groups of its launch if no clause says them."""
    kernel = getattr(module_of(text, target), name)
    return kernel if "grid[" in text else kernel[SIZES["m"] if "m" in text else 4]


def launched(name: str, text: str, kernel: Any, launch: int) -> str:
    """Empty, or which array is not what it should be."""
    given = arguments(text, launch)
    first = next(iter(given.values())).astype(np.int64)
    right = EXPECTED[name](first)
    kernel(*given.values())
    tessera.synchronize()
    for array, expected in right.items():
        found = given[array].astype(np.int64)
        expected = np.broadcast_to(np.asarray(expected, np.int64), found.shape)
        if name in IN_SOME_ORDER:
            found, expected = np.sort(found, -1), np.sort(expected, -1)
        if not np.array_equal(found, expected):
            return f"{name}: {array} is {found.ravel()[:8]}, and {expected.ravel()[:8]} is right"
    return ""


def _said(name: str, text: str, target: Target) -> str:
    """One launch of a right program: what NumPy expects of it, or what the CPU makes of it."""
    try:
        with unchecked():
            if name in EXPECTED:
                found = launched(name, text, compiled(text, name, target), 0)
                return f"WRONG {found}" if found else f"ok {name}"
            same = like_on_a_cpu(text, name, target)
    except Exception as fault:  # the others are still to be seen
        return f"WRONG {name}: {type(fault).__name__}: {fault}"
    return f"ok {name}" if same else f"another order {name}"


def _all(target: Target, part: int, parts: int) -> bool:
    texts = {n: t for n, t in programs().items() if target != "cpu" or n not in NOT_ON_A_CPU}
    lines: list[str] = []
    for name, text in list({**texts, **others()}.items())[part::parts]:
        lines.append(_said(name, text, target))
        print(lines[-1], flush=True)
    wrong, order = (sum(x.startswith(y) for x in lines) for y in ("WRONG", "another"))
    right = len(lines) - wrong - order
    print(f"total {len(lines)}: {right} ok, {order} another order, {wrong} WRONG")
    return bool(wrong)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--part", default="0/1", help="every so many, from one on: 3/12")
    given = parser.parse_args()
    if given.all:
        sys.exit(_all(given.target, *map(int, given.part.split("/"))))
    wrong: list[str] = []
    texts = others() if given.others else programs()
    part, parts = map(int, given.part.split("/"))
    texts = dict(list(texts.items())[part::parts])
    if given.others:
        for name, text in texts.items():
            print(name, end=" ", flush=True)
            with unchecked():
                same = like_on_a_cpu(text, name, given.target)
            print("as on the CPU" if same else "in another order", flush=True)
        return
    for name in given.names or texts:
        if given.target == "cpu" and name in NOT_ON_A_CPU:
            continue
        print(name, end=" ", flush=True)
        with unchecked():
            kernel = compiled(texts[name], name, given.target)
            found = [launched(name, texts[name], kernel, i) for i in range(given.launches)]
        wrong += filter(None, found)
        print("wrong" if any(found) else "right", flush=True)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
