"""In which orders the lanes and the groups of a launch run. Owns the setting of the process."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tessera_lang.record import dataclass

Order = Literal["forward", "reverse", "random"]
Array = np.ndarray[Any, np.dtype[Any]]
ORDERS: tuple[Order, ...] = ("random", "reverse", "forward")
"""All there are: what a run leaves is of the last, the usual one."""
_ROWS = 16  # orders of lanes of a random run: another after each barrier


@dataclass(frozen=True, slots=True)
class Setting:
    orders: tuple[Order, ...] = ORDERS
    seed: int = 1


def setting_of(order: str, seed: int) -> Setting:
    """``order`` may be ``all``."""
    return Setting(tuple(o for o in ORDERS if order in ("all", o)), seed)


def lane_rows(order: Order, lanes: int, seed: int) -> Array:
    """Orders of the lanes of a group, used by turns."""
    forward = np.arange(lanes, dtype=np.int32)
    if order == "forward":
        return forward[None]
    if order == "reverse":
        return np.ascontiguousarray(forward[::-1])[None]
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(forward) for _ in range(_ROWS)])


def group_order(order: Order, groups: int, seed: int, *, waits: bool) -> Array:
    """Groups that may wait for others run in the order of their numbers."""
    forward = np.arange(groups, dtype=np.int64)
    if order == "forward" or waits:
        return forward
    if order == "reverse":
        return np.ascontiguousarray(forward[::-1])
    return np.random.default_rng(seed).permutation(forward)
