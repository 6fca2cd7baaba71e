"""``op.conv1d``, ``op.conv_transpose2d`` and the like as operators of a graph, with the arguments
and the words of ``std.conv``.

Owns how their arguments become attributes. Must not know how convolutions are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.ir.core import Value
from tessera_lang.ir.graph.convolutions import turned
from tessera_lang.lower.ast_to_graph.elementwise_functions import ArrayFunction, Given
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, not_here
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import WorldFault

CONVOLUTION = "x weight bias stride padding dilation groups"
TRANSPOSED = "x weight bias stride padding output_padding groups dilation"


def _wrong(text: str) -> WorldFault:
    return WorldFault(text, code="T0834")


def _operand(w: GraphWorld, value: object, what: str) -> Value:
    if not w.is_array(value) or isinstance(value, GraphNumber):
        raise WorldFault(f"{what} is an array, not {kind_of(value)}", code="T0818")
    return w.lifted(value)


def _each(given: Given, name: str, default: int, rank: int, low: int) -> tuple[int, ...]:
    """A number for each axis, of a number or of a tuple."""
    value = given.get(name, default)
    several = isinstance(value, tuple | list)
    found = tuple(cast("Sequence[object]", value)) if several else (value,) * rank
    if len(found) != rank:
        raise _wrong(f"{name} is a number or a tuple of {rank}, not {found}")
    for n in found:
        if isinstance(n, bool) or not isinstance(n, int):
            raise WorldFault(f"{name} is an integer that is known, not {kind_of(n)}", code="T0818")
        if n < low:
            raise _wrong(f"{name} is at least {low}, not {n}")
    return cast("tuple[int, ...]", found)


def _sizes(value: Value) -> tuple[int, ...]:
    shape = value.tensor_type.shape
    if not all(isinstance(n, int) for n in shape):
        raise not_here("a convolution of an array whose sizes are names")
    return cast("tuple[int, ...]", shape)


def _checked(
    w: GraphWorld, given: Given, rank: int, transposed: bool
) -> tuple[Value, Value, int, int]:
    """The input, the weights, the number of groups, and that of output channels."""
    x, weight = _operand(w, given["x"], "the input"), _operand(w, given["weight"], "the weight")
    shape, places = _sizes(x), _sizes(weight)
    (groups,) = _each(given, "groups", 1, 1, 1)
    if len(shape) != rank + 2:
        raise _wrong(f"the input has a batch, channels and {rank} more axes, not {len(shape)} axes"
                     " in all")  # fmt: skip
    if len(places) != rank + 2:
        raise _wrong(f"the weights have {rank + 2} axes, not {len(places)}")
    a, b = x.tensor_type.dtype, weight.tensor_type.dtype
    if not a.is_float:
        raise _wrong(f"a convolution takes floats, not {a}: convert them with `op.cast(x, f32)`")
    if a != b:
        raise _wrong(f"an input of {a} with weights of {b}: convert one with `op.cast`")
    channels = places[1] * groups if transposed else places[0]
    if shape[1] % groups:
        raise _wrong(f"{shape[1]} input channels are not {groups} equal groups")
    if channels % groups:
        raise _wrong(f"{channels} output channels are not {groups} equal groups")
    said = f"weights of shape {places}"
    if transposed and places[0] != shape[1]:
        raise _wrong(f"{said} meet {places[0]} input channels, and the input has {shape[1]}")
    if not transposed and places[1] != shape[1] // groups:
        raise _wrong(
            f"{said} meet {places[1]} input channels of a group, and the input has {shape[1]} in"
            f" {groups} of them: {shape[1] // groups}"
        )
    if 0 in places[2:]:
        raise _wrong(f"{said} have no places")
    return x, weight, groups, channels


def _with_bias(w: GraphWorld, found: Value, given: Given) -> GraphArray:
    bias = given.get("bias")
    if bias is None:
        return GraphArray(found)
    value = _operand(w, bias, "the bias")
    shape, channels = value.tensor_type.shape, found.tensor_type.shape[1]
    if shape != (channels,):
        raise _wrong(f"the bias has one number for each of {channels} channels, not shape {shape}")
    if value.tensor_type.dtype != found.tensor_type.dtype:
        raise _wrong(f"an input of {found.tensor_type.dtype} with a bias of"
                     f" {value.tensor_type.dtype}: convert one with `op.cast`")  # fmt: skip
    rank = found.tensor_type.rank
    line = w.builder.reshape(value, (1, channels, *(1,) * (rank - 2)))
    return GraphArray(w.builder.add(found, w.builder.broadcast(line, found.tensor_type.shape)))


def _built(
    w: GraphWorld, x: Value, weight: Value, size: Sequence[int], before: Sequence[int],
    dilation: tuple[int, ...], groups: int, *, stride: tuple[int, ...], spread: tuple[int, ...],
) -> Value:  # fmt: skip
    return w.op("conv", x, weight, size=tuple(map(str, size)), stride=stride, before=tuple(before),
                dilation=dilation, spread=spread, groups=groups)  # fmt: skip


def _convolution(rank: int) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        x, weight, groups, _ = _checked(w, given, rank, transposed=False)
        stride, padding, dilation = (
            _each(given, n, d, rank, low)
            for n, d, low in (("stride", 1, 1), ("padding", 0, 0), ("dilation", 1, 1))
        )
        size: list[int] = []
        for j, (n, k) in enumerate(zip(_sizes(x)[2:], _sizes(weight)[2:], strict=True)):
            reach, whole = dilation[j] * (k - 1) + 1, n + 2 * padding[j]
            if reach > whole:
                raise _wrong(f"the kernel reaches over {reach} elements of an axis that has"
                             f" {whole}, with its padding: pad more, or take a smaller kernel or"
                             " dilation")  # fmt: skip
            size.append((whole - reach) // stride[j] + 1)
        found = _built(w, x, weight, size, padding, dilation, groups, stride=stride,
                       spread=(1,) * rank)  # fmt: skip
        return _with_bias(w, found, given)

    return function


def _transposed(rank: int) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        x, weight, groups, _ = _checked(w, given, rank, transposed=True)
        stride, padding, more, dilation = (
            _each(given, n, d, rank, low)
            for n, d, low in (("stride", 1, 1), ("padding", 0, 0), ("output_padding", 0, 0),
                              ("dilation", 1, 1))
        )  # fmt: skip
        size: list[int] = []
        before: list[int] = []
        for j, (n, k) in enumerate(zip(_sizes(x)[2:], _sizes(weight)[2:], strict=True)):
            if more[j] >= stride[j] and more[j] >= dilation[j]:
                raise _wrong(f"output_padding {more[j]} is less than the stride, {stride[j]}, or"
                             f" the dilation, {dilation[j]}")  # fmt: skip
            reach = dilation[j] * (k - 1)
            found = (n - 1) * stride[j] - 2 * padding[j] + reach + 1 + more[j]
            if found < 0:
                raise _wrong(f"padding {padding[j]} takes more from an axis than its"
                             f" {found + 2 * padding[j]} elements: pad less")  # fmt: skip
            size.append(found)
            before.append(reach - padding[j])
        back = turned(w.builder, weight, groups)
        found = _built(w, x, back, size, before, dilation, groups, stride=(1,) * rank,
                       spread=stride)  # fmt: skip
        return _with_bias(w, found, given)

    return function


CONVOLUTIONS: dict[str, tuple[str, int, ArrayFunction]] = {
    **{f"conv{r}d": (CONVOLUTION, 2, _convolution(r)) for r in (1, 2, 3)},
    **{f"conv_transpose{r}d": (TRANSPOSED, 2, _transposed(r)) for r in (1, 2, 3)},
}
"""By name without ``op.``: parameters, how many of them are needed, and the function."""
