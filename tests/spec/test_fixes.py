"""What the tool offers as a fix is right: the fault is gone, nothing new is wrong, and what runs
gives what a reference gives.

The programs are the wrong ones of the error pages, and a table over operators, types and places.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tessera_backend.runtime.host_environment import HostWorld

from tessera_lang.diagnostics import Diagnostic, Fix
from tessera_lang.driver.fixes import edited
from tessera_lang.driver.session import Session
from tests.spec.test_error_pages import programs

PATH = "program.tessera"
Key = tuple[str, str]


def found_in(source: str) -> tuple[Diagnostic, ...]:
    session = Session()
    session.set_text(PATH, source, 1)
    return session.check(PATH)


def key(d: Diagnostic) -> Key:
    return (d.code, d.message)


def offers(source: str) -> Iterator[tuple[Diagnostic, Fix]]:
    for d in found_in(source):
        for fix in d.fixes:
            if all(e.span.file == PATH for e in fix.edits):
                yield d, fix


def mended(source: str, depth: int = 3) -> Iterator[str]:
    """Every program that following fixes literally ends in, one fix after the other."""
    steps = list(offers(source)) if depth else []
    if not steps:
        yield source
        return
    d, _ = steps[0]
    for fix in d.fixes:
        yield from mended(edited(source, fix.edits), depth - 1)


def printed(source: str) -> list[str]:
    session, lines = Session(), list[str]()
    session.set_text(PATH, source, 1)
    session.run(PATH, HostWorld(session, "cpu", lines.append))
    return "".join(lines).splitlines()


WRONG = [pytest.param(s, id=f"{c}-{i}") for i, (c, kind, s) in enumerate(programs())
         if kind == "wrong"]  # fmt: skip


@pytest.mark.parametrize("source", WRONG)
@pytest.mark.sample(102)
def test_a_fix_of_a_page_mends_its_fault_and_adds_none(source: str) -> None:
    """A conversion that the fix makes necessary elsewhere has a fix of its own."""
    before = found_in(source)
    old = Counter(map(key, before))
    for d, fix in offers(source):
        program = edited(source, fix.edits)
        new = Counter(map(key, found_in(program)))
        assert new[key(d)] < old[key(d)], (fix.title, program)
        for end in mended(program, 2):
            errors = {key(x) for x in found_in(end) if x.severity == "error"}
            assert errors <= set(old), (fix.title, end)


# --- operators over types ----------------------------------------------------------------------

LANES = """
@kernel tile[(32,)]
def k(a: mut {a}[n], b: {b}[n], out: mut {out}[n]):
    i = lane_id()
    if i < n:
        {statement}


a = op.cast(op.arange(1, 9, dtype=i32), {a})
b = op.cast(op.arange(2, 10, dtype=i32), {b})
out = op.zeros((8,), dtype={out})
k[1](a, b, out)
for j in range(8):
    print({shown}[j])
"""
TILES = """
@op.kernel
def k(a: mut {a}[n], b: {b}[n], out: mut {out}[n]):
    for i in op.tile_range(n, step=4):
        {statement}


a = op.cast(op.arange(1, 9, dtype=i32), {a})
b = op.cast(op.arange(2, 10, dtype=i32), {b})
out = op.zeros((8,), dtype={out})
k(a, b, out)
for j in range(8):
    print({shown}[j])
