"""What a demanding user ran into: each was wrong once, and says here how it should be."""

from __future__ import annotations

import array
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.driver.session import Session

HEAD = """\
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
"""


def check(source: str) -> tuple[Diagnostic, ...]:
    session = Session()
    session.set_text("user.tessera", source, 1)
    return tuple(session.check("user.tessera"))


def said(*body: str, before: str = "") -> list[tuple[str, int]]:
    """Codes and lines (of the body, from 1) of a kernel with this body."""
    lines = "".join(f"    {line}\n" for line in body)
    source = before + HEAD + lines
    first = (before + HEAD).count("\n")
    found = check(source)
    return [(d.code, source.count("\n", 0, d.span.lo) + 1 - first) for d in found if d.span]


def helps(*body: str) -> str:
    return " ".join(h for d in check(HEAD + "".join(f"    {b}\n" for b in body)) for h in d.helps)


# --- numbers of NumPy --------------------------------------------------------------------------

SCALARS = """
@kernel tile[(1,)] grid[(1,)]
def named[T: dtype](x: T, out: mut f64[1]):
    out[0] = f64(x)

@kernel tile[(1,)] grid[(1,)]
def free(x, out: mut f64[1]):
    out[0] = f64(x)
"""


@pytest.mark.parametrize("kernel", ["named", "free"])
def test_a_float64_of_numpy_keeps_its_bits(kernel: str) -> None:
    # It is a subclass of Python's float, and was taken for one: as f32.
    text = SCALARS.replace("f64[1]", "f64[1], beside: f32[1]")  # with which Python's own are f32
    m: Any = tessera.compile(text, target="cpu")
    call, out, beside = getattr(m, kernel), np.zeros(1), np.zeros(1, np.float32)
    for value, want in ((0.1, float(np.float32(0.1))), (np.float64(0.1), 0.1), (0.1, None)):
        call(value, out, beside)
        assert out[0] == (float(np.float32(0.1)) if want is None else want)


@pytest.mark.parametrize("kernel", ["named", "free"])
def test_a_float_of_python_keeps_its_bits_beside_f64(kernel: str) -> None:
    m: Any = tessera.compile(SCALARS, target="cpu")
    out = np.zeros(1)
    getattr(m, kernel)(0.1, out)
    assert out[0] == 0.1


def test_a_float64_still_fits_a_parameter_of_f32() -> None:
    m: Any = tessera.compile(
        "@kernel tile[(1,)] grid[(1,)]\ndef k(x: f32, out: mut f32[1]):\n    out[0] = x\n",
        target="cpu",
    )
    out = np.zeros(1, np.float32)
    m.k(np.float64(0.1), out)
    assert out[0] == np.float32(0.1)


# --- wrong calls from Python -------------------------------------------------------------------


class Series:
    """What pandas has."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("given", "text", "instead"),
    [
        (array.array("f", [1, 2]), "is an array.array, and an array", "numpy.asarray"),
        (b"abc", "is a bytes, and an array", "numpy.frombuffer"),
        (memoryview(b"abc"), "is a memoryview", "numpy.asarray"),
        (Series(), "is a Series, and an array", "numpy.asarray"),
    ],
)
def test_what_is_nearly_an_array(given: Any, text: str, instead: str) -> None:
    m: Any = tessera.compile(HEAD + "    if i < n: out[i] = x[i]\n", target="cpu")
    with pytest.raises(tessera.TesseraError) as caught:
        m.k(given, np.zeros(3, np.float32))
    assert text in str(caught.value)
    assert instead in str(caught.value)


def test_a_compile_time_int_says_an_int() -> None:
    m: Any = tessera.compile(
        "@kernel tile[(1,)] grid[(1,)]\ndef k(out: mut f32[1], n: int = 2):\n    out[0] = 1.0\n",
        target="cpu",
    )
    with pytest.raises(tessera.TesseraError, match="an int is expected"):
        m.k(np.zeros(1, np.float32), n=1.5)


# --- sizes of plain functions in the host program -----------------------------------------------

TOTAL = """
def total(x: f32[n], y: f32[n + 1]):
    return n * 10 + y.shape[0]

