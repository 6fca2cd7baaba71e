"""Every code block of the documents the language comes from, word for word.

The cases lie in ``shared/conformance`` beside the checkout; where that folder is absent the
suite is skipped with a line that says so. A case that is not supported yet is an expected
failure with its reason; one that begins to pass unexpectedly fails the suite. What a case says
in words (``also``, ``emits``) is in ``test_words.py``.
"""

from __future__ import annotations

import ast as python_ast
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.host_environment import HostWorld

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.host import Host
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tests.unit.ir.other_parser import module_read
from tests.unit.same_program import same_program

FOLDER = Path(
    os.environ.get("TESSERA_CONFORMANCE")
    or Path(__file__).resolve().parents[3] / "shared" / "conformance"
)
CASES = sorted(p.parent.name for p in FOLDER.glob("*/case.toml")) if FOLDER.is_dir() else []
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}  # relative, by norm

# Cases whose level of the language is not built yet, with the reason.
PENDING = {
    "all_reduce": "distribution is not built yet",
    "autotune_conv2d": "graph functions and the tuner are not built yet",
    "mesh_72": "distribution is not built yet",
    "reduce_spec": "distribution is not built yet",
    "replicate_spec": "distribution is not built yet",
    "row_sharded_tensor": "distribution is not built yet",
    "sharded_matmul_reduce_scatter": "distribution is not built yet",
    "sharded_tensor_bf16": "distribution is not built yet",
}
BUILT = {
    "flash_attention_schedule", "ir_prefetch_line", "matmul_schedule", "matmul_tile_shape",
    "pipeline_prefetch_mma", "pipelined_attention", "profile_step", "sum_reduce",
    "tiled_matmul", "vec_add",
}  # fmt: skip


def cases() -> list[Any]:
    if not CASES:
        skip = pytest.mark.skip(reason=f"no conformance folder at {FOLDER}")
        return [pytest.param("", marks=skip)]
    return [
        pytest.param(name, marks=_expected_failure(name) if name in PENDING else (), id=name)
        for name in CASES
    ]


def _expected_failure(name: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=PENDING[name], strict=True)


def case_of(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name / "case.toml").read_text())


def source_of(name: str) -> str:
    """The block of a case with what stands before, around and after it."""
    case = case_of(name)
    block = (FOLDER / name / "block.tessera").read_text()
    if "wrap" in case:
        indented = "".join(
            f"    {line}" if line.strip() else line for line in block.splitlines(True)
        )
        block = case["wrap"].replace("{block}\n", indented)
    prelude: str = case.get("prelude", "")
    return prelude + block + case.get("after", "")


def numpy_dtype(name: str) -> Any:
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"f32": "float32", "f16": "float16"}[name])


