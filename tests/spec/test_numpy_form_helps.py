"""What programs are told to write for functions of NumPy that are not there, written: NumPy's
numbers come out, in a tile kernel, in the host program, or in both."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.evaluate.foreign_names import OTHER_AXES, RENAMED, TILE_FORMS

R = np.random.default_rng(3)
V, U, X, Z = (R.normal(size=s) for s in (7, 7, (4, 6), (3, 4, 5)))
N = np.where(np.arange(7) % 3 == 1, np.nan, V)
PLACES = R.integers(0, 5, 9).astype(np.int32)
J = R.integers(0, 8, 9).astype(np.int32)
B = R.integers(0, 256, 6).astype(np.uint8)
KERNEL, HOST, BOTH = ("kernel",), ("host",), ("kernel", "host")
Row = tuple[str, dict[str, Any], str, tuple[str, ...]]
_POSITIVE = {"a": 0.5, "b": 8.0}
_EUCLID = (
    "x, y = a, b\nwhile op.any(y > 0):\n"
    "    x, y = op.where(y > 0, y, x), op.where(y > 0, x % op.maximum(y, 1), 0)\n"
)
_WINDOW = "2.0 * op.pi * op.arange(n) / (n - 1)"


def _each(names: str, row: Row) -> dict[str, Row]:
    return dict.fromkeys(names.split(), row)


ROWS: dict[str, Row] = {
    "split": ("return x[0:n, :], x[n:, :]", {"x": X, "n": 3},
              "tuple(np.split(x, [n]))", HOST),
    **_each("array_split vsplit", ("return x[0:n], x[n:]", {"x": X, "n": 3},
            "tuple(np.vsplit(x, [n]))", HOST)),
    "hsplit": ("return x[:, 0:n], x[:, n:]", {"x": X, "n": 2},
               "tuple(np.hsplit(x, [n]))", HOST),
    "dsplit": ("return x[:, :, 0:n], x[:, :, n:]", {"x": Z, "n": 2},
               "tuple(np.dsplit(x, [n]))", HOST),
    "unstack": ("return x[0, :] - x[1, :]", {"x": X}, "x[0] - x[1]", BOTH),
    "tensordot": ('return op.einsum("ijk,jkl->il", a, b)', {"a": Z, "b": R.normal(size=(4, 5, 2))},
                  "np.tensordot(a, b)", BOTH),
    "bincount": ("return op.sum(x[:, None] == op.arange(5)[None, :], axis=0)", {"x": PLACES},
                 "np.bincount(x, minlength=5)", BOTH),
    "partition": ("return op.sort(x)", {"x": V}, "np.sort(x)", BOTH),
    "argpartition": ("return x[op.argsort(x)]", {"x": V}, "np.sort(x)", BOTH),
    "lexsort": ("i = op.argsort(b)\nreturn i[op.argsort(a[i])]", {"a": PLACES, "b": J},
            "np.lexsort((b, a))", BOTH),
    "rot90": ("return op.flip(op.transpose(x), axis=0)", {"x": X}, "np.rot90(x)", BOTH),
    "polyval": ("y = op.zeros_like(x)\nfor k in range(len(c)):\n    y = y * x + c[k]\nreturn y",
                {"c": U, "x": V}, "np.polyval(c, x)", BOTH),
    "fmod": ("return op.copysign(op.abs(x) % op.abs(y), x)", {"x": 9 * V, "y": U},
            "np.fmod(x, y)", BOTH),
    "divmod": ("return a // b, a % b", {"a": PLACES, "b": J + 1}, "np.divmod(a, b)", BOTH),
    "modf": ("return x - op.trunc(x), op.trunc(x)", {"x": 5 * V}, "np.modf(x)", BOTH),
    "compress": ("return x[c]", {"x": V, "c": V > 0}, "np.compress(c, x)", HOST),
    **_each("select piecewise", ("return op.where(c, a, op.where(d, b, otherwise))",
            {"c": V > 0.5, "d": U > 0, "a": V, "b": U, "otherwise": 0.25},
            "np.select([c, d], [a, b], otherwise)", BOTH)),
    "choose": ("return op.where(k == 0, a, b)", {"k": np.arange(7) % 2, "a": V, "b": U},
               "np.choose(k, [a, b])", BOTH),
    "atleast_2d": ("return x[None, :] * 2.0", {"x": V}, "np.atleast_2d(x) * 2", BOTH),
    "atleast_3d": ("return x[:, :, None] * 2.0", {"x": X}, "np.atleast_3d(x) * 2", BOTH),
    "gcd": (f"{_EUCLID}return x",
            {"a": PLACES * 6, "b": J * 4}, "np.gcd(a, b)", BOTH),
    "lcm": (f"{_EUCLID}return a // x * b",
            {"a": PLACES + 1, "b": J + 2}, "np.lcm(a, b)", BOTH),
    "vander": ("return x[:, None] ** op.arange(n - 1, -1, -1)[None, :]", {"x": V},
               "np.vander(x)", BOTH),
    "bool": ("return x != 0", {"x": PLACES}, "x.astype(bool)", BOTH),
    "nextafter": ("return bitcast(bitcast(x, i32) + 1, f32)", {"x": np.abs(V).astype(np.float32)},
                  "np.nextafter(x, np.float32(np.inf))", KERNEL),
    "polyadd": ("return a + b", {"a": V, "b": U}, "np.polyadd(a, b)", BOTH),
    "polysub": ("return a - b", {"a": V, "b": U}, "np.polysub(a, b)", BOTH),
    "polyder": ("return c[:n - 1] * op.arange(n - 1, 0, -1)", {"c": V}, "np.polyder(c)", BOTH),
    "polyint": ("return op.concat((c / op.arange(n, 0, -1), [0.0]))", {"c": V}, "np.polyint(c)",
            BOTH),
    "polymul": ("y = op.zeros(len(a) + len(b) - 1)\nn = len(b)\nfor k in range(len(a)):\n"
                "    y[k:k+n] += a[k] * b\nreturn y", {"a": V, "b": V[:4]}, "np.polymul(a, b)",
                        HOST),
    "polyfit": ("V = op.stack([x ** k for k in range(2, -1, -1)], axis=1)\n"
                "return op.solve(V.T @ V, V.T @ y)", {"x": V, "y": U},
                "np.polyfit(x, y, 2)", HOST),
    **_each("block bmat",
            ("return op.concat((op.concat((a, b), axis=1), op.concat((c, d), axis=1)),"
            " axis=0)", {"a": X, "b": X * 2, "c": X * 3, "d": X * 4},
            "np.block([[a, b], [c, d]])", BOTH)),
    "nancumsum": ("return op.cumsum(op.where(op.isnan(x), 0.0, x))", {"x": N}, "np.nancumsum(x)",
            BOTH),
    "nancumprod": ("return op.cumprod(op.where(op.isnan(x), 1.0, x))", {"x": N}, "np.nancumprod(x)",
                   BOTH),
    "nanargmax": ("return op.argmax(op.where(op.isnan(x), -op.inf, x))", {"x": N},
            "np.nanargmax(x)",
                  BOTH),
    "nanargmin": ("return op.argmin(op.where(op.isnan(x), op.inf, x))", {"x": N}, "np.nanargmin(x)",
                  BOTH),
    "nanmedian": ("return op.median(x[~op.isnan(x)])", {"x": N}, "np.nanmedian(x)", HOST),
    "nanquantile": ("return op.quantile(x[~op.isnan(x)], 0.5)", {"x": N},
                    "np.nanquantile(x, 0.5)", HOST),
    "nanpercentile": ("return op.percentile(x[~op.isnan(x)], 50)", {"x": N},
                      "np.nanpercentile(x, 50)", HOST),
    "nanvar": ("m = op.nanmean(x)\nreturn op.nanmean((x - m) ** 2)", {"x": N}, "np.nanvar(x)",
            BOTH),
    "nanstd": ("m = op.nanmean(x)\nreturn op.sqrt(op.nanmean((x - m) ** 2))", {"x": N},
            "np.nanstd(x)",
               BOTH),
    "hanning": (f"return 0.5 - 0.5 * op.cos({_WINDOW}) + 0.0 * x", {"x": V},
                "np.hanning(7)", KERNEL),
    "hamming": (f"return 0.54 - 0.46 * op.cos({_WINDOW}) + 0.0 * x", {"x": V},
                "np.hamming(7)", KERNEL),
    "blackman": (f"return 0.42 - 0.5 * op.cos({_WINDOW}) + 0.08 * op.cos(2.0 * {_WINDOW})"
                 " + 0.0 * x", {"x": V}, "np.blackman(7)", KERNEL),
    "bartlett": ("return 1.0 - op.abs(2.0 * op.arange(n) / (n - 1) - 1.0) + 0.0 * x", {"x": V},
                 "np.bartlett(7)", KERNEL),
    "geomspace": ("return a * (b / a) ** op.linspace(0.0, 1.0, 50)", _POSITIVE,
            "np.geomspace(a, b)",
                  BOTH),
    "logspace": ("return 10.0 ** op.linspace(0.0, 2.0, 50) * x[0]", {"x": np.ones(1)},
                 "np.logspace(0, 2, 50)", BOTH),
    "indices": ("return op.arange(m)[:, None] * 10 + op.arange(n)[None, :]", {"m": 3, "n": 4},
                "np.indices((m, n))[0] * 10 + np.indices((m, n))[1]", HOST),
    "histogram2d": ("return op.sum((i[:, None, None] == op.arange(8)[None, :, None])"
                    " & (j[:, None, None] == op.arange(8)[None, None, :]), axis=0)",
                    {"i": PLACES, "j": J},
                    "np.histogram2d(i, j, 8, ((0, 8), (0, 8)))[0]", BOTH),
    "matvec": ("return a @ v", {"a": X, "v": V[:6]}, "a @ v", BOTH),
    "vecmat": ("return v @ a", {"a": X, "v": V[:4]}, "v @ a", BOTH),
    "unravel_index": ("return k // n, k % n", {"k": PLACES, "n": 3},
                      "np.unravel_index(k, (9, n))", HOST),
    "ravel_multi_index": ("return i * n + j", {"i": PLACES, "j": J, "n": 8},
                          "np.ravel_multi_index((i, j), (5, n))", HOST),
    "ldexp": ("return x * op.exp2(k.to(x.dtype))", {"x": V, "k": PLACES[:7]}, "np.ldexp(x, k)",
            BOTH),
    "rollaxis": ("return op.moveaxis(x, 2, 0) * 2.0", {"x": Z}, "np.rollaxis(x, 2) * 2",
                 BOTH),
    "unwrap": ("d = op.diff(x)\nr = d - 2.0 * op.pi * op.round(d / (2.0 * op.pi))\n"
               "return op.concat((x[:1], x[0] + op.cumsum(r)))", {"x": 4 * V}, "np.unwrap(x)",
                       BOTH),
    "unpackbits": ("return op.ravel((x[:, None] >> op.arange(7, -1, -1)) & 1)", {"x": B},
                   "np.unpackbits(x)", BOTH),
    "bitwise_count": ("return op.sum((x[:, None] >> op.arange(8)) & 1, axis=1)", {"x": B},
                      "np.bitwise_count(x)", BOTH),
    "packbits": ("return op.sum(op.reshape(bits.to(i32), (-1, 8)) << op.arange(7, -1, -1), axis=1)",
                 {"bits": np.unpackbits(B)}, "np.packbits(bits)", BOTH),
    "diagflat": ("return op.diag(v)", {"v": V}, "np.diagflat(v)", BOTH),
    "ix_": ("return x[rows, :][:, columns]", {"x": X, "rows": PLACES[:3] % 4, "columns": J[:2] % 6},
            "x[np.ix_(rows, columns)]", BOTH),
    "apply_over_axes": ("return op.sum(x, axis=(0, 2))", {"x": Z}, "x.sum((0, 2))", BOTH),
    **_each("insert resize trim_zeros", ("k = 2\nreturn op.concat((x[0:k], v, x[k:]))",
            {"x": V, "v": U}, "np.insert(x, 2, v)", BOTH)),
    **_each("tril_indices tril_indices_from triu_indices triu_indices_from diag_indices"
            " diag_indices_from mask_indices",
            ("return op.where(op.arange(n)[:, None] >= op.arange(n), x, 0.0)", {"x": X[:, :4]},
             "np.tril(x)", KERNEL)),
    **_each("place put putmask copyto put_along_axis",
            ("x[mask] = 0.0\nreturn x", {"x": V, "mask": V > 0},
             "np.where(mask, 0.0, x)", HOST)),
    **_each("ascontiguousarray asfortranarray asanyarray asarray_chkfinite asmatrix require",
            ("return x.copy()", {"x": X.T}, "x", BOTH)),
    "broadcast_arrays": ("return a[:, None] + b[None, :]", {"a": V, "b": U},
                         "np.add(*np.broadcast_arrays(a[:, None], b))", BOTH),
    "asarray": ("return op.array([1.0, 2.0]) * x[0]", {"x": np.ones(1)},
                "np.asarray([1.0, 2.0])", BOTH),
}  # fmt: skip
NO_NUMBERS = (
    "random rand randn randint meshgrid histogram nonzero convolve apply_along_axis vectorize cond"
    " result_type finfo iinfo conj real imag linalg fft roots poly size shape ndim atleast_1d"
    " angle conjugate iscomplex iscomplexobj isreal isrealobj real_if_close sort_complex"
    " unique_all unique_counts unique_inverse unique_values loadtxt genfromtxt fromfile savetxt"
    " savez savez_compressed load save"
)
"""What is told without an expression that could be compared, or tested elsewhere."""
AXES: dict[str, Row] = {
    "inner": ('return op.einsum("ik,jk->ij", a, b)', {"a": X, "b": X * 2}, "np.inner(a, b)", BOTH),
    "dot": ('return op.einsum("ij,kjl->ikl", a, b)', {"a": X[:, :4], "b": Z}, "np.dot(a, b)", BOTH),
    "vdot": ("return op.vdot(op.ravel(a), op.ravel(b))", {"a": X, "b": X * 2}, "np.vdot(a, b)",
            BOTH),
    "kron": ('return op.reshape(op.einsum("ij,kl->ikjl", a, b), (m * p, n * q))',
             {"a": X, "b": Z[:, :2, 0]}, "np.kron(a, b)", BOTH),
    "trapezoid": ("return op.sum((y[1:] + y[:-1]) * (x[1:] - x[:-1])) / 2.0", {"y": V, "x": U},
                  "np.trapezoid(y, x)", BOTH),
    "gradient": ("return (x[2:] - x[:-2]) / 2.0", {"x": V}, "np.gradient(x)[1:-1]", BOTH),
    "isin": ("return op.any(x[:, None] == v[None, :], axis=1)", {"x": PLACES, "v": J[:3]},
            "np.isin(x, v)",
             BOTH),
    "searchsorted": ("return op.sum(v[None, :] < x[:, None], axis=1)", {"x": U, "v": np.sort(V)},
                     "np.searchsorted(v, x)", BOTH),
    "digitize": ("return op.sum(x[:, None] >= bins[None, :], axis=1)",
                 {"x": U, "bins": np.sort(V)}, "np.digitize(x, bins)", BOTH),
    "cross": ("return op.stack((a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * "
              "b[1] - a[1] * b[0]))", {"a": X[:3], "b": X[1:] * X[1:]},
              "np.cross(a, b, axis=0)", BOTH),
    "cov": ("d = x - op.mean(x, axis=1, keepdims=True)\nreturn d @ d.T / (n - 1)", {"x": X},
            "np.cov(x)", BOTH),
    "corrcoef": ("d = (x - op.mean(x, axis=1, keepdims=True)) / op.std(x, axis=1, keepdims=True)\n"
                 "return d @ d.T / n", {"x": X}, "np.corrcoef(x)", BOTH),
    "average": ("return op.sum(x * w[:, None], axis=0) / op.sum(w)", {"x": X, "w": np.abs(V[:4])},
                "np.average(x, 0, w)", BOTH),
    "interp": ("k = op.sum(x[:, None] >= xp[None, :], axis=1) - 1\n"
               "return fp[k] + (x - xp[k]) / (xp[k + 1] - xp[k]) * (fp[k + 1] - fp[k])",
               {"x": np.array([0.5, 1.25, 2.0]), "xp": np.arange(4.0), "fp": V[:4]},
                       "np.interp(x, xp, fp)",
               BOTH),
}  # fmt: skip


def program(row: Row, world: str) -> str:
    """A file with ``f``; sizes have names as the texts use them."""
    body, given, _, _ = row
    axes = ("n",), ("m", "n"), ("m", "n", "k")
    parts: list[str] = []
    lines = body.split("\n")
    for i, (name, value) in enumerate(given.items()):
        a = np.asarray(value)
        kind = {"f": "f", "i": "i", "u": "u", "b": "bool"}[a.dtype.kind]
        dtype = kind if kind == "bool" else f"{kind}{8 * a.itemsize}"
        names = [f"{s}{'' if i == 0 else i}" for s in axes[a.ndim - 1]] if a.ndim else []
        if a.ndim == 2 and i == 1:
            names = ["p", "q"]
        if world == "host" and a.ndim and not set(names) & set(given):
            lines.insert(0, f"{', '.join(names)}, = {name}.shape")
        text = f"{name}: {dtype}[{', '.join(names)}]" if a.ndim else f"{name}: {dtype}"
        parts.append(name if world == "host" or a.shape == (1,) else text)
    head = "@op.kernel\n" if world == "kernel" else ""
    return head + f"def f({', '.join(parts)}):\n" + "".join(f"    {line}\n" for line in lines)


def compare(row: Row, world: str) -> None:
    _, given, want, _ = row
    copies = {n: np.copy(v) if np.ndim(v) else v for n, v in given.items()}
    found = tessera.compile(program(row, world), target="cpu").f(*copies.values())
    wanted: Any = eval(want, {"np": np, **given})
    several = isinstance(wanted, tuple)
    pairs: Any = [(found, wanted)]
    if several:
        pairs = zip(found, cast("tuple[Any, ...]", wanted), strict=True)
    for a, b in pairs:
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64),
                                   1e-6, 1e-7)  # fmt: skip


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.sample(8)
def test_the_form_for_a_function_of_numpy(name: str) -> None:
    body = ROWS[name][0].replace("op.arange(5)", "op.arange(bins)")
    forms = [f for f in quoted(TILE_FORMS[name]) if not f.startswith("op.") or "(" in f]
    assert any(f in body for f in forms), forms
    for world in ROWS[name][3]:
        compare(ROWS[name], world)


@pytest.mark.parametrize("name", AXES)
@pytest.mark.sample(2)
def test_the_form_for_arrays_of_other_axes(name: str) -> None:
    assert any(f in AXES[name][0] for f in quoted(OTHER_AXES[name]))
    for world in AXES[name][3]:
        compare(AXES[name], world)


def test_every_form_is_here() -> None:
    from tessera_grammar.array_function_names import LIBRARY_NAMES, NETWORK_NAMES

    told = {*ROWS, *NO_NUMBERS.split(), *RENAMED, *LIBRARY_NAMES, *NETWORK_NAMES}
    assert not TILE_FORMS.keys() - told
    assert OTHER_AXES.keys() - AXES.keys() == {"array_equal"}
