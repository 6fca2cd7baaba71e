"""An argument without a name means what it means in NumPy, or is refused."""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
import tessera_stdlib

import tessera_lang as tessera
from tessera_lang.lower.ast_to_graph.array_functions import FUNCTIONS_OF_ARRAYS
from tessera_lang.sema.builtins import TILE_FUNCTIONS
from tessera_lang.sema.desugar_numpy_calls import BY_PLACE

X = np.array([0.7, -1.2, 0.0, 0.1])
S = np.array([[1.0, 2.0], [3.0, -5.5]])
T = np.arange(8.0).reshape(2, 2, 2)
FLAGS = {"keepdims", "exclusive", "descending"}
"""Bools of the language, where no program in NumPy has a bool."""
NEVER_BOOLS = {"dtype", "out", "kind"}
DTYPES = {"linspace": "endpoint"}
"""A dtype, where NumPy takes a bool: each refuses the other."""


def parameters_of_numpy(name):
    function = getattr(np, name, None) or getattr(np.linalg, name, None)
    if function is None or isinstance(function, np.ufunc) or inspect.isclass(function):
        return None
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:
        return None
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in found if p.kind in by_place]


def tables():
    for name, one in TILE_FUNCTIONS.items():
        yield name.removeprefix("op."), one.parameters
    for name, one in FUNCTIONS_OF_ARRAYS.items():
        yield name, tuple(one[0].split())
    text = (Path(tessera_stdlib.__file__).parent / "arrays.tessera").read_text()
    for name, given in re.findall(r"(?m)^def ([a-z]\w*)\((.*)\):$", text):
        yield name, tuple(p.split("=")[0].strip() for p in given.split(","))


def test_parameters_that_are_reordered_stand_as_in_numpy():
    for name, order in BY_PLACE.items():
        theirs = parameters_of_numpy(name)
        assert theirs[1 : len(order)] == list(order[1:])


def test_orders_of_parameters_are_those_of_numpy():
    seen = 0
    for name, own in tables():
        theirs = parameters_of_numpy(name)
        if theirs is None or name in BY_PLACE or name in ("einsum", "arange"):
            continue
        seen += 1
        for mine, other in zip(own, theirs, strict=False):
            alike = mine == other or mine not in theirs and other not in own
            if not alike or mine in FLAGS:
                refused = mine in FLAGS and other in NEVER_BOOLS or DTYPES.get(name) == other
                assert refused, (name, mine, other)
                break
    assert seen > 80


CALLS = {
    "op.linalg.norm(x, 1)": lambda: np.linalg.norm(X, 1),
    "op.norm(x, 2)": lambda: np.linalg.norm(X, 2),
    "op.norm(x, None)": lambda: np.linalg.norm(X),
    "op.linalg.norm(x, op.inf)": lambda: np.linalg.norm(X, np.inf),
    "op.linalg.norm(x, -op.inf)": lambda: np.linalg.norm(X, -np.inf),
    "s / op.linalg.norm(s, 1)": lambda: S / np.linalg.norm(S, 1),
    "op.linalg.norm(s, op.inf)": lambda: np.linalg.norm(S, np.inf),
    'op.linalg.norm(s, "fro")': lambda: np.linalg.norm(S, "fro"),
    "op.linalg.norm(s, 1, 0)": lambda: np.linalg.norm(S, 1, 0),
    "op.linalg.norm(s, 1, 1, True)": lambda: np.linalg.norm(S, 1, 1, True),
    "op.linalg.norm(s, None, 1)": lambda: np.linalg.norm(S, None, 1),
    "op.linalg.norm(s, axis=1)": lambda: np.linalg.norm(S, axis=1),
    "op.linalg.norm(s, ord=2, axis=1)": lambda: np.linalg.norm(S, ord=2, axis=1),
    "op.linalg.norm(op.cast(s, i32), 1)": lambda: np.linalg.norm(S.astype(int), 1),
    'op.searchsorted(op.sort(x), x, "right")': lambda: np.searchsorted(np.sort(X), X, "right"),
    "op.digitize(x, op.sort(x), True)": lambda: np.digitize(X, np.sort(X), True),
    "op.nan_to_num(x / x, True, 5.0)": lambda: np.nan_to_num(X / np.where(X, X, np.nan), True, 5.0),
}
REFUSED = ("op.norm(x, 0)", "op.norm(x, 3)", "op.norm(s, 2)", "op.norm(s, 0)", "op.norm(t, 1)",
           'op.norm(t, "fro")', 'op.norm(x, "fro")', "op.norm(s, len(x))",
           "op.norm(s, 1, keepdims=True)")  # fmt: skip
VALUES = {"x": X, "s": S, "t": T}
TYPES = {"x": "f64[4]", "s": "f64[2, 2]", "t": "f64[2, 2, 2]"}


def texts(call):
    names = [n for n in VALUES if re.search(rf"\b{n}\b", call)]
    given = {n: VALUES[n] for n in names}
    yield f"def f({', '.join(names)}):\n    return {call}\n", given
    typed = ", ".join(f"{n}: {TYPES[n]}" for n in names)
    yield f"@op.kernel\ndef f({typed}):\n    return {call}\n", given


@pytest.mark.sample(8)
@pytest.mark.parametrize("call", CALLS)
def test_arguments_without_names_are_those_of_numpy(call):
    for text, given in texts(call):
        found = tessera.compile(text, target="cpu").f(**given)
        np.testing.assert_allclose(np.asarray(found), CALLS[call](), rtol=1e-12)


@pytest.mark.parametrize("call", REFUSED)
def test_orders_that_no_norm_has_are_refused_with_the_form_that_works(call):
    for text, given in texts(call):
        with pytest.raises(tessera.TesseraError, match=r"an axis is named: `op[.]norm"):
            tessera.compile(text, target="cpu").f(**given)


def test_copies_that_are_not_made_are_refused():
    for text, given in texts("op.nan_to_num(x, False, 5.0)"):
        with pytest.raises(tessera.TesseraError, match="no parameter `copy`"):
            tessera.compile(text, target="cpu").f(**given)


def test_gradients_of_a_norm_know_its_order():
    text = "def loss(x):\n    return op.norm(x, {})\n\n\ndef f(x):\n    return grad(loss)(x)\n"
    found = tessera.compile(text.format(2), target="cpu").f(x=X)
    np.testing.assert_allclose(np.asarray(found), X / math.sqrt(X @ X), rtol=1e-12)
    with pytest.raises(tessera.TesseraError, match="norm of this order"):
        tessera.compile(text.format(1), target="cpu").f(x=X)
