"""A name that is not there: the one that is meant is named, and the arguments stay as written."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.runtime.host_environment import HostWorld

from tessera_lang.diagnostics import Diagnostic, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.driver.fixes import edited
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.fault import HostFault
from tests.spec.test_fixes import PATH, found_in, printed

HOST = """
x = op.reshape(op.cast(op.arange(1, 7, dtype=i32), f32), (2, 3))
r = {call}
print(op.sum(r))
"""
KERNEL = """
@op.kernel
def k(x: f32[m, n]):
    return {call}


x = op.reshape(op.cast(op.arange(1, 7, dtype=i32), f32), (2, 3))
print(op.sum(k(x)))
"""
A = np.arange(1, 7, dtype=np.float64).reshape(2, 3)
CALLS: dict[str, tuple[str, float]] = {
    "op.meen(x, axis=1)": ("op.mean(x, axis=1)", A.mean(1).sum()),
    "op.flatten(x)": ("op.ravel(x)", A.sum()),
    "op.sub(x, x + 1.0)": ("op.subtract(x, x + 1.0)", -6.0),
    "op.permute(x, (1, 0))": ("op.permute_dims(x, (1, 0))", A.sum()),
    "op.sum(x, axes=1)": ("op.sum(x, axis=1)", A.sum()),
    "op.max(x, dim=0)": ("op.max(x, axis=0)", A.max(0).sum()),
    "op.median(x, axes=1)": ("op.median(x, axis=1)", 2.0 + 5.0),
    "op.sum(x, axis=1, keepdim=True)": ("op.sum(x, axis=1, keepdims=True)", A.sum()),
    "op.max(xx, axis=1)": ("op.max(x, axis=1)", A.max(1).sum()),
    "op.max(X, axis=1)": ("op.max(x, axis=1)", A.max(1).sum()),
}


def offered(source: str) -> tuple[Diagnostic, Fix]:
    """The only fix, of `check` or of the run."""
    found = found_in(source)
    if not found:
        session = Session()
        session.set_text(PATH, source, 1)
        with pytest.raises(HostFault) as error:
            session.run(PATH, HostWorld(session, "cpu", lambda _: None))
        found = error.value.diagnostics
    ((d, fix),) = ((d, f) for d in found for f in d.fixes)
    return d, fix


@pytest.mark.parametrize("form", [HOST, KERNEL], ids=["host", "kernel"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.sample(8)
def test_a_fix_keeps_the_arguments(form: str, call: str) -> None:
    if form == HOST and "median" in call:
        pytest.skip("the host program has a kernel made of it, which is no text of the file")
    source = form.format(call=call)
    right, value = CALLS[call]
    d, fix = offered(source)
    program = edited(source, fix.edits)
    assert program == form.format(call=right)
    name = right.partition("(")[0]
    assert any(name in h or "did you mean" in h for h in d.helps)
    assert not [x for x in found_in(program) if x.severity == "error"]
    assert float(printed(program)[0]) == pytest.approx(value)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import std.redcue\n", "std.reduce"),
        ("from std.srot import sort\n", "std.sort"),
        ("import std.histogramm\n", "std.histogram"),
        ("import std.elementwize\n", "std.elementwise"),
        ("import sdt.reduce\n", "std.reduce"),
        ("import std.reduce\nprint(std.redcue.sum(op.zeros((3,), dtype=f32)))\n", "std.reduce"),
    ],
)
def test_a_module_is_the_nearest_alone(source: str, module: str) -> None:
    (d,) = found_in(source)
    assert d.helps[0] == f"did you mean `{module}`?"
    assert "reduce_kernels" not in str(d.helps)


def test_no_inner_module_is_listed() -> None:
    (d,) = found_in("import std.nonesuch\n")
    assert "`std.reduce`" in d.helps[0]
    assert "_" not in d.helps[0]


@pytest.mark.parametrize(
    ("written", "names", "meant"),
    [
        ("xx", ("x", "y"), "x"), ("yy", ("x", "y"), "y"), ("N", ("m", "n"), "n"),
        ("meen", ("mean", "min"), "mean"), ("sam", ("sum", "max"), "sum"),
        ("x1", ("x", "x2"), None), ("a", ("b", "e"), None), ("xy", ("x", "y"), None),
        ("sort", ("sqrt",), None), ("row", ("col",), None), ("min", ("man",), None),
        ("tail", ("tale",), None),
    ],
)  # fmt: skip
def test_slips(written: str, names: tuple[str, ...], meant: str | None) -> None:
    assert nearest(written, names) == meant