def first(y: f32[m + 1], x: f32[m]):
    return m
"""


def test_a_host_call_binds_the_sizes_of_annotations() -> None:
    m: Any = tessera.compile(TOTAL, target="cpu")
    f32 = np.float32
    assert m.total(np.zeros(4, f32), np.zeros(5, f32)) == 45
    assert m.first(np.zeros(5, f32), np.zeros(4, f32)) == 4


@pytest.mark.parametrize(
    ("x", "y", "code"),
    [
        (np.zeros(4, np.float32), np.zeros(4, np.float32), "T0834"),
        (np.zeros(4), np.zeros(5, np.float32), "T0832"),
        (np.zeros((2, 2), np.float32), np.zeros(5, np.float32), "T0833"),
        (3, np.zeros(5, np.float32), "T0831"),
    ],
)
def test_a_host_call_holds_to_annotations(x: Any, y: Any, code: str) -> None:
    m: Any = tessera.compile(TOTAL, target="cpu")
    with pytest.raises(tessera.TesseraError, match=code):
        m.total(x, y)


def test_check_knows_the_sizes_of_host_functions() -> None:
    program = TOTAL + "x = op.ones((4,))\ny = op.ones((5,))\nprint(total(x, y), first(y, x))\n"
    assert check(program) == ()
    assert [d.code for d in check(program + "print(total(y, x))\n")] == ["T0834"]


# --- imports -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["import math", "from math import sqrt", "import math as m"])
def test_the_namespaces_can_be_imported(line: str) -> None:
    name = {"import math": "math.sqrt", "import math as m": "m.sqrt"}.get(line, "sqrt")
    program = f"{line}\n{HEAD}    if i < n: out[i] = {name}(x[i])\nprint({name}(4.0))\n"
    assert check(program) == ()


def test_a_module_of_python_is_one_fault() -> None:
    found = check("import numpy as np\n" + HEAD + "    if i < n: out[i] = np.sqrt(x[i])\n")
    assert [d.code for d in found] == ["T0130"]
    assert "modules of Python cannot be imported" in found[0].helps[0]


# --- one mistake, one fault, with what to write ------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("np.float32(1)", "f32(x)"),
        ("threadIdx", "tile_id"),
        ("blockIdx", "group_id"),
        ("syncthreads", "tbarrier()"),
        ("sqrt(x[i])", "math.sqrt"),
        ("tl", "x[i]"),
    ],
)
def test_names_of_other_systems_are_known(name: str, instead: str) -> None:
    assert said(f"y = {name}") == [("T0101", 1)]
    assert instead in helps(f"y = {name}")


ONE_FAULT = {
    "else if": (["if i < 1:", "    out[i] = 1.0", "else if i < 2:", "    out[i] = 2.0",
                 "else:", "    out[i] = 3.0"], "T0035", 3),
    "elsif": (["if i < 1:", "    out[i] = 1.0", "elsif i < 2:", "    out[i] = 2.0"], "T0035", 3),
    "not": (["if !(i < n):", "    return", "out[i] = x[i]"], "T0010", 1),
    "type first": (["float a = 0.0", "if i < n: out[i] = a"], "T0035", 1),
    "type only": (["float a", "a = 1.0", "if i < n: out[i] = a"], "T0035", 1),
    "counting loop": (["for (int j = 0; j < 4; j++):", "    out[j] = x[j]"], "T0035", 1),
    "braces": (["if (i < n) {", "    out[i] = x[i]", "}"], "T0035", 1),
    "a set": (["for v in 3 + 4:", "    out[0] = v"], "T0118", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_FAULT)
def test_one_mistake_is_one_fault(name: str) -> None:
    body, code, line = ONE_FAULT[name]
    assert said(*body) == [(code, line)]


def test_mut_behind_the_type() -> None:
    found = check("@kernel tile[(4,)]\ndef k(x: f32[n], out: f32[n] mut):\n    out[0] = x[0]\n")
    assert [d.code for d in found] == ["T0035"]
    assert "x: mut f32[n]" in found[0].helps[0]


def test_a_kernel_with_arguments_is_one_fault() -> None:
    found = check("@kernel(tile=4)\ndef k(x: f32[n], out: mut f32[n]):\n    out[0] = x[0]\n")
    assert [d.code for d in found] == ["T0113"]


def test_launch_brackets_of_cuda() -> None:
    found = check(HEAD + "    if i < n: out[i] = x[i]\nx = op.zeros((3,))\nk<<<1, 64>>>(x, x)\n")
    assert [d.code for d in found] == ["T0035"]
    assert "k[groups](...)" in found[0].helps[0]


def test_two_brackets_for_two_axes() -> None:
    found = check("@kernel tile[(4,)]\ndef k(x: f32[m, n], o: mut f32[n]):\n    o[0] = x[0][1]\n")
    assert [d.code for d in found] == ["T0301"]
    assert "x[i, j]" in found[0].helps[0]


@pytest.mark.parametrize(("line", "instead"), [("++i", "i += 1"), ("i == 3", "`=` to assign")])
def test_a_value_that_is_dropped_is_a_warning(line: str, instead: str) -> None:
    found = check(HEAD + f"    {line}\n    if i < n: out[i] = x[i]\n")
    assert [(d.code, d.severity) for d in found] == [("T0121", "warning")]
    assert instead in found[0].helps[0]


def test_powers_name_what_there_is() -> None:
    assert not helps("if i < n: out[i] = x[i] ** 0.5")
    assert "loop" in helps("j = i ** i")


@pytest.mark.parametrize("exponent", ["2", "2.5", "y[0]"])
def test_pow_takes_a_literal(exponent: str) -> None:
    """A literal exponent has the dtype of the base."""
    source = f"""
