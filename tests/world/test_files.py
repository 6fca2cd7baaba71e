"""Source files that nobody would write end in one diagnostic, soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.conftest import Command

N = 30_000
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "T0811"),
    "comments": (b"# nothing\n\n# more\n", "T0811"),
    "byte order mark": (b"\xef\xbb\xbf", "T0811"),
    "blank": (b"\n \n\t\n", "T0811"),
    "binary": (bytes(range(256)) * 64, "T0001"),
    "UTF-16": ("x = 1\n".encode("utf-16"), "T0001"),
    "NUL": (b"x = 1\0\n", "T0001"),
    "one line": (b"x = " + b"1 + " * 1_250_000 + b"1\n", "T0003"),
    "one word": (b"x" * 5_000_000, "T0003"),
    "one string": (b"x = '" + b"a" * 5_000_000, "T0003"),
    "open brackets": (b"x = " + b"[" * N, "T0004"),
    "brackets": (b"x = " + b"(\n" * N + b"1" + b"\n)" * N, "T0004"),
    "unary minus": (b"x = " + b"-" * N + b"1\n", "T0004"),
    "blocks": (b"".join(b" " * i + b"if x:\n" for i in range(3500)), "T0004"),
    "lines": (b"x = 1\n" * 1_000_000, "T0002"),
    "blank lines": (b"\n" * 1_000_000, "T0002"),
    "damaged lines": (b"x = \n" * N, "T0030"),
    "strange lines": (b"x = $\n" * N, "T0010"),
    "open strings": (b'x = "a\n' * N, "T0011"),
    "damaged lines of a function": (b"def f():\n" + b"    x = \n" * N, "T0030"),
}


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.sample(1)
def test_file(tesserac: Command, tmp_path: Path, name: str, command: str) -> None:
    data, code = FILES[name]
    (tmp_path / "a.tessera").write_bytes(data)
    done = tesserac(command, "a.tessera")
    assert done.status == 1, done.err
    assert set(done.codes) - {"T0005"} == {code}
    assert len(done.codes) == 1 or "100 errors" in done.err
    assert len(done.err) < 20_000
    # About half a second where the machine has nothing else to do.
    assert done.seconds < 10


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("check", "none.tessera"), "T0810"),
        (("run", "none.tessera"), "T0810"),
        (("run", "."), "T0810"),
        (("emit", "none.tessera", "--stage=tile"), "T0810"),
        (("build", "none.tessera", "-o", "out"), "T0810"),
    ],
)
@pytest.mark.sample(1)
def test_no_file(tesserac: Command, arguments: tuple[str, ...], code: str) -> None:
    done = tesserac(*arguments)
    assert (done.status, done.codes) == (1, [code])


@pytest.mark.parametrize("faults", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_names_that_are_not_there(tesserac: Command, tmp_path: Path, faults: int) -> None:
    text = "".join(f"x{i} = y{i}\n" for i in range(faults))
    (tmp_path / "a.tessera").write_text(text, encoding="utf-8")
    done = tesserac("check", "a.tessera", "--format=short")
    assert done.status == 1 and done.out.count("T0101") > 500
    assert done.seconds < 20
