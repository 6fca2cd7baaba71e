"""Stubs say what a loaded module has, and a real type checker takes them."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tessera_backend.runtime.module_interface import (
    FunctionInterface,
    KernelInterface,
    ModuleInterface,
    ParameterInfo,
)
from tessera_backend.runtime.stubs import stub_text

import tessera_lang as tessera
from tessera_lang.driver.cli import run
from tessera_lang.driver.modules import standard_library

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = sorted(Path(standard_library() or "").glob("*.tessera"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.tessera"))

# Names that the stub's own imports have, docstrings that could end early, every kind of parameter.
PROGRAM = '''\
"""A module: "things", with a \\\\ in it."""

N = 4
T = f32
PAIR = (1, 2.5)
INFINITE = inf
Final = True
_hidden = 3


@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def scale[D: int = 3](x: f32[n], out: mut f32[n], by: f32 = 1.5, flag: bool = True, at: i32 = N):
    """Multiply.

    Ends with "quotes"
    """
    i = grid_tile_linear_id()
    if i < n and flag:
        out[i] = x[i] * D * by + f32(at)


@kernel tile[(1,)]
def Any[E: dtype](x, y: E, self: f32):
    pass


@op.kernel
def product(A: bf16[m, k], B: bf16[k, n]) -> f32[m, n]:
    return A @ B


def mean(x, axis=None, low=-1.5, count=N, high=inf):
    """The mean."""
    return op.sum(x) / x.shape[0]


@test
def holds():
    assert N == 4
'''

USES = """\
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import tessera_lang as tessera

if TYPE_CHECKING:
    from things import Module, product_kernel, scale_kernel

m: Module = tessera.load("things.tessera", target="cpu")
x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
m.scale(x, out)
m.scale(x, out, 2, at=np.int32(3), D=4, stream=0)
m.scale(x, out, by=np.float32(2.0), flag=False)
m.scale[3](x, out)
m.scale[3, 4].on(7)(x, out=out)
kernel: scale_kernel = m.scale[(3,)]
again: Callable[[], None] = kernel.bind(x, out)
again()
c = m.product(np.ones((4, 4)), B=out)
p: product_kernel = m.product
m.mean(x, axis=0)
four: int = m.N + m.PAIR[0]
text: str = m.T + m.scale.__name__
largest: float = m.INFINITE
m.Any(x, 2.0, np.float64(3), E="f32")
m.Any(1, 2, 3, E=np.float32)
d: tessera.DeviceArray = tessera.to_device(x)
m.scale(d, d)
tessera.synchronize()
try:
    m.scale(x, out)
except tessera.TesseraError as error:
    print([found.code for found in error.diagnostics])


def use(array: tessera.Array, number: tessera.Real) -> None:
    m.scale(array, array, number)
"""

WRONG = """\
# pyright: strict, reportUnknownMemberType=false, reportUnusedExpression=false
# pyright: reportPrivateUsage=false
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tessera_lang as tessera

if TYPE_CHECKING:
    from things import Module

m: Module = tessera.load("things.tessera", target="cpu")
x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
d = tessera.to_device(x)
m.scale(x)  # wrong
m.scale(3, out)  # wrong
m.scale(x, out, "2")  # wrong
m.scale(x, out, at=2.5)  # wrong
m.scale([1.0], out)  # wrong
m.scale(x, out, E=3)  # wrong
m.scale["3"](x, out)  # wrong
m.product[3](x, x)  # wrong
m.nothing(x)  # wrong
m.N = 5  # wrong
m.mean()  # wrong
m.holds()  # wrong
m._hidden  # wrong
tessera.load("things.tessera", target="gpu")  # wrong
d.numpy(3)  # wrong
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stubs of everything that is at hand, and a program that uses one."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "things.tessera").write_text(PROGRAM, "utf-8")
    assert run(["stubs", str(folder / "things.tessera")]) == 0
    for path in LIBRARY:
        assert run(["stubs", f"std.{path.stem}", "-o", str(folder / "std")]) == 0
    for number, path in enumerate(EXAMPLES):
        assert run(["stubs", str(path), "-o", str(folder / f"example_{number}.pyi")]) == 0
    (folder / "uses.py").write_text(USES, "utf-8")
    (folder / "wrong.py").write_text(WRONG, "utf-8")
    return folder


# --- the text --------------------------------------------------------------------------------


