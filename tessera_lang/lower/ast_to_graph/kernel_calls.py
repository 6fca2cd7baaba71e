"""Calls of kernels of the program in a function that becomes a graph.

Owns what a call is there: a function of the arrays that it reads and writes, after which those that
it writes hold other values. Must not know how a kernel is compiled or launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.value import Unknown
from tessera_lang.ir.core import TensorType, Value
from tessera_lang.ir.graph.calls import CALL, NUMBER, OPERAND, Called, spelt
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, not_here
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import KernelEffects, KernelReference, WorldFault

Effects = Callable[
    [KernelReference, Sequence[object], Mapping[str, object], "tuple[int, ...] | None"],
    "KernelEffects | None",
]
"""See ``Library.effects``."""


def launched(
    world: GraphWorld, effects_of: Effects, kernel: KernelReference,
    arguments: tuple[object, ...], constants: Mapping[str, object],
    groups: tuple[int, ...] | None,
) -> object:  # fmt: skip
    """What a kernel returns. Raises WorldFault, TesseraError."""
    what = f"a call of {kernel.description}"
    given = [type_of(world, a) for a in arguments]
    effects = effects_of(kernel, given, constants, groups)
    if effects is None:
        raise not_here(f"{what}, of sizes that are names,")
    own = any(map(world.is_own, arguments))
    if not own and not effects.writes and world.outer is not None:
        return world.outer.launch(kernel, arguments, constants, groups)
    written = [_written(kernel, arguments, place) for place in effects.writes]
    texts, operands, places = _operands(world, what, arguments)
    named = {name: spelt(value) for name, value in constants.items()}
    if None in named.values():
        raise not_here(f"{what} with such an argument in brackets")
    call = Called(
        kernel.path, kernel.name, tuple(texts), tuple(f"{n}={t}" for n, t in named.items()),
        groups, tuple(places[p] for p in effects.writes),
    )  # fmt: skip
    types = [TensorType(dtype, shape) for dtype, shape in effects.results]
    count = len(types)
    types += [a.type for a in written]
    if not types:
        return None
    made = world.builder.operation(CALL, operands, types, call.attributes)
    for array, value in zip(written, made[count:], strict=True):
        array.store(value)
    results = tuple(GraphArray(v) for v in made[:count])
    return results[0] if count == 1 else results or None


def type_of(world: GraphWorld, argument: object) -> object:
    """What is known of an argument."""
    if isinstance(argument, GraphNumber):
        dtype = argument.type.dtype
        return Unknown("float" if dtype.is_float else "int" if dtype.bits > 1 else "bool")
    if isinstance(argument, GraphArray):
        return argument.type
    return world.type_of(argument) if world.is_array(argument) else argument


def _written(
    kernel: KernelReference, arguments: tuple[object, ...], place: int
) -> GraphArray:  # fmt: skip
    """The array that a kernel writes. Raises WorldFault where others see that."""
    array = arguments[place]
    if not isinstance(array, GraphArray) or array.root.is_given:
        raise not_here(
            f"{kernel.description} writing into an array from outside of the function",
            "give it an array that the function makes (`op.zeros_like(x)`), and return that",
        )  # fmt: skip
    if array.root.is_value:
        raise WorldFault("a slice that has a name may not be written", code="T0818",
                         helps=("give the slice itself to the kernel: `k(x[0:2])`",))  # fmt: skip
    for other, given in enumerate(arguments):
        if other != place and isinstance(given, GraphArray) and given.root is array.root:
            message = f"{kernel.description} writes an array that another argument shares"
            raise WorldFault(message, code="T0836")
    return array


def _operands(
    world: GraphWorld, what: str, arguments: Sequence[object]
) -> tuple[list[str], list[Value], dict[int, int]]:
    """Arguments as texts, those that are values of the graph, and which of these they are."""
    texts: list[str] = []
    operands: list[Value] = []
    places: dict[int, int] = {}
    for place, argument in enumerate(arguments):
        if world.is_array(argument):
            places[place] = len(operands)
            operands.append(world.lifted(argument))
            texts.append(NUMBER if isinstance(argument, GraphNumber) else OPERAND)
            continue
        text = spelt(argument)
        if text is None:
            raise not_here(f"{what} with {kind_of(argument)}")
        texts.append(text)
    return texts, operands, places
