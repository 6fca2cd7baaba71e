"""Faults planted into the text of right kernels, what the checker says, and what a run shows.

The kernels are generated ones, those of ``tests/cases/verdicts`` and ``tests/run/synchronised``,
and those of the library and the examples. A fault is one changed line; several kinds are tried with
each kernel. Whether it does harm is decided by checked mode, in three orders of lanes and with
nothing proved; kernels of the library and the examples are only checked.
``python -m tests.fuzz.planted --write`` puts the table into ``docs/checker.md``.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from tessera_lang.analysis import unproved
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session
from tessera_lang.record import dataclass
from tests.fuzz.agreement import NO_LAUNCH, fault_with, sizes_of
from tests.fuzz.checker import clean_kernel, library_files, write_page
from tests.fuzz.verdicts import Case, cases, judged
from tests.run.synchronised import programs

Rule = Callable[[list[str], int], str | None]
"""The line that stands for line ``i`` of the lines, or None."""
MOST_OF_A_KERNEL = 5
LAUNCHES = 1


def _swap(pattern: str, new: str, needs: str = "") -> Rule:
    """The first match of a pattern in a line that holds ``needs``."""

    def rule(lines: list[str], i: int) -> str | None:
        line = lines[i]
        if needs and not re.search(needs, line):
            return None
        changed = re.sub(pattern, new, line, count=1)
        return changed if changed != line else None

    return rule


def _trip_count(lines: list[str], i: int) -> str | None:
    """Of a loop with a barrier: one more iteration in every other lane."""
    depth = len(lines[i]) - len(lines[i].lstrip())
    body: list[str] = []
    for line in lines[i + 1 :]:
        if len(line) - len(line.lstrip()) <= depth:
            break
        body.append(line)
    if not any("tbarrier()" in line for line in body):
        return None
    by_lane = "tile_linear_id() % 2"
    for pattern, new in (
        (r"in range\(([^,()]+)\):", rf"in range(\1 + {by_lane}):"),
        (r"in range\(([^,()]+), ([^,()]+)\):", rf"in range(\1, \2 + {by_lane}):"),
        (
            r"in range\(([^,()]+), ([^,()]+), ([^,()]+)\):",
            rf"in range(\1, \2 + \3 * ({by_lane}), \3):",
        ),
        (r"while (\w+) > 0:", rf"while \1 > {by_lane}:"),
    ):  # fmt: skip
        changed = re.sub(pattern, new, lines[i])
        if changed != lines[i]:
            return changed
    return None


def _buffers(lines: list[str]) -> dict[str, int]:
    """Shared buffers of one axis, with their sizes."""
    found = re.findall(r"(\w+) = tshared\.alloc\(\((\d+),\)", "\n".join(lines))
    return {name: int(size) for name, size in found}


def _index_shifted(lines: list[str], i: int) -> str | None:
    for name, size in _buffers(lines).items():
        found = re.search(rf"\b{name}\[([^\[\]]+)\]", lines[i])
        if found and size > 1 and "atomic" not in lines[i]:
            shifted = f"{name}[({found[1]} + 1) % {size}]"
            return lines[i].replace(found[0], shifted, 1)
    return None


def _write_removed(lines: list[str], i: int) -> str | None:
    for name in _buffers(lines):
        if re.match(rf"\s*(if [^:]*: )?{name}\[[^\[\]]+\] = ", lines[i]):
            return re.sub(rf"\b{name}\[[^\[\]]+\] = .*", "pass", lines[i])
    return None


def _hand_over_too_early(lines: list[str], i: int) -> str | None:
    """What is handed over is written behind the flag: both lines in one, the flag first."""
    if i + 1 >= len(lines) or not re.match(r"\s*\w+\[[^=]*\] (=|\+=) ", lines[i]):
        return None
    following = lines[i + 1]
    indent = re.match(r"\s*", lines[i])
    assert indent is not None
    if not re.match(rf"{indent[0]}atomic_\w+\(.*(release|acq_rel)", following):
        return None
    return f"{following}\n{lines[i]}"


RULES: dict[str, Rule] = {
    "barrier removed": _swap(r"tbarrier\(\)", "pass"),
    "barrier for some lanes": _swap(r"tbarrier\(\)", "if tile_linear_id() < 7: tbarrier()",
                                    r"^\s*tbarrier"),
    "trip count by lanes": _trip_count,
    "order dropped": _swap(r'order="(release|acquire|acq_rel)"', 'order="relaxed"'),
    "fence removed": _swap(r"tfence\([^)]*\)", "pass"),
    "scope narrowed": lambda lines, i: (
        _swap('scope="device"', 'scope="group"')(lines, i)
        or _swap('scope="group"', 'scope="tile"')(lines, i)
    ),
    "group left out": lambda lines, i: (
        _swap(r"\bgrid_tile_linear_id\(\)", "tile_linear_id()")(lines, i)
        or _swap(r"\bgroup_(linear_id\(\)|id\(0\))", "0", r"\[|= group")(lines, i)
    ),
    "stage of a buffer": lambda lines, i: (
        _swap(r"% 2\b", "% 1", r"\[|=")(lines, i) or _swap(r"% 3\b", "% 2", r"\[|=")(lines, i)
        or _swap(r"& 1\b", "& 0", r"\[|=")(lines, i)
    ),
    "bound too wide": _swap(r"if (\w[^:<>]*) < ", r"if \1 <= "),
    "index without its remainder": _swap(r"(\[\([^\[\]]*\)) % \d+\]", r"\1]"),
    "wait removed": _swap(r"while [^:]*atomic_\w+\(.*: ?pass", "pass"),
    "handed over too early": _hand_over_too_early,
    "index shifted": _index_shifted,
    "guard for two lanes": _swap(r"if (\w+) == 0:", r"if \1 <= 1:"),
    "guard swapped": lambda lines, i: (
        _swap(r"if ([^:<>=]*) < ", r"if \1 >= ")(lines, i)
        or _swap(r"if ([^:<>=]*) >= ", r"if \1 < ")(lines, i)
    ),
    "write removed": _write_removed,
    "atomic made plain": _swap(
        r"^(\s*(?:if [^:]*: )?)atomic_add\((\w+\[[^\]]*\](?:\])?), ([^,()]+)(, .*)?\)$",
        r"\1\2 += \3",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planted:
    """``path``: of the file whose text it is, "" for a kernel of its own."""

    source: str
    fault: str
    text: str
    path: str = ""
    clean: str = ""


def plant(text: str, source: str, r: random.Random, path: str = "") -> Iterator[Planted]:
    """A fault of each of some kinds, each in some line."""
    lines = text.split("\n")
    if path and not any("tshared" in line or "@kernel" in line for line in lines):
        return
    inside = _lane_kernel_lines(lines)
    found: dict[str, list[str]] = {}
    for fault, rule in RULES.items():
        for i in inside:
            changed = None if lines[i].lstrip().startswith("#") else rule(lines, i)
            if changed is not None:
                rest = lines[i + 2 :] if "\n" in changed else lines[i + 1 :]
                found.setdefault(fault, []).append("\n".join([*lines[:i], changed, *rest]))
    kinds = sorted(found, key=lambda k: (r.random(), k))
    most = 4 * MOST_OF_A_KERNEL if path else MOST_OF_A_KERNEL
    for fault in kinds[:most]:
        yield Planted(source, fault, r.choice(found[fault]), path, text)


def _lane_kernel_lines(lines: list[str]) -> list[int]:
    """The lines of bodies of lane kernels."""
    inside, found = False, list[int]()
    for i, line in enumerate(lines):
        if re.match(r"@kernel\b", line):
            inside = True
        elif line and not line[0].isspace() and not re.match(r"def |\)|@|#", line):
            inside = False
        elif inside and line.startswith("    "):
            found.append(i)
        elif re.match(r"def ", line) and not re.match(r"@kernel", lines[i - 1]):
            inside = False
    return found


def all_planted(generated: int, seed: int) -> tuple[int, list[Planted]]:
    """How many kernels, and the faults."""
    r = random.Random(seed)
    texts = {f"generated {k}": clean_kernel(r).text() for k in range(generated)}
    texts |= {c.name: c.text for c in cases() if c.right and "not run" not in c.hint}
    texts |= programs()
    found = [p for name, text in texts.items() for p in plant(text, name, r)]
    kernels = len(texts)
    for path in library_files():
        text = path.read_text(encoding="utf-8")
        kernels += len(re.findall(r"^@kernel\b", text, re.MULTILINE))
        found += plant(text, path.name, r, str(path))
    return kernels, found


# --- what is said ------------------------------------------------------------------------------


def _of_file(planted: Planted) -> str:
    """The verdict on a file of the library with a fault, under ``--strict``; what the right file
    has open already does not count. "" where it is no program any more."""
    kept: list[Counter[tuple[str, str, str]]] = []
    for text in (planted.clean, planted.text):
        session = Session(overlay={planted.path: text})
        found: list[Diagnostic] = list(session.check(planted.path))
        for program, plan in session.lowered(planted.path):
            kernel = program.operations[0]
            found += unproved(kernel, plan)
        kept.append(Counter((d.severity, d.code, d.message) for d in found))
    new = kept[1] - kept[0]
    codes = {code for severity, code, _ in new if severity == "error"}
    if codes and not any(c.startswith("T04") for c in codes):
        return ""
    if codes:
        return "error"
    if any(s == "warning" and c == "T0414" for s, c, _ in new):
        return "warning"
    return "not proved" if any(c == "T0412" for _, c, _ in new) else "silent"


def _of_kernel(planted: Planted) -> str:
    case = Case("", planted.source, False, "", "", planted.text)
    try:
        verdict, codes = judged(case)
    except AssertionError:
        return ""
    if verdict == "error" and not any(c.startswith("T04") for c in codes):
        return ""
    return "silent" if verdict in ("proved", "checked") else verdict


_CLEAN: dict[str, list[dict[str, int]]] = {}


def _harm(planted: Planted) -> str:
    """What a run shows: "fault", "none", or "not run"."""
    if planted.path:
        return "not run"
    if planted.source not in _CLEAN:
        fine = (s for s in sizes_of(planted.clean) if not fault_with(planted.clean, s))
        _CLEAN[planted.source] = list(islice(fine, LAUNCHES))
    found = [fault_with(planted.text, s) for s in _CLEAN[planted.source]]
    if not found or all(f == NO_LAUNCH for f in found):
        return "not run"
    return "fault" if any(f and f != NO_LAUNCH for f in found) else "none"


def result(planted: Planted) -> tuple[Planted, str, str]:
    """The fault, the verdict and the harm."""
    verdict = _of_file(planted) if planted.path else _of_kernel(planted)
    return planted, verdict, _harm(planted) if verdict else ""


VERDICTS = ("error", "warning", "not proved", "silent")


def table(kernels: int, seed: int, results: list[tuple[Planted, str, str]]) -> str:
    seen = [(p.fault, verdict, harm) for p, verdict, harm in results if verdict]
    lines = [
        f"{len(seen)} faults in {kernels} kernels, seed {seed}.", "",
        "| planted | faults | a run shows it: error | warning | not proved | silent "
        "| no run shows it: error | not proved | silent | library: error | not proved | silent |",
        "|" + "---|" * 12,
    ]  # fmt: skip

    def row(name: str, some: list[tuple[str, str, str]]) -> str:
        def count(harm: str, *verdicts: str) -> int:
            return sum(1 for _, v, h in some if h == harm and v in verdicts)

        numbers = [len(some), *(count("fault", v) for v in VERDICTS)]
        for harm in ("none", "not run"):
            numbers += [count(harm, "error"), count(harm, "warning", "not proved")]
            numbers.append(count(harm, "silent"))
        return f"| {name} | {' | '.join(map(str, numbers))} |"

    lines += [row(fault, [s for s in seen if s[0] == fault]) for fault in RULES]
    return "\n".join([*lines, row("all", seen)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--generated", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=10**9, help="only so many faults")
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--show", default="", help="print those with a verdict and harm: silent/fault"
    )
    given = parser.parse_args()
    kernels, planted = all_planted(given.generated, given.seed)
    planted = planted[: given.first]
    with ProcessPoolExecutor(given.jobs) as pool:
        results = list(pool.map(result, planted, chunksize=4))
    for p, verdict, harm in results:
        if f"{verdict}/{harm}" in given.show.split(","):
            print(f"--- {verdict}, {harm}: {p.fault}, {p.source}\n{difference(p)}")
    text = table(kernels, given.seed, results)
    print(text)
    if given.write:
        write_page("planted", text)


def difference(planted: Planted) -> str:
    """The changed line, or the whole text of a kernel."""
    if not planted.path:
        return planted.text
    before, after = planted.clean.split("\n"), planted.text.split("\n")
    pairs = enumerate(zip(before, after, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), 0)
    return "\n".join(f"{at + k + 1}: {after[at + k]}" for k in range(-4, 3) if at + k < len(after))


if __name__ == "__main__":
    main()
