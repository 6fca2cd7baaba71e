"""Wrong data at launch: one diagnostic that names what is wrong; empty data is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.world.conftest import Command

ADD = """\
@kernel tile[(64,)]
def add(a: f32[n], b: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = a[i] + b[i]


a = op.zeros((4,), f32)
b = op.zeros((4,), f32)
out = op.zeros((4,), f32)
add[(1,)](a, b, out)
print("sum", op.sum(out))
"""


@pytest.fixture
def add(tmp_path: Path) -> Path:
    path = tmp_path / "add.tessera"
    path.write_text(ADD, encoding="utf-8")
    f32 = np.arange(4, dtype=np.float32)
    np.save(tmp_path / "a.npy", f32)
    np.save(tmp_path / "five.npy", np.arange(5, dtype=np.float32))
    np.save(tmp_path / "square.npy", np.zeros((2, 2), np.float32))
    np.save(tmp_path / "double.npy", np.arange(4, dtype=np.float64))
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=f32, b=f32)
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-3])
    (tmp_path / "header.npy").write_bytes(whole[:20])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "noise.npy").write_bytes(bytes(range(256)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "two.npz").read_bytes()[:-40])
    (tmp_path / "noise.npz").write_bytes(bytes(range(256)))
    (tmp_path / "noise.csv").write_bytes(bytes(range(256)))
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "words.csv").write_text("a,b\n1,x\n")
    (tmp_path / "empty.csv").write_text("")
    return path


def run(tesserac: Command, *settings: str) -> tuple[int, list[str], str]:
    flags = [part for setting in settings for part in ("--set", setting)]
    done = tesserac("run", "add.tessera", "--target=cpu", *flags)
    return done.status, done.codes, done.err + done.out


def test_right_data(tesserac: Command, add: Path) -> None:
    status, codes, text = run(tesserac, "a=a.npy", "b=two.npz:b")
    assert (status, codes) == (0, []) and "sum 12.0" in text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("a=five.npy", ("5", "4")),
        ("a=square.npy", ("1 axis is expected", "(2, 2)")),
        ("a=double.npy", ("f64", "f32")),
        ("a=3", ("array",)),
        ("a='text'", ("array",)),
    ],
)
@pytest.mark.sample(1)
def test_data_that_does_not_fit(
    tesserac: Command, add: Path, setting: str, words: tuple[str, ...]
) -> None:
    status, codes, text = run(tesserac, setting)
    assert status == 3 and len(set(codes)) == 1, text
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    "file",
    [
        "none.npy", "cut.npy", "header.npy", "empty.npy", "noise.npy", "objects.npy", "cut.npz",
        "noise.npz", "two.npz", "two.npz:c", "none.csv", "noise.csv", "ragged.csv", "words.csv",
        "empty.csv", "none/a.npy",
    ],
)  # fmt: skip
@pytest.mark.sample(1)
def test_files_that_cannot_be_read(tesserac: Command, add: Path, file: str) -> None:
    status, codes, text = run(tesserac, f"a={file}")
    assert (status, codes) == (3, ["T0813"]), text
    assert file.partition(":")[0].rpartition("/")[2] in text


@pytest.mark.parametrize(
    ("setting", "status", "word"),
    [
        ("a", 2, "NAME=VALUE"), ("=3", 2, "NAME=VALUE"), ("a b=3", 2, "NAME=VALUE"),
        ("aa=3", 1, "aa"), ("a=@", 3, "`@`"), ("a=", 3, ""), ("a=f(1)", 3, "f(1)"),
    ],
)  # fmt: skip
@pytest.mark.sample(1)
def test_settings(tesserac: Command, add: Path, setting: str, status: int, word: str) -> None:
    found, codes, text = run(tesserac, setting)
    assert found == status and word in text
    assert codes == ([] if status == 2 else ["T0812"])


def test_no_elements(tesserac: Command, add: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.zeros(0, np.float32))
    add.write_text(ADD.replace("a = op.zeros((4,), f32)\nb = op.zeros((4,), f32)\n", "")
                   .replace("out = op.zeros((4,)", "out = op.zeros((0,)"))  # fmt: skip
    status, codes, text = run(tesserac, "a=none.npy", "b=none.npy")
    assert (status, codes) == (0, []) and "sum 0.0" in text


PYTHON = """\
import numpy as np, tessera_lang as tessera
m = tessera.load("add.tessera", target="cpu")
f = lambda n, t=np.float32: np.ones(n, t)
out = f(4)
m.add[(1,)](f(4), f(4), out)
assert out.tolist() == [2, 2, 2, 2]
m.add[(1,)](f(0), f(0), f(0))
for arguments in (
    (f(4), f(5), f(4)), (f(4), f(4, np.float64), f(4)), (f(4), f((2, 2)), f(4)), (f(4), f(4)),
    (f(4), None, f(4)), (f(4), 2.0, f(4)), (f(4), "text", f(4)), (f(4), [1.0], f(4)),
    (out, out, out[::-1]), (f(4), f(4, object), f(4)), (f(4), f(4, np.complex64), f(4)),
):
    try:
        m.add[(1,)](*arguments)
    except tessera.TesseraError as error:
        assert error.__context__ is None, error.__context__
        found = error.diagnostics[0]
        print(found.code, found.message)
    else:
        print("nothing", arguments)
"""


def test_from_python(add: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PYTHON], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 11 and all(line.startswith("T0") for line in lines), done.stdout
    assert "4" in lines[0] and "5" in lines[0]
    assert "f64" in lines[1] and "f32" in lines[1]
