"""Arrays that a kernel makes in each round of a loop, in a condition or in a function called there,
against the same text in NumPy, where each of them is another array."""

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
STEP = (
    "def step(u):\n    new = op.zeros_like(u)\n    new[1:-1] = 0.5 * (u[:-2] + u[2:])\n"
    "    return new\n\n"
)
WAVE = "new[1:-1] = 2 * u[1:-1] - old[1:-1] + 0.1 * (u[:-2] + u[2:])"
PROGRAMS = {
    "handed_on": "u = x\nfor k in range(3):\n    new = op.zeros_like(u)\n"
                 "    new[1:-1] = u[:-2] + u[2:] - u[1:-1]\n    u = new\nreturn u",
    "of_a_copy": "u = x.copy()\nfor k in range(3):\n    new = u.copy()\n"
                 "    new[1:-1] = 0.5 * (u[:-2] + u[2:])\n    u = new\nreturn u",
    "three": "u = x.copy()\nold = x.copy()\nfor k in range(4):\n    new = op.zeros_like(u)\n"
             f"    {WAVE}\n    old = u\n    u = new\nreturn u, old",
    "at_once": "u = x.copy()\nold = x.copy()\nfor k in range(4):\n    new = op.zeros_like(u)\n"
               f"    {WAVE}\n    old, u = u, new\nreturn u, old",
    "another_shape": "out = op.zeros_like(x)\nfor k in range(3):\n    c = op.zeros(4)\n"
                     "    for j in range(4):\n        c[j] = op.sum(x) * j + k\n"
                     "    out += op.sum(c)\nreturn out",
    "in_a_condition": "s = 0.0\nif op.sum(x) > 0:\n    b = x.copy()\n    b[0] = 9.0\n"
                      "    s = op.sum(b)\nreturn s",
    "in_a_function": "u = x * 1.0\nfor k in range(3):\n    u = step(step(u) + u)\n"
                     "return u + step(u)",
    "behind_the_loop": "for k in range(3):\n    b = x * k\n    b[0] = 7.0\nreturn b",
    "of_the_round_before": "s = op.zeros_like(x)\nv = x * 1.0\nfor k in range(3):\n"
                           "    b = x * 2.0\n    b[0] = 7.0\n    s += v\n    v = b * 0.5\nreturn s",
    "until": "u = x.copy()\nerr = 1.0\nk = 0\nwhile err > 0.001 and k < 10:\n    new = u.copy()\n"
             "    new[1:-1] = 0.5 * (u[:-2] + u[2:])\n    err = op.max(op.abs(new - u))\n"
             "    u = new\n    k += 1\nreturn u, err",
    "left": "u = x.copy()\nfor k in range(10):\n    new = u.copy()\n"
            "    new[1:-1] = 0.5 * (u[:-2] + u[2:])\n    err = op.max(op.abs(new - u))\n"
            "    u = new\n    if err < 0.05:\n        break\nreturn u",
}  # fmt: skip
REFUSED = {
    "stored_behind": "u = x.copy()\nfor k in range(3):\n    new = u.copy()\n    u = new\n"
                     "    new[0] = 5.0\nreturn u",
    "changed_by_the_other_name": "u = x.copy()\ns = op.zeros_like(x)\nfor k in range(3):\n"
                                 "    new = u * 0.5\n    new[0] = 1.0\n    u = new\n    u += 1.0\n"
                                 "    s += new\nreturn u, s",
    "seen_otherwise": "s = op.zeros_like(x)\nfor k in range(3):\n    new = x * 0.5\n"
                      "    new[0] = 1.0\n    t = new.reshape(n)\n    s += t\nreturn s",
}  # fmt: skip
"""What would change another name's elements too."""