def make_inputs(case: dict[str, Any], size: dict[str, int], dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for name, spec in case["inputs"].items():
        shape = tuple(size[s] for s in spec["shape"])
        kind = numpy_dtype(spec.get("dtype", dtype))
        match spec.get("init", "random"):
            case "zeros":
                arrays[name] = np.zeros(shape, kind)
            case "nan":
                arrays[name] = np.full(shape, np.nan, kind)
            case _:
                arrays[name] = rng.uniform(-1, 1, shape).astype(kind)
    return arrays


def expected(text: str, arrays: dict[str, np.ndarray], size: dict[str, int]) -> np.ndarray:
    """The NumPy expression of the case in float64."""
    names: dict[str, Any] = {k: v.astype(np.float64) for k, v in arrays.items()}
    names |= size | {"full": np.full, "sum": np.sum, "softmax": softmax}
    return eval(text, {"__builtins__": {}}, names)  # text of a case file, not of a user


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def compare(
    got: np.ndarray, text: str, before: dict[str, np.ndarray], case: dict[str, Any],
    size: dict[str, int], dtype: str,
) -> None:  # fmt: skip
    want = expected(text, before, size)
    if case["check"].get("exact"):
        assert np.array_equal(got, want.astype(got.dtype)), (size, dtype)
        return
    assert got.shape == np.shape(want) or got.size == 1
    # A sum is compared relative to the sum of absolute values.
    sizes = {k: np.abs(v.astype(np.float64)) for k, v in before.items() if not _is_nan(v)}
    scale = np.linalg.norm(expected(text, sizes, size))
    error = np.linalg.norm(got.astype(np.float64) - want)
    assert error <= case["check"].get("rtol", TOLERANCE[dtype]) * max(scale, 1e-30), (size, dtype)


def _is_nan(array: np.ndarray) -> bool:
    return bool(array.size) and bool(np.isnan(array.astype(np.float64)).all())


def signatures_of(case: dict[str, Any]) -> list[str]:
    """What the case is called with, as text."""
    found: list[str] = []
    for size in case["sizes"]:
        sizes = {"n": size} if isinstance(size, int) else size
        for dtype in case.get("dtypes", ["f32"]):
            parts: list[str] = []
            for name, spec in case["inputs"].items():
                shape = ", ".join(str(sizes[s]) for s in spec["shape"])
                parts.append(f"{name}: {spec.get('dtype', dtype)}[{shape}]")
            found.append(", ".join(parts))
    return found


def check_diagnostics(file: Path, case: dict[str, Any]) -> None:
    """All that may be said of a program, in meaning: severity and the name it is about."""
    session = Session()
    found = list(dict.fromkeys(session.check(str(file), signatures_of(case))))
    assert not [d for d in found if d.severity == "error"]
    said = case["check"].get("diagnostics")
    if said is None:
        return
    assert len(found) == len(said), [d.message for d in found]
    for text, d in zip(said, found, strict=True):
        severity, _, rest = text.partition(": ")
        about = rest.split("'")[1] if "'" in rest else rest
        assert d.severity == severity and about in d.message, (text, d.message)


def run_case(name: str, target: str, tmp_path: Path) -> None:
    case = case_of(name)
    if case.get("kind") == "ir":
        run_ir_case(name)
        return
    file = tmp_path / f"{name}.tessera"
    file.write_text(source_of(name))
    if "call" not in case:
        run_program(file, case, target)
        return
    if name not in PENDING and "inputs" in case:
        check_diagnostics(file, case)
    module = tessera.load(str(file), target=target)
    statement = python_ast.parse(case["call"]).body[0]
    result = ""
    if isinstance(statement, python_ast.Assign):
        assert isinstance(statement.targets[0], python_ast.Name)
        result = statement.targets[0].id
    assert isinstance(statement, (python_ast.Assign, python_ast.Expr))
    call = statement.value
    assert isinstance(call, python_ast.Call)
    arguments = [a.id for a in call.args if isinstance(a, python_ast.Name)]
    function = getattr(module, python_ast.unparse(call.func))
    checks = {k: v for k, v in case["check"].items() if k in (*case["inputs"], result)}
    assert checks or case["check"].get("runs")
    for size in case["sizes"]:
        size = {"n": size} if isinstance(size, int) else size
        for dtype in case.get("dtypes", ["f32"]):
            arrays = make_inputs(case, size, dtype)
            before = {k: v.copy() for k, v in arrays.items()}
            returned = function(*(arrays[a] for a in arguments))
            arrays |= {result: returned} if result else {}
            for key, text in checks.items():
                compare(arrays[key], text, before, case, size, dtype)


def run_program(file: Path, case: dict[str, Any], target: str) -> None:
    """A case that is a program: its top-level statements, with the inputs as given names."""
    assert not [d for d in Session().check(str(file), given=frozenset(case.get("inputs", ())))
                if d.severity == "error"]  # fmt: skip
    for size in case.get("sizes", [{}]):
        for dtype in case.get("dtypes", ["f32"]):
            session, printed = Session(), list[str]()
            world = HostWorld(session, target, printed.append)
            arrays = make_inputs(case, size, dtype) if "inputs" in case else {}
            host = Host(world, session, str(file))
            host.run({k: world.adopt(v) for k, v in arrays.items()})
            for key in case["check"].keys() - {"output", "format"}:
                found = np.asarray(world.handed_back(host.top.values[key]))
                compare(found, case["check"][key], arrays, case, size, dtype)
            if "output" in case["check"]:
                check_profile("".join(printed))


def check_profile(printed: str) -> None:
    """A line for each kernel, as in the document, and what became of the operators."""
    lines, _, rewrites = printed.partition("rewrites:")
    number = r"\d[\d.e+]*"
    form = (rf"\w+\[[^]]*\]\s+latency={number}[µm]s\s+occupancy=\d+%\s+"
            rf"bandwidth={number}[TGM]B/s\s+tiles=\d+")  # fmt: skip
    for line in lines.splitlines():
        assert re.fullmatch(form, line), line
    names = re.findall(r"MatMul|Softmax", lines)
    assert sorted(names) == ["MatMul", "MatMul", "Softmax"]
    assert "Softmax is " in rewrites


def run_ir_case(name: str) -> None:
    """The line as an operation of a program that defines its operand."""
    line = (FOLDER / name / "block.mlir").read_text()
    around = """"tessera.schedule.kernel"() ({
  %c = "tile.constant"() {value = 0.0 : f32} : () -> f32
  %A = "tessera.schedule.full"(%c) : (f32) -> !tile.tile<4x4xf32>
  LINE
  "tile.return"() : () -> ()
}) {parameters = [], sym_name = "k"} : () -> ()
"""
    program = parse_program(around.replace("LINE", line))
    printed = print_program(program)
    assert 'scope = "shared"' in printed and "double_buffer = true" in printed
    (prefetch,) = (o for o in program.walk() if o.name == "tessera.schedule.prefetch")
    assert prefetch.result.type == prefetch.operands[0].type
    assert same_program(parse_program(printed), program)
    module_read(printed)


@pytest.mark.parametrize("name", cases())
@pytest.mark.sample(7)
def test_on_the_cpu(name: str, tmp_path: Path) -> None:
    run_case(name, "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", cases())
def test_on_the_gpu(name: str, tmp_path: Path) -> None:
    run_case(name, "cuda", tmp_path)


def test_every_case_is_listed() -> None:
    """A new case of the folder must be supported or stand in the list above."""
    if not CASES:
        pytest.skip(f"no conformance folder at {FOLDER}")
    assert set(PENDING) <= set(CASES)
    assert set(CASES) - set(PENDING) == BUILT
