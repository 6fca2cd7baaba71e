"""``op.einsum`` beside NumPy's, of letters that are drawn and of those that are known."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.evaluate.einsum_expansion import NAMES, BadSubscripts, Rules, expression, parsed
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.lower.ast_to_schedule.test_numpy_names_assembled import assembled

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
          "i8": np.int8, "i32": np.int32, "u16": np.uint16}  # fmt: skip
SIZES = dict(zip("ijklmn", (5, 7, 3, 4, 1, 6), strict=True))
KNOWN = (
    "ij,jk->ik", "ij,kj->ik", "ij,j->i", "j,ij->i", "i,j->ij", "ij->ji", "ij->", "ij->j",
    "ij,ij->i", "ij,ij", "ii->", "ii->i", "iji->j", "bij,bjk->bik", "bhqd,bhkd->bhqk",
    "bqhd,bkhd->bhqk", "ijk,kl->ijl", "abk,cdk->abcd", "ijk,jkl->il", "ij,jk,kl->il",
    "bi,bi->b", "bnd,bne->bde", "i,i->", "ij,jk,k->i", "ij,k->", "bij,bkj->bik", "i,i,i->i",
)  # fmt: skip


def drawn(seed: int) -> str:
    """Letters of one to three operands, of which any may be left."""
    r = random.Random(seed)
    operands = [
        "".join(r.choices("ijkl", k=r.choice([1, 2, 2, 3]))) for _ in range(r.choice([1, 2, 2, 3]))
    ]
    used = sorted(set("".join(operands)))
    return ",".join(operands) + "->" + "".join(r.sample(used, r.randrange(len(used) + 1)))


def operands(subscripts: str, dtype: str) -> list[Any]:
    r = np.random.default_rng(len(subscripts))
    sizes = {**SIZES, **dict(zip("abdehqc", (2, 3, 8, 5, 2, 6, 4), strict=True))}
    low = 0 if dtype.startswith("u") else -2
    shapes = [[sizes[x] for x in letters] for letters in subscripts.split("->")[0].split(",")]
    return [r.integers(low, 3, shape).astype(DTYPES[dtype]) for shape in shapes]


def wanted(subscripts: str, given: list[Any]) -> Any:
    found = np.einsum(subscripts, *(x.astype(np.float64) for x in given))
    return np.asarray(found)


def checked(texts: list[str], dtype: str, target: str) -> None:
    """Small integers: every order of the sums gives the same."""
    given = {s: operands(s, dtype) for s in texts}
    lines = list[str]()
    for i, (s, arrays) in enumerate(given.items()):
        parameters = ", ".join(
            f"{n}: {dtype}[{', '.join(f'{n}{k}' for k in range(x.ndim))}]"
            for n, x in zip(NAMES, arrays, strict=False)
        )
        names = ", ".join(NAMES[: len(arrays)])
        lines.append(f'@op.kernel\ndef k{i}({parameters}):\n    return op.einsum("{s}", {names})\n')
    module = loaded("\n".join(lines), target)
    for i, (s, arrays) in enumerate(given.items()):
        found = np.asarray(getattr(module, f"k{i}")(*arrays))
        np.testing.assert_array_equal(found.astype(np.float64), wanted(s, arrays), err_msg=s)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("part", range(9))
@pytest.mark.parametrize("dtype", DTYPES)
def test_known_sums(dtype: str, part: int, target: str) -> None:
    checked(list(KNOWN[part::9]), dtype, target)


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", range(20))
def test_drawn_sums(block: int, target: str) -> None:
    texts = list(dict.fromkeys(drawn(seed) for seed in range(6 * block, 6 * block + 6)))
    checked(texts, ("f32", "i32", "f64", "f16")[block % 4], target)


def test_narrow_floats_are_rounded_once() -> None:
    """Of numbers that are no integers, in f64: half of the last place of bf16."""
    r = np.random.default_rng(5)
    a, b = (r.standard_normal((33, 65)).astype(ml_dtypes.bfloat16) for _ in range(2))
    module = loaded("""
@op.kernel
def k(a: bf16[m, n], b: bf16[m, n]):
    return op.einsum("ij,ij->i", a, b), op.einsum("ij,kj->ik", a, b)
""")
    for found, s in zip(module.k(a, b), ("ij,ij->i", "ij,kj->ik"), strict=True):
        right = wanted(s, [a, b])
        size = np.einsum(s, *(np.abs(x.astype(np.float64)) for x in (a, b)))
        error = np.abs(np.asarray(found, np.float64) - right)
        assert (error <= np.abs(right) * 2.0**-8 + size * 65 * 2.0**-24).all()


def test_text_of_letters_is_their_sum() -> None:
    """The text by NumPy's own functions: many letters, no kernel."""

    class Array(np.ndarray[Any, Any]):
        @property
        def mT(self) -> Any:
            return np.swapaxes(self, -1, -2)

    class op:
        sum, tril, triu, transpose = np.sum, np.tril, np.triu, np.transpose

        @staticmethod
        def cast(x: Any, _: Any) -> Any:
            return x

    for seed in range(600):
        s = drawn(seed)
        given = [x.view(Array) for x in operands(s, "f64")]
        letters, result = parsed(s, len(given))
        for rules in (Rules(), Rules(multiplies=False), Rules(first=True, factor="f32")):
            names = {**dict(zip(NAMES, given, strict=False)), "op": op, "f32": None}
            found = np.asarray(eval(expression(letters, result, rules), names))
            np.testing.assert_allclose(found, wanted(s, given), err_msg=s)


@needs_ptxas
@pytest.mark.sample(1)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_assembled(arch: str) -> None:
    text = """
@op.kernel
def scores(q: bf16[b, s, h, d], k: bf16[b, t, h, d]) -> f32[b, h, s, t]:
    return op.einsum("bqhd,bkhd->bhqk", q, k).to(f32)

@op.kernel
def chain(a: f32[m, n], b: f32[n, k], c: f32[k, m]):
    return op.einsum("ij,jk,ki->", a, b, c)
"""
    assembled(text, ("scores", "chain"), arch)


@pytest.mark.parametrize(
    "text", ["ij,jk", "ij->k", "ij->ii", "i.,j", "i1->i", ",i->", "abcdefghi->"]
)
def test_letters_that_fit_nothing(text: str) -> None:
    with pytest.raises(BadSubscripts):
        parsed(text, 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('op.einsum("ij,jk->ik", x)', "T0207"),
        ('op.einsum("ijk->k", x)', "T0604"),
        ('op.einsum("ij,ij->i", x, x.to(f64))', "T0206"),
        ('op.einsum("i->", x[0, :] > 0.0)', "T0206"),
        ('op.einsum("i,i->", op.array([1, 2]), op.array([1, 2, 3]))', "T0601"),
        ('op.einsum("...ij->...ji", x)', "T0207"),
        ("op.einsum(x, x)", "T0207"),
        ('op.einsum("ij->", 1.0)', "T0207"),
    ],
)
def test_bad_calls(body: str, code: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[m, n]):\n    return {body}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert code in [d.code for d in found], found