"""
Reference = Callable[[np.ndarray, np.ndarray], np.ndarray]
TYPES = [("i32", "f32"), ("f32", "i64"), ("u8", "i32"), ("i32", "u32"), ("i64", "u8")]
A, B = np.arange(1, 9), np.arange(2, 10)
OF_LITERALS: dict[str, Reference] = {
    "{a} * 0.5": lambda a, b: a * 0.5,
    "0.25 + {a}": lambda a, b: a + 0.25,
    "{a} - 1.5 * 2.0": lambda a, b: a - 3.0,
    "({a} + 1) * 0.5": lambda a, b: (a + 1) * 0.5,
    "{a} / 0.5": lambda a, b: a / 0.5,
    "{a} + {b}": lambda a, b: a + b,
    "{a} * {b}": lambda a, b: a * b,
    "min({a}, 2.5)": lambda a, b: np.minimum(a, 2.5),
}


@pytest.mark.parametrize("form", ["lanes", "tiles"])
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("value", OF_LITERALS)
@pytest.mark.sample(5)
def test_what_meets_gives_what_numpy_gives(form: str, types: tuple[str, str], value: str) -> None:
    if form == "tiles" and value.startswith("min"):
        pytest.skip("`op.min` of tiles is a reduction")
    places = {"a": "a[i]", "b": "b[i]"} if form == "lanes" else {"a": "a[i:i+4]", "b": "b[i:i+4]"}
    target = "out[i]" if form == "lanes" else "out[i:i+4]"
    statement = f"{target} = {value.format(**places)}"
    a, b = types
    text = (LANES if form == "lanes" else TILES).format(
        a=a, b=b, out="f32", statement=statement, shown="out"
    )
    for program in mended(text):
        errors = [d for d in found_in(program) if d.severity == "error"]
        assert not errors, (program, errors)
        expected = OF_LITERALS[value](A, B)
        assert [float(x) for x in printed(program)] == expected.tolist(), program


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", ["i32", "u8", "i64", "f32"])
@pytest.mark.parametrize(
    ("statement", "reference"),
    [
        ("a[i] *= 0.5", lambda a, b: np.trunc(a * 0.5)),
        ("a[i] += b[i]", lambda a, b: a + b),
        ("a[i] -= 0.5 + 0.25", lambda a, b: np.trunc(a - 0.75)),
        ("a[i] += 300 - 299", lambda a, b: a + 1),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_is_assigned_is_written_out(dtype: str, statement: str, reference: Reference) -> None:
    text = LANES.format(a=dtype, b="f32", out="f32", statement=statement, shown="a")
    expected = reference(A.astype(np.float64), B)
    if dtype == "f32" and "0." in statement:
        expected = {"a[i] *= 0.5": A * 0.5, "a[i] -= 0.5 + 0.25": A - 0.75}[statement]
    for program in mended(text):
        assert not [d for d in found_in(program) if d.severity == "error"], program
        assert [float(x) for x in printed(program)] == expected.tolist(), program


# --- one program each --------------------------------------------------------------------------

RUNS: dict[str, tuple[str, list[str]]] = {
    "the lanes of a group": (
        "@kernel tile[(128,)]\ndef k(x: mut f32[n]):\n    x[lane_id()] = 1.0\n\n\n"
        "x = op.zeros((128,), dtype=f32)\nk[1](x)\nprint(op.sum(x))\n",
        ["128.0"],
    ),
    "a conversion in an f-string": ('x = 3\nprint(f"{x!r} is {x!s:>3}")\n', ["3 is   3"]),
    "a name in an f-string": ('x = 3\nprint(f"{x=}, {x = }")\n', ["x=3, x=3"]),
    "a type by another name": (
        "@kernel tile[(32,)]\ndef k(x: mut float32[n], y: float32[n]):\n"
        "    acc: float32 = 0.0\n    acc += y[0] + float32(1)\n    x[0] = acc\n\n\n"
        "x = op.zeros((1,), dtype=f32)\nk[1](x, op.ones((1,), dtype=float32))\nprint(x[0])\n",
        ["2.0"],
    ),
    "a quotient": (
        "@kernel tile[(32,)]\ndef k(x: mut f32[n], y: i32[n]):\n    x[0] = y[0] / 2\n\n\n"
        "x = op.zeros((1,), dtype=f32)\nk[1](x, op.full((1,), 7, dtype=i32))\nprint(x[0])\n",
        ["3.5"],
    ),
    "a misspelt name": ("number = 4\nprint(numbr)\n", ["4"]),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_fixed_program_runs(name: str) -> None:
    source, expected = RUNS[name]
    assert any(True for _ in offers(source))
    ends = [p for p in mended(source, 5) if not any(d.severity == "error" for d in found_in(p))]
    assert expected in [printed(p) for p in ends], ends


# --- helps in words ----------------------------------------------------------------------------

WORDS = {
    "a step": (
        "@op.kernel\ndef k(x: mut f32[n]):\n    for i in op.tile_range(n{}):\n"
        "        x[i:i+64] = 2.0\n",
        "T0706", r"`(step=\d+)`", ", {}",
    ),
    "a step that is too short": (
        "@op.kernel\ndef k(x: mut f32[n]):\n    for i in op.tile_range(n, step=32{}):\n"
        "        x[4*i:4*i+256] = 2.0\n",
        "T0706", r"`step=(\d+)`", " * 0 + {}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_a_help_in_words_is_right(name: str) -> None:
    text, code, pattern, put = WORDS[name]
    (fault,) = found_in(text.format(""))
    assert fault.code == code
    (said,) = [m[1] for h in fault.helps if (m := re.search(pattern, h))]
    assert found_in(text.format(put.format(said))) == ()


@pytest.mark.parametrize("source", [
    "x = op.ones((4, 4))\nw = op.ones((4, 4))\nprint(op.huber_loss(x, w))\n",
    "x = op.ones((4, 4))\nv = op.ones((4,))\nprint(op.gemv(x, v))\n",
    "x = op.ones((8,))\nprint(op.running_max(x))\n",
])  # fmt: skip
def test_a_function_of_the_library_is_named(source: str) -> None:
    """Import and call it as the help says."""
    (fault,) = found_in(source)
    (help_text,) = fault.helps
    said = re.fullmatch(r"write `(import [\w.]+)` and call `([\w.]+)(\(.*\))?`", help_text)
    assert said is not None, help_text
    given = re.search(r"print\((.*)\)", source)
    assert given is not None
    arguments = given[1].split("(", 1)[1][:-1]
    lines = source.splitlines()
    program = "\n".join([said[1], *lines[:-1], f"print({said[2]}({arguments}))"]) + "\n"
    assert found_in(program) == ()


def test_every_function_that_is_named_exists() -> None:
    from tessera_lang.evaluate.foreign_names import IN_LIBRARY

    library = Path(__file__).resolve().parents[2] / "stdlib" / "tessera_stdlib"
    for dotted in set(IN_LIBRARY.values()):
        _, module, name = dotted.split(".")
        text = (library / f"{module}.tessera").read_text(encoding="utf-8")
        assert re.search(rf"^def {name}[\[(]", text, re.M), dotted
