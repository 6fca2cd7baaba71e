"""Products that are computed as their transposes, and columns between the usual ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.opt.schedule.decide import product_orientation

Array = np.ndarray[Any, np.dtype[Any]]
PLAIN = "(a @ b).to(bf16)"


def attributes(value: str, arguments: str, arch: str = "sm_90a", said: str = "") -> dict[str, Any]:
    """The decisions of a kernel of these arguments."""
    names = ", ".join(part.split(":")[0] for part in arguments.split("; "))
    text = f"@op.kernel\ndef kernel({names}):\n{said}    return {value}\n"
    session = Session(overlay={"k.tessera": text})
    wanted = session.signature("k.tessera", "kernel", arguments.replace("; ", ", "))
    made = session.for_machine("k.tessera", "kernel", wanted, session.machine("cuda", arch))
    return dict(made.schedule.operations[0].attributes)


MEASURED = [
    ((952, 1280, 952), "tn", (96, 128, 64), True), ((512, 512, 512), "nn", (32, 64, 128), True),
    ((512, 512, 512), "tn", (64, 32, 128), False),
    ((2560, 2560, 2560), "nn", (208, 128, 64), True),
    ((320, 5376, 6912), "tn", (112, 128, 64), True), ((1000,) * 3, "nn", (64, 128, 64), False),
    ((2816, 968, 2240), "tn", (128, 176, 64), False), ((8192,) * 3, "nn", (128, 256, 64), False),
]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(("sizes", "how", "tile", "turned"), MEASURED)
def test_the_better_way_that_was_measured(
    sizes: tuple[int, int, int], how: str, tile: tuple[int, ...], turned: bool
) -> None:
    m, n, k = sizes
    b, value = ((n, k), PLAIN.replace("b)", "b.T)")) if how == "tn" else ((k, n), PLAIN)
    found = attributes(value, f"a: bf16[{m}, {k}]; b: bf16[{b[0]}, {b[1]}]")
    assert (found["tile"], bool(found.get("swap"))) == (tile, turned)


A, B = "a: bf16[480, 3904]", "b: bf16[3904, 1280]"
KEPT = {
    "the user says the tile": (PLAIN, f"{A}; {B}", "    schedule.tile((64, 96, 64))\n"),
    "the user says the cluster": (PLAIN, f"{A}; {B}", "    schedule.cluster((2, 1))\n"),
    "another matrix is added": ("(a @ b + r).to(bf16)", f"{A}; {B}; r: bf16[480, 1280]", ""),
    "an operand is computed": ("((a * 2.0).to(bf16) @ b).to(bf16)", f"{A}; {B}", ""),
    "8 bits": ("(a @ b.T).to(i32)", "a: i8[480, 3904]; b: i8[1280, 3904]", ""),
    "exact f32": ("a @ b", f"{A}; {B}".replace("bf16", "f32"), ""),
}
TURNED = {
    "a product alone": (PLAIN, f"{A}; {B}"),
    "a vector along rows": ("(a @ b + r[None, :]).to(bf16)", f"{A}; {B}; r: bf16[1280]"),
    "one along columns": ("op.relu(a @ b * r[:, None]).to(bf16)", f"{A}; {B}; r: bf16[480]"),
}


@pytest.mark.parametrize("form", KEPT)
def test_what_stays(form: str) -> None:
    value, arguments, said = KEPT[form]
    assert "swap" not in attributes(value, arguments, said=said)


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", TURNED)
def test_what_is_turned(form: str) -> None:
    """Only on machines whose unit takes rows and columns by different numbers."""
    assert attributes(*TURNED[form])["swap"] is True
    assert "swap" not in attributes(*TURNED[form], arch="sm_80")


VALUES: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "x.to(bf16)": lambda p, r, c, w: p,
    "op.relu(x * c[:, None] + r[None, :]).to(f32)":
        lambda p, r, c, w: np.maximum(p * c[:, None] + r[None, :], 0),
    "(x + w).to(f32)": lambda p, r, c, w: p + w,
    "op.max(x, axis=1).to(f32)": lambda p, r, c, w: p.max(axis=1),
}  # fmt: skip


@pytest.mark.parametrize("how", ["nn", "tn"])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.sample(1)
def test_results_either_way(value: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give what NumPy does, whatever the model says of them."""
    monkeypatch.setenv("TESSERA_ARCH_AS", "sm_90a")
    monkeypatch.setenv("TESSERA_CACHE", "off")
    draw = np.random.default_rng(3)

    def made(*shape: int) -> Array:
        return draw.integers(-2, 3, shape).astype(ml_dtypes.bfloat16)

    a, b = made(200, 72), made(*((136, 72) if how == "tn" else (72, 136)))
    rest = {"r": made(136), "c": made(200), "w": made(200, 136)}
    given = {n: v for n, v in rest.items() if f"{n}[" in value or f"+ {n})" in value}
    wide = [v.astype(np.float64) for v in (a, b.T if how == "tn" else b, *rest.values())]
    want = VALUES[value](wide[0] @ wide[1], *wide[2:])
    for worth in (0.0, 1e9):
        monkeypatch.setattr(product_orientation, "OTHER_WAY_WORTH", worth)
        text = (
            f"@op.kernel\ndef kernel({', '.join(('a', 'b', *given))}):\n"
            f"    x = a @ b{'.T' if how == 'tn' else ''}\n    return {value}\n"
        )
        found = tessera.compile(text, target="cpu").kernel(a, b, *given.values())
        exact = want.astype(ml_dtypes.bfloat16) if "bf16" in value else want
        np.testing.assert_array_equal(np.asarray(found, np.float64), exact.astype(np.float64))


@pytest.mark.parametrize("columns", [48, 80, 144, 240])
@pytest.mark.sample(1)
def test_columns_between_the_usual_ones(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results leave by TMA, in lines of 32 bytes where no longer ones divide a tile."""
    said = f"    schedule.tile((64, {columns}, 64))\n"
    text = f"@op.kernel\ndef kernel(a, b):\n{said}    return (a @ b).to(bf16)\n"
    session = Session(overlay={"k.tessera": text})
    wanted = session.signature("k.tessera", "kernel", "a: bf16[264, 136], b: bf16[136, 488]")
    made = session.for_machine("k.tessera", "kernel", wanted, session.machine("cuda", "sm_90a"))
    (store,) = (o for o in made.schedule.walk() if o.name.endswith("schedule.store"))
    assert (store.attributes["leaves"], store.attributes["columns"]) == ("tma", 16)
    monkeypatch.setenv("TESSERA_ARCH_AS", "sm_90a")
    draw = np.random.default_rng(columns)
    a, b = (draw.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in ((264, 136), (136, 488)))
    want = (a.astype(np.float64) @ b.astype(np.float64)).astype(ml_dtypes.bfloat16)
    found = tessera.compile(text, target="cpu").kernel(a, b)
    np.testing.assert_array_equal(np.asarray(found, np.float64), want.astype(np.float64))
