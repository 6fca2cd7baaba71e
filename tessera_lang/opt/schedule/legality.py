"""Whether a decided schedule fits the machine, before any code is made.

Owns the tables of shared memory and registers and the refusals: which tile takes how much, and
which directive to lower. Must not change the program.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.context import Context, said_by_user
from tessera_lang.opt.schedule.facts import Facts, facts_of, kernel_of, numbers
from tessera_lang.opt.schedule.rings import SharedUse, shared_use
from tessera_lang.opt.schedule.roles import accumulators

_MOST = 255  # registers of a lane that instructions can name
_OTHERS = 24  # registers of a lane for addresses, counters and what is on the way


def check_fit(program: Program, context: Context) -> Program:
    if context.machine.target == "cpu":
        return program
    facts = facts_of(kernel_of(program))
    _check_shared(facts, context)
    _check_registers(facts, context)
    return program


def _check_shared(facts: Facts, context: Context) -> None:
    uses = shared_use(facts)
    total = sum(u.total for u in uses)
    limit = context.machine.shared_limit
    if total <= limit:
        return
    span = next((u.span for u in uses if u.span is not None), facts.kernel.span)
    context.refuse(
        "T0740",
        f"the schedule needs {total} bytes of shared memory; {context.machine.arch} has {limit}",
        span, [f"{u.what} = {u.total} bytes" for u in uses], _lower(facts, uses, limit),
    )  # fmt: skip


def _lower(facts: Facts, uses: list[SharedUse], limit: int) -> list[str]:
    """What to write instead."""
    kernel = facts.kernel
    deep = [u for u in uses if u.stages > 1 and not u.what.startswith(("stores", "barriers"))]
    rest = sum(u.total for u in uses if u not in deep)
    one = sum(u.bytes for u in deep)
    fitting = (limit - rest) // one if one else 0
    helps: list[str] = []
    if fitting >= 1:
        helps.append(f"`schedule.pipeline_stages({fitting})` fits")
    if said_by_user(kernel, "tile"):
        shape = ", ".join(map(str, numbers(kernel, "tile")))
        helps.append(f"or make `schedule.tile(({shape}))` smaller" if helps
                     else f"make `schedule.tile(({shape}))` smaller")  # fmt: skip
    elif not helps:
        helps.append("use smaller tiles: `schedule.tile(...)`")
    return helps


def _check_registers(facts: Facts, context: Context) -> None:
    kernel = facts.kernel
    if not facts.dots:
        return
    warps = kernel.attributes.get("warps", 4)
    assert isinstance(warps, int)
    roles = numbers(kernel, "registers")
    limit = (roles[-1] if roles and roles[-1] else _MOST) - _OTHERS
    needed = accumulators(facts, max(1, warps // 4))
    if needed <= limit:
        return
    context.refuse(
        "T0741",
        f"the products need {needed} registers of each lane; there are {limit} for them",
        facts.dots[0].operation.span,
        [_accumulator(d.operation, warps) for d in facts.dots],
        (_smaller(kernel),),
    )  # fmt: skip


def _accumulator(dot: Operation, warps: int) -> str:
    t = dot.result.type
    m, n = t.sizes[-2:]  # type: ignore[union-attr]
    return f"the {m} x {n} accumulator over {warps} warps = {m * n // (32 * warps)} registers"


def _smaller(kernel: Operation) -> str:
    tile = numbers(kernel, "tile")
    shape = ", ".join(map(str, tile))
    return f"make `schedule.tile(({shape}))` smaller" if tile else "use smaller tiles"
