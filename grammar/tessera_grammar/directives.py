"""The directives of a schedule, one row each: ``schedule.NAME(...)`` at the top of a tile kernel.

Owns what a directive takes, what it is for and why a CPU leaves it. The check of the call, the
attributes of the kernel in the IR, completion and the remarks on directives that are not honoured
read these rows; what is left to write is the pass that honours one. Must not know the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple


class Parameter(NamedTuple):
    """An argument of a directive, known at compile time.

    ``off`` is the value that asks for nothing. ``allowed`` holds the numbers that an ``int`` takes
    and ``wanted`` says them in words. ``ints`` are positive; ``example`` shows some, ``axes`` is
    the most of them and ``product`` their largest product (0: any), which ``wanted`` says.
    ``attribute`` is its name in the IR where that is not the directive's. ``resources``: it takes
    part in how much of a machine a kernel needs. ``staged``: it is about tiles in shared memory,
    and in vain where there are none.
    """

    name: str
    kind: Literal["bool", "int", "ints"]
    off: bool | int | tuple[int, ...]
    allowed: range | tuple[int, ...] = ()
    wanted: str = ""
    example: str = ""
    axes: int = 0
    product: int = 0
    attribute: str = ""
    resources: bool = False
    staged: bool = False


class Directive(NamedTuple):
    """The first of ``parameters`` must be given. ``on_a_core`` says why a CPU does not honour it;
    empty where every target does."""

    doc: str
    parameters: tuple[Parameter, ...]
    on_a_core: str = ""


def _on(resources: bool = False, staged: bool = False) -> Parameter:
    return Parameter("on", "bool", False, resources=resources, staged=staged)


_NO_COPIES = "a core has no copies that run beside it"
_ONE_THREAD = "a group is one thread of the machine"

DIRECTIVES: dict[str, Directive] = {
    "tile": Directive(
        "Sizes of tiles: rows and columns of the result, then the contraction.",
        (Parameter("shape", "ints", (), example="(128, 128)", resources=True),),
    ),
    "use_shared_memory": Directive(
        "Whether operands are staged in shared memory, and with what padding.",
        (
            _on(staged=True),
            Parameter("padding", "int", 0, range(1025), "a number of elements from 0 to 1024",
                      attribute="padding", resources=True),
        ),
        "a core has caches, and no memory that is filled by hand",
    ),
    "async_copy": Directive(
        "Whether tiles are copied by the copy engine of the machine.", (_on(staged=True),),
        _NO_COPIES,
    ),
    "pipeline_stages": Directive(
        "How many tiles of an operand are in flight at once.",
        (
            Parameter("n", "int", 1, range(1, 17), "a number from 1 to 16", resources=True,
                      staged=True),
        ),
        _NO_COPIES,
    ),
    "vectorize": Directive(
        "How many elements a lane moves at once.",
        (Parameter("n", "int", 1, (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16 elements"),),
        "the compiler of the loops chooses their vectors",
    ),
    "unroll": Directive(
        "How many iterations of a loop are written out.",
        (Parameter("n", "int", 1, range(1, 1025), "a number from 1 to 1024"),),
    ),
    "warps": Directive(
        "How many warps a group has that compute.",
        (Parameter("n", "int", 1, range(1, 33), "a number from 1 to 32", resources=True),),
        _ONE_THREAD,
    ),
    "warp_specialize": Directive(
        "Whether some warps copy while the others compute.", (_on(resources=True),), _ONE_THREAD,
    ),
    "cluster": Directive(
        "How many groups share a cluster, along each axis.",
        (
            Parameter("shape", "ints", (), wanted="a cluster has at most 3 axes and 16 groups",
                      example="(2, 1)", axes=3, product=16, resources=True),
        ),
        "groups have no memory in common but the machine's",
    ),
    "persistent": Directive(
        "Whether groups stay and take several tiles each.", (_on(resources=True),),
        "the threads of the machine take group after group anyway",
    ),
    "swizzle": Directive(
        "The bytes of the swizzle of tiles in shared memory: 0, 32, 64 or 128.",
        (Parameter("bytes", "int", 0, (0, 32, 64, 128), "0, 32, 64 or 128 bytes", staged=True),),
        "a core has no banks to spread over",
    ),
}  # fmt: skip


def attributes() -> Iterator[tuple[str, Parameter]]:
    """The attributes that directives leave on a kernel, in the order of the table."""
    for name, one in DIRECTIVES.items():
        for parameter in one.parameters:
            yield parameter.attribute or name, parameter


def asks_nothing(parameter: Parameter, said: object) -> bool:
    """Whether a value asks for what there is without the directive."""
    if isinstance(said, tuple):
        sizes: tuple[object, ...] = said  # type: ignore[assignment]
        return all(n == 1 for n in sizes)
    return said == parameter.off
