"""One answer, whoever asks: what a plain check says of a kernel that is compiled for sizes is what
each call of it is told, and what a check takes is compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.driver.size_examples import examples
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.sema.signature import signature_of_annotations
from tessera_lang.target.backend import TargetOptions

ROOT = Path(__file__).resolve().parents[3]
PATH = "k.tessera"
BLOCK = re.compile(r"^```tessera(?: right)?\n(.*?)^```", re.S | re.M)

ALWAYS = {
    "made_in_a_condition": (
        "(x: f64[n], c: i32) -> f64[n]:\n    y = x[::-1]\n    if c > 0:\n        y[0] = 1.0\n"
        "    return op.sort(y)", "T0609",
    ),
    "another_dtype": ("(A: f64[n, n], x: f64[n]) -> i32[n]:\n    return op.sort(A @ x)", "T0208"),
    "ranks": (
        "(A: f64[n, n], x: mut f64[n]):\n    s = op.sort(A, axis=1)\n    x[:] = s", "T0604",
    ),
    "an_array_of_tiles": (
        "(A: mut f64[m, n], B: mut f64[m, n]):\n    for i in op.tile_range(m, step=1):\n"
        "        s = op.sort(A, axis=1)\n        h = A * 0.5\n        A[i, :] = s[i, :]\n"
        "        B[i, :] = h[i, :]", "T0702",
    ),
}  # fmt: skip
"""Wrong for all sizes: the kernel, and the code of each call."""


def checked(session: Session, sizes: str = "") -> list[str]:
    return [d.code for d in session.check(PATH, [sizes] if sizes else []) if d.severity == "error"]


@pytest.mark.parametrize("name", ALWAYS)
def test_what_every_call_is_told(name: str) -> None:
    text, code = ALWAYS[name]
    session = Session(overlay={PATH: f"@op.kernel\ndef k{text}\n"})
    (function,) = session.kernels(PATH)
    own = signature_of_annotations(function, session.scope(PATH))
    assert own is not None and session.completed(PATH, function, own) is None
    assert set(checked(session)) == {code}
    for sizes in ("n=3", "n=40", "n=1000"):
        known = _with_sizes(text, int(sizes[2:]))
        assert set(checked(Session(overlay={PATH: f"@op.kernel\ndef k{text}\n"}), known)) == {code}


def _with_sizes(text: str, n: int) -> str:
    head = text[1 : text.index("):") if ") ->" not in text else text.index(") ->")]
    return re.sub(r"\b[mn]\b(?=[,\]])", str(n), head).replace("mut ", "")


def test_a_call_of_arrays_whose_sizes_are_open() -> None:
    text = "@op.kernel\ndef k(x, c):\n    y = x[::-1]\n    if c > 0:\n        y[0] = 1.0\n"
    text += "    return op.sort(y)\n\ndef f(n):\n    return k(op.zeros((n,)), 1)\n\n@test\n"
    text += "def t():\n    f(len(op.zeros((7,))))\n"
    session = Session(overlay={PATH: text})
    assert "T0609" in checked(session)


def test_what_depends_on_sizes_is_no_error() -> None:
    """The sizes of `y` decide; where no size was right in the examples, nothing is said."""
    text = "@op.kernel\ndef k(x: f32[n], y: f32[m]):\n    return op.sort(x)[1:] + y\n"
    session = Session(overlay={PATH: text})
    assert not session.check(PATH)
    assert checked(session, "x: f32[8], y: f32[9]") == ["T0838"]
    assert not checked(session, "x: f32[8], y: f32[7]")
    text = "@op.kernel\ndef k(x: f32[n]):\n    return op.sort(x)[:64].reshape(8, 8)\n"
    for d in Session(overlay={PATH: text}).check(PATH):
        assert d.severity != "error"


def kernels() -> Iterator[tuple[str, str]]:
    """Programs of the pages with tile kernels."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if "@op.kernel" in match[1]:
                yield f"{page.stem}-{match.start()}", match[1]


@pytest.mark.parametrize(("name", "text"), list(kernels()), ids=lambda v: v[:24])
@pytest.mark.sample(1)
def test_what_is_taken_is_compiled(name: str, text: str) -> None:
    """For some of the sizes that are tried, of each kernel that is right."""
    session = Session(overlay={PATH: text})
    session.options = TargetOptions("cpu")
    if checked(session):
        return  # the pages of codes have programs that are wrong elsewhere
    for function in session.kernels(PATH):
        own = signature_of_annotations(function, session.scope(PATH))
        if own is None or kernel_level(function) != "tile":
            continue
        built: list[bool] = []
        for sized in list(examples(function, own))[:3]:
            complete = session.completed(PATH, function, sized)
            assert complete is not None, name
            found = [*session.instance(PATH, function.name, complete)[2],
                     *session.refusals(PATH, function.name, complete)]  # fmt: skip
            right = not any(d.severity == "error" for d in found)
            if right and not built:
                session.compile_kernel(PATH, function.name, complete, TargetOptions("cpu"))
            built.append(right)
        assert any(built), (name, function.name)
