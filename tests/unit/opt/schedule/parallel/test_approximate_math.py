"""Powers and quotients by products: where the machine's approximations serve, and where not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

HEAD = """\
@op.kernel
def kernel(a: {t}[m, d], b: {t}[d, n], c: {t}[n, e], w: f32[m]) -> ({o}[m, e], f32[m]):
    out, more = op.empty((m, e), {o}), op.empty((m,), f32)
    for i in op.tile_range(m, step=64):
        acc = op.zeros((64, e), f32)
        total = op.zeros((64,), f32)
        top = op.full((64,), -inf, f32)
        for j in op.tile_range(n, step=64):
            s = a[i:i+64, :] @ b[:, j:j+64]
{body}
        out[i:i+64, :] = {result}
        more[i:i+64] = total
    return out, more
"""
PLAIN = "p = exp(s)\nacc += p.to({t}) @ c[j:j+64, :]"
SUMMED = PLAIN + "\ntotal += op.sum(p, axis=1)"
BEHIND_A_MAXIMUM = """\
new = max(top, op.max(s, axis=1))
p = {f}(s - new[:, None])
shrink = {f}(top - new)
total = total * shrink + op.sum(p, axis=1)
acc = acc * shrink[:, None] + p.to({t}) @ c[j:j+64, :]
top = new"""
MASKED = BEHIND_A_MAXIMUM.replace("op.sum(p", "op.sum(op.where(s > 0.0, p, 0.0)")
TWICE = SUMMED.replace("exp(s)", "exp(-abs(s))") + "\ntotal += op.max(p, axis=1)"
SQUARED = PLAIN.replace("p.to", "(p * p).to")
FORMS = {
    "a factor": (PLAIN, "exp", True),
    "a factor and a sum": (SUMMED, "exp", False),
    "of what is not positive": (SUMMED.replace("exp(s)", "exp(-abs(s))"), "exp", True),
    "behind a maximum": (BEHIND_A_MAXIMUM, "exp", True),
    "of two": (BEHIND_A_MAXIMUM, "exp2", True),
    "some of it in a sum": (MASKED, "exp", True),
    "also a maximum": (TWICE, "exp", False),
    "computed with": (SQUARED, "exp", False),
}


def source(form: str, t: str = "bf16", o: str = "f32", result: str = "acc") -> str:
    text, f, _ = FORMS[form]
    body = "\n".join(" " * 12 + line for line in text.format(t=t, f=f).splitlines())
    return HEAD.format(t=t, o=o, body=body, result=result)


def operations(text: str, t: str = "bf16") -> list[Any]:
    """What any machine gets."""
    session = Session(overlay={"k.tessera": text})
    signature = f"a: {t}[128, 64], b: {t}[64, 256], c: {t}[256, 64], w: f32[128]"
    wanted = session.signature("k.tessera", "kernel", signature)
    return [o for p in session.scheduled("k.tessera", "kernel", wanted) for o in p.walk()]


@pytest.mark.sample(4)
@pytest.mark.parametrize("form", FORMS)
def test_powers_that_nobody_sees_exactly(form: str) -> None:
    t = "f16" if form == "a factor" else "bf16"
    quick = any(o.name == "tile.exp2" for o in operations(source(form, t), t))
    assert quick == FORMS[form][2]


def test_powers_of_exact_products_are_exact() -> None:
    """A product of f32 does not round its factors."""
    names = {o.name for o in operations(source("a factor", "f32"), "f32")}
    assert "tile.exp2" not in names and "tile.either" not in names


@pytest.mark.parametrize(
    ("result", "o", "marked"),
    [("(acc / total[:, None]).to(bf16)", "bf16", True), ("acc / total[:, None]", "f32", False),
     ("(op.zeros((64, e), f32) / w[i:i+64][:, None]).to(bf16)", "bf16", False),
     ("(op.relu(acc) / total[:, None]).to(bf16)", "bf16", True)],
)  # fmt: skip
def test_quotients_of_products_that_are_rounded(result: str, o: str, marked: bool) -> None:
    found = operations(source("behind a maximum", o=o, result=result))
    divisions = [x for x in found if x.name == "tile.div"]
    assert divisions and all(bool(x.attributes.get("rounded")) == marked for x in divisions)


@pytest.mark.parametrize(
    "form", [f if f in ("a factor", "of two") else pytest.param(f, marks=pytest.mark.slow)
             for f in FORMS]
)  # fmt: skip
@pytest.mark.sample(1)
def test_results_are_right(form: str) -> None:
    import ml_dtypes

    r = np.random.default_rng(3)
    a, b, c = (
        r.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((70, 24), (24, 90), (90, 40))
    )
    made, total = tessera.compile(source(form), target="cpu").kernel(
        a, b, c, np.ones(70, np.float32)
    )
    x, y, z = (v.astype(np.float64) for v in (a, b, c))
    s = x @ y
    if "maximum" in form and form != "also a maximum" or form in ("of two", "some of it in a sum"):
        s = s - s.max(axis=1, keepdims=True)
    if form in ("of what is not positive", "also a maximum"):
        s = -abs(s)
    p = np.exp(s * (math.log(2) if form == "of two" else 1.0))
    wanted = (p * p if form == "computed with" else p) @ z
    scale = (p * p if form == "computed with" else p) @ abs(z)
    assert (abs(made - wanted) <= 2**-7 * scale + 1e-6).all()
    if form in ("behind a maximum", "of two", "a factor and a sum", "of what is not positive"):
        assert (abs(total - p.sum(axis=1)) <= 2**-14 * p.sum(axis=1)).all()
