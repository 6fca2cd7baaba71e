"""What is proved of extents: quotients, products with loop variables, tests around. No proof, and
the kernel is refused; a false one, and the launch does not see what it should."""

from __future__ import annotations

import pytest

from tests.unit.sema.tile.programs import check, kernel

GROUPS = "x: f32[k], q: f32[k // 2], s: f32[k // 8], y: mut f32[k // 8]"
GROUPED = ("f32 k", "f32 k//2", "f32 k//8", "f32 k//8")
PARTS = "x: f32[4*h], q: f32[h], y: mut f32[h]"
PARTED = ("f32 4*h", "f32 h", "f32 h")
BLOCKS = "x: f32[8*q], z: f32[q, 8], y: mut f32[q, 8]"
BLOCKED = ("f32 8*q", "f32 q 8", "f32 q 8")
OF_GROUPS = "for g in range({}):\n    y[g] = op.sum({}) * s[g]"
OF_PARTS = "for p in op.tile_range(h, step=8):\n    for c in range({}):\n        y[p:p+8] = {}"
OF_BLOCKS = "for b in range(q):\n    if {}:\n        y[b, :] = z[b, :] * {}"
PART = "x[c*h+p:min(c*h+p+8, c*h+h)] * q[p:p+8]"

PROVED = {
    "a multiple of a quotient": (
        GROUPS, GROUPED, OF_GROUPS.format("k // 8", "x[g*8:g*8+4] * q[g*4:g*4+4]")),
    "the second half": (
        GROUPS, GROUPED, OF_GROUPS.format("k // 8", "x[g*8+4:g*8+8] * q[g*4:g*4+4]")),
    "a variable times a size": (PARTS, PARTED, OF_PARTS.format("4", PART)),
    "the block before": (BLOCKS, BLOCKED, OF_BLOCKS.format("b > 0", "x[b*8-8:b*8]")),
    "the block behind": (BLOCKS, BLOCKED, OF_BLOCKS.format("b < q - 1", "x[b*8+8:b*8+16]")),
    "every eighth of a block": (
        "x: f32[8*q], y: mut f32[q]", ("f32 8*q", "f32 q"),
        "for e in range(8):\n    y[:] = x[e::8] + x[0::8]"),
    "every eighth from a start": (
        "x: f32[8*q], y: mut f32[q]", ("f32 8*q", "f32 q"), "for p in op.tile_range(q, step=4):\n"
        "    for e in range(8):\n        y[p:p+4] = x[p*8+e:min(p*8+e+32, 8*q):8]"),
    "both": (BLOCKS, BLOCKED, OF_BLOCKS.format(
        "b >= 1 and b + 2 <= q", "(x[b*8-8:b*8] + x[b*8+8:b*8+16])")),
}  # fmt: skip
REFUSED = {
    "one group more": (
        GROUPS, GROUPED, OF_GROUPS.format("k // 8 + 1", "x[g*8:g*8+4] * q[g*4:g*4+4]")),
    "one part more": (PARTS, PARTED, OF_PARTS.format("5", PART)),
    "every eighth, one more": (
        "x: f32[8*q], y: mut f32[q]", ("f32 8*q", "f32 q"), "for p in op.tile_range(q, step=4):\n"
        "    for e in range(9):\n        y[p:p+4] = x[p*8+e:min(p*8+e+32, 8*q):8]"),
    "two blocks behind": (BLOCKS, BLOCKED, OF_BLOCKS.format("b < q - 1", "x[b*8+16:b*8+24]")),
    "the wrong test": (BLOCKS, BLOCKED, OF_BLOCKS.format("b > 0", "x[b*8+8:b*8+16]")),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    parameters, arguments, body = PROVED[name]
    found = check(kernel(body, parameters), *arguments)
    assert found.codes == [], found.diagnostics
    assert not [a for a in found.agreements if "%" in a]


@pytest.mark.parametrize("name", REFUSED)
def test_not_proved(name: str) -> None:
    parameters, arguments, body = REFUSED[name]
    assert check(kernel(body, parameters), *arguments).codes == ["T0601"]


def test_a_block_two_before_is_not_shown_by_one() -> None:
    body = OF_BLOCKS.format("b > 0", "x[b*8-16:b*8-8]")
    assert "T0605" in check(kernel(body, BLOCKS), *BLOCKED).codes


def test_what_a_test_says_holds_in_its_branch_only() -> None:
    body = OF_BLOCKS.format("b < q - 1", "x[b*8+8:b*8+16]") + "\n    y[b, :] = x[b*8+8:b*8+16]"
    assert check(kernel(body, BLOCKS), *BLOCKED).codes == ["T0601"]


@pytest.mark.parametrize("w", ["=-1", "=3", "i32"])
def test_a_start_that_a_condition_chooses(w: str) -> None:
    """Known when it is compiled or not: what it may be is at least 0."""
    body = ("for b in range(q):\n    p = 0 if w < 0 else max(b - w, 0) // 2 * 2\n"
            "    y[b, :] = y[b, :] + op.sum(x[p:p+8])")  # fmt: skip
    kind = "int" if w[0] == "=" else "i32"
    assert check(kernel(body, f"{BLOCKS}, w: {kind}"), *BLOCKED, w).codes == []
    assert "T0605" in check(
        kernel(body.replace("max(b - w, 0)", "(b - 9)"), f"{BLOCKS}, w: i32"), *BLOCKED, "i32"
    ).codes  # fmt: skip
