"""Steps along a contraction that suit its length: which they become, and that results stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.opt.schedule.canonical.test_loop_coalescing import CONV, same, scheduled

DOT = "tessera.schedule.dot"
TEXT = CONV.replace("+SHIFT", "")


def contraction(text: str, ci: int, dtype: str = "bf16", arch: str = "sm_90a") -> list[int]:
    signature = f"x: {dtype}[{ci}, 40, 200], f: {dtype}[3, 3, 64, {ci}]"
    kernel, _ = scheduled(text, signature, arch)
    return [int(o.operands[0].tile_type.sizes[1]) for o in kernel.nested(DOT)]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(("ci", "dtype", "step"), [
    (16, "bf16", 16), (8, "bf16", 16), (3, "f32", 8), (16, "f32", 16),  # what there is
    (32, "bf16", 32), (64, "bf16", 64), (128, "bf16", 64), (64, "f32", 32),  # lines of 128 bytes
    (40, "bf16", 32),
])  # fmt: skip
@pytest.mark.sample(2)
def test_steps(arch: str, ci: int, dtype: str, step: int) -> None:
    assert contraction(TEXT, ci, dtype, arch) == [step]


def test_a_variable_that_says_more_keeps_its_step() -> None:
    """What is added for each step of the program is not for each of another one."""
    text = TEXT.replace("acc += f[", "acc += 0.0 if c > 0 else 1.0\n                    acc += f[")
    assert contraction(text, 64) == [32]


@pytest.mark.parametrize("ci", [1, 16, 17, 31, 33, 63, 64, 65, 100, 128, 130])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.sample(1)
def test_results(ci: int, dtype: type, turned: bool) -> None:
    text = TEXT
    if turned:
        text = text.replace("f: T[kh, kw, co, ci]", "f: T[kh, kw, ci, co]")
        text = text.replace("f[r, s, m:m+64, c:c+32]", "f[r, s, c:c+32, m:m+64].T")
    r = np.random.default_rng(1)
    weights = (2, 3, ci, 9) if turned else (2, 3, 9, ci)
    x, f = (r.integers(-2, 3, s).astype(dtype) for s in ((ci, 5, 70), weights))
    assert same(text, x, f)
