"""Random expressions of whole arrays, on the CPU and as the code of a GPU."""

from __future__ import annotations

import pytest

from tests.fuzz.tile_expressions import fault


@pytest.mark.parametrize("arch", ["", "sm_90a"])
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(s, marks=pytest.mark.slow) for s in range(6, 80))]
)
@pytest.mark.sample(5)
def test_an_expression_is_what_numpy_has(
    seed: int, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    assert not fault(seed)
