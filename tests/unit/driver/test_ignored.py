"""Comments that take a diagnostic back, and those that spoke of nothing."""

from __future__ import annotations

import pytest

from tessera_lang.driver.advice import Questions, advice
from tessera_lang.driver.fixes import edited
from tessera_lang.driver.ignored import ignores, ignoring
from tessera_lang.driver.session import Session
from tessera_lang.source import SourceFile

PATH = "<ignored>"
SLOW = """\
@kernel tile[(128,)] grid[(1,)]
def copy(x: f32[512], out: mut f32[512]):
    t = tile_linear_id()
    for k in range(4):{header}
{above}        out[t * 4 + k] = x[{wrap}t * 4 + k]{behind}
"""


def said(text: str, questions: Questions | None = None) -> list[str]:
    session = Session()
    session.set_text(PATH, text)
    asked = questions or Questions(lints=True)
    return [d.code for d in (*session.check(PATH), *advice(session, PATH, asked))]


def slow(header: str = "", above: str = "", wrap: str = "", behind: str = "") -> str:
    return SLOW.format(header=header, above=above, wrap=wrap, behind=behind)


@pytest.mark.parametrize(
    ("text", "codes"),
    [(slow(), ["P1002", "P1002"]), (slow(behind="  # tessera: ignore[P1002]"), []),
     (slow(above="        # tessera: ignore[P1002]\n"), []),
     (slow(above="        # tessera: ignore[P1002]\n        # why\n\n"), []),
     (slow(wrap="\n            ", behind="  # tessera:ignore[p1001, P1002] as it is"), ["P1007"]),
     (slow(wrap="  # tessera: ignore[P1002]\n            "), []),
     (slow(header="  # tessera: ignore[P1002]"), ["P1002", "P1002", "P1007"]),
     (slow(behind="  # tessera: ignore"), ["P1002", "P1002", "P1007"]),
     (slow(behind="  # tessera: ignore[T9999]"), ["P1002", "P1002", "P1007"]),
     (slow(behind="  # tessera: ignore[P1002, T0412, T0741]"), []),
     (slow(behind="\n# tessera: ignore[P1002]"), ["P1002", "P1002", "P1007"]),
     (slow() + 's = "# tessera: ignore[P1002]"\n', ["P1002", "P1002"]),
     (slow(behind="  # tessera: ignore[T0101]") + "y = nothing\n", ["T0101", "P1002", "P1002"]),
     ("y = nothing  # tessera: ignore[T0101]\n", ["T0101"])],
)  # fmt: skip
def test_what_is_ignored(text: str, codes: list[str]) -> None:
    assert said(text) == codes


def test_only_lints_say_that_nothing_is_ignored() -> None:
    assert said(slow(behind="  # tessera: ignore[P1001]"), Questions(strict=True)) == []


def test_the_next_check_starts_anew() -> None:
    session = Session()
    for text, codes in (
        (slow(behind="  # tessera: ignore[P1002]"), []),
        (slow(behind="  # tessera: ignore[P1002]").replace("t * 4 + k", "t + k * 128"), ["P1007"]),
    ):
        session.set_text(PATH, text)
        found = (*session.check(PATH), *advice(session, PATH, Questions(lints=True)))
        assert [d.code for d in found] == codes


@pytest.mark.parametrize(
    "text",
    ["x = 1\ny = 2¦\nz = 3\n", "x = 1\ny = ¦(2,\n     3)\nz = 3\n", "y = ¦2  # of its own\n",
     "if a:\n    y = ¦2  # of its own\n", "y = ¦2  # tessera: ignore[T0119]\n", "¦y = 2",
     "# tessera: ignore[T0119]\ny = ¦2\n", "x = 1\r\ny = ¦2\r\nz = 3\r\n",
     '"""Two\nlines."""\ny = ¦2\n'],
)  # fmt: skip
def test_the_comment_that_is_written_speaks_of_its_place(text: str) -> None:
    at = text.index("¦")
    text = text.replace("¦", "")
    fix = ignoring(SourceFile(PATH, text), "P1002", at)
    assert fix is not None
    after = edited(text, fix.edits)
    place = at + after.index("y = ") - text.index("y = ")
    (found,) = ignores(after)
    assert "P1002" in found.codes and found.lo <= place <= found.hi
    assert ("T0119" in found.codes) == ("T0119" in text)


@pytest.mark.parametrize(
    ("before", "after"),
    [("y = 2  # tessera: ignore[P1002]\n", "y = 2\n"),
     ("# tessera: ignore[P1002]\ny = 2\n", "y = 2\n"),
     ("y = 2  # tessera: ignore[P1002] it is so\n", "y = 2  # it is so\n")],
)  # fmt: skip
def test_the_fix_of_a_comment_that_ignores_nothing(before: str, after: str) -> None:
    session = Session()
    session.set_text(PATH, before)
    session.check(PATH)
    (found,) = advice(session, PATH, Questions(lints=True))
    assert found.code == "P1007"
    assert edited(before, found.fixes[0].edits) == after
