"""The command line: exit codes, streams, formats, and what is imported."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]

CLEAN = """\
@kernel tile[(32,)] grid[(1,)]
def twice(x: f32[n], out: mut f32[n]):
    for k in range(tile_linear_id(), n, group_tile_count()):
        out[k] = x[k] * 2.0
"""
FAULTY = CLEAN.replace("x[k] * 2.0", "y[k] * 2.0")


def loaded(statement: str) -> set[str]:
    """Top-level packages that a statement imports in a fresh process."""
    code = f"import sys\n{statement}\nprint(' '.join({{m.split('.')[0] for m in sys.modules}}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.splitlines()[-1].split())


def test_the_version_imports_next_to_nothing() -> None:
    code = "from tessera_lang.driver.cli import run; run(['--version'])"
    assert not loaded(code) & {"lark", "llvmlite", "rich", "click", "numpy", "cuda"}


def test_help_imports_no_compiler() -> None:
    code = "from tessera_lang.driver.cli import run; run(['--help'])"
    assert not loaded(code) & {"lark", "llvmlite", "rich", "numpy", "cuda"}


def test_a_check_imports_no_backend(folder: Folder) -> None:
    path = folder({"a.tessera": CLEAN}) / "a.tessera"
    code = f"from tessera_lang.driver.cli import run; run(['check', {str(path)!r}])"
    assert not loaded(code) & {"llvmlite", "numpy", "cuda", "rich", "tessera_backend"}


def test_version(tesserac: Tesserac) -> None:
    assert tesserac("--version").stdout.startswith("tesserac 0.")
    found = json.loads(tesserac("version", "--json").stdout)
    assert {"tesserac", "python", "llvmlite"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("chekc", "a"), "Did you mean `check`?"),
        (("a.tessera",), "Did you mean `tesserac run a.tessera`?"),
        (("fmt",), "Missing argument"),
        (("check", "--frmat=json", "a"), "--frmat"),
        (("explain", "T9999"), "There is no code T9999"),
        (("run", "a.tessera", "--set", "x"), "NAME=VALUE"),
        (("emit", "a.tessera", "--stage=wasm"), "wasm"),
    ],
)
def test_usage_errors_exit_with_2(
    tesserac: Tesserac, arguments: tuple[str, ...], hint: str
) -> None:
    done = tesserac(*arguments)
    assert done.returncode == 2 and hint in done.stderr and not done.stdout


def test_check_clean(child: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": CLEAN})
    done = child("check", "a.tessera")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_check_formats(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": FAULTY})
    human = tesserac("check", "a.tessera")
    assert human.returncode == 1 and not human.stdout
    assert "error[T0101]" in human.stderr and "1 error" in human.stderr
    assert "\x1b[" not in human.stderr
    short = tesserac("check", "a.tessera", "--format=short")
    assert short.stdout.startswith("a.tessera:4:18: error[T0101]") and not short.stderr
    (line,) = tesserac("check", "a.tessera", "--format=json").stdout.splitlines()
    assert json.loads(line)["code"] == "T0101"
    by_variable = tesserac("check", "a.tessera", env={"TESSERA_FORMAT": "short"})
    assert by_variable.stdout == short.stdout


def test_colors(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": FAULTY})
    assert "\x1b[" in tesserac("check", "a.tessera", "--color=always").stderr
    forced = tesserac("check", "a.tessera", env={"FORCE_COLOR": "1"})
    assert "\x1b[" in forced.stderr
    refused = tesserac("check", "a.tessera", env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "\x1b[" not in refused.stderr


def test_standard_input(tesserac: Tesserac) -> None:
    done = tesserac("check", "-", "--format=short", stdin=FAULTY)
    assert done.returncode == 1 and done.stdout.startswith("<stdin>:4:18")


def test_all_files_are_checked(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": FAULTY, "b.tessera": FAULTY})
    done = tesserac("check", "a.tessera", "b.tessera", "missing.tessera", "--format=short")
    codes = re.findall(r"error\[(\w+)\]", done.stdout)
    assert sorted(codes) == ["T0101", "T0101", "T0810"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff\xfe\x00", "T0001"),
        (b"x = 1\0", "T0001"),
        (b"", "T0811"),
        (b"# x = 1\n", "T0811"),
        (b"x" * 5_000_000, "T0003"),
    ],
)
def test_bad_files(tesserac: Tesserac, tmp_path: Path, data: bytes, code: str) -> None:
    (tmp_path / "a.tessera").write_bytes(data)
    done = tesserac("check", "a.tessera", "--format=short")
    assert done.returncode == 1 and code in done.stdout


def test_a_folder_is_no_file(tesserac: Tesserac, tmp_path: Path) -> None:
    (tmp_path / "a.tessera").mkdir()
    done = tesserac("run", "a.tessera")
    assert done.returncode == 1 and "is a folder" in done.stderr


def test_folders_are_checked(tesserac: Tesserac, folder: Folder, tmp_path: Path) -> None:
    """Those that are named, and without names all that is below the working folder; hidden
    folders and other files are left out."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "empty").mkdir()
    names = ("a.tessera", "in/b.tessera", "in/deep/c.tessera", ".hidden/d.tessera", "in/e.txt")
    folder(dict.fromkeys(names, FAULTY))
    said = {n: [] for n in ("", "in", "in/deep")}
    for name in said:
        done = tesserac("check", *([name] if name else []), "--format=short")
        assert done.returncode == 1
        said[name] = sorted(line.split(":")[0] for line in done.stdout.splitlines())
    assert said[""] == ["a.tessera", "in/b.tessera", "in/deep/c.tessera"]
    assert said["in"] == ["in/b.tessera", "in/deep/c.tessera"]
    assert said["in/deep"] == ["in/deep/c.tessera"]
    done = tesserac("check", "empty")
    assert done.returncode == 2 and "there is no source file" in done.stderr


