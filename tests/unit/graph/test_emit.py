"""``tesserac emit --stage=graph``: graphs by annotations and signatures, and what has none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.cli import run
from tessera_lang.driver.function_graphs import graph_program, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.syntax import ast
from tests.house.places import ROOT
from tests.sampling import few

LOSS = """
def loss(w: f32[k, h], x: f32[n, k], y: f32[n, h], scale: f32):
    return op.mean((op.tanh(x @ w) - y) ** 2) * scale / x.shape[0]


def attend(q, k, v):
    return op.softmax(q @ k.mT) @ v


def slope(x: f64[n]):
    return grad(lambda x: op.sum(op.sin(x)))(x)


def shows(x: f32[n]):
    print(op.sum(x))
    return x
"""
ATTEND = """\
"graph.function"() ({
^bb0(%q: !graph.tensor<f32, [b, s, 64]>, %k: !graph.tensor<f32, [b, t, 64]>, \
%v: !graph.tensor<f32, [b, t, 64]>):
  %0 = "graph.transpose"(%k) {axes = [0 : i64, 2 : i64, 1 : i64]} : \
(!graph.tensor<f32, [b, t, 64]>) -> !graph.tensor<f32, [b, 64, t]>
  %1 = "graph.matmul"(%q, %0) : (!graph.tensor<f32, [b, s, 64]>, !graph.tensor<f32, [b, 64, t]>) \
-> !graph.tensor<f32, [b, s, t]>
  %2 = "graph.softmax"(%1) {axis = 2 : i64} : (!graph.tensor<f32, [b, s, t]>) -> \
!graph.tensor<f32, [b, s, t]>
  %3 = "graph.matmul"(%2, %v) : (!graph.tensor<f32, [b, s, t]>, !graph.tensor<f32, [b, t, 64]>) \
-> !graph.tensor<f32, [b, s, 64]>
  "graph.return"(%3) : (!graph.tensor<f32, [b, s, 64]>) -> ()
}) {parameters = ["q", "k", "v"], sym_name = "attend"} : () -> ()
"""


Emitted = Callable[..., tuple[int, str, str]]


@pytest.fixture
def emitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Emitted:
    """The exit code, the output and the errors of ``emit --stage=graph`` of a program."""
    monkeypatch.chdir(tmp_path)

    def call(text: str, *arguments: str) -> tuple[int, str, str]:
        Path("loss.tessera").write_text(text, encoding="utf-8")
        code = run(["emit", "loss.tessera", "--stage=graph", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_sizes_may_be_names(emitted: Emitted) -> None:
    signature = "q: f32[b, s, 64], k: f32[b, t, 64], v: f32[b, t, 64]"
    code, text, _ = emitted(LOSS, "--kernel=attend", "--signature", signature, "--verify-each")
    assert (code, text) == (0, ATTEND)
    code, text, _ = emitted(LOSS, "--kernel=loss", "--verify-each")
    assert code == 0
    assert '"graph.size"(%x) {axis = 0 : i64}' in text
    code, text, _ = emitted(LOSS, "--kernel=slope", "--verify-each")
    assert code == 0
    assert "graph.cos" in text


def test_what_has_no_graph_is_an_error(emitted: Emitted) -> None:
    code, text, errors = emitted(LOSS)
    assert code == 1
    assert text.count("graph.function") == 2
    assert "nothing says what `q` of `attend` is" in errors
    assert "showing what the function computes is not possible in a graph" in errors
    code, _, errors = emitted(LOSS, "--kernel=nothing")
    assert code
    assert "has no plain function `nothing`" in errors


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        ("q: f32[b, s, 64], k: f32[b, t, 32], v: f32[b, t, 64]", "axis 2 of the left has size 64"),
        ("q: f32[n, 64], k: f32[n, m], v: f32[m, 64]", "axis 1 of the left has size 64"),
        ("q: f32[", "cannot be read"),
        ("z: f32[n]", "has no parameter `z`"),
    ],
)
def test_shapes_that_do_not_fit(emitted: Emitted, signature: str, says: str) -> None:
    code, _, errors = emitted(LOSS, "--kernel=attend", "--signature", signature)
    assert code == 1
    assert says in errors


def test_what_is_said_of_fusion_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values lie at other places than those that are alive with them."""
    monkeypatch.chdir(tmp_path)
    text = (
        "def f(x: f32[64, 32], w: f32[32, 512]):\n"
        "    a = x @ w\n    b = a @ w.T\n    c = op.tanh(b @ w) + a\n"
        "    return op.sum(c @ w.T + b)\n"
    )
    Path("f.tessera").write_text(text, encoding="utf-8")
    assert run(["explain", "--fusion", "f.tessera"]) == 0
    said = capsys.readouterr().out
    assert "taken: kernel 0 computes matmul" in said and "less than operator by operator" in said
    assert run(["explain", "--memory", "f.tessera"]) == 0
    said = capsys.readouterr().out
    assert "# f: peak" in said
    found = re.findall(r"\[(\d+), (\d+)\]: .* at (\d+), kernels (\d+) to (\d+)", said)
    rows = [tuple(map(int, row)) for row in found]
    assert len(rows) > 1
    for i, (m, n, at, born, last) in enumerate(rows):
        for p, q, other, first, until in rows[i + 1 :]:
            apart = at + 4 * m * n <= other or other + 4 * p * q <= at
            assert apart or last < first or until < born, said


def _signature(function: ast.FunctionDef, shape: str) -> str:
    open_ = [p for p in function.parameters if p.annotation is None and p.default is None]
    return ", ".join(f"{p.name}: f32[{shape}]" for p in open_)


@pytest.mark.parametrize("folder", ["stdlib", "examples"])
def test_functions_of_the_project(folder: str, whole: bool) -> None:
    """Every plain function has a graph, printed and parsed as it is, or an error with a line."""
    session = Session()
    session.runner.verify_each = True
    graphs = 0
    for path in few(sorted((ROOT / folder).rglob("*.tessera")), 9, whole):
        for function in plain_functions(session, str(path)):
            for shape in ("8", "8, 8"):
                try:
                    program = graph_program(
                        session, str(path), function, _signature(function, shape)
                    )
                except TesseraError as error:
                    assert all(d.span for d in error.diagnostics), function.name
                    assert not any(d.code.startswith("T09") for d in error.diagnostics)
                    continue
                text = print_program(program)
                assert print_program(verify(parse_program(text))) == text
                graphs += 1
    assert graphs or folder == "examples"
