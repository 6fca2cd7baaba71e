"""Type and placement rules of the operations of Hopper: each is broken once."""

from __future__ import annotations

import pytest

from tessera_lang.ir.core import VerifyError
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tests.unit.backend.nvptx.hopper_gemm import FULL, gemm
from tests.unit.backend.nvptx.hopper_product import Case, product

WHOLE = print_program(gemm(FULL)[0])
ONE = print_program(product(Case())[0])


def test_the_programs_are_right() -> None:
    for text in (WHOLE, ONE):
        verify(parse_program(text))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("arrivals = 1", "arrivals = 0", "at least one arrival"),
        ("warps = [4 : i64, 8 : i64]", "warps = [2 : i64, 8 : i64]", "whole warp groups"),
        ("registers = [40 : i64", "registers = [41 : i64", "multiple of 8"),
        ("registers = [40 : i64", "registers = [16 : i64", "from 24 to 256"),
        ('names = ["producer", "consumer"]', 'names = ["producer"]', "of each role"),
        ("multicast = 3 ", "multicast = 65536 ", "one bit a group"),
        ("128x64xbf16, swizzle=128", "128x32xbf16, swizzle=128", "as wide as a panel"),
        ("128x64xbf16, swizzle=128", "128x64xbf16, swizzle=64", "one swizzle"),
        ("128x64xbf16, swizzle=128", "128x64xf16, swizzle=128", "one dtype"),
        ("128x64xbf16, swizzle=128", "512x64xbf16, swizzle=128", "1 to 256"),
    ],
)  # fmt: skip
def test_a_broken_kernel_is_found(before: str, after: str, why: str) -> None:
    assert before in WHOLE
    with pytest.raises(VerifyError, match=why):
        verify(parse_program(WHOLE.replace(before, after)))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("transpose_b = true", "transpose_b = false", "does not hold|contractions"),
        ("pending = 0", "pending = -1", "may be open"),
    ],
)
def test_a_broken_product_is_found(before: str, after: str, why: str) -> None:
    text = ONE if before != "transpose_b = true" else print_program(product(Case(n=128))[0])
    at = text.rindex(before)
    broken = text[:at] + after + text[at + len(before) :]
    with pytest.raises((VerifyError, ValueError), match=why):
        verify(parse_program(broken))


def test_orders_to_the_accelerator_stand_in_once() -> None:
    lines = WHOLE.splitlines()
    first = next(i for i, line in enumerate(lines) if '"tma.store"' in line)
    start = next(i for i in range(first, 0, -1) if '"tile.once"' in lines[i])
    lines[start] = lines[start].replace('"tile.once"() ({', '"tile.scope"() ({')
    broken = "\n".join(lines)
    end = broken.index('"tile.yield"', broken.index('"tma.store"'))
    broken = broken[:end] + broken[end:].replace('"tile.yield"', '"tile.leave"', 1)
    with pytest.raises(VerifyError, match=r"tile\.once"):
        verify(parse_program(broken))


def test_one_lane_alone_waits_for_no_others() -> None:
    broken = WHOLE.replace('"tma.commit"()', '"tile.barrier"()', 1)
    with pytest.raises(VerifyError, match="all lanes take part"):
        verify(parse_program(broken))
