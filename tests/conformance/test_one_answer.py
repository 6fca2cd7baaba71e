"""Whoever asks about a kernel for arrays of some sizes gets one answer: `check`, `build`, a call.

The facts of a written signature are those of a call; what is refused is refused by all of them,
with the same code.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime import signature as signatures
from tessera_backend.runtime.api import compile as compile_text
from tessera_backend.runtime.api import load, load_built, write_build
from tessera_backend.runtime.arrays import HOST, ArrayView
from tessera_backend.runtime.results import aligned_empty
from tessera_backend.runtime.signature import Asked

from tessera_lang import TesseraError
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session
from tessera_lang.driver.signatures import knows_sizes
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.target.array_facts import row_major
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.dtype import DTYPES

KERNELS = {
    "scale": "@kernel tile[(128,)] grid[(ceil_div(n, 128),)]\n"
    "def scale(x: f32[n], y: mut f32[n]):\n"
    "    i = grid_tile_linear_id()\n    if i < n: y[i] = x[i] * 2.0\n",
    "product": "@op.kernel\ndef product(x: f32[m, k], y: f32[k, n]) -> f32[m, n]:\n"
    "    return x @ y\n",
    "softmax": "@op.kernel\ndef softmax(x: f32[m, n]) -> f32[m, n]:\n    return op.softmax(x)\n",
    "scan": "@op.kernel\ndef scan(x: f32[m, n], y: mut f32[m, n]):\n"
    "    for i in op.tile_range(m, step=1):\n        y[i, :] = op.cumsum(x[i, :])\n",
    "rows": "@op.kernel\ndef rows(x: f32[m, n], y: mut f32[m]):\n"
    "    for i in op.tile_range(m, step=1):\n        y[i] = op.max(x[i, :])\n",
    "room": "@op.kernel\ndef room(x: f32[m, n], y: mut f32[m, n]):\n"
    "    for i in op.tile_range(m, step=4):\n"
    "        t = op.zeros((4, n), f32)\n        t += x[i:i+4, :]\n        y[i:i+4, :] = t\n",
    "turned": "@op.kernel\ndef turned(x: f32[m, n], y: mut f32[n, m]):\n    y[:, :] = x.T\n",
    "again": "@op.kernel\ndef again(x: f32[m, n], y: mut f32[m, n]):\n"
    "    t = x * 2.0\n    y[:, :] = t\n    y[:, :] = t + x\n",
    "window": "@op.kernel\ndef window(x: f32[m, n], y: mut f32[m, n]):\n"
    "    for i in op.tile_range(m, step=1):\n        for q in op.tile_range(n, step=256):\n"
    "            t = op.window(x[i, :], q - 1, 256)\n            y[i, q:q+256] = t[0:n-q]\n",
    "written": "@op.kernel\ndef written(x: mut f32[m, n], y: mut f32[m, n]):\n"
    "    t = x * 2.0\n    x[:, :] = t\n    y[:, :] = t\n",
}  # fmt: skip
SHAPES: dict[str, Callable[[int, int], tuple[tuple[int, ...], ...]]] = {
    "scale": lambda m, n: ((m * n,), (m * n,)),
    "product": lambda m, n: ((m, n), (n, m)),
    "rows": lambda m, n: ((m, n), (m,)),
    "softmax": lambda m, n: ((m, n),),
    "turned": lambda m, n: ((m, n), (n, m)),
}
NAMES = {"softmax": ("x",)}
LONG = (8191, 8192, 8193, 8320, 131071, 131072, 131073)
SHORT = (0, 1, 2, 7, 8, 16, 17, 100, 127, 128, 129, 255, 256, 1000, 1024)


def shapes_of(kernel: str, m: int, n: int) -> dict[str, tuple[int, ...]]:
    made = SHAPES.get(kernel, lambda m, n: ((m, n), (m, n)))(m, n)
    return dict(zip(NAMES.get(kernel, ("x", "y")), made, strict=True))


def text_of(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}: f32[{', '.join(map(str, s))}]" for name, s in shapes.items())


def session_of(kernel: str, target: str) -> tuple[Session, str]:
    session = Session(overlay={"k.tessera": KERNELS[kernel]})
    session.options = TargetOptions(target, "native" if target == "cpu" else "sm_90a")
    return session, "k.tessera"


def of_a_call(session: Session, path: str, kernel: str, shapes: Any, target: str) -> Any:
    """The compiler's form of the signature that a call with such arrays has."""
    device = HOST if target == "cpu" else 0
    views = [ArrayView(DTYPES["f32"], s, row_major(s), 64, device, False, None)
             for s in shapes.values()]  # fmt: skip
    bare = tuple(signatures.tensor("f32", len(v.shape), True, True) for v in views)
    asked = Asked(*session.asked(path, kernel, signatures.to_typed(bare)))
    return signatures.to_typed(signatures.with_facts(bare, tuple(shapes), views, asked))


