"""Tiles whose loops are longer come first, where that evens out what groups have to do."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.cpu.interpreter.launch import launch

from tessera_lang.driver.session import Session
from tests.unit.opt.schedule.decided import from_source
from tests.unit.opt.schedule.loops.test_index_set_splitting import (
    ALL,
    FORMS,
    SIZES,
    UP_TO,
    arguments,
    reference,
    text,
)


def attributes(name: str, h: int, s: int, loop: str = UP_TO) -> tuple[object, object]:
    found = from_source(text(name).replace(FORMS[name][0], loop), SIZES.format(h=h, s=s, t=s))
    kernel = found.schedule.operations[0]
    return kernel.attributes.get("heaviest"), kernel.attributes.get("persistent")


def test_where_few_tiles_are_for_each_group_the_last_come_first() -> None:
    assert attributes("where", 16, 4096) == ((1, 1), False)


def test_where_later_tiles_are_lighter_the_first_come_first() -> None:
    loop = "range(i, t, 64)"
    assert attributes("where", 16, 4096, loop) == ((1, 0), False)


@pytest.mark.parametrize(("h", "s", "loop"), [(16, 4096, ALL), (2048, 512, UP_TO)])
def test_other_tiles_stay_in_order(h: int, s: int, loop: str) -> None:
    assert attributes("where", h, s, loop) == (None, True)


def test_every_tile_is_computed_once() -> None:
    """By code for a GPU with few multiprocessors' worth of tiles more than there are."""
    h, s = 3, 64 * 45
    assert attributes("where", h, s)[0] == (1, 1)
    session = Session(overlay={"kernel.tessera": text("where")})
    wanted = session.signature("kernel.tessera", "kernel", SIZES.format(h=h, s=s, t=s))
    machine = session.machine("cuda", "sm_90a")
    program, plan = session.tile("kernel.tessera", "kernel", wanted, machine)
    small = 192  # the same code, for fewer tiles
    q, k, v = arguments(h, small, small)
    (out,) = launch(program, plan, q, k, v, 0)
    np.testing.assert_allclose(out, reference("where", q, k, v, 0), atol=2e-2)
