"""What is said of integers beside floats that do not hold them, followed to the letter, gives the
numbers of NumPy."""

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


@pytest.mark.parametrize("dtype", WIDE)
def test_kernels(dtype):
    i, x = integers(dtype), np.array([0.7, 1.3, -2.0], np.float32)
    text = f"@op.kernel\ndef f(i: {dtype}[n], x: f32[n]):\n    return 0.5 * i + x\n"
    said = help_of(text, {"i": i, "x": x})
    assert said == "f32(i)"
    found = tessera.compile(text.replace("* i", f"* {said}"), target="cpu").f(i=i, x=x)
    np.testing.assert_allclose(found, 0.5 * i.astype(float) + x, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "floats"), [("i64", "f64"), ("i32", "f64"), ("i16", "f64")])
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
def test_functions_of_floats(call):
    text = f"@op.kernel\ndef f(i: i64[n], x: f32[1]):\n    return {call} * x\n"
    said = help_of(text, {"i": np.array([3, 5, 4]), "x": np.ones(1, np.float32)})
    assert "f32" in said and "f64" not in said
