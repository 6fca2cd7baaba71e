"""The evaluator of Schedule IR itself: values, extents, and what it must catch."""

from __future__ import annotations

import numpy as np
import pytest

from tessera_lang.ir.core import PointerType, Program, Value
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.verify import verify
from tessera_lang.types.dtype import F32, INDEX
from tests.unit.lower.ast_to_schedule.reference import Leak, Run, evaluate
from tests.unit.same_program import same_program


def clipped(b: ScheduleBuilder, size: Value, start: Value, capacity: Value) -> Value:
    rest = b.binary("sub", size, start)
    return b.binary("max", b.binary("min", capacity, rest), b.index(0))


def product(masked: bool = True) -> Program:
    """c = exp-free product of (a + 1) and b: the sum must be masked along the contraction."""
    b = ScheduleBuilder()
    pointer = PointerType(F32, "global")
    names = ["a", "b", "c", "m", "n", "k"]
    arguments = [(n, pointer if n in "abc" else INDEX) for n in names]
    with b.region(*arguments) as body:
        pa, pb, pc, m, n, k = body.arguments
        va, vb = b.view(pa, [m, k]), b.view(pb, [k, n])
        vc = b.view(pc, [m, n], mut=True)
        zero, bm, bn, bk = b.index(0), b.index(4), b.parameter("$1"), b.index(3)
        with b.region(("i", INDEX), ("j", INDEX)) as tile:
            i, j = tile.arguments
            em, en = clipped(b, m, i, bm), clipped(b, n, j, bn)
            start = b.full(b.constant(0, F32), (4, "$1"))
            with b.region(("p", INDEX), ("acc", start.type)) as inner:
                p, acc = inner.arguments
                ek = clipped(b, k, p, bk)
                ta = b.load_tile(va, [i, p], [em, ek], (4, 3))
                ta = b.binary("add", ta, b.full(b.constant(1, F32), (4, 3)))
                if masked:
                    ta = b.mask(ta, b.constant(0, F32), [em, ek])
                tb = b.load_tile(vb, [p, j], [ek, en], (3, "$1"))
                b.yield_(b.dot(ta, tb, acc))
            (acc,) = b.loops([zero], [k], [bk], [start], inner.region, ["p"])
            b.store_tile(acc, vc, [i, j], [em, en])
            b.yield_()
        b.loops([zero, zero], [m, n], [bm, bn], [], tile.region, ["i", "j"])
        b.return_()
    b.schedule_kernel("k", body.region, names, {"pipeline_stages": 2})
    return b.program()


@pytest.mark.parametrize("shape", [(4, 4, 3), (5, 7, 8), (1, 1, 1), (3, 2, 0), (0, 3, 3)])
def test_a_product(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    random = np.random.default_rng(1)
    a, b = random.random((m, k), np.float32), random.random((k, n), np.float32)
    c = np.full((m, n), np.nan, np.float32)
    evaluate(verify(product()), [a, b, c, m, n, k], Run(sizes={"$1": 5}))
    np.testing.assert_allclose(c, (a + 1) @ b, rtol=1e-5)


def test_a_leak_is_found() -> None:
    a, b, c = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    with pytest.raises(Leak):
        evaluate(verify(product(masked=False)), [a, b, c, 4, 4, 4], Run(sizes={"$1": 5}))


def test_it_prints_and_parses() -> None:
    program = product()
    assert same_program(parse_program(print_program(program)), program)
