"""Loop-invariant loads in kernels of rows: the same for every row that a persistent group takes.

A weight of a norm comes from the second-level cache again for each row. Owns which loads those are,
and whether they bound the kernel. Must not know what is done about it.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Operation, TileType, Value, ViewType
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.kernel_facts import Facts, Load
from tessera_lang.target.machine import Machine


def is_shared(kernel: Operation) -> bool:
    """Whether the groups of a cluster share a row."""
    return any("across" in o.attributes for o in kernel.walk())


def still_loads(facts: Facts) -> list[Load]:
    """Of a row that a cluster shares: loads that are the same in all iterations of a group that
    stays. The last axis of the grid is its place in the cluster, of which it has one."""
    if facts.grid is None or not is_shared(facts.kernel):
        return []
    *others, _ = facts.grid.regions[0].arguments
    return [
        load for load in facts.loads
        if load.inside == (facts.grid,) and not is_written(load.view)
        and not any(depends_on((*load.starts, *load.extents), one, facts) for one in others)
    ]  # fmt: skip


def bound_by_cache(facts: Facts, machine: Machine) -> bool:
    """Whether what is read for each row takes longer to come from the second-level cache, by what
    that gives to all multiprocessors, than memory takes for what only this row has.

    On an H200 with rows of 131072 bf16 an rmsnorm reads as many bytes as memory moves, and comes to
    0.95 of a copy (0.92 with weights that are kept); a layernorm half as many again, 0.85 and 0.90.
    The rates say that the two take equally long at 1.27 times the bytes.
    """
    still = still_loads(facts)
    loaded = sum(map(bytes_of, facts.loads))
    stored = sum(
        prod(t.sizes) * t.dtype.bytes
        for o, _ in facts.stores for t in (o.operands[0].type,) if isinstance(t, TileType)
    )  # fmt: skip
    memory = loaded - sum(map(bytes_of, still)) + stored
    rates = machine.rates
    cache = loaded / ((rates.loaded or rates.split[1]) * machine.units)
    return bool(still) and cache > memory / rates.memory


def bytes_of(load: Load) -> int:
    return prod(load.tile.sizes) * load.tile.dtype.bytes


def is_written(view: Value) -> bool:
    return not isinstance(view.type, ViewType) or view.type.mut
