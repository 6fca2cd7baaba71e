"""A loaded file as a module of Python: its names, its help, its copies."""

from __future__ import annotations

import copy
import inspect
import math
import multiprocessing
import pydoc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.module_interface import ModuleInterface, ParameterInfo
from tessera_backend.runtime.python_signature import python_signature

import tessera_lang as tessera

PROGRAM = '''\
"""Things to try.

A second paragraph.
"""

from std.math import PI as PI_OF_ANOTHER

N = 4
T = f32
PAIR = (1, (2.5, True))
NAME = "tile"
NEGATIVE = -N * 2
INFINITE = inf
_hidden_number = 3
changes = 1
changes = 2


@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def scale[D: int = 3](x: f32[n], out: mut f32[n], by: int = N):
    """Multiply.

        Indented.
    """
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * D * by


@kernel tile[(1,)]
def bare(x, n: i32, stream: f32):
    pass


@op.kernel
def product(A: bf16[m, k], B: bf16[k, n]) -> f32[m, n]:
    """A product."""
    return A @ B


def mean(x, axis=None, low=-1.5, count=N):
    """The mean."""
    return op.sum(x) / x.shape[0]


def _hidden(x):
    return x


@test
def holds():
    assert N == 4
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("module") / "things.tessera"
    path.write_text(PROGRAM.replace("from std.math import PI as PI_OF_ANOTHER\n", ""), "utf-8")
    return path


@pytest.fixture(scope="module")
def m(path: Path) -> Any:
    return tessera.load(path, target="cpu")


# --- names -----------------------------------------------------------------------------------


def test_all_names(m: Any) -> None:
    public = ["N", "T", "PAIR", "NAME", "NEGATIVE", "INFINITE", "scale", "bare", "product", "mean"]
    assert m.__all__ == public
    others = {"_hidden", "_hidden_number", "holds", "__all__", "__doc__", "__file__", "__name__"}
    assert {*dir(m)} == {*public} | others
    assert all(hasattr(m, name) for name in dir(m))
    assert not hasattr(m, "changes") and not hasattr(m, "f32")


def test_constants(m: Any) -> None:
    assert (m.N, m.T, m.PAIR, m.NAME, m.NEGATIVE) == (4, "f32", (1, (2.5, True)), "tile", -8)
    assert math.isinf(m.INFINITE) and m._hidden_number == 3


def test_names_of_a_module(m: Any, path: Path) -> None:
    assert (m.__name__, m.__file__) == ("things", str(path))
    assert m.__doc__ == "Things to try.\n\nA second paragraph."
    assert repr(m) == f"<tessera module {path}, target cpu>"


def test_a_constant_of_an_import_is_not_ones_own(tmp_path: Path) -> None:
    (tmp_path / "below.tessera").write_text("SIZE = 5\n", "utf-8")
    path = tmp_path / "above.tessera"
    path.write_text("from below import SIZE\n\nTWICE = SIZE * 2\n", "utf-8")
    m = tessera.load(path)
    assert m.__all__ == ["TWICE"] and m.TWICE == 10 and not hasattr(m, "SIZE")


# --- help ------------------------------------------------------------------------------------

SIGNATURES = {
    "scale": "(x: f32[n], out: mut f32[n], by: int = 4, *, D: int = 3, stream=None)",
    "bare": "(x, n: i32, stream: f32)",
    "product": "(A: bf16[m, k], B: bf16[k, n], *, stream=None) -> f32[m, n]",
    "mean": "(x, axis=None, low=-1.5, count=4)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(m: Any, name: str) -> None:
    found = getattr(m, name)
    assert str(inspect.signature(found)) == SIGNATURES[name]
    assert (found.__name__, found.__qualname__, found.__module__) == (name, name, "things")
    assert inspect.isroutine(found)


def test_docstrings(m: Any) -> None:
    assert m.scale.__doc__ == "Multiply.\n\nIndented."
    assert m.mean.__doc__ == "The mean." and m.bare.__doc__ is None


@pytest.mark.parametrize("name", SIGNATURES)
def test_help(m: Any, name: str) -> None:
    said = pydoc.plain(pydoc.render_doc(getattr(m, name)))
    assert name + SIGNATURES[name] in said
    assert (getattr(m, name).__doc__ or "").splitlines()[:1] == [
        line.strip() for line in said.splitlines()[3:4] if line.strip()
    ]
    assert "tessera_backend" not in said and "Launcher" not in said


def test_help_of_a_module(m: Any) -> None:
    said = pydoc.plain(pydoc.render_doc(m))
    for name in SIGNATURES:
        assert name + SIGNATURES[name] in said
    assert "things - Things to try." in said and "N = 4" in said
    assert "_hidden" not in said and "holds" not in said


def test_words_of_python_as_names() -> None:
    def number(name: str) -> ParameterInfo:
        return ParameterInfo(name, "scalar", "f32", declared="f32")

    said = python_signature(
        [number("a"), number("is"), number("b")], [number("not"), number("c")], "", launches=True
    )
    assert str(said) == "(a: f32, is: f32, /, b: f32, *, c: f32, stream=None)"


def test_signatures_bind_as_calls_do(m: Any) -> None:
    """What ``Signature.bind`` takes a launch takes, and the other way round."""
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x, out), {}), ((x, out, 2), {}), ((x,), {"out": out}),
        ((), {"x": x, "out": out, "by": 1}), ((x, out), {"D": 5}),
        ((x, out, 2), {"D": 5, "stream": 0}),
        ((x,), {}), ((x, out, 2, 3), {}), ((x, out), {"x": x}), ((x, out), {"E": 1}),
    ]  # fmt: skip
    for arguments, named in calls:
        try:
            inspect.signature(m.scale).bind(*arguments, **named)
            fits = True
        except TypeError:
            fits = False
        try:
            m.scale(*arguments, **named)
            taken = True
        except tessera.TesseraError as found:
            assert found.diagnostics[0].code == "T0830"
            taken = False
        assert fits == taken, (arguments, named)


def test_interfaces_survive_the_cache(m: Any, path: Path) -> None:
    from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

    made = SessionProvider(str(path), options_from_environment()).module()
    import json

    again = ModuleInterface.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made


def test_a_kernel_in_a_class_is_no_method(m: Any) -> None:
    class Layer:
        scale = m.scale
        mean = m.mean

    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    Layer().scale(x, out)
    assert out.tolist() == [12.0] * 3 and Layer().mean(x) == 1.0


# --- copies ----------------------------------------------------------------------------------


def test_there_is_one_of_each(m: Any) -> None:
    for found in (m, m.scale, m.scale[(1,)], m.mean):
        assert copy.copy(found) is found and copy.deepcopy(found) is found


def scaled(kernel: Any) -> list[float]:
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    kernel(x, out)
    return out.tolist()


def of_module(m: Any) -> tuple[list[float], float]:
    return scaled(m.scale), float(m.mean(np.ones(4, np.float32)))


def mean_of(function: Any) -> float:
    return float(function(np.ones(4, np.float32)))


def test_another_process_gets_them_by_name(m: Any, path: Path) -> None:
    text = tessera.compile(path.read_text("utf-8"), target="cpu")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for module in (m, text):
            assert pool.apply(of_module, (module,)) == ([12.0] * 3, 1.0)
        assert pool.apply(scaled, (m.scale,)) == [12.0] * 3
        assert pool.apply(scaled, (m.scale[(1,)],)) == [12.0] * 3
        assert pool.apply(mean_of, (m.mean,)) == 1.0


def test_what_belongs_to_this_process_is_not_pickled(m: Any) -> None:
    with pytest.raises(TypeError, match="its stream is of this process"):
        m.scale.on(0).__reduce__()


def test_a_built_folder(m: Any, path: Path, tmp_path: Path) -> None:
    from tessera_lang.driver.cli import run

    assert run(["build", str(path), "-o", str(tmp_path / "out"), "--kernel", "scale",
                "--target", "cpu"]) == 0  # fmt: skip
    there: Any = tessera.load_built(tmp_path / "out", target="cpu")
    assert there.__all__ == ["scale"] and "scale" in dir(there)
    said = str(inspect.signature(there.scale))
    assert said.startswith("(x: f32[n], out: mut f32[n], by"), said
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(scaled, (there.scale,)) == [12.0] * 3


def test_names_of_a_bound_launch(m: Any) -> None:
    call = m.scale.bind(np.ones(3, np.float32), np.zeros(3, np.float32))
    assert call.__name__ == "scale" and "scale" in call.__doc__ and "scale.bind" in repr(call)


@pytest.mark.gpu
def test_copies_of_a_device_array_have_memory_of_their_own() -> None:
    first = tessera.to_device(np.arange(4, dtype=np.float32))
    for second in (copy.copy(first), copy.deepcopy(first)):
        second.copy_from(np.zeros(4, np.float32))
        assert first.numpy().tolist() == [0, 1, 2, 3] and second.numpy().tolist() == [0] * 4
    make, given = first.__reduce__()
    assert make(*given).numpy().tolist() == [0, 1, 2, 3]
