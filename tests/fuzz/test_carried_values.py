"""Variables that the rounds of a loop hand on, random ones, against the same text in NumPy: sums of
what another statement changes, counts, greatest values, numbers beside arrays, in any order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_in_place import by_numpy
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU

TARGETS = ["cpu", "sm_90a", GPU]

INITIAL = (
    "op.zeros((n,), f64)", "op.ones((n,), f64)", "op.full((n,), 0.25, f64)", "op.zeros_like(x)",
    "x", "x.copy()", "x * 1.0", "x + 0.5", "op.exp(-x)", "x * 0.0",
)  # fmt: skip
NUMBERS = ("0.0", "1.0", "0.5")
STEPS = (
    "{a} = {a} + {b}", "{a} = {a} * {c}", "{a} = op.maximum({a}, {b})", "{a} = {a} - 0.1 * {b}",
    "{a} = op.where({b} > 0.3, {a} + {b}, {a})", "{a} = op.sqrt(op.abs({a}))", "{a} = {b} * 0.5",
    "{a} = {a} + op.sum({b}) * 0.01", "{a} = {a} + ({b} > {c})", "{a} = {a} + x * {b}",
)  # fmt: skip
IN_PLACE = ("{a} += {b}", "{a} *= {c}", "{a} -= 0.1 * {b}", "{a} += x")
OF_NUMBERS = ("{s} += op.sum({a})", "{s} = max({s}, op.max({a}))", "{s} = {s} * 0.5 + op.mean({a})")


def program(r: random.Random) -> str:
    """A kernel of two to four variables and one or two numbers in a loop of 1 to 5 rounds."""
    names = ["u", "v", "w", "z"][: r.randint(2, 4)]
    numbers = ["s", "q"][: r.randint(0, 2)]
    own = {name: r.choice(INITIAL) for name in names}
    steps: list[str] = []
    for _ in range(r.randint(2, 5)):
        a = r.choice(names)
        # What only names the parameter, or what is not written, is no array of the kernel's own.
        forms = STEPS if own[a] == "x" else (*STEPS, *IN_PLACE)
        others = [*names, "x"]
        steps.append(r.choice(forms).format(
            a=a, b=r.choice(others), c=r.choice((*others, "0.75", "0.5")),
        ))  # fmt: skip
    for s in numbers:
        at = r.randint(0, len(steps))
        steps.insert(at, r.choice(OF_NUMBERS).format(s=s, a=r.choice(names)))
    begin = [f"    {name} = {how}" for name, how in own.items()]
    begin += [f"    {s} = {r.choice(NUMBERS)}" for s in numbers]
    results = r.sample(names, r.randint(1, len(names)))
    if r.random() < 0.3:
        steps.insert(r.randint(0, len(steps)), f"y[k] = {r.choice(names)}")
    end = ", ".join([*results, *numbers])
    loop = [f"    for k in range({r.randint(1, 5)}):"] + [f"        {step}" for step in steps]
    head = "def f(x: f64[n], y: mut f64[m, n]):"
    return "\n".join([head, *begin, *loop, f"    return {end}\n"])


def agree_with_numpy(text: str, target: Any, n: int) -> bool:
    """Whether the kernel is taken; that it gives what NumPy gives is asserted."""
    r = np.random.default_rng(n)
    given = r.uniform(0.1, 1.0, n), np.zeros((5, n))
    ours, theirs = ([x.copy() for x in given] for _ in "ab")
    want = by_numpy(text, tuple(theirs), {"n": n, "m": 5})
    try:
        got = module_for(target, f"@op.kernel\n{text}").f(*ours)
    except tessera.TesseraError as error:
        assert "T09" not in str(error), (text, error)
        return False
    results: tuple[Any, ...] = got if isinstance(got, tuple) else (got,)
    wanted: tuple[Any, ...] = want if isinstance(want, tuple) else (want,)
    assert len(results) == len(wanted)
    for a, b in zip(results, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, 1e-9, 1e-9, err_msg=text)
    np.testing.assert_allclose(ours[1], theirs[1], 1e-9, 1e-9, err_msg=text)
    return True


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(1)
def test_carried_values(seed: int, target: Any) -> None:
    r = random.Random(f"carried {seed}")
    taken = [agree_with_numpy(program(r), target, r.choice((1, 4, 33, 300))) for _ in range(4)]
    assert sum(taken) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(100, 116))
def test_many_carried_values(seed: int, target: Any) -> None:
    r = random.Random(f"carried {seed}")
    sizes = (1, 4, 33, 300, 5000)
    taken = [agree_with_numpy(program(r), target, r.choice(sizes)) for _ in range(12)]
    assert sum(taken) >= 7
