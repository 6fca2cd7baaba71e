"""Products across the lines of arrays read and store copies along them, with equal results."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


class Case(NamedTuple):
    """A product of matrices that lie somewhere in arrays: ``a``, ``b`` and ``out`` are their axes,
    c the one that all of them run along."""

    a: str
    b: str
    out: str
    dtype: str
    sizes: dict[str, int]
    annotated: bool

    @property
    def laid(self) -> int:
        """How many arrays the tiles run across, in lines of 32 bytes or more."""
        size = np.dtype(DTYPES[self.dtype]).itemsize
        is_long = self.sizes["c"] > 8 and self.sizes["c"] * size >= 32
        return sum(x[-1] == "c" and is_long for x in self[:3])

    def text(self) -> str:
        a, b, out = (
            ", ".join(f"{x}:{x}+32" if x in "ijp" else x for x in axes) for axes in self[:3]
        )
        sizes = {x: f"n{x}" for x in "zcijp"}
        names = "".join(x for x in "zcij" if x in self.out)
        steps = ", ".join("32" if x in "ij" else "1" for x in names)
        left = a if self.a.index("i") < self.a.index("p") else ""
        right = b if self.b.index("p") < self.b.index("j") else ""
        product = f"{'l' if left else 'l.T'} @ {'r' if right else 'r.T'}"
        if self.annotated:
            shapes = [", ".join(sizes[x] for x in axes) for axes in self[:3]]
            head = f"a: {self.dtype}[{shapes[0]}], b: {self.dtype}[{shapes[1]}]"
            head = f"def kernel({head}) -> {self.dtype}[{shapes[2]}]:"
            known: list[str] = []
        else:
            head = "def kernel(a, b):"
            known = [
                f"{sizes[x]} = {'a' if x in self.a else 'b'}.shape"
                f"[{(self.a if x in self.a else self.b).index(x)}]"
                for x in "zcijp" if x in self.a + self.b
            ]  # fmt: skip
        lines = [
            *known,
            f"out = op.empty(({', '.join(sizes[x] for x in self.out)}), {self.dtype})",
            f"for {', '.join(names)} in op.tile_range({', '.join(sizes[x] for x in names)}, "
            f"step=({steps})):",
            "    s = op.zeros((32, 32), f32)",
            "    for p in op.tile_range(np, step=32):",
            f"        l = a[{a}]",
            f"        r = b[{b}]",
            f"        s += {product}",
            f"    out[{out}] = {'s' if self.out.index('i') < self.out.index('j') else 's.T'}"
            f".to({self.dtype})",
            "return out",
        ]
        return "\n".join(["@op.kernel", head, *(f"    {x}" for x in lines)])

    def given(self) -> list[Any]:
        r = np.random.default_rng(1)
        return [
            r.integers(-3, 4, [self.sizes[x] for x in axes]).astype(DTYPES[self.dtype])
            for axes in (self.a, self.b)
        ]

    def shapes(self) -> str:
        return ", ".join(
            f"{name}: {self.dtype}[{', '.join(str(self.sizes[x]) for x in axes)}]"
            for name, axes in (("a", self.a), ("b", self.b))
        )


def case_of(seed: int) -> Case:
    r = Random(seed)
    batch = r.choice(["", "z"])

    def axes(matrix: str) -> str:
        found = list(matrix + batch)
        r.shuffle(found)
        found.insert(r.choice([0, len(found), len(found)]), "c")
        return "".join(found)

    sizes = {"z": 2, "c": r.choice([3, 16, 18, 33]), "p": r.choice([40, 64])}
    sizes |= {"i": r.choice([33, 64, 70]), "j": r.choice([36, 64])}
    return Case(axes("ip"), axes("pj"), axes("ij"), r.choice(list(DTYPES)), sizes, r.random() < 0.7)


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_products_across_lines(seed: int, target: str) -> None:
    compared(case_of(seed), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("seed", range(6, 60))
def test_more_products_across_lines(seed: int, target: str) -> None:
    compared(case_of(seed), target)


def compared(case: Case, target: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = loaded(case.text(), target)
        given = case.given()
        got = np.asarray(module.kernel(*given)).astype(float)
    want = np.einsum(f"{case.a},{case.b}->{case.out}", *(x.astype(float) for x in given))
    assert np.array_equal(got, want.astype(DTYPES[case.dtype]).astype(float)), case.text()


def laid(text: str, shapes: str, arch: str = "sm_90a") -> list[str]:
    made = from_source(text, shapes, arch)
    return [n for p in made.launches for n in p.schedule.operations[0].strings("parameters")
            if n.startswith("laid_")]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(3)
def test_what_is_laid_anew(seed: int) -> None:
    """As many arrays as are large, with long lines, and run across."""
    case = case_of(seed)
    large = {**case.sizes, "i": 128, "j": 128, "p": 128}
    case = case._replace(sizes=large)
    assert len(set(laid(case.text(), case.shapes()))) == case.laid, case.text()


HALF = """\
@op.kernel
def kernel(a: f32[n, n, c], b: f32[n, n, c]) -> f32[n, n, c]:
    out = op.MADE((n, n, c), f32)
    for k, i, j in op.tile_range(c, UPPER, n, step=(1, 32, 32)):
        out[i:i+32, j:j+32, k] = a[i:i+32, :64, k] @ b[:64, j:j+32, k]
    return out
"""


@pytest.mark.parametrize(("made", "upper", "is_laid"), [
    ("empty", "n", True), ("zeros", "n", False), ("empty", "n - 32", False),
])  # fmt: skip
def test_only_results_that_are_all_written(made: str, upper: str, is_laid: bool) -> None:
    """Elsewhere the rest of an array would be that of the copy."""
    text = HALF.replace("MADE", made).replace("UPPER", upper)
    assert ("laid_out" in laid(text, "a: f32[64, 64, 64], b: f32[64, 64, 64]")) == is_laid


def test_products_of_such_tiles_are_asynchronous() -> None:
    text = HALF.replace("MADE", "empty").replace("UPPER", "n").replace("f32[", "bf16[")
    text = text.replace(", f32)", ", bf16)").replace("32", "64")
    text = text.replace("a[i:i+64, :64, k] @ b[:64, j:j+64, k]",
                        "(a[i:i+64, :64, k] @ b[:64, j:j+64, k]).to(bf16)")  # fmt: skip
    found = from_source(text, "a: bf16[128, 128, 64], b: bf16[128, 128, 64]").launches
    units = [o.attributes["unit"] for p in found for o in p.schedule.operations[0].walk()
             if o.name.endswith(".dot")]  # fmt: skip
    assert units == ["wgmma"]