def test_signatures(tesserac: Tesserac, folder: Folder) -> None:
    text = "@kernel tile[(1,)] grid[(1,)]\ndef f(x, out: mut f32[n]): out[0] = x[0]\n"
    folder({"a.tessera": text})
    assert tesserac("check", "a.tessera").returncode == 0
    assert tesserac("check", "a.tessera", "--signature", "x: f32[n]").returncode == 0
    assert tesserac("check", "a.tessera", "--signature", "x: i32[n]").returncode == 1
    bad = tesserac("check", "a.tessera", "--signature", "x f32", "--format=short")
    assert bad.returncode == 1 and "T0815" in bad.stdout


def test_emit(tesserac: Tesserac, child: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": CLEAN})
    tree = tesserac("emit", "a.tessera", "--stage=ast")
    assert tree.returncode == 0 and tree.stdout.startswith("module a.tessera")
    typed = tesserac("emit", "a.tessera", "--stage=typed").stdout
    assert typed.startswith("kernel twice") and "x: f32, rank 1 contiguous" in typed
    tile = tesserac("emit", "a.tessera", "--stage=tile", "--time-passes")
    assert '"tile.kernel"' in tile.stdout and " ms  " in tile.stderr
    again = child("emit", "-", "--stage=tile", stdin=CLEAN, env={"PYTHONHASHSEED": "7"})
    assert again.stdout == tile.stdout
    assert tesserac("emit", "a.tessera", "--stage=tile", "-o", "t.mlir").stdout == ""
    wrong = tesserac("emit", "a.tessera", "--stage=tile", "--kernel=twize")
    assert wrong.returncode == 1 and "T0819" in wrong.stderr
    folder({"f.tessera": "def helper(n): return n\n\n\n" + CLEAN})
    helper = tesserac(
        "emit", "f.tessera", "--stage=tile", "--kernel=helper", "--signature", "n: i32"
    )
    assert helper.returncode == 1 and "that is a function without `@kernel`" in helper.stderr
    broken = tesserac("emit", "-", "--stage=tile", stdin=FAULTY)
    assert broken.returncode == 1 and not broken.stdout


def test_passes_are_shown(tesserac: Tesserac, folder: Folder) -> None:
    """Programs behind a pass, and a name that is none; each is read again."""
    folder({"a.tessera": CLEAN})
    shown = tesserac(
        "emit", "a.tessera", "--stage=asm", "--print-after=simplify", "--print-after=nest_returns",
        "--verify-each",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    heads = [line for line in shown.stderr.splitlines() if line.startswith("// after")]
    assert set(heads) == {"// after simplify", "// after nest_returns"}
    assert shown.stderr.count('"tile.kernel"') == len(heads)
    every = tesserac("emit", "a.tessera", "--stage=tile", "--print-after=all").stderr
    assert "// after ast_to_tile" in every and "// after prove_bounds" in every
    wrong = tesserac("emit", "a.tessera", "--stage=tile", "--print-after=simplfy")
    assert wrong.returncode == 2 and "no pass 'simplfy'" in wrong.stderr
    assert "prove_bounds" in wrong.stderr


def test_a_signature_that_fits_no_kernel_is_said(tesserac: Tesserac, folder: Folder) -> None:
    """Of one file or of several; what fits one of them is used there."""
    other = "@kernel tile[(4,)] grid[(1,)]\ndef k(y: f32[n]):\n    a = y[0]\n"
    folder({"a.tessera": CLEAN, "b.tessera": other})
    one = tesserac("check", "a.tessera", "--signature", "x: f32[n], z: f32", "--format=short")
    assert one.returncode == 1 and "no kernel has all the parameters" in one.stdout
    assert tesserac("check", "a.tessera", "--signature", "y: f32[n]").returncode == 1
    both = ("check", "a.tessera", "b.tessera", "--signature", "y: f32[n]")
    assert tesserac(*both, "--signature", "x: f32[n]").returncode == 0


def test_kernels_whose_signature_is_open_are_left_out(tesserac: Tesserac, folder: Folder) -> None:
    generic = "@kernel tile[(1,)] grid[(1,)]\ndef g(x, out: mut f32[n]): out[0] = x[0]\n\n\n"
    folder({"a.tessera": generic + CLEAN, "b.tessera": generic})
    done = tesserac("emit", "a.tessera", "--stage=typed")
    assert done.returncode == 0 and done.stdout.startswith("kernel twice")
    assert "note: left out" in done.stderr
    done = tesserac("emit", "b.tessera", "--stage=typed")
    assert done.returncode == 1 and "T0815" in done.stderr
    done = tesserac("emit", "b.tessera", "--stage=typed", "--signature=x: f32[n]")
    assert done.returncode == 0 and done.stdout.startswith("kernel g")


def test_explain(tesserac: Tesserac) -> None:
    done = tesserac("explain", "t0805")
    assert done.returncode == 0 and done.stdout.startswith("# T0805 assertion-failed")
    assert tesserac("explain", "assertion-failed").stdout == done.stdout
    assert json.loads(tesserac("explain", "T0805", "--format=json").stdout)["slug"]


def test_a_fault_of_ours_leaves_a_report(folder: Folder, tmp_path: Path) -> None:
    code = "from tessera_lang.driver import session\n"
    code += "session.Session.check = lambda *a, **k: 1 // 0\n"
    code += "from tessera_lang.driver.cli import main\nmain(['check', 'a.tessera'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "TESSERA_REPORTS": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 101 and "error[T0902]" in done.stderr
    assert "Traceback" not in done.stderr
    (report,) = tmp_path.glob("tessera-report-*.txt")
    assert "ZeroDivisionError" in report.read_text() and str(report) in done.stderr


def test_a_closed_pipe_is_no_fault(folder: Folder, tmp_path: Path) -> None:
    text = "\n".join(f"x{i} = {i}" for i in range(5000))
    folder({"a.tessera": text})
    command = f"{sys.executable} -m tessera_lang.driver.cli emit a.tessera --stage=ast | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "module a.tessera\n" and not done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise on Windows")
def test_ctrl_c(folder: Folder, tmp_path: Path) -> None:
    folder({"a.tessera": "print('go')\nwhile True: pass\n"})
    # A background job begins with the signal ignored, and hands that on to its children.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from tessera_lang.driver.cli import main; main(['run', 'a.tessera'])"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as child:  # fmt: skip
        try:
            assert child.stderr is not None
            assert child.stderr.readline().startswith("target: ")
            time.sleep(0.5)
            child.send_signal(signal.SIGINT)
            assert child.wait(20) == 130
            assert "Traceback" not in child.stderr.read()
        finally:
            child.kill()


def test_a_host_program_runs(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": "n = 3\nprint(f'{n} squares:', [i * i for i in range(n)])\n"})
    done = tesserac("run", "a.tessera", "--target=cpu")
    assert done.returncode == 0 and done.stdout == "3 squares: [0, 1, 4]\n"
    assert done.stderr.startswith("target: cpu")
    done = tesserac("run", "a.tessera", "--set", "n=2", "--target=cpu")
    assert done.stdout == "2 squares: [0, 1]\n"
    for bad in ("m=2", "n=@"):
        done = tesserac("run", "a.tessera", "--set", bad, "--target=cpu")
        assert done.returncode in (1, 3) and "T0812" in done.stderr


def test_a_failed_run_exits_with_3(tesserac: Tesserac, child: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": "x = 1\nprint('before')\nassert x == 2, f'x is {x}'\n"})
    done = child("run", "a.tessera", "--target=cpu")
    assert done.returncode == 3 and done.stdout == "before\n"
    assert "error[T0805]: the assertion is false: x is 1" in done.stderr
    assert tesserac("run", "a.tessera", "--target=nope").returncode == 3
    folder({"b.tessera": "print(zork)\n"})
    assert tesserac("run", "b.tessera").returncode == 1


def test_doctor_and_devices(tesserac: Tesserac) -> None:
    done = tesserac("doctor", "--format=json")
    found = {f["name"]: f for f in json.loads(done.stdout)}
    assert done.returncode == 0 and found["python"]["ok"] and found["standard library"]["ok"]
    assert all(f["ok"] or f["remedy"] for f in found.values() if "target" not in f["name"])
    assert isinstance(json.loads(tesserac("devices", "--format=json").stdout), list)
    assert tesserac("cache", "dir").returncode == 0
