"""Names that tile kernels know and those that they nearly know, and sizes that directives take."""

from __future__ import annotations

import pytest

from tests.unit.sema.tile.programs import check, kernel

BARE = """
def shaped(v, scale):
    return exp(v * scale) + sqrt(abs(v))

@op.kernel
def k(x: f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=8):
        y[i:i+8] = shaped(x[i:i+8], 0.5)
"""


def test_functions_know_the_bare_names_of_the_kernels_that_call_them() -> None:
    found = check(BARE, "f32 n", "f32 n")
    assert found.codes == [], found.diagnostics
    assert check(BARE.replace("exp(", "exq("), "f32 n", "f32 n").codes == ["T0101"]
    own = check("def exp(v):\n    return v + 1.0\n" + BARE, "f32 n", "f32 n")
    assert own.codes == [], own.diagnostics


SHAPES = {"schedule.tile(())": "(128, 128)", "schedule.cluster((0, 1))": "(2, 1)"}


@pytest.mark.parametrize("line", SHAPES)
def test_sizes_of_a_directive(line: str) -> None:
    body = f"{line}\ny[:] = x"
    (found,) = check(kernel(body, "x: f32[n], y: mut f32[n]"), "f32 n", "f32 n").diagnostics
    assert found.code == "T0610" and SHAPES[line] in found.helps[0]


@pytest.mark.parametrize("name", ["softmax", "zeros_like", "tile_range"])
def test_what_is_there_behind_op_is_said(name: str) -> None:
    body = f"for i in {name}(n):\n    y[i] = 0.0" if name == "tile_range" else f"y[:] = {name}(x)"
    (found,) = check(kernel(body, "x: f32[n], y: mut f32[n]"), "f32 n", "f32 n").diagnostics
    assert found.code == "T0101" and f"`op.{name}`" in found.helps[0]
