"""``int``, ``float`` and ``bool`` of numbers are there in kernels, as in the host program."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

EXPRESSIONS = [
    "float(int(x[2] * 1.7))", "float(n)", "float(n) / 2", "float(i[3])", "x[int(x[1])]",
    "x[int(i[2])]", "x[int(n / 2)]", "float(bool(x[1] > 1.5))", "float(x[1] > 1.5)", "float(x[2])",
    "float(int(x[3])) / 3", "x[int(2.7)]", "float(int(-2.5))",
]  # fmt: skip
LANES = (
    "@kernel tile[(32,)] grid[(1,)]\ndef k(x: {t}[n], i: i32[n], out: mut {t}[n]):\n"
    "    t = grid_tile_linear_id()\n    if t < n:\n        out[t] = x[t] * {e}\n\n\n"
    "def f(x, i):\n    out = op.zeros_like(x)\n    k(x, i, out)\n    return out\n"
)
TILES = "@op.kernel\ndef f(x: {t}[n], i: i32[n]):\n    return x * {e}\n"
PLAIN = "def f(x, i):\n    n = len(x)\n    return x * {e}\n"


@pytest.mark.parametrize("e", EXPRESSIONS)
@pytest.mark.parametrize("form", [LANES, TILES, PLAIN], ids=["lanes", "tiles", "host"])
@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.sample(23)
def test_as_in_python(t: str, form: str, e: str) -> None:
    x = np.arange(1.0, 6.0).astype({"f32": np.float32, "f64": np.float64}[t])
    i = np.arange(5, dtype=np.int32)
    got = tessera.compile(form.format(t=t, e=e), target="cpu").f(x, i)
    want = x * eval(e, {"x": x, "i": i, "n": 5})
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, want, 1e-6)


def test_without_annotations() -> None:
    text = "@op.kernel\ndef f(x):\n    return x / float(x.shape[0]) + float(x[0])\n"
    x = np.arange(1.0, 6.0)
    np.testing.assert_allclose(tessera.compile(text, target="cpu").f(x), x / 5 + 1.0)


@pytest.mark.parametrize(
    ("e", "shapes", "help"),
    [("x + y", ((5,), (1,)), r"`y: f64\[1\]`"),
     ("x * y", ((4, 1), (4, 3)), r"`x: f64\[x0, 1\]`"),
     ("x * y", ((4, 3), (4,)), r"`y\[:, None\]`"),
     ("op.maximum(y, x)", ((4, 3), (4,)), r"`y\[:, None\]`")],
)  # fmt: skip
def test_sizes_that_do_not_meet_say_the_form(
    e: str, shapes: tuple[tuple[int, ...], ...], help: str
) -> None:
    x, y = (np.ones(s) for s in shapes)
    module = tessera.compile(f"@op.kernel\ndef f(x, y):\n    return {e}\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match=f"(?s)T0838.*{help}"):
        module.f(x, y)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_an_array_without_elements_has_none_to_repeat(mode: str) -> None:
    module = tessera.compile(f'def f(x):\n    return op.pad(x, 1, mode="{mode}")\n', target="cpu")
    np.testing.assert_array_equal(module.f(np.ones(3)), np.ones(5))
    with pytest.raises(tessera.TesseraError, match=r"T0838|T0223"):
        module.f(np.zeros(0))


def test_meshgrid_says_how_it_is_called() -> None:
    for call in ("op.meshgrid(x, x, sparse=True)", "op.meshgrid(x, x, x)"):
        text = f"def f(x):\n    a, b = {call}\n    return a\n"
        with pytest.raises(tessera.TesseraError, match=r"no such call of `op.meshgrid`"):
            tessera.compile(text, target="cpu").f(np.ones(3))


@pytest.mark.parametrize("head", ["@op.kernel\ndef f(x):\n", "def f(x):\n"])
@pytest.mark.parametrize("call", ["op.linalg.norm(x)", "op.linalg.norm(x, axis=1)"])
def test_the_norm_by_its_name_in_numpy(head: str, call: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    got = tessera.compile(
        f"{head}    return x / {call.replace('1)', '1)[:, None]')}\n", target="cpu"
    ).f(x)
    want = x / eval(call.replace("op.", "np.").replace("1)", "1)[:, None]"), {"np": np, "x": x})
    np.testing.assert_allclose(got, want, 1e-12)


@pytest.mark.parametrize("body", ["return op.maximum(u, x)", "x[:] = u\n    return x"])
def test_arrays_of_the_host_program_that_do_not_meet_say_where_an_axis_is_missing(
    body: str,
) -> None:
    module = tessera.compile(f"def f(x, u):\n    {body}\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match=r"(?s)T0834.*`v\[:, None\]`"):
        module.f(np.ones((4, 3)), np.ones(4))
