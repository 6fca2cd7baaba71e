"""Warnings of slow forms: said where they count, with a cause that is true, and else not."""

from __future__ import annotations

import re

import pytest

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session
from tessera_lang.driver.warning_filter import told
from tessera_lang.opt.schedule.query.kernel_facts import is_grid

PATH = "k.tessera"
"""Loops whose iterations hang together, by what carries them, over `n` elements."""
IN_ORDER = {
    "a sum so far": (
        "    acc = 0.0\n    for i in op.tile_range(n, step=1024):\n"
        "        y[i:i+1024] = x[i:i+1024] + acc\n        acc += op.sum(x[i:i+1024])\n",
        r"takes `acc` from the one before",
    ),
    "a tile so far": (
        "    acc = op.zeros((64,), f32)\n    for i in range(0, n - 64, 64):\n"
        "        acc = acc * 0.5 + x[i:i+64]\n        y[i:i+64] = acc\n",
        r"takes `acc` from the one before",
    ),
    "elements of the iteration before": (
        "    for i in op.tile_range(n - 64, step=64):\n        y[i+64:i+128] = y[i:i+64] * 0.5\n",
        r"may be read and written in two of its iterations|may be written and read",
    ),
    "the same elements": (
        "    for i in op.tile_range(n, step=32):\n        y[i:i+64] = x[i:i+64]\n",
        r"two of its iterations write the same elements of `y`",
    ),
}
SPREAD = {
    "element-wise": "    y[:] = x[:] * 2.0\n",
    "tiles": "    for i in op.tile_range(n, step=64):\n        y[i:i+64] = x[i:i+64]\n",
    "a plain loop": "    for i in range(0, n, 64):\n        y[i:i+64] = x[i:i+64]\n",
    "two arrays": "    y[:] = op.exp(x[:])\n",
}


def kernel(body: str, n: int | str = "n") -> str:
    text = f"@op.kernel\ndef k(x: f32[{n}], y: mut f32[{n}]):\n{body}"
    return text if n == "n" else re.sub(r"\bn\b", str(n), text)


def said_for(text: str, arch: str = "sm_90", target: str = "cuda") -> list[Diagnostic]:
    session = Session()
    session.set_text(PATH, text, 1)
    found = session.check(PATH)
    assert not any(d.severity == "error" for d in found), found
    machine = session.machine(target, arch)
    remarks = [r for made in session.for_machines(PATH, machine) for r in made.remarks]
    return list(told((*found, *remarks)))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("name", IN_ORDER)
def test_one_group_is_said_once_with_its_cause(name: str, arch: str) -> None:
    body, cause = IN_ORDER[name]
    (warning,) = said_for(kernel(body), arch)
    assert warning.code == "T0750" and warning.severity == "warning"
    assert re.search(cause, " ".join(warning.notes)), warning.notes
    assert warning.helps and any("times faster" in n for n in warning.notes)


@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("n", ["n", 1 << 22, 64])
def test_what_is_spread_is_not_warned_of(name: str, n: int | str) -> None:
    assert said_for(kernel(SPREAD[name], n)) == []


@pytest.mark.parametrize("name", IN_ORDER)
def test_little_work_is_not_worth_a_word(name: str) -> None:
    """A few kilobytes take less time than the launch; the loop in order itself is said by the
    check, which knows no machine."""
    codes = {d.code for d in said_for(kernel(IN_ORDER[name][0], 4096))}
    assert "T0750" not in codes


def test_the_factor_grows_with_the_work_up_to_the_machine() -> None:
    def factor(n: int | str) -> int:
        body = IN_ORDER["a sum so far"][0]
        found = [d for d in said_for(kernel(body, n)) if d.code == "T0750"]
        numbers = [int(m[1]) for d in found for t in d.notes
                   if (m := re.search(r"(\d+) times faster", t))]  # fmt: skip
        return numbers[0] if numbers else 1

    factors = [factor(1 << k) for k in range(14, 27, 2)]
    assert factors == sorted(factors) and (factors[0], factors[-1]) == (1, 130)
    assert factor("n") == 132


def test_a_cpu_is_not_warned_of_groups() -> None:
    for body, _ in IN_ORDER.values():
        assert "T0750" not in {d.code for d in said_for(kernel(body), "native", "cpu")}


@pytest.mark.parametrize("name", [*IN_ORDER, *SPREAD])
def test_the_warning_is_what_is_built(name: str) -> None:
    """It is said exactly where the grid of the plan is one group and no loop is a grid."""
    body = IN_ORDER[name][0] if name in IN_ORDER else SPREAD[name]
    session = Session()
    session.set_text(PATH, kernel(body), 1)
    session.check(PATH)
    (made,) = session.for_machines(PATH, session.machine("cuda", "sm_90"))
    grids = [o for o in made.schedule.operations[0].walk() if is_grid(o)]
    assert made.lowered is not None
    alone = made.lowered[1].grid in ((1,), (1, 1, 1))
    assert alone == (not grids) == any(r.code == "T0750" for r in made.remarks)


# --- loops over elements -------------------------------------------------------------------------

PRODUCT = """
@op.kernel
def k(a: bf16[{n}, {m}, {m}], b: bf16[{n}, {m}, {m}]) -> bf16[{n}, {m}, {m}]:
    c = op.empty_like(a)
    for i in op.tile_range({n}, step=2):
        t = op.exp(a[i:i+2, :, :])
        c[i:i+2, :, :] = (t @ b[i:i+2, :, :] + op.sum(t, axis=0)[None, :, :]).to(bf16)
    return c
"""


def test_loops_over_elements_are_said_by_default_where_they_count() -> None:
    (warning,) = said_for(PRODUCT.format(n=4096, m=64))
    assert warning.code == "T0747" and "more than two axes" in warning.message
    assert any(re.search(r"at least about \d+ times slower", n) for n in warning.notes)
    assert said_for(PRODUCT.format(n=2, m=16)) == []


def test_following_the_help_gives_tiles() -> None:
    """One matrix at a time, as the help says."""
    text = PRODUCT.format(n=4096, m=64)
    one = text.replace(", step=2", "").replace("i:i+2, :, :", "i, :, :")
    one = one.replace("[None, :, :]", "[None, :]")
    assert said_for(one) == []


def test_a_kernel_of_several_launches_has_its_own_name() -> None:
    text = """@op.kernel
def smooth(a: f64[m, n], steps: i32) -> (f64[m, n], f64[]):
    u = a.copy()
    for t in range(steps):
        u[1:-1, :] += 0.1 * (u[2:, :] + u[:-2, :] - 2.0 * u[1:-1, :])
        u[0, :] = u[1, :]
    return u, u.mean()
"""
    found = [d for d in said_for(text) if d.code == "T0750"]
    assert found and all("`smooth` runs" in d.message for d in found)