def classes(stub: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse(stub.read_text("utf-8"))
    return {c.name: c for c in tree.body if isinstance(c, ast.ClassDef)}


def shape(arguments: ast.arguments) -> list[tuple[str, str, bool]]:
    """(kind, name, has a default) of each parameter, as in ``inspect``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    kinds = ["POSITIONAL_ONLY"] * len(arguments.posonlyargs)
    kinds += ["POSITIONAL_OR_KEYWORD"] * len(arguments.args)
    found = [(kind, a.arg, i >= without)
             for i, (kind, a) in enumerate(zip(kinds, positional, strict=True))]  # fmt: skip
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found + [("KEYWORD_ONLY", a.arg, d is not None) for a, d in named]


def shape_of(value: Any) -> list[tuple[str, str, bool]]:
    return [
        (p.kind.name, p.name, p.default is not p.empty)
        for p in inspect.signature(value).parameters.values()
    ]


def test_stubs_have_the_names_and_parameters_of_the_modules(folder: Path) -> None:
    loaded = [("things.pyi", tessera.load(folder / "things.tessera"))]
    loaded += [(f"std/{p.stem}.pyi", tessera.load(f"std.{p.stem}")) for p in LIBRARY]
    loaded += [(f"example_{n}.pyi", tessera.load(p)) for n, p in enumerate(EXAMPLES)]
    for name, module in loaded:
        found = classes(folder / name)
        body = found["Module"].body
        constants = {s.target.id for s in body if isinstance(s, ast.AnnAssign)}  # type: ignore[union-attr]
        functions = {s.name: s for s in body if isinstance(s, ast.FunctionDef)}
        assert constants | {*functions} == {*module.__all__}, name
        for f in functions.values():
            assert shape(f.args) == shape_of(getattr(module, f.name))
        kernels = {*module.__all__} & {c.removesuffix("_kernel") for c in found}
        assert len(kernels) == len(found) - 1
        for kernel in kernels:
            methods = {s.name: s for s in found[f"{kernel}_kernel"].body
                       if isinstance(s, ast.FunctionDef)}  # fmt: skip
            for method in ("__call__", "bind"):
                assert shape(methods[method].args)[1:] == shape_of(getattr(module, kernel))
            level = getattr(module, kernel).interface.level
            assert ("__getitem__" in methods) == (level == "lane")


def test_docstrings_of_stubs(folder: Path) -> None:
    found = classes(folder / "things.pyi")
    assert ast.get_docstring(found["Module"]) == 'A module: "things", with a \\ in it.'
    call = next(s for s in found["scale_kernel"].body
                if isinstance(s, ast.FunctionDef) and s.name == "__call__")  # fmt: skip
    said = ast.get_docstring(call) or ""
    assert said.startswith('Multiply.\n\nEnds with "quotes"\n\nx: f32[n]\nout: mut f32[n]\nby: f32')
    text = (folder / "things.pyi").read_text("utf-8")
    assert "returns f32[m, n]" in text and "holds" not in text and "_hidden" not in text


@pytest.mark.parametrize(
    "doc",
    ['"""', '"', '""" "', "\\", '\\"', '\\"""', "a\n\n    b", 'ends in "', 'a\n"b"', "ä → ∞",
     "\\N{DASH}", "{x}", "\0Any"],
)  # fmt: skip
def test_any_docstring(doc: str) -> None:
    function = FunctionInterface("f", (), doc=doc)
    text = stub_text(ModuleInterface({}, {"f": function}, {}, doc), "m.tessera")
    (module,) = (c for c in ast.parse(text.replace("\0", "")).body if isinstance(c, ast.ClassDef))
    assert ast.get_docstring(module, clean=False) is not None
    assert (ast.get_docstring(module) or "").strip() == inspect.cleandoc(doc).replace("\0", "")


@pytest.mark.parametrize("word", ["is", "lambda", "None"])
def test_words_of_python(word: str) -> None:
    parameters = tuple(ParameterInfo(name, "scalar", "f32") for name in ("a", word, "b"))
    kernel = KernelInterface("k", parameters)
    other = KernelInterface(word, ())
    text = stub_text(ModuleInterface({"k": kernel, word: other}, {}, {}), "m.tessera")
    found = {c.name: c for c in ast.parse(text).body if isinstance(c, ast.ClassDef)}
    assert {*found} == {"Module", "k_kernel"}
    call = next(s for s in found["k_kernel"].body if isinstance(s, ast.FunctionDef))
    assert [a.arg for a in call.args.posonlyargs] == ["self", "a", f"{word}_"]


# --- the command -----------------------------------------------------------------------------


def test_where_a_stub_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my-kernels.v2.tessera"
    file.write_text("N = 4\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    for given, wanted in {
        (str(file),): "my_kernels_v2.pyi",
        (str(file), "-o", "folder/below"): "folder/below/my_kernels_v2.pyi",
        (str(file), "-o", "other.pyi"): "other.pyi",
        ("std.reduce",): "reduce.pyi",
    }.items():
        for _ in range(2):
            assert run(["stubs", *given]) == 0
            assert Path(capsys.readouterr().out.strip()).resolve() == tmp_path / wanted
        assert (tmp_path / wanted).read_text("utf-8").startswith("# Written by `tesserac stubs ")
    assert run(["stubs", str(file), "-o", "-"]) == 0
    assert capsys.readouterr().out == (tmp_path / "other.pyi").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "code"), [("def f(x):\n    return y\n", "T0101"), ("def f(:\n", "T0031")]
)
def test_a_wrong_file_has_no_stub(
    text: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.tessera").write_text(text, "utf-8")
    assert run(["stubs", str(tmp_path / "wrong.tessera")]) == 1
    assert f"error[{code}]" in capsys.readouterr().err
    assert not (tmp_path / "wrong.pyi").exists()
    assert run(["stubs", str(tmp_path / "none.tessera")]) == 1
    assert "error[T0810]" in capsys.readouterr().err


# --- the type checker ------------------------------------------------------------------------


@pytest.mark.slow
def test_pyright_takes_stubs_and_finds_wrong_uses(folder: Path) -> None:
    settings = {
        "typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)],
        # A stub has no module of Python behind it.
        "reportMissingModuleSource": False,
    }  # fmt: skip
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(folder), "--outputjson",
         "--pythonpath", sys.executable],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > len(LIBRARY) + len(EXAMPLES)
    lines = {
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1): d["message"]
        for d in found["generalDiagnostics"]
    }
    wanted = {
        ("wrong.py", number)
        for number, line in enumerate(WRONG.splitlines(), 1)
        if re.search(r"# wrong$", line)
    }
    assert {*lines} == wanted, {k: v for k, v in lines.items() if k not in wanted}
