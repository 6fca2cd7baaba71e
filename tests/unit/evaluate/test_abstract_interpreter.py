"""The host program checked without data."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session

KERNEL = """\
@kernel tile[(32,)]
def scale(x: f32[n], out: mut f32[n]):
    for k in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[k] = x[k] * 2.0


@kernel tile[(32,)] grid[(1,)]
def wide(x: f32[m, n], y: f32[m], out: mut f32[2 * n]):
    if tile_linear_id() == 0: out[0] = x[0, 0] + y[0]


"""


def faults(program: str, given: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    """Codes and 1-based lines behind the kernels."""
    session = Session(overlay={"m.tessera": KERNEL + program + "\n"})
    start = KERNEL.count("\n")
    text = KERNEL + program + "\n"
    return [
        (d.code, text[: d.span.lo].count("\n") + 1 - start if d.span else -1)
        for d in session.check("m.tessera", given=given)
        if d.severity == "error"
    ]


LOAD = "x = op.load('d.npy')\n"
TWO_RESULTS = "def f(n):\n    if n > 0: return op.zeros((4,))\n    return op.zeros((5,))\n"
X = "x = op.zeros((8,))\ny = op.zeros((8,))\n"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (X + "scale[4](x, y)", []),
        (X + "scale(x, y)", [("T0839", 3)]),
        (X + "scale[4](x, x)", [("T0836", 3)]),
        (X + "scale[4](x, op.zeros((9,)))", [("T0834", 3)]),
        (X + "scale[4](x, op.zeros((8,), dtype=f64))", [("T0832", 3)]),
        (X + "scale[4](x, op.zeros((8, 1)))", [("T0833", 3)]),
        (X + "scale[4](x, 3)", [("T0831", 3)]),
        ("wide(op.ones((3, 8)), op.ones((3,)), op.zeros((16,)))", []),
        ("wide(op.ones((3, 8)), op.ones((3,)), op.zeros((17,)))", [("T0834", 1)]),
        (X + "x[8]", [("T0807", 3)]),
        (X + "x[0, 0]", [("T0807", 3)]),
        (X + "z = x + op.zeros((9,))", [("T0834", 3)]),
        (X + "z = op.random((8,)) + op.zeros((8,), dtype=i32)", [("T0818", 3)]),
        (X + "z = op.reshape(x, (3, -1))", [("T0834", 3)]),
        (X + "a = x[9]\nb = a + 1\nc = y[9]", [("T0807", 3), ("T0807", 5)]),
        ("x = op.load('d.npy')\nscale[1](x, op.zeros((4,)))", []),
        ("x = op.load('d.npy')\nn = x.shape[0]\nscale[1](op.zeros((n,)), op.zeros((n,), f64))",
         [("T0832", 3)]),
        (f"{LOAD}if x[0] > 0:\n    y = op.ones(4)\nelse: y = op.ones((4, 4))\nscale[1](y, y)", []),
        (f"{LOAD}if x[0] > 0:\n    y = op.zeros((4,))\n    y[7]\nelse:\n    x = 1 // 0",
         [("T0807", 4), ("T0803", 6)]),
        (f"{TWO_RESULTS}{LOAD}f(x.shape[0])[7]", []),
        (f"{TWO_RESULTS}f(1)[4]", [("T0807", 4)]),
        ("i = 0\nx = op.load('d.npy')\nwhile i < x.shape[0]:\n    i += 1\nop.zeros((4,))[i]", []),
        ("x = op.zeros((4,))\nfor i in range(1000000):\n    x[0] = i\nx[4]", [("T0807", 4)]),
        ("def f(x): return f(x)\nx = f(1)", []),
        ("assert 1 == 2", []),
        ("def f(x): return f(x)\ny = f(1)\nassert op.all(y == 1)\nop.reshape(y, (2,))", []),
        ("x = op.zeros((4,))\nassert x[9] == 0", [("T0807", 2)]),
        ("x = op.zeros((4,))\nprint(f'{x[5]}')", [("T0807", 2)]),
    ],
)  # fmt: skip
def test_programs(program: str, expected: list[tuple[str, int]]) -> None:
    assert faults(program) == expected


def test_given_names_are_unknown() -> None:
    assert faults("scale[1](data, op.zeros((4,)))", frozenset(["data"])) == []
    assert faults("data = op.zeros((3,))\ndata[7]", frozenset(["data"])) == []


def test_an_endless_program_is_checked_in_bounded_time() -> None:
    assert faults("i = 0\nwhile True:\n    for j in range(10):\n        i += j") == []


def test_an_error_in_a_kernel_is_shown_with_the_call() -> None:
    text = "@kernel tile[(32,)]\ndef k(x, out: mut f32[g]):\n    out[0] = x[0]\n\n\n"
    text += "x = op.zeros((4,), dtype=i32)\nk[1](x, op.zeros((1,)))\n"
    session = Session(overlay={"m.tessera": text})
    (found,) = session.check("m.tessera")
    assert found.span is not None and text[: found.span.lo].count("\n") == 2
    assert any(label.text == "in this call" for label in found.labels)


def test_a_condition_that_does_not_hold() -> None:
    text = KERNEL.replace("out: mut f32[2 * n]):", "out: mut f32[2 * n]) where n % 4 == 0:")
    text += "wide(op.ones((3, 6)), op.ones((3,)), op.zeros((12,)))\n"
    found = Session(overlay={"m.tessera": text}).check("m.tessera")
    assert [d.code for d in found] == ["T0838"]


@pytest.mark.parametrize(
    ("condition", "faulty"),
    [
        ("x[0] > 1.0 and len(x) > 100", False),
        ("x[0] > 1.0 and len(x) < 100", True),
        ("not (x[0] > 1.0 or len(x) < 100)", False),
        ("x[0] > 1.0 and x[2] > 1.0 and 3 > 4", False),
        ("x[0] > 1.0 and 1 // 0 > 3", True),
    ],
)
def test_what_decides_a_condition_may_stand_behind_what_is_not_known(
    condition: str, faulty: bool
) -> None:
    body = f"def f(x):\n    if {condition}: scale(x, x)\n    return x\n"
    program = f"{body}f(op.random((8,), seed=1))"
    assert bool(faults(program)) == faulty
