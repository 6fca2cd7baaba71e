"""The functions of a file beside the same lines in NumPy, with arguments drawn for their heads.

A function is taken as it is written: `op` is NumPy with the names that it has not, dtypes are f64
and i64, so that the reference has every digit, and `.to` is `.astype`. Above a function of the host
program a comment says what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
SIZES = {"n": 11, "m": 7, "d": 5, "k": 4, "h": 9, "w": 8, "a": 3, "b": 2, "three": 3}
_DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
           "bool": np.bool_}  # fmt: skip
_FUNCTION = re.compile(
    r"(?:^# (?P<given>.+)\n)?(?:^@op\.kernel\n)?^def (?P<name>\w+)"
    r"\((?P<head>.*?)\)(?: -> .*)?:\n(?P<body>(?:[ ].*\n|\n)+)", re.M,
)  # fmt: skip
_PARAMETER = re.compile(r"(\w+)(?:: (?:mut )?(\w+)(?:\[([^]]*)\])?)?(?: = (\w+))?(?:, |$)")


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array with the names that ours have beside those of NumPy's."""

    def to(self, dtype: Any) -> Any:
        return self.astype(dtype)

    def clip(self, low: Any, high: Any) -> Any:  # type: ignore[override]
        return np.clip(self, low, high)


def is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def copies(values: list[Any]) -> list[Any]:
    return [x.copy() if is_array(x) else x for x in values]


def _ours(x: Any) -> Any:
    return x.view(_Array) if is_array(x) else x


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def _logsumexp(x: Any, axis: int, keepdims: bool = False) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


class _Op:
    """NumPy by our names."""

    pi, inf, float64 = np.pi, np.inf, np.float64
    softmax, logsumexp = staticmethod(_softmax), staticmethod(_logsumexp)
    norm, cummax = staticmethod(np.linalg.norm), staticmethod(np.maximum.accumulate)

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, {"concat": "concatenate"}.get(name, name), None)

        def call(*given: Any, **named: Any) -> Any:
            assert found is not None, name
            return _ours(found(*given, **named))

        return call

    def argsort(self, x: Any, **named: Any) -> Any:
        return _ours(np.argsort(x, kind="stable", **named))

    def erf(self, x: Any) -> Any:
        from math import erf

        return _ours(np.vectorize(erf)(x))


def functions() -> list[str]:
    """``file:function`` of all that have a head that says what they are given."""
    found: list[str] = []
    for path in sorted(FOLDER.glob("*.tessera")):
        text = path.read_text()
        for m in _FUNCTION.finditer(text):
            if m["given"] or f"@op.kernel\ndef {m['name']}(" in text:
                found.append(f"{path.stem}:{m['name']}")
    return found


def arguments(file: str, name: str) -> list[Any]:
    """Values for the parameters of a function that have no default, drawn for the name."""
    m = _head(file, name)
    rng = np.random.default_rng(sum(map(ord, name)))
    made: list[Any] = []
    for parameter, dtype, shape, default in _PARAMETER.findall(m["given"] or m["head"]):
        if default:
            continue
        given = re.search(rf"\b{parameter}: (\d+)", m["given"] or "")
        made.append(int(given[1]) if given else _drawn(rng, dtype or "f64", shape, dtype == ""))
    return made


def _head(file: str, name: str) -> re.Match[str]:
    text = (FOLDER / f"{file}.tessera").read_text()
    return next(m for m in _FUNCTION.finditer(text) if m["name"] == name)


def _drawn(rng: np.random.Generator, dtype: str, shape: str, vector: bool) -> Any:
    sizes = ["n"] if vector else [s for s in shape.split(", ") if s]
    if not sizes:
        return float(rng.uniform(0.1, 0.9))
    count = [int(s) if s.isdigit() else SIZES[s] for s in sizes]
    if dtype[0] == "f":
        return rng.standard_normal(count).astype(_DTYPES[dtype])
    low, high = {"bool": (0, 2), "u8": (0, 128)}.get(dtype, (-5, 6))
    return rng.integers(low, high, count).astype(_DTYPES[dtype])


def in_numpy(file: str, name: str) -> Callable[..., Any]:
    """The function as NumPy computes it; arrays that it is given are changed as ours are."""
    m = _head(file, name)
    text = (FOLDER / f"{file}.tessera").read_text()
    wide = {"f32": np.float64, "f64": np.float64, "i32": np.int64, "i64": np.int64, "u8": np.uint8,
            "bool": np.bool_}  # fmt: skip
    names: dict[str, Any] = {"op": _Op(), **wide}
    for other in _FUNCTION.finditer(text):
        head = ", ".join(p + (f"={d}" if d else "")
                         for p, _, _, d in _PARAMETER.findall(other["head"]))  # fmt: skip
        exec(f"def {other['name']}({head}):\n{other['body']}", names)
    parameters = _PARAMETER.findall(m["given"] or m["head"])

    def run(*given: Any) -> Any:
        for (_, _, shape, _), value in zip(parameters, given, strict=False):
            if is_array(value):
                pairs = zip(shape.split(", "), value.shape, strict=False)
                names.update((s, n) for s, n in pairs if s.isidentifier())
        with np.errstate(all="ignore"):
            return names[name](*map(_wide, given))

    return run


def _wide(x: Any) -> Any:
    if not is_array(x):
        return x
    kind = {"f": np.float64, "i": np.int64}.get(x.dtype.kind)
    same = kind is None or x.dtype == kind
    return _ours(x if same else x.astype(kind))
