"""Names that only a loop or a branch sets, and that are used behind it: as in Python in the host
program; in kernels where the loop certainly has a round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

x = np.arange(1.0, 6.0)
HOST = {
    "for i in range(len(x)):\n    y = x[i]\nreturn y + i": 9.0,
    "for v in x:\n    y = v * 2.0\nreturn y": 10.0,
    "if x[0] > 0.5:\n    y = 1.0\nreturn y": 1.0,
    "best = -1.0\nfor i in range(len(x)):\n    if x[i] > best:\n        best = x[i]\n"
    "        at = i\nreturn at": 4.0,
    "i = 0\nwhile i < 3:\n    r = x[i]\n    i += 1\nreturn r": 3.0,
    "for i in range(9):\n    if x[i] > 2.5:\n        hit = i\n        break\nreturn hit": 2.0,
}  # fmt: skip
UNSET = {
    "for i in range(0):\n    y = 1.0\nreturn y": 4, "if x[0] > 9.0:\n    y = 1.0\nreturn y": 4,
    "while x[0] > 9.0:\n    y = 1.0\nreturn y": 4,
}  # fmt: skip
SURE = {
    "range(3)": 2, "range(1, 4)": 3, "range(5, 0, -2)": 1, "range(N)": 3, "range(K)": 1,
    "(1, 3)": 3, "reversed(range(4))": 0, "range(n)": 4, "range(1, n)": 4,
}  # fmt: skip
MAYBE = ["range(m)", "range(n - 2)", "range(0)", "range(3, 3)", "range(int(s))", "range(2, n)"]


def _body(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.split("\n"))


@pytest.mark.parametrize("body", HOST)
def test_the_host_program_runs(body: str) -> None:
    module = tessera.compile(f"y = 7.0\n\n\ndef f(x):\n{_body(body)}", target="cpu")
    assert module.f(x) == HOST[body]


@pytest.mark.parametrize("body", UNSET)
def test_what_is_not_set_is_told_with_its_line(body: str) -> None:
    module = tessera.compile(f"y = 7.0\ndef f(x):\n{_body(body)}", target="cpu")
    with pytest.raises(
        tessera.TesseraError, match=r"T0808.*`y` is read before it has a value"
    ) as e:
        module.f(x)
    assert f":{UNSET[body] + 1}:" in str(e.value)


LANES = (
    "N = 4\n\n\n@kernel tile[(32,)] grid[(1,)]\n"
    "def k[K: int = 2](x: f64[n], s: f64, out: mut f64[m]) where n >= 2:\n"
    "    t = tile_linear_id()\n"
    "    if t < m:\n        for i in {}:\n            y = x[0] * f64(i)\n        out[t] = y\n\n\n"
    "def f(x):\n    out = op.zeros_like(x)\n    k(x, 1.0, out)\n    return out\n"
)
TILES = (
    "N = 4\n\n\n@op.kernel\ndef k[K: int = 2](x: f64[n], s: f64, w: f64[m]) where n >= 2:\n"
    "    for i in {}:\n        y = op.sum(x) / 15.0 * i\n    return x * 0.0 + y\n\n\n"
    "def f(x):\n    return k(x, 1.0, x)\n"
)


@pytest.mark.parametrize("kernel", [LANES, TILES], ids=["lanes", "tiles"])
@pytest.mark.parametrize("over", SURE)
@pytest.mark.sample(5)
def test_a_loop_that_has_a_round(kernel: str, over: str) -> None:
    f: Callable[..., np.ndarray] = tessera.compile(kernel.format(over), target="cpu").f
    np.testing.assert_allclose(f(x), np.full(5, float(SURE[over])), 1e-12)


@pytest.mark.parametrize("kernel", [LANES, TILES], ids=["lanes", "tiles"])
@pytest.mark.parametrize("over", MAYBE)
def test_a_loop_that_may_have_none(kernel: str, over: str) -> None:
    session = Session()
    session.set_text("f.tessera", kernel.format(over.replace("int(s)", "len(x) // 9")), 1)
    assert "T0109" in [d.code for d in session.check("f.tessera")]


def test_what_some_rounds_set_is_not_set() -> None:
    session = Session()
    text = LANES.format("range(3)").replace(
        "            y =", "            if i > 0: continue\n            y ="
    )
    session.set_text("f.tessera", text, 1)
    (found,) = [d for d in session.check("f.tessera") if d.code == "T0109"]
    assert "is not set in every round" in found.labels[1].text


def test_check_goes_through_what_the_run_loads() -> None:
    session = Session()
    text = (
        'x = op.load("d.npy")\nfor v in x:\n    last = v * 2.0\nprint(last)\n'
        "rows = [r + 1.0 for r in x]\na, b = x\nprint(a + b, len(rows))\n"
    )
    session.set_text("f.tessera", text, 1)
    assert not session.check("f.tessera")
