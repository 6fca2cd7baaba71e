"""What is said of integers beside floats, followed to the letter, gives the numbers of NumPy."""

import re

import numpy as np
import pytest

import tessera_lang as tessera

BIG = 16_777_217  # f32 does not have it
WIDE = ("i32", "u32", "i64", "u64")
DTYPES = {"i8": np.int8, "i16": np.int16, "u8": np.uint8, "i32": np.int32, "u32": np.uint32,
          "i64": np.int64, "u64": np.uint64}  # fmt: skip


def help_of(text, given):
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(text, target="cpu").f(**given)
    found = re.search(r"(?m)= help: .*convert [a-z ]+: `(.*)`$", str(raised.value))
    assert found is not None, str(raised.value)
    return found[1]


def integers(dtype):
    values = [BIG, 5, BIG + 2] if dtype in WIDE else [100, 5, 102]
    return np.array(values, DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions(dtype):
    i = integers(dtype)
    text = "def f(i):\n    return i - i.mean()\n"
    said = help_of(text, {"i": i})
    assert said == (".to(f64)" if dtype in WIDE else ".to(f32)")
    found = tessera.compile(text.replace("i -", f"i{said} -"), target="cpu").f(i=i)
    tolerance = 0 if dtype in WIDE else 1e-6
    np.testing.assert_allclose(found, i - i.mean(), rtol=tolerance)


@pytest.mark.sample(10)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", ["f64", "f32", None])
def test_kernels(dtype, other):
    i, x = integers(dtype), np.array([0.7, 1.3, -2.0])
    beside = "" if other is None else " + x"
    typed = "" if other is None else f", x: {other}[n]"
    text = f"@op.kernel\ndef f(i: {dtype}[n]{typed}):\n    return 0.5 * i{beside}\n"
    given = {"i": i}
    if other is not None:
        given["x"] = x.astype(np.float64 if other == "f64" else np.float32)
    said = help_of(text, given)
    wide = "f64" if other == "f64" or other is None and dtype in WIDE else "f32"
    assert said == f"{wide}(i)"
    found = tessera.compile(text.replace("* i", f"* {said}"), target="cpu").f(**given)
    expected = 0.5 * i.astype(float) + (0.0 if other is None else x)
    np.testing.assert_allclose(found, expected, rtol=1e-15 if wide == "f64" else 1e-6)


@pytest.mark.parametrize(("dtype", "floats"), [("i64", "f64"), ("i32", "f64"), ("i16", "f32")])
def test_quotients_of_lanes(dtype, floats):
    text = (
        "@kernel tile[(4,)] grid[(1,)]\n"
        f"def f(x: {dtype}[n], y: mut {{}}[n]):\n    i = tile_linear_id()\n"
        "    if i < n: y[i] = x[i] / x[0]\n"
    )
    for out, wanted in (("f64", "f64"), ("f32", "f32"), (dtype, floats)):
        y = np.zeros(3, {"f64": np.float64, "f32": np.float32, **DTYPES}[out])
        said = help_of(text.format(out), {"x": integers(dtype), "y": y})
        assert said == f"{wanted}(x[i]) / {wanted}(x[0])"


OF_FLOATS = ("op.sqrt(i)", "op.exp(i)", "op.logsumexp(i)", "op.softmax(i)", "op.copysign(i, i)")


@pytest.mark.parametrize("call", OF_FLOATS)
@pytest.mark.parametrize("beside", ["f64", "f32", None])
def test_functions_of_floats(call, beside):
    typed = "" if beside is None else f", x: {beside}[1]"
    text = (
        f"@op.kernel\ndef f(i: i64[n]{typed}):\n    return {call}{' * x' * (beside is not None)}\n"
    )
    i = np.array([3, 5, 4])
    given = {"i": i}
    if beside is not None:
        given["x"] = np.ones(1, np.float64 if beside == "f64" else np.float32)
    wide = "f32" if beside == "f32" else "f64"
    said = help_of(text, given)
    assert wide in said and ("f32" if wide == "f64" else "f64") not in said


def test_products_by_letters_meet_in_the_floats_that_stand_there():
    text = '@op.kernel\ndef f(i: i64[n], x: f64[n]):\n    return op.einsum("i,i->", {}, x)\n'
    given = {"i": np.array([BIG, 2, 3]), "x": np.array([0.5, 1.5, 2.0])}
    said = help_of(text.format("i"), given)
    assert said == "i.to(f64)"
    found = tessera.compile(text.format(said), target="cpu").f(**given)
    assert found == given["i"] @ given["x"]
