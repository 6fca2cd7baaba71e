"""Modules: roots, circles, ways out of a root, and what one wrong import says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

KERNEL = "@op.kernel\ndef f(x):\n    return x * {}\n"


def found(folder: Path, files: Mapping[str, str | bytes], path: tuple[str, ...] = ()) -> list[str]:
    """Codes of a check of ``main.tessera`` among these files."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    session = Session(search_paths=[str(folder / p) for p in path])
    return [d.code for d in session.check(str(folder / "main.tessera"))]


GOOD: dict[str, tuple[Mapping[str, str | bytes], tuple[str, ...]]] = {
    "a folder of a module": (
        {"main.tessera": "import a.b\nprint(a.b.y)\n", "a/b.tessera": "y = 1\n"}, (),
    ),
    "a root": ({"main.tessera": "import b\nprint(b.y)\n", "p/b.tessera": "y = 1\n"}, ("p",)),
    "the first of two roots": (
        {"main.tessera": "from b import y\nx: f32[y] = op.zeros((3,))\n", "p/b.tessera": "y = 3\n",
         "q/b.tessera": "y = 4\n"}, ("p", "q"),
    ),
    "two ways to one file": (
        {"main.tessera": "import a\nimport b\nprint(a.c.y, b.c.y)\n", "a.tessera": "import c\n",
         "b.tessera": "import c\n", "c.tessera": "y = 1\n"}, (),
    ),
    "marks and ends of lines": (
        {"main.tessera": b"\xef\xbb\xbfimport b\r\nprint(b.y)\r\n", "b.tessera": b"y = 1\r"}, (),
    ),
    "a name in another script": ({"main.tessera": "import größe\nprint(größe.y)\n",
                                  "größe.tessera": "y = 1\n"}, ()),
    "an empty file": ({"main.tessera": "import b\nprint(1)\n", "b.tessera": ""}, ()),
    "in a function": ({"main.tessera": "def f():\n    import b\n    return b.y\nprint(f())\n",
                       "b.tessera": "y = 1\n"}, ()),
}  # fmt: skip
BAD: dict[str, tuple[Mapping[str, str | bytes], list[str]]] = {
    "itself": ({"main.tessera": "import main\n"}, ["T0131"]),
    "a circle of three": ({"main.tessera": "import a\n", "a.tessera": "import b\n",
                           "b.tessera": "import main\n"}, ["T0131"]),
    "a circle beside": ({"main.tessera": "import a\n", "a.tessera": "import b\n",
                         "b.tessera": "import a\n"}, ["T0131"]),
    "a way up": ({"main.tessera": "from ..b import y\n"}, ["T0035"]),
    "this folder": ({"main.tessera": "from . import b\n", "b.tessera": ""}, ["T0035"]),
    "a folder": ({"main.tessera": "import a\n", "a/b.tessera": "y = 1\n"}, ["T0130"]),
    "another case": ({"main.tessera": "import B\n", "b.tessera": "y = 1\n"}, ["T0130"]),
    "everything": ({"main.tessera": "from b import *\n", "b.tessera": "y = 1\n"}, ["T0035"]),
    "no such name": ({"main.tessera": "from b import z\n", "b.tessera": "y = 1\n"}, ["T0104"]),
    "no text": ({"main.tessera": "import b\n", "b.tessera": b"\x00\xff"}, ["T0001"]),
    "in a function": ({"main.tessera": "def f():\n    import nothere\n    return 1\n"}, ["T0130"]),
    "a module of std": ({"main.tessera": "import std.nothere\n"}, ["T0130"]),
    "a name twice": (
        {"main.tessera": "from std.reduce import sum\nfrom std.scan import inclusive as sum\n"},
        ["T0102"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_what_is_found(case: str, tmp_path: Path) -> None:
    files, path = GOOD[case]
    assert found(tmp_path, files, path) == []


@pytest.mark.parametrize("case", BAD)
def test_one_wrong_import_is_one_fault(case: str, tmp_path: Path) -> None:
    files, codes = BAD[case]
    assert sorted(set(found(tmp_path, files))) == codes


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    main = tmp_path / "main.tessera"
    main.write_text("import b\n")
    session = Session(search_paths=[str(tmp_path / "nothere"), str(main)])
    (fault,) = session.check(str(main))
    said = " ".join(fault.notes)
    assert "nothere is no folder" in said and "main.tessera is no folder" in said


@pytest.mark.parametrize("kind", ["file", "folder", "chain"])
def test_links_do_not_lead_out(kind: str, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "b.tessera").write_text("y = 1\n")
    (inside / "main.tessera").write_text("import sub.b\n" if kind == "folder" else "import b\n")
    try:
        match kind:
            case "file":
                (inside / "b.tessera").symlink_to(outside / "b.tessera")
            case "folder":
                (inside / "sub").symlink_to(outside, target_is_directory=True)
            case _:
                (inside / "c").symlink_to(outside / "b.tessera")
                (inside / "b.tessera").symlink_to(inside / "c")
    except OSError:
        pytest.skip("links cannot be made here")
    assert found(inside, {}) == ["T0132"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "folder", "link to itself"])
def test_what_is_no_file_is_not_read(kind: str, tmp_path: Path) -> None:
    there = tmp_path / "b.tessera"
    if kind == "pipe":
        os.mkfifo(there)
    elif kind == "folder":
        there.mkdir()
    else:
        there.symlink_to(there)
    assert found(tmp_path, {"main.tessera": "import b\n"}) == ["T0130"]


def test_an_edit_of_what_a_function_imports_is_seen(tmp_path: Path) -> None:
    main, other = tmp_path / "main.tessera", tmp_path / "b.tessera"
    main.write_text("def g(x):\n    from b import f\n    return f(x)\n")
    x = np.ones(3, np.float32)
    for factor in (2.0, 5.0):
        other.write_text(KERNEL.format(factor))
        m: Any = tessera.load(str(main), target="cpu")
        assert np.array_equal(m.g(x), factor * x)


FOLDERS = {
    "a/b.tessera": "from c import z\nK = 3\ndef twice(x): return z.f(x) * 2\n",
    "a/c/z.tessera": "import e.d\ndef f(x): return x + e.d.L\n",
    "a/c/e/d.tessera": "L = len((1, 2)) - 1\n",
}
USES = {
    "import a.b\nimport a.c.z": ("a.b.twice", "a.c.z.f", "a.b.K"),
    "from a import b\nfrom a.c import z": ("b.twice", "z.f", "b.K"),
    "import a.b as q\nfrom a.c.z import f": ("q.twice", "f", "q.K"),
}


@pytest.mark.parametrize("imports", USES, ids=range(len(USES)))
def test_files_in_folders_mean_the_same_everywhere(imports: str, tmp_path: Path) -> None:
    """In a kernel, in a function of the host, at the top level, as a constant."""
    twice, f, k = USES[imports]
    text = f"""{imports}
HERE = {k} + 1
@kernel tile[(4,)] grid[(1,)]
def kernel_of(o: mut f32[4]):
    i = tile_linear_id()
    o[i] = {twice}(f32(i)) + {f}(1.0) + f32({k} + HERE)
def plain(x): return {twice}(x) + {f}(x) + {k} + HERE
"""
    calls = "assert plain(2) == 16\n" + f"assert {twice}({k}) == 8\n"
    assert found(tmp_path, {"main.tessera": text + calls, **FOLDERS}) == []
    module: Any = tessera.load(tmp_path / "main.tessera", target="cpu")
    out = np.zeros(4, np.float32)
    module.kernel_of(out)
    assert out.tolist() == [11, 13, 15, 17] and module.plain(2) == 16


CONSTANTS = {
    "other.K + 1": "5", "-other.K // 3 * len((1, 2))": "-4", "(other.K, 'a')[0]": "4",
    "math.pi": "3.141592653589793", "min(other.K, 3) if other.K > 1 else 0": "3",
}  # fmt: skip


@pytest.mark.parametrize("written", CONSTANTS)
def test_constants_made_of_constants_of_other_files(written: str, tmp_path: Path) -> None:
    """What is one for kernels is one for who imports the file, and for its functions."""
    files = {
        "other.tessera": "K = 4\n",
        "consts.tessera": f"import other\nC = {written}\ndef get(): return C\n",
        "main.tessera": "import consts\nfrom consts import C, get\n"
        f"assert C == {CONSTANTS[written]} and get() == C and consts.C == C\n"
        "@kernel tile[(4,)] grid[(1,)]\ndef k(o: mut f64[1]): o[0] = f64(consts.C)\n"
        "o = op.zeros((1,), dtype=f64)\nk(o)\n",
    }
    assert found(tmp_path, files) == []
    tessera.load(tmp_path / "main.tessera", target="cpu")


def test_what_only_a_run_of_the_other_file_knows(tmp_path: Path) -> None:
    files = {
        "other.tessera": "V = op.zeros((3,))\ndef get(): return V\n",
        "main.tessera": "import other\nprint(other.V)\nprint(other.get())\nprint(other.W)\n",
    }
    assert sorted(found(tmp_path, files)) == ["T0101", "T0817", "T0817"]
    said = Session().check(str(tmp_path / "main.tessera"))
    assert sum("only while that file is run" in d.message for d in said) == 2