def kernel(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"def f(x: f64[n], y: mut f64[n]):\n{lines}"


def agree_with_numpy(text: str, target: Any, n: int) -> bool:
    """Whether the kernel is taken; that it gives what NumPy gives is asserted."""
    r = np.random.default_rng(n)
    given = r.uniform(0.1, 1, n), r.uniform(0.1, 1, n)
    ours, theirs = ([x.copy() for x in given] for _ in "ab")
    want: Any = by_numpy(STEP + text, tuple(theirs), {"n": n})
    try:
        got: Any = module_for(target, f"{STEP}@op.kernel\n{text}").f(*ours)
    except tessera.TesseraError as error:
        assert "T09" not in str(error), (text, error)
        return False
    several = type(want) is tuple
    pairs = zip(got, want, strict=True) if several else [(got, want)]
    for a, b in [*pairs, *zip(ours, theirs, strict=True)]:
        np.testing.assert_allclose(np.asarray(a), b, 1e-9, 1e-9, err_msg=text)
    return True


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(4)
def test_each_round_has_its_own(name: str, target: Any) -> None:
    assert agree_with_numpy(kernel(PROGRAMS[name]), target, 40)


@pytest.mark.parametrize("name", REFUSED)
def test_what_another_name_would_see(name: str) -> None:
    with pytest.raises(tessera.TesseraError, match="T0609"):
        tessera.compile(f"@op.kernel\n{kernel(REFUSED[name])}", target="cpu")


MAKERS = (
    "op.zeros_like(u)", "op.zeros((n,), f64)", "u.copy()", "x * 0.5", "op.full_like(x, 0.25)",
    "u + w", "op.ones_like(w)",
)  # fmt: skip
STORES = (
    "new[1:-1] = u[:-2] + x[2:]", "new[0] = op.sum(u) * 0.1", "new[:] = u * 0.5 + new",
    "new[u > 0.5] = 0.25", "new[1:] = w[:-1] * 0.5", "new += u * 0.1", "new *= 0.5",
    "new[k] = op.max(w)", "y[k] = op.sum(new)", "y += new * 0.1", "w = new * 0.5 + w * 0.25",
    "w = step(new)", "s += op.sum(new)", "u = u * 0.5 + new * 0.25", "y[:] = new",
)  # fmt: skip
LAST = (
    "u = new", "w = new", "w, u = u, new", "u, w = new, u", "u = new * 1.0", "u = step(new)",
    "s += 1.0",
)  # fmt: skip


def program(r: random.Random) -> str:
    """A loop that makes an array in each round, stores into it, uses it and hands it on."""
    inner = [f"new = {r.choice(MAKERS)}"]
    inner += [r.choice(STORES) for _ in range(r.randint(1, 5))]
    if r.random() < 0.3:
        at = r.randint(1, len(inner))
        inner[at:at] = ["if op.sum(u) > 0.5:", "    " + r.choice(STORES)]
    if r.random() < 0.2:
        inner.insert(0, r.choice(("y += u", "w = u * 0.5", "s += op.sum(w)")))
    inner.append(r.choice(LAST))
    head = [f"u = {r.choice(('x', 'x.copy()', 'x * 1.0'))}", "w = x * 0.5", "s = 0.0"]
    loop = r.choice(("for k in range(3):", "for k in range(1):", "while k < 3:"))
    if loop.startswith("while"):
        head.append("k = 0")
        inner.append("k += 1")
    results = r.choice(("u, s", "u, w", "w, s", "u", "new, u" if "while" in loop else "u, w, s"))
    return kernel("\n".join([*head, loop, *(f"    {line}" for line in inner), f"return {results}"]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sample(1)
def test_rounds(seed: int, target: Any) -> None:
    r = random.Random(f"made {seed}")
    taken = [agree_with_numpy(program(r), target, r.choice((4, 7, 33))) for _ in range(3)]
    assert sum(taken) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(100, 112))
def test_many_rounds(seed: int, target: Any) -> None:
    r = random.Random(f"made {seed}")
    taken = [agree_with_numpy(program(r), target, r.choice((4, 7, 33, 300))) for _ in range(8)]
    assert sum(taken) >= 3