def sizes(seed: int) -> Iterator[tuple[int, int]]:
    drawn = random.Random(seed)
    yield from itertools.product((1, 3, 128), LONG)
    for _ in range(40):
        yield drawn.choice(SHORT), drawn.choice((*SHORT, *LONG))


@pytest.mark.sample(9)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("kernel", [k for k in KERNELS if k != "scale"])
def test_a_written_signature_has_the_facts_of_a_call(kernel: str, target: str) -> None:
    session, path = session_of(kernel, target)
    for m, n in sizes(1):
        shapes = shapes_of(kernel, m, n)
        written = session.signature(path, kernel, text_of(shapes))
        assert written == of_a_call(session, path, kernel, shapes, target), (m, n)


def test_code_for_a_gpu_alone_is_for_small_arrays() -> None:
    for target, n, small in (("cpu", 100, False), ("cuda", 100, True), ("cuda", 1 << 31, False)):
        session, path = session_of("scale", target)
        for a in session.signature(path, "scale", f"x: f32[{n}], y: f32[100]"):
            assert isinstance(a, TensorArgument) and a.small == small


def codes(found: Any) -> set[str]:
    return {d.code for d in found if d.severity == "error"}


def refused(call: Callable[[], object]) -> set[str]:
    try:
        call()
    except TesseraError as error:
        return codes(error.diagnostics)
    return set()


def verdicts(kernel: str, target: str, m: int, n: int) -> dict[str, set[str]]:
    shapes = shapes_of(kernel, m, n)
    session, path = session_of(kernel, target)
    found = {"check": codes(session.check(path, (text_of(shapes),)))}
    assert session.options is not None
    options = replace(session.options, optimize=0)
    found["build"] = refused(lambda: session.compile_kernel(
        path, kernel, session.signature(path, kernel, text_of(shapes)), options
    ))  # fmt: skip
    arguments = ", ".join(f"op.zeros({s}, f32)" for s in shapes.values()).replace(",)", ",)")
    overlay = {"k.tessera": f"{KERNELS[kernel]}\n{kernel}({arguments})\n"}
    host = Session(overlay=overlay)
    host.options = session.options
    found["check of a call"] = codes(host.check(path))
    return found