@kernel tile[(1,)] grid[(1,)]
def f(x: f32[n], y: f32[n], out: mut f32[n]):
    out[0] = math.pow(x[0], {exponent})
"""
    x, out = np.array([1.5], np.float32), np.zeros(1, np.float32)
    tessera.compile(source, target="cpu").f(x, x, out)
    want = {"2": 1.5**2, "2.5": 1.5**2.5, "y[0]": 1.5**1.5}[exponent]
    assert abs(float(out[0]) - want) < 1e-6


def test_a_signature_is_for_the_kernels_named(tmp_path: Path) -> None:
    """`--kernel f --signature ...` says nothing about the other kernels of a file."""
    file = tmp_path / "two.tessera"
    file.write_text(
        "@kernel tile[(1,)] grid[(1,)]\ndef f(x: f32[n], out: mut f32[n]):\n    out[0] = x[0]\n\n\n"
        "@kernel tile[(1,)] grid[(1,)]\ndef g(x: i32[n], out: mut i32[n]):\n    out[0] = x[0]\n"
    )
    command = [sys.executable, "-m", "tessera_lang.driver.cli"]
    for how in (["emit", "--stage=tile"], ["build", "-o", str(tmp_path / "built"), "--target=cpu"]):
        for kernel, code in (("f", 0), ("g", 1)):
            done = subprocess.run(
                [*command, *how, str(file), "--kernel", kernel,
                 "--signature", "x: f32[n], out: mut f32[n]"],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == code, done.stderr
            assert ("T0207" in done.stderr) == bool(code)


# --- annotations on the host ---------------------------------------------------------------------

BAD_VALUES = [
    ("f32", '"a"', "T0831"), ("i32", "None", "T0831"), ("f16", "(1,)", "T0831"),
    ("i32", "2.5", "T0843"), ("index", "2.0", "T0843"), ("i32", "True", "T0843"),
    ("f32", "True", "T0843"), ("bool", "1", "T0843"), ("u8", "256", "T0843"),
    ("u8", "-1", "T0843"), ("i8", "128", "T0843"), ("f16", "1e6", "T0843"),
    ("f8e4m3", "500", "T0843"), ("f8e4m3", "inf", "T0843"), ("f32", "1e39", "T0843"),
    ("f32", "op.zeros((2,))", "T0831"), ("int", '"a"', "T0831"), ("int", "2.5", "T0831"),
    ("str", "3", "T0831"), ("float", "True", "T0831"), ("dtype", "3", "T0831"),
    ("i32[3]", "5", "T0831"), ("i32[3]", "op.zeros((3,), f32)", "T0832"),
    ("f32[3]", "op.zeros((2,))", "T0834"), ("f32[3]", "op.zeros((3, 1))", "T0833"),
    ("f32[2 + 2]", "op.zeros((3,))", "T0834"),
]  # fmt: skip
GOOD_VALUES = [
    ("i32", "3"), ("f32", "3"), ("f32", "-inf"), ("f64", "1.7976931348623157e308"),
    ("f16", "65504"), ("f16", "65519.0"), ("u8", "255"), ("i8", "-128"), ("bool", "True"),
    ("index", "1 << 40"), ("int", "3"), ("float", "3"), ("str", '"a"'), ("dtype", "f16"),
    ("f32[3]", "op.zeros((3,))"), ("f32[2 + 2]", "op.zeros((4,))"),
]  # fmt: skip


def places_of(annotation: str, value: str) -> dict[str, str]:
    """The places where a host value meets an annotation."""
    # What a check does not know is met when the program runs.
    hidden = "def pick(i, v):\n    while i > 0:\n        i = i - 1\n    return v\n"
    return {
        "top level": f"x: {annotation} = {value}\n",
        "in a function": f"def f():\n    x: {annotation} = {value}\n    return x\nf()\n",
        "argument": f"def f(x: {annotation}):\n    return 0\nf({value})\n",
        "keyword": f"def f(a, x: {annotation}):\n    return 0\nf(1, x={value})\n",
        "late": f"{hidden}x: {annotation} = pick(3, {value})\n",
    }


def ran(source: str) -> list[str]:
    """Codes of a run alone, without the check before it."""
    from tessera_backend.runtime.host_environment import HostWorld

    from tessera_lang.evaluate.fault import HostFault

    session = Session()
    session.set_text("user.tessera", source, 1)
    try:
        session.run("user.tessera", HostWorld(session, "cpu", print))
    except HostFault as error:
        return [d.code for d in error.diagnostics]
    return []


@pytest.mark.parametrize("place", list(places_of("f32", "1")))
@pytest.mark.parametrize(("annotation", "value", "code"), BAD_VALUES)
def test_annotations_on_the_host_are_checked(
    annotation: str, value: str, code: str, place: str
) -> None:
    source = places_of(annotation, value)[place]
    assert [d.code for d in check(source) if d.severity == "error"] == [code]
    assert ran(source) == [code]


@pytest.mark.parametrize("place", list(places_of("f32", "1")))
@pytest.mark.parametrize(("annotation", "value"), GOOD_VALUES)
def test_annotations_on_the_host_take_what_fits(annotation: str, value: str, place: str) -> None:
    source = places_of(annotation, value)[place]
    assert not [d.code for d in check(source) if d.severity == "error"]
    assert ran(source) == []


@pytest.mark.parametrize(("size", "codes"), [("K", []), ("K + 1", ["T0834"]), ("M", ["T0101"])])
def test_sizes_of_a_host_variable_are_values_of_the_program(size: str, codes: list[str]) -> None:
    source = f"K = 3\nx: f32[{size}] = op.zeros((3,))\n"
    assert [d.code for d in check(source)] == codes
    assert ran(source) == codes


def test_an_annotation_of_a_host_variable_names_a_type() -> None:
    assert [d.code for d in check("x: f33 = 3\n")] == ["T0217"]


def test_a_host_function_called_from_python_checks_numbers() -> None:
    m: Any = tessera.compile("def h(x: i32):\n    return x\n", target="cpu")
    assert m.h(2) == 2
    with pytest.raises(tessera.TesseraError, match="a float, and an i32"):
        m.h(2.5)
