"""Registers of accumulators: the most at one place, not the sum over a kernel."""

from __future__ import annotations

import pytest

from tessera_lang.opt.schedule.query.accumulator_registers import accumulators, side_by_side
from tessera_lang.opt.schedule.query.kernel_facts import Facts, facts_of
from tests.unit.opt.schedule.decided import from_source

HEAD = """\
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], c: bf16[m, k], d: bf16[n, n]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
"""
SHAPES = "a: bf16[4096, 4096], b: bf16[4096, 4096], c: bf16[4096, 4096], d: bf16[4096, 4096]"
ONE = "acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+128]"
OTHER = "acc += c[i:i+128, p:p+64] @ b[p:p+64, j:j+128]"
END = "        out[i:i+128, j:j+128] = acc\n    return out\n"
LOOP = "        for p in op.tile_range(k, step=64):\n            "


def facts(body: str) -> Facts:
    schedule = from_source(HEAD + body + END, SHAPES, "sm_90a").schedule
    return facts_of(schedule.operations[0])


def first(facts: Facts) -> int:
    return side_by_side(facts.dots[:1], facts, 2)


@pytest.mark.parametrize("body", [
    LOOP + ONE + "\n",
    LOOP + ONE + "\n" + LOOP + OTHER + "\n",
    LOOP + ONE + "\n            " + OTHER + "\n            " + ONE + "\n",
    LOOP + ONE + "\n" + LOOP + OTHER + "\n" + LOOP + ONE + "\n",
], ids=["one", "two loops", "three in a row", "three loops"])  # fmt: skip
def test_products_that_add_to_one_sum_share_it(body: str) -> None:
    found = facts(body)
    assert len(found.dots) == body.count("@")
    assert accumulators(found, 2) == first(found)


def test_sums_of_loops_that_follow_each_other_are_both_there_only_where_both_are_needed() -> None:
    apart = LOOP + ONE + "\n        more = op.zeros((128, 128), f32)\n" + LOOP
    apart += OTHER.replace("acc", "more") + "\n        acc = acc * more\n"
    beside = "        more = op.zeros((128, 128), f32)\n" + LOOP + ONE
    beside += "\n            " + OTHER.replace("acc", "more") + "\n        acc = acc * more\n"
    for body in (apart, beside):
        found = facts(body)
        assert accumulators(found, 2) == 2 * first(found)


def test_what_is_gone_before_the_next_is_made_takes_nothing_beside_it() -> None:
    """The largest element of each of two products in one iteration."""
    most = "most = max(most, op.max({}[i:i+128, p:p+64] @ b[p:p+64, j:j+128], axis=1))"
    body = "        most = op.zeros((128,), f32)\n" + LOOP + most.format("a")
    body += "\n            " + most.format("c") + "\n        acc = acc + most[:, None]\n"
    found = facts(body)
    assert len(found.dots) == 2
    assert accumulators(found, 2) == first(found)


def test_a_computed_operand_is_held_to_its_product() -> None:
    body = LOOP + "x = a[i:i+128, p:p+64] @ b[p:p+64, j:j+128]\n"
    body += "            acc += x.to(bf16) @ d[j:j+128, j:j+128]\n"
    found = facts(body)
    # two accumulators, and the first operand in 16 bits; the products stand there twice, overlapped
    assert accumulators(found, 2) == 2 * 64 + 32
