"""Products by NumPy's names of arrays of any axes: what NumPy gives, or refused."""

import numpy as np
import pytest

import tessera_lang as tessera

NAMES = ("outer", "inner", "dot", "vdot", "kron")
PLACES = (
    ((2,), (2, 2)), ((2, 2), (2, 2)), ((2, 2), (2, 2, 2)), ((2, 2, 2), (2, 2)), ((2, 1), (1, 2)),
    ((2, 1), (2, 1)), ((2, 2), (4,)),
)  # fmt: skip
REFUSALS = {"T0604", "T0601", "T0834", "T0838", "T0605"}


def both(call, shapes):
    parameters = ", ".join(f"{n}: f64[{', '.join(map(str, s))}]" for n, s in shapes.items())
    yield f"def f({', '.join(shapes)}):\n    return {call}\n"
    yield f"@op.kernel\ndef f({parameters}):\n    return {call}\n"


def agree(call, wanted, given):
    """Whether there is a result, which is that of NumPy; the same in functions and kernels."""
    found = []
    for text in both(call, {n: v.shape for n, v in given.items()}):
        try:
            result = np.asarray(tessera.compile(text, target="cpu").f(**given))
        except tessera.TesseraError as error:
            assert any(f"[{code}]" in str(error) for code in REFUSALS), error
            found.append(False)
            continue
        expected = wanted(*given.values())
        assert result.shape == np.shape(expected), (call, result.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-12)
        found.append(True)
    assert found[0] == found[1], call
    return found[0]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMES)
def test_products_are_those_of_numpy_or_refused(name):
    rng = np.random.default_rng(len(name))
    computed = 0
    for left, right in PLACES:
        given = {"a": rng.normal(size=left), "b": rng.normal(size=right)}
        computed += agree(f"op.{name}(a, b)", getattr(np, name), given)
    assert computed >= {"outer": len(PLACES)}.get(name, 2)


def test_arrays_of_other_axes_are_not_stretched_to_be_equal():
    ones = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    assert agree("op.array_equal(a, b)", np.array_equal, ones)
    assert not agree("op.array_equal(a, b)", np.array_equal, {**ones, "b": np.ones(2)})


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["trace", "diagonal", "cross"])
def test_functions_of_matrices_are_those_of_numpy_or_refused(name):
    rng = np.random.default_rng(len(name))
    computed = 0
    for shape in ((3,), (3, 3), (2, 3), (3, 3, 3)):
        x = rng.normal(size=shape)
        given = {"a": x, "b": x[::-1].copy()} if name == "cross" else {"a": x}
        computed += agree(f"op.{name}({', '.join(given)})", getattr(np, name), given)
    assert computed >= 1
