"""For tests: expressions and bodies of tile kernels beside what NumPy says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.cases.test_scratch_arrays import module_for

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
TARGETS = ["cpu", "sm_90a", GPU]


def kernel_text(source: str, given: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A file with one kernel ``f`` of an expression, a body or a function, and its arguments: the
    arrays that it names."""
    if "def f(" in source:
        text = source if "@op.kernel" in source else f"@op.kernel\n{source}"
        return f"{text}\n", [_copy(given[n]) for n in parameters_of(text)]
    names = [n for n in given if re.search(rf"(?<![\w.]){n}\b", source)]
    lines = source.split("\n") if "return " in source else [f"return {source}"]
    body = "".join(f"    {line}\n" for line in lines)
    return f"@op.kernel\ndef f({', '.join(names)}):\n{body}", [_copy(given[n]) for n in names]


def parameters_of(text: str) -> list[str]:
    head = text.partition("def f(")[2].partition("):")[0].partition(") ->")[0]
    items = [i for i in re.sub(r"\[[^]]*\]", "", head).split(",") if i.strip()]
    return [item.partition(":")[0].strip() for item in items if "=" not in item]


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def results_of(source: str, given: Mapping[str, Any], target: str) -> Any:
    text, arguments = kernel_text(source, given)
    return module_for(target, text).f(*arguments)


def agree(got: Any, want: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Numbers, shapes and dtypes; Python's numbers have any dtype."""
    results = got if isinstance(got, tuple) else (got,)
    wanted = want if isinstance(want, tuple) else (want,)
    for g, w in zip(results, wanted, strict=True):
        a, b = np.asarray(g), np.asarray(w)
        assert type(w) in (int, float, bool) or a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol)


def assembled(source: str, given: Mapping[str, Any]) -> None:
    """The code for two architectures is made, and ptxas takes it."""
    text, arguments = kernel_text(source, given)
    session = Session(overlay={"k.tessera": text})
    kinds = {"float": "f", "int": "i", "uint": "u"}
    parts: list[str] = []
    for name, value in zip(parameters_of(text), arguments, strict=True):
        a = np.asarray(value)
        dtype = re.sub(r"[a-z]+", lambda m: kinds.get(m[0], m[0]), a.dtype.name)
        sizes = f"[{', '.join(map(str, a.shape))}]" if a.ndim else ""
        parts.append(f"{name}: {dtype}{sizes}")
    signature = session.signature("k.tessera", "f", ", ".join(parts))
    for arch in ("sm_80", "sm_90a"):
        options = TargetOptions("cuda", arch)
        made = session.compile_kernel("k.tessera", "f", signature, options, ("ptx",))
        assert "ptx" in made.texts
