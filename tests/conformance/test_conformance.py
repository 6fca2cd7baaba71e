"""Every code block of the documents the language comes from, word for word.

The cases lie in ``shared/conformance`` beside the checkout; where that folder is absent the
suite is skipped with a line that says so. A case that is not supported yet is an expected
failure with its reason; one that begins to pass unexpectedly fails the suite.
"""

from __future__ import annotations

import ast as python_ast
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

FOLDER = Path(
    os.environ.get("TESSERA_CONFORMANCE")
    or Path(__file__).resolve().parents[3] / "shared" / "conformance"
)
CASES = sorted(p.parent.name for p in FOLDER.glob("*/case.toml")) if FOLDER.is_dir() else []

# Cases whose level of the language is not built yet, with the reason.
PENDING = {
    "all_reduce": "distribution is not built yet",
    "autotune_conv2d": "graph functions and the tuner are not built yet",
    "flash_attention_schedule": "tile kernels are not built yet",
    "ir_prefetch_line": "Schedule IR has no operations yet",
    "matmul_schedule": "tile kernels are not built yet",
    "matmul_tile_shape": "graph functions are not built yet",
    "mesh_72": "distribution is not built yet",
    "pipeline_prefetch_mma": "tile kernels are not built yet",
    "pipelined_attention": "tile kernels are not built yet",
    "profile_step": "graph functions and the profiler are not built yet",
    "reduce_spec": "distribution is not built yet",
    "replicate_spec": "distribution is not built yet",
    "row_sharded_tensor": "distribution is not built yet",
    "sharded_matmul_reduce_scatter": "distribution is not built yet",
    "sharded_tensor_bf16": "distribution is not built yet",
    "tiled_matmul": "tile kernels are not built yet",
    "vec_add": "tile kernels are not built yet",
}


def cases(target: str) -> Iterator[Any]:
    if not CASES:
        yield pytest.param("", marks=pytest.mark.skip(reason=f"no conformance folder at {FOLDER}"))
    for name in CASES:
        marks: list[pytest.MarkDecorator] = []
        if name in PENDING:
            marks.append(pytest.mark.xfail(reason=PENDING[name], strict=True))
        yield pytest.param(name, marks=marks, id=name)


def source_of(case: dict[str, Any], block: str) -> str:
    if "wrap" in case:
        indented = "".join(
            f"    {line}" if line.strip() else line for line in block.splitlines(True)
        )
        block = case["wrap"].replace("{block}\n", indented)
    return case.get("prelude", "") + block + case.get("after", "")


def make_inputs(case: dict[str, Any], size: dict[str, int], dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for name, spec in case["inputs"].items():
        shape = tuple(size[s] for s in spec["shape"])
        kind = np.dtype({"f32": "float32", "f16": "float16"}[spec.get("dtype", dtype)])
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
    names |= size | {"full": np.full, "sum": np.sum}
    return eval(text, {"__builtins__": {}}, names)  # text of a case file, not of a user


def run_case(name: str, target: str, tmp_path: Path) -> None:
    case = tomllib.loads((FOLDER / name / "case.toml").read_text())
    block_file = FOLDER / name / ("block.mlir" if case.get("kind") == "ir" else "block.tessera")
    source = source_of(case, block_file.read_text())
    file = tmp_path / f"{name}.tessera"
    file.write_text(source)
    if case["check"].get("diagnostics") == []:
        assert not Session().check(str(file))
    module = tessera.load(str(file), target=target)
    call = python_ast.parse(case["call"]).body[0]
    assert isinstance(call, python_ast.Expr) and isinstance(call.value, python_ast.Call)
    arguments = [a.id for a in call.value.args if isinstance(a, python_ast.Name)]
    function = getattr(module, python_ast.unparse(call.value.func))
    checks = {k: v for k, v in case["check"].items() if k in case["inputs"]}
    assert checks
    for size in case["sizes"]:
        for dtype in case.get("dtypes", ["f32"]):
            arrays = make_inputs(case, size, dtype)
            before = {k: v.copy() for k, v in arrays.items()}
            function(*(arrays[a] for a in arguments))
            for key, text in checks.items():
                want = expected(text, before, size)
                scale = sum(float(np.abs(v.astype(np.float64)).sum()) for v in before.values())
                error = float(np.abs(arrays[key].astype(np.float64) - want).max())
                assert error <= case["check"].get("rtol", 1e-5) * max(scale, 1e-30), (size, dtype)


@pytest.mark.parametrize("name", cases("cpu"))
def test_on_the_cpu(name: str, tmp_path: Path) -> None:
    run_case(name, "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", cases("cuda"))
def test_on_the_gpu(name: str, tmp_path: Path) -> None:
    run_case(name, "cuda", tmp_path)


def test_every_case_is_listed() -> None:
    """A new case of the folder must be supported or stand in the list above."""
    if not CASES:
        pytest.skip(f"no conformance folder at {FOLDER}")
    assert set(PENDING) <= set(CASES)
    assert set(CASES) - set(PENDING) == {"sum_reduce"}
