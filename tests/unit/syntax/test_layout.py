"""Lines, line ends, files without the usual end."""

from __future__ import annotations

import pytest

from tessera_lang.source import SourceFile
from tessera_lang.syntax import ParsedModule, decode_source, parse_module
from tessera_lang.syntax.dump import dump

PROGRAM = """\
# first
@kernel tile[(128,)]
def f(x: f32[n]):
    \"\"\"Doc
    of two lines.\"\"\"

    y = (1 +
         2)  # why
    z = 1 + \\
        2
    if y:
        return

    # last


print("a")
"""


def parse(text: str) -> ParsedModule:
    return parse_module(SourceFile("m", text))


def shape(text: str) -> str:
    parsed = parse(text)
    assert parsed.diagnostics == ()
    return "\n".join(line.split("  [")[0] for line in dump(parsed.module).splitlines())


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_do_not_matter(end: str) -> None:
    assert shape(PROGRAM.replace("\n", end)) == shape(PROGRAM)


def test_mixed_line_ends() -> None:
    lines = PROGRAM.split("\n")
    ends = ["\n", "\r\n", "\r"]
    mixed = "".join(line + ends[i % 3] for i, line in enumerate(lines))
    assert shape(mixed) == shape(PROGRAM)


def test_a_byte_order_mark_does_not_matter() -> None:
    assert shape("\ufeff" + PROGRAM) == shape(PROGRAM)
    assert shape("\ufeffx = 1") == shape("x = 1")
    assert shape("\ufeff") == shape("")


def test_line_ends_keep_faults_in_their_place() -> None:
    text = "x = 1\ny = (2\nz = 3\ndef f():\n    a = \n    b = 2\n"
    expected = _places(text)
    assert len(expected) == 2
    for changed in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), "\ufeff" + text):
        assert _places(changed) == expected


def _places(text: str) -> list[tuple[str, tuple[int, int]]]:
    file = SourceFile("m", text)
    found = parse_module(file).diagnostics
    return [(d.code, file.position(d.span.lo)) for d in found if d.span is not None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "# only",
        "\n",
        "   ",
        "\n\n  \n",
        "#\n",
        "\t\n",
        "x = 1\n   ",
        "x = 1\n\n\n",
    ],
)
def test_files_with_little_in_them(text: str) -> None:
    """B156 of the public bug reports."""
    assert parse(text).diagnostics == ()


def test_no_newline_at_the_end() -> None:
    assert shape("x = 1") == shape("x = 1\n")
    assert shape("def f():\n    return 1") == shape("def f():\n    return 1\n")
    assert shape("if a: x = 1 # c") == shape("if a: x = 1\n")
    module = parse("x = yy").module
    assert (module.body[-1].span.lo, module.body[-1].span.hi) == (0, 6)


def test_comment_lines_do_not_end_blocks() -> None:
    text = "def f():\n    x = 1\n# in column 0\n    y = 2\n"
    assert shape(text) == shape("def f():\n    x = 1\n    y = 2\n")


def test_blank_lines_in_brackets() -> None:
    assert shape("x = f(\n\n# c\n    1,\n\n)\n") == shape("x = f(1)\n")


def test_bytes_that_are_no_text() -> None:
    for data in (b"\xff\xfe\x00a", b"x = '\xc3'", b"\x7fELF\x00\x00", b"x\x00y"):
        file, found = decode_source(data, "m.tessera")
        assert file is None
        assert [d.code for d in found] == ["T0001"]
    file, found = decode_source("x = 'é'".encode(), "m.tessera")
    assert file is not None and found == ()
    assert file.text == "x = 'é'"
