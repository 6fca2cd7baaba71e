"""A name that is used again, where its uses do not meet, is another variable."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

HEAD = "@op.kernel\ndef k(x: f32[n, 8], y: mut f32[n, 8]):\n"
BODIES = (
    ("{t} = x[i, :] * 2.0", "y[i, :] += {t}"),
    ("{t} = x[i, 0:4]", "{t} = {t} + 1.0", "y[i, 0:4] += {t}"),
    ("{t} = x[i, :].to(i32)", "for j in range(3):", "    {t} = {t} + i32(j)",
     "y[i, :] += {t}.to(f32)"),
    ("{t} = op.sum(x[i, :])", "if {t} > 0.0:", "    {t} = {t} * 2.0", "y[i, 0] += {t}"),
    ("{t} = 0", "for j in range(4):", "    {t} = {t} + j", "y[i, 1] += f32({t})"),
    ("{t} = x[i, :][:, None] * x[i, :][None, :]", "y[i, :] += op.sum({t}, axis=1)"),
    ("{t} = x[i, :] > 0.0", "y[i, :] += op.where({t}, 1.0, 0.0)"),
    ("{t} = op.zeros((8,), f32)", "for j in range(2):", "    {t} += x[i, :]", "y[i, :] += {t}"),
    ("if op.sum(x[i, :]) > 0.0:", "    {t} = x[i, 0:2]", "    y[i, 0:2] += {t}", "else:",
     "    {t} = x[i, :].to(f16)", "    y[i, :] += {t}.to(f32)"),
)  # fmt: skip


def program(seed: int, names: bool) -> str:
    """Loops, and parts of one loop, that all use the name ``t``; ``names``: each one its own."""
    choose, lines, count = random.Random(seed), [HEAD.rstrip("\n")], 0
    for _ in range(choose.randint(2, 4)):
        lines.append("    for i in op.tile_range(n, step=1):")
        for _ in range(choose.randint(1, 2)):
            count += 1
            name = f"t{count}" if names else "t"
            lines += ["        " + line.format(t=name) for line in choose.choice(BODIES)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("target", ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(3)
def test_one_name_as_several(seed: int, target: str) -> None:
    """A program gives the same whether each part has a name of its own or all share one."""
    x = np.random.default_rng(seed).uniform(-3, 3, (5, 8)).astype(np.float32)
    found: list[Any] = []
    for names in (False, True):
        y = np.zeros_like(x)
        loaded(program(seed, names), target).k(x, y)
        found.append(y)
    assert np.abs(found[0]).max() > 0
    np.testing.assert_array_equal(found[0], found[1])


def codes(body: str) -> list[str]:
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    session = Session(overlay={"k.tessera": text})
    return [d.code for d in session.check("k.tessera", ()) if d.severity == "error"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("t = x[0, :]\nif n > 3:\n    t = x[0, 0:4]\ny[0, :] = t", "T0603"),
        ("t = x[0, :]\nfor i in range(3):\n    y[i, :] = t.to(f32)\n    t = x[i, :].to(i32)",
         "T0203"),
        ("t = op.sum(x[0, :])\nwhile t > 0.0:\n    t = x[0, :]", "T0203"),
        ("for i in range(3):\n    if i > 0:\n        y[0, :] = t.to(f32)\n    t = x[i, :]\n"
         "    y[i, :] = t\n    t = x[i, :].to(i32)", "T0203"),
    ],
)  # fmt: skip
def test_uses_that_meet_keep_one_type(body: str, code: str) -> None:
    assert code in codes(body), codes(body)


def test_uses_that_do_not_meet() -> None:
    assert codes("t = x[0, :]\ny[0, :] = t\nt = x[0, :].to(i32)\ny[0, :] = t.to(f32)") == []
    assert codes("t = x[0, :]\ny[0, :] = t\nt, u = 1, 2\ny[0, t] = f32(u)") == []
    assert codes("t = x[0, :]\nt = t.to(i32)\nt = op.sum(t)\ny[0, :] = f32(t)") == []
