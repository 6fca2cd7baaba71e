"""Names that mean an array whose elements are stored and then another value, sizes and parameters
that get another value, and branches that keep an array: as in NumPy, in kernels and functions."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS, assembled

R = np.random.default_rng(11)
X, P, A, B = R.normal(size=5), R.random((5, 5)), R.normal(size=(4, 4)), R.normal(size=(5, 6))
GIVEN = {"x": X, "P": P / P.sum(1, keepdims=True), "A": A, "B": B, "s": 0.5, "c": 0.4, "k": 3}
TYPES = {"x": "f64[n]", "P": "f64[q, q]", "A": "f64[m, w]", "B": "f64[h, w]", "s": "f64",
         "c": "f64", "k": "int"}  # fmt: skip
STORES = {
    "a product in a loop": "p = op.zeros(len(P)); p[0] = 1.0; for t in range(k):|p = p @ P; "
    "return p",
    "a scaled copy": "y = x.copy(); y[0] = 0.0; y = y / op.sum(y); return y",
    "edges of each step": "u = x.copy(); for t in range(k):|u = u + 0.1 * op.roll(u, 1); "
    "|u[0] = 0.0; |u[-1] = 1.0; return u",
    "made in a loop": "u = x * 2.0; for t in range(k):|v = u.copy(); |v[1:-1] = u[2:] - u[:-2]; "
    "|v = v / (1.0 + op.sum(v * v)); |u = v; return u",
    "three arrays": "y = x.copy(); y[0] = 0.0; y = op.sort(y)[::-1] + y; y[1] = 5.0; "
    "y = op.cumsum(y); return y, op.sum(y)",
    "matrices": "M = A.copy(); M[0, 0] = 3.0; M = M @ M.T; M[1] = 0.0; M = M @ A - M; return M",
    "zeros again": "c = op.zeros(len(x)); s = 0.0; for t in range(3):|c = op.zeros(len(x)); "
    "|c[t] = x[t]; |s += op.sum(c * x); return s",
    "a shorter one": "y = x.copy(); y[0] = 0.0; y = y[1:] * 2.0; return y",
    "a number": "y = x.copy(); y[0] = 0.0; y = op.sum(y) * 2.0; return y",
    "a second name": "y = x.copy(); y[0] = 9.0; old = y; y = y + 1.0; y[1] = 7.0; "
    "return old + 2.0 * y",
    "a parameter": "x = x - op.mean(x); x[0] = 0.0; x = x / op.sum(x); return x",
    "places exchanged": "u = op.zeros(len(x)); u[1] = 1.0; v = op.zeros(len(x)); v[2] = x[0]; "
    "for t in range(k):|u, v = v, u; return u - 2 * v",
    "the last": "u = x.copy(); u[1] = 1.0; old = u; for t in range(k):|old = u; "
    "|u = u * 0.5 + x; return u, old",
    "a wave": "prev = x.copy(); cur = x.copy(); "
    "cur[1:-1] = x[1:-1] + 0.5 * c**2 * (x[2:] - 2 * x[1:-1] + x[:-2]); for t in range(k):"
    "|nxt = op.zeros_like(cur); "
    "|nxt[1:-1] = 2 * cur[1:-1] - prev[1:-1] + c**2 * (cur[2:] - 2 * cur[1:-1] + cur[:-2]); "
    "|prev, cur = cur, nxt; return cur",
    "ones": "y = op.ones(len(x)); for i in range(k):|y[i] = x[i]; |y = op.ones(len(x)) * y[i]; "
    "return y",
}  # fmt: skip
SIZES = {
    "of a copy": "y = x.copy(); n = len(y); return op.sum(y) / n",
    "of a part": "y = x[1:]; n = len(y); return op.sum(y) / n",
    "two of a value": "C = A - A.mean(axis=0); m, w = C.shape; return C.T @ C / (m - 1) * w",
    "of other names": "C = A - A.mean(axis=0); a, b = C.shape; return op.sum(C * C) / (a * b)",
    "of a product": "a, b = (A @ A.T).shape; return op.sum(A) / (a * b)",
    "of a loop": "s = 0.0; for q in range(3):|s += P[q, q]; return x * s",
    "less one": "n = x.shape[0]; n = n - 1; return op.sum(x) / n",
    "the half": "n = x.shape[0] // 2; return op.sum(x[:n])",
    "halved": "n = x.shape[0]; t = 0; while n > 1:|n = n // 2; |t += 1; return t + x",
    "of an array": "y = op.zeros(len(x)); n = y.size; for i in range(n):|y[i] = x[i] * i; return y",
    "of a window": "C = B[1:, 2:]; h, w = C.shape; y = op.zeros((h, w)); for i in range(h):"
    "|y[i] = C[i] * i; return y",
}  # fmt: skip
BRANCHES = {
    "then": "if s > 1:|y = x * 2; else:|y = x; return y",
    "otherwise": "if s > 1:|y = x; else:|y = x * 2; return y",
    "three": "if s > 1:|y = x * 2; elif s > 0.7:|y = x; else:|y = x[::-1]; return y + 1",
    "a parameter": "if s < 1:|x = x * 2; return x + 1",
    "a parameter in a loop": "if s < 1:|x = x / op.sum(x); for t in range(3):"
    "|x = x + op.roll(x, 1); return x",
    "a number": "R = op.eye(4); while k > 0:|if k % 2 == 1:||R = R @ A; |A = A @ A; |k //= 2; "
    "return R",
    "two": "y = x; if k > 1:|y = y - op.mean(y); if k > 2:|y = y / op.std(y); return y",
    "exchanged": "y = x * 0.3; if op.sum(x) < op.sum(y):|x, y = y, x; return x - 2 * y",
}  # fmt: skip
PADS = {
    "of a vector": "b = x; for g in range(3):|p = op.pad(b, 1); |b = p[:-2] + p[1:-1] + p[2:] - b; "
    "return b",
    "of a matrix": "b = B; for g in range(3):|p = op.pad(b, 1); "
    "|b = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * b; return b",
    "at the edge": "y = x; for g in range(3):|y = op.pad(y, 1, mode='edge')[1:-1] * 0.5; return y",
    "differences": "y = x; for g in range(3):|y = op.diff(op.concatenate(([0.0], y))); return y",
    "more": "y = x; for g in range(2):|y = op.pad(y, (2, 1))[1:-2] + op.pad(y, 1)[2:]; return y",
}  # fmt: skip
PROGRAMS = {f"{kind} {name}": text for kind, programs in (
    ("stores:", STORES), ("sizes:", SIZES), ("branches:", BRANCHES), ("pads:", PADS),
) for name, text in programs.items()}  # fmt: skip


def _body(text: str) -> str:
    """``a; for i in x:|b; c`` as lines, each ``|`` one step in."""
    lines: list[str] = []
    for part in text.split("; "):
        head, *inner = re.split(r"(?<=:)(?=\|)", part)
        for piece in (head, *inner):
            depth = len(piece) - len(piece.lstrip("|"))
            lines.append("    " * (1 + depth) + piece.lstrip("|"))
    return "\n".join(lines)


def _names(text: str) -> list[str]:
    return [n for n in GIVEN if re.search(rf"\b{n}\b", text)]


def _source(body: str, kernel: bool) -> tuple[str, list[Any]]:
    names = _names(body)
    head = ", ".join(f"{n}: {TYPES[n]}" for n in names)
    decorator = "@op.kernel\n" if kernel else ""
    return f"{decorator}def f({head}):\n{body}\n", [_copy(GIVEN[n]) for n in names]


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _by_numpy(body: str) -> Any:
    names = _names(body)
    scope: dict[str, Any] = {"op": np}
    exec(f"def f({', '.join(names)}):\n{body}\n", scope)
    return scope["f"](*(_copy(GIVEN[n]) for n in names))


def _agree(got: Any, want: Any) -> None:
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),)
    for g, w in pairs:
        assert np.shape(g) == np.shape(w)
        np.testing.assert_allclose(np.asarray(g, float), np.asarray(w, float), 1e-12, 1e-12)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.sample(10)
def test_kernels(program: str, target: str) -> None:
    body = _body(PROGRAMS[program])
    text, given = _source(body, kernel=True)
    _agree(module_for(target, text).f(*given), _by_numpy(body))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.sample(8)
def test_functions(program: str) -> None:
    body = _body(PROGRAMS[program])
    text, given = _source(body, kernel=False)
    _agree(tessera.compile(text, target="cpu").f(*given), _by_numpy(body))


def _statement(r: random.Random, depth: int) -> str:
    name, other = r.choice("uv"), r.choice("uv")
    pick, place = r.randrange(9 if depth else 7), r.randrange(5)
    if pick == 0:
        return f"{name}[{place}] = {r.choice(('x[1]', '0.5', f'{other}[0] * 0.5'))}"
    if pick == 1:
        return f"{name}[1:] = {other}[:-1] * 0.5"
    if pick == 2:
        return f"{name} = {other} * 0.5 + x"
    if pick == 3:
        return f"{name} = op.roll({other}, 1) - {name} * 0.25"
    if pick == 4:
        return f"{name} = op.where({other} > 0, {name}, x)"
    if pick == 5:
        return f"{name} = {other}.copy()" if name != other else f"{name} = {name} - op.mean({name})"
    if pick == 6:
        return f"{name} += 0.5 * {other}"
    inner = "; ".join(f"|{_statement(r, 0)}" for _ in range(2))
    return f"{'for t in range(2):' if pick == 7 else f'if op.sum({name}) > 0.3:'}{inner}"


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(6)
def test_random_programs(seed: int) -> None:
    """Each gives the numbers of NumPy, in a kernel or with the message of what it lacks."""
    r = random.Random(seed)
    lines = [_statement(r, 1) for _ in range(r.randrange(3, 7))]
    body = _body("; ".join(("u = x.copy()", "v = x * 2.0", *lines, "return u, v")))
    want = _by_numpy(body)
    text, given = _source(body, kernel=False)
    _agree(tessera.compile(text, target="cpu").f(*given), want)
    text, given = _source(body, kernel=True)
    try:
        got = tessera.compile(text, target="cpu").f(*given)
    except tessera.TesseraError as error:
        assert "T090" not in str(error)
        return
    _agree(got, want)


@pytest.mark.parametrize(("text", "code"), [
    ("y = x.copy(); y[0] = 1.0; for t in range(k):|y = y[1:] * 2.0; return y", "T0609"),
    ("y = x.copy(); y[0] = 1.0; for t in range(k):|y = y > 0; return y", "T0609"),
    ("x[0] = 1.0; x = x * 2.0; return x", "T0111"),
])  # fmt: skip
def test_what_has_no_one_array_is_refused(text: str, code: str) -> None:
    source, given = _source(_body(text), kernel=True)
    with pytest.raises(tessera.TesseraError, match=code):
        tessera.compile(source, target="cpu").f(*given)


@pytest.mark.parametrize("program", ["stores: a wave", "stores: a product in a loop", "pads: more"])
def test_code_for_gpus(program: str) -> None:
    text, _ = _source(_body(PROGRAMS[program]), kernel=True)
    body = text.partition("\n")[2].rstrip()
    assembled(re.sub(r"k: int", "k: int = 3", body), {n: v for n, v in GIVEN.items() if n != "k"})
