"""Programs in the manner of public suites of race and divergence checkers, and how they are judged.

``tests/cases/verdicts/KIND.tessera`` has kernels, each behind a line that says whether it is right
or wrong, with the code of the fault, and why. ``python -m tests.fuzz.verdicts`` prints the table;
``--each`` every program with what is said of it; ``--write`` puts the table on the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tessera_lang.analysis import unproved
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.advice import Questions, advice
from tessera_lang.driver.session import Session
from tessera_lang.record import dataclass
from tests.fuzz.checker import write_page
from tests.unit.lowering import lower_source

FOLDER = Path(__file__).parent.parent / "cases" / "verdicts"
KINDS = ("conditions", "orders", "arrays", "proofs", "bounds", "messages")
"""Those that were there while the checker was made."""
READ = tuple(f"read_{kind}" for kind in (*KINDS[:5], "idioms", "several"))
"""Written afterwards by somebody who knew the language and the suites, and not the checker."""
LATER = tuple(f"later_{kind}" for kind in (*KINDS[:5], "idioms"))
"""Written when those were judged as they should be."""
THIRD = tuple(f"third_{kind}" for kind in (*KINDS[:5], "idioms", "several"))
"""Written when all of those were."""
FOURTH = tuple(f"fourth_{kind}" for kind in (*KINDS[:5], "idioms", "several"))
"""Twenty of each of the seven kinds, with what is expected, before the check had seen them."""
FIFTH = tuple(f"fifth_{kind}" for kind in (*KINDS[:5], "idioms", "several"))
"""Again so many of each, from the ideas of the suites, before the check had seen them."""
Verdict = Literal["error", "warning", "not proved", "checked", "proved"]
"""``checked``: in launches that were run whole (T0416)."""
_HEAD = re.compile(r"^# (right|wrong)( T\d{4})?( \([^)]*\))?: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Case:
    """``code`` is that of the fault; ``hint`` what stands in brackets."""

    kind: str
    name: str
    right: bool
    code: str
    hint: str
    text: str


def cases(*kinds: str) -> Iterator[Case]:
    for kind in kinds or (*KINDS, *READ, *LATER, *THIRD, *FOURTH, *FIFTH):
        path = FOLDER / f"{kind}.tessera"
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        heads = list(_HEAD.finditer(text))
        for head, after in zip(heads, [*heads[1:], None], strict=True):
            part = text[head.end() : after.start() if after else None]
            name = re.findall(r"^def (\w+)", part, re.MULTILINE)[-1]
            code, hint = (head[2] or "").strip(), (head[3] or "").strip(" ()")
            yield Case(kind, name, head[1] == "right", code, hint, part)


@cache
def judged(case: Case) -> tuple[Verdict, list[str]]:
    """The verdict under ``--strict``, and the codes that it is made of."""
    found = _said(case.text)
    blamed = [d for d in found if d.severity in ("error", "warning")]
    codes = [d.code for d in blamed]
    for verdict in ("error", "warning"):
        if any(d.severity == verdict and d.code != "T0412" for d in blamed):
            return verdict, codes
    if blamed:
        return "not proved", codes
    return ("checked" if any(d.code == "T0416" for d in found) else "proved"), codes


def _said(text: str) -> list[Diagnostic]:
    if "@op.kernel" in text or "group_" in text.replace("group_id", "").replace("group_linear", ""):
        with TemporaryDirectory() as folder:  # with the library's functions of groups
            path = str(Path(folder) / "case.tessera")
            Path(path).write_text(text, encoding="utf-8")
            session = Session()
            found = list(session.check(path))
            return found + list(advice(session, path, Questions(strict=True)))
    program, plan, diagnostics = lower_source(text)
    found = list(diagnostics)
    if not any(d.severity == "error" for d in found):
        found += unproved(program.operations[0], plan)
    return found


def table(*kinds: str) -> str:
    """How many programs of each kind get each verdict."""
    lines = [
        "| kind | right | proved | checked | not proved | refused "
        "| wrong | errors | warnings | not proved | silent |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in kinds or (*KINDS, *READ, *LATER, *THIRD, *FOURTH, *FIFTH):
        found: list[tuple[bool, Verdict]] = [(c.right, judged(c)[0]) for c in cases(kind)]

        def count(
            right: bool, *verdicts: Verdict, found: list[tuple[bool, Verdict]] = found
        ) -> int:
            return sum(1 for r, v in found if r == right and (not verdicts or v in verdicts))

        row = (
            count(True), count(True, "proved"), count(True, "checked"), count(True, "not proved"),
            count(True, "error", "warning"), count(False), count(False, "error"),
            count(False, "warning"), count(False, "not proved"), count(False, "proved", "checked"),
        )  # fmt: skip
        lines.append(f"| {kind} | {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.each:
        for case in cases(*given.kinds):
            verdict, codes = judged(case)
            good = verdict in ("proved", "checked") if case.right else verdict == "error"
            said = f"{case.kind:10} {'right' if case.right else 'wrong'} {case.name:28} {verdict}"
            print("  " if good else "! ", said, *codes)
    text = table(*given.kinds)
    print(text)
    if given.write:
        write_page("verdicts", text)


if __name__ == "__main__":
    main()