FEW = [
    (4, 64),
    (4, 256),
    (4, 300),
    (1, 8192),
    (2, 8193),
    (3, 100),
    (128, 128),
    (2, 131072),
    (2, 131073),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", FEW)
@pytest.mark.sample(3)
def test_one_verdict_on_the_cpu(size: tuple[int, int], kernel: str, tmp_path: Path) -> None:
    found = verdicts(kernel, "cpu", *size)
    path = tmp_path / f"{kernel}.tessera"
    path.write_text(KERNELS[kernel])
    arrays = [np.zeros(s, np.float32) for s in shapes_of(kernel, *size).values()]
    found["call"] = refused(lambda: getattr(load(path, target="cpu"), kernel)(*arrays))
    assert len({*map(frozenset, found.values())}) == 1, found


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_one_verdict_on_a_gpu(kernel: str) -> None:
    for m, n in FEW:
        found = verdicts(kernel, "cuda", m, n)
        assert len({*map(frozenset, found.values())}) == 1, (m, n, found)


SAID = """
@op.kernel
def mm(A: bf16[m, k], B: bf16[k, n]) -> bf16[m, n]:
    schedule.tile(({tile}, {tile}, 64))
    return (A @ B).to(bf16)
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("tile", [128, 256])
@pytest.mark.parametrize("text", ["", "A: bf16[512, 512], B: bf16[512, 512]"])
@pytest.mark.sample(1)
def test_what_a_machine_lacks_is_found_by_a_check(arch: str, tile: int, text: str) -> None:
    session = Session(overlay={"k.tessera": SAID.format(tile=tile)})
    session.options = TargetOptions("cuda", arch, optimize=0)
    checked = codes(session.check("k.tessera", (text,) if text else ()))
    built = refused(lambda: session.compile_kernel(
        "k.tessera", "mm", session.signature("k.tessera", "mm", text),
        TargetOptions("cuda", arch, optimize=0),
    ))  # fmt: skip
    assert checked == built, (checked, built)
    assert bool(built) == (tile == 256)


SUM = "@op.kernel\ndef f(x: f32[m, n]) -> f32[m]:\n    return op.sum(x, axis=1)\n"


class Picky(Session):
    """A target that takes a kernel for known sizes only."""

    def refusals(self, path: str, name: str, signature: Any, grid_rank: int = 0) -> Any:
        if knows_sizes(signature):
            return ()
        return (Diagnostic("T0502", "it is too large"),)


def test_what_is_right_for_some_sizes_is_a_warning_where_none_is_said() -> None:
    """A call compiles the kernel for its sizes; what stands in the way of code for any is said."""
    (found,) = Picky(overlay={"k.tessera": SUM}).check("k.tessera")
    assert (found.code, found.severity) == ("T0502", "warning")
    assert any("128" in note for note in found.notes)
    sized = ("x: f32[8, 16]",)
    for text, said in ((SUM, sized), (SUM + "\ny = f(op.zeros((8, 16), f32))\n", ())):
        assert not Picky(overlay={"k.tessera": text}).check("k.tessera", said)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [(1, 8), (3, 100), (128, 128), (2, 8192)])
@pytest.mark.sample
def test_what_is_built_for_sizes_runs_with_them(
    size: tuple[int, int], kernel: str, tmp_path: Path
) -> None:
    session, path = session_of(kernel, "cpu")
    shapes = shapes_of(kernel, *size)
    assert session.options is not None
    wanted = session.signature(path, kernel, text_of(shapes))
    try:
        made = session.compile_kernel(path, kernel, wanted, session.options)
    except TesseraError as error:
        assert codes(error.diagnostics)
        return
    write_build(tmp_path / "built", [made])
    arrays = [aligned_empty(s, np.dtype(np.float32)) for s in shapes.values()]
    getattr(load_built(tmp_path / "built"), kernel)(*arrays)


SIZED = {
    "x @ y": "ij,jk", "x + y": "ij,ij", "x + y.T": "ij,ji", "op.einsum('ij,kj->ik', x, y)": "ij,kj",
    "op.concat((x, y), axis=1)": "ij,ik", "op.stack((x, y))": "ij,ij", "x @ x + y": "ii,ii",
    "op.trace(x) + y": "ii,jk", "op.where(x > 0.0, x, y)": "ij,ij",
    "op.reshape(x, (2, -1)) + y": None, "op.reshape(x, (4, 3)) + y": None, "x[0:2, :] + y": None,
}  # fmt: skip
"""Expressions and the letters of their sizes; None: only the call knows."""
HEADS = {
    "without annotations": "@op.kernel\ndef f(x, y):\n    return {}\n",
    "with sizes of names": "@op.kernel\ndef f(x: f32[a, b], y: f32[c, d]):\n    return {}\n",
    "of one size": "@op.kernel\ndef f(x: f32[a, b], y: f32[a, b]):\n    return {}\n",
    "with a clause": "@op.kernel\ndef f(x: f32[a, b], y: f32[c, d]) where a <= d:\n    return {}\n",
}
LANES = """@kernel tile[(32,)] grid[(1,)]
def f(x: f32[a, b], y: f32[{}]){}:
    i = tile_linear_id()
    if i < y.shape[0]: print(i)
"""


def answers(text: str, shapes: tuple[tuple[int, ...], ...]) -> dict[str, set[str]]:
    """The codes of each who is asked about ``f`` of a file for arrays of these shapes."""
    sized = text_of(dict(zip("xy", shapes, strict=True)))
    session = Session(overlay={"k.tessera": text})
    session.options = TargetOptions("cpu", "native")
    found = {"check": codes(session.check("k.tessera", (sized,)))}
    found["build"] = refused(lambda: session.signature_of_launches("k.tessera", "f", sized))
    arrays = [np.ones(s, np.float32) for s in shapes]
    found["call"] = refused(lambda: compile_text(text, target="cpu").f(*arrays))
    return found


def broken(letters: str | None, shapes: tuple[tuple[int, ...], ...]) -> bool | None:
    """Whether sizes disagree about a letter, where letters say all."""
    if letters is None:
        return None
    known: dict[str, set[int]] = {}
    for name, shape in zip(letters.split(","), shapes, strict=True):
        for letter, n in zip(name, shape, strict=True):
            known.setdefault(letter, set()).add(n)
    return any(len(values) > 1 for values in known.values())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("value", SIZED)
@pytest.mark.sample(1)
def test_sizes_that_do_not_fit_are_refused_by_all(value: str, head: str) -> None:
    """An axis of one element is not drawn: beside it arrays are repeated or not, by the dtype of
    the rule, which ``test_axes_of_one_element`` goes through."""
    drawn = random.Random(f"{value} {head}")
    text = HEADS[head].format(value)
    seen: set[bool | None] = set()
    for _ in range(2):
        m, n = drawn.choice((2, 4)), drawn.choice((3, 6))
        for shapes in (((m, n), (n, m)), ((m, m), (m, m)), ((m, n), (m, n))):
            found = answers(text, shapes)
            assert len({*map(frozenset, found.values())}) == 1, (shapes, found)
            refusal = bool(found["call"])
            wrong = broken(SIZED[value], shapes)
            assert not wrong or refusal, shapes
            if wrong is False and head in ("without annotations", "with sizes of names"):
                assert not refusal, (shapes, found)
            seen.add(refusal)
    assert True in seen, "no sizes were wrong"


@pytest.mark.parametrize("clause", ["", " where a < b", " where a % 2 == 0 or b == 3"])
@pytest.mark.parametrize("size", ["a", "b", "c", "a * b", "a + 1"])
@pytest.mark.sample(5)
def test_sizes_of_lane_kernels_are_refused_by_all(size: str, clause: str) -> None:
    text = LANES.format(size, clause)
    for a, b, c in ((2, 3, 2), (2, 3, 3), (3, 2, 6), (3, 3, 4), (3, 4, 5)):
        found = answers(text, ((a, b), (c,)))
        assert len({*map(frozenset, found.values())}) == 1, ((a, b, c), found)


def test_a_size_that_no_launch_takes_has_its_line() -> None:
    text = "@op.kernel\ndef f(x):\n    return x @ x\n"
    session = Session(overlay={"k.tessera": text})
    (found,) = session.check("k.tessera", ("x: f32[3, 4]",))
    assert found.code == "T0838" and found.span is not None
    start = found.span.lo
    assert text[start:].startswith("@ x")
    assert "3" in found.message and "4" in found.message
