"""Which refusals of a program with planted faults are right."""

from __future__ import annotations

from typing import Any

import pytest

import tessera_lang as tessera
from tessera_lang.record import replace
from tests.fuzz import program as p
from tests.fuzz.programs import evaluated, refused_rightly, run_cases, text_of
from tests.fuzz.refusals import refused_rightly as about_a_fault

N = p.Scalar("n", "index")


def planted(e: p.Expr) -> p.Expr:
    e.planted = True
    return e


def kernel(*body: p.Stmt) -> p.Kernel:
    parameters = [p.Parameter("x", "i32", ("n",), True)]
    return p.Kernel("k0", (4,), (1,), parameters, list(body), [], {"n": 8})


def store(index: p.Expr, value: p.Expr | None = None) -> p.Stmt:
    return p.Store("x", [index], value or p.Const(1, "i32"), "i32")


def inside() -> p.Expr:
    return p.Id("tile_linear_id")


def outside(*, mark: bool = True) -> p.Expr:
    e = p.Binary("-", p.Const(-1, "index", True), p.Id("tile_linear_id"), "index")
    return planted(e) if mark else e


NEVER = p.Compare([N, p.Const(0, "index", True)], ["<"])
CASES: dict[str, tuple[p.Kernel, str, str, bool]] = {
    # the program, the code and the text of a report, whether it is right
    "a planted place": (kernel(store(outside())), "T0402", "x[-1 - tile_linear_id()]", True),
    "one that no lane reaches": (
        kernel(p.If([(NEVER, [store(outside())])], [])), "T0402", "x[-1 - tile_linear_id()]", True,
    ),
    "one that was not planted, and is outside": (
        kernel(store(outside(mark=False))), "T0402", "x[-1 - tile_linear_id()]", True,
    ),
    "a place that is inside": (
        kernel(store(inside()), store(outside())), "T0402", "x[tile_linear_id()]", False,
    ),
    "a place that is planted and inside": (
        kernel(store(planted(inside()))), "T0402", "x[tile_linear_id()]", False,
    ),
    "a place that no lane reaches, not planted": (
        kernel(p.If([(NEVER, [store(outside(mark=False))])], []), store(outside())),
        "T0402", "x[-1-tile_linear_id()+0]", False,
    ),
    "another code": (kernel(store(outside())), "T0401", "x[-1 - tile_linear_id()]", False),
    "a divisor that is 0": (
        kernel(store(inside(), p.Binary("//", p.Const(4, "i32"),
                                        planted(p.Const(0, "i32", True)), "i32"))),
        "T0223", "0", True,
    ),
    "a divisor in a test": (
        kernel(p.If([(p.Compare([p.Binary("%", p.Const(4, "i32"), p.Const(3, "i32", True), "i32"),
                                 p.Const(1, "i32", True)], ["=="]), [store(inside())])], [])),
        "T0223", "3", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_about_a_fault(name: str) -> None:
    made, code, text, right = CASES[name]
    case = evaluated(made, 0)
    assert about_a_fault(made, case.judged, code, text) is right


def test_a_wrong_refusal_is_seen() -> None:
    """The same report with the span of a good place."""
    case = evaluated(kernel(store(inside()), store(outside())), 0)
    text = text_of([case])
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu")
    fault: Any = caught.value
    assert refused_rightly(case, fault, text) and not run_cases([case], "cpu", (0,))
    (found,) = fault.diagnostics
    good = text.index("x[tile_linear_id()]")
    start = good - found.span.anchor.offset
    moved = replace(found.span, start=start, end=start + len("x[tile_linear_id()]"))
    other = tessera.TesseraError((replace(found, span=moved),))
    assert not refused_rightly(case, other, text)
