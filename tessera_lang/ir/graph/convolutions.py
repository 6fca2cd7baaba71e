"""Convolutions of any number of axes: by their input, and by their weights.

``y[n, o, q]`` is the sum of ``w[o, c, k] * x[n, c, (q * stride + k * dilation - before) / spread]``
over the places where that is inside of ``x`` and whole, for the channels ``c`` of the group of
``o``. Transposed convolutions spread their input; every gradient is one of the two again. Owns
their rows. Must not know how they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from tessera_lang.ir.core import Attribute, Operation, TensorType, Value
from tessera_lang.ir.graph import rules
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.convolution_kernels import convolution, weights_of_convolution
from tessera_lang.ir.graph.operator import (
    Attributes,
    OperandError,
    Operator,
    Refused,
    Shape,
    Sharding,
    ShardingRule,
    Types,
)
from tessera_lang.ir.graph.rules import integer, integers, shape_of_attribute
from tessera_lang.ir.tile.op_definition import AttributeDef
from tessera_lang.types.shape import dim_op

_PLACES = ("stride", "before", "dilation", "spread")
_ATTRIBUTES = (
    AttributeDef("size", "strs"), *(AttributeDef(n, "ints") for n in _PLACES),
    AttributeDef("groups", "int"),
)  # fmt: skip
_ONE = {"size": ("3",), "stride": (1,), "before": (0,), "dilation": (1,), "spread": (1,)}
_X, _W = "!graph.tensor<f32, [2, 4, 5]>", "!graph.tensor<f32, [6, 4, 3]>"
_REFERENCE = "(a, b, size, stride, before, dilation, spread, groups)"


def _checked(name: str, types: Types, attributes: Attributes) -> tuple[int, Shape]:
    """The number of groups, and the sizes of the result behind its first two axes."""
    a, b = types
    size, groups = shape_of_attribute(attributes, "size"), integer(attributes, "groups")
    if a.rank < 3 or b.rank != a.rank:
        raise OperandError(f"`{name}` of {a} and {b}: both have the same axes, three or more")
    if any(len(integers(attributes, n)) != a.rank - 2 for n in _PLACES) or len(size) != a.rank - 2:
        raise OperandError(f"`{name}` of {a} says one number for each axis behind the first two")
    for n in ("stride", "dilation", "spread"):
        if any(k < 1 for k in integers(attributes, n)):
            raise OperandError(f"`{name}`: {n} is at least 1, not {integers(attributes, n)}")
    for channels in (a.shape[1], b.shape[0 if name == "conv" else 1]):
        if groups < 1 or (isinstance(channels, int) and channels % groups):
            raise OperandError(f"`{name}`: {channels} channels are not {groups} equal groups")
    return groups, size


def _conv_shape(name: str, types: Types, attributes: Attributes) -> Shape:
    groups, size = _checked(name, types, attributes)
    a, b = types
    channels = dim_op("//", a.shape[1], groups)
    if b.shape[1] != channels:
        raise OperandError(
            f"`{name}` of {a} and {b}: axis 1 of the weights has size {b.shape[1]}, and a group of"
            f" the input {channels} channels"
        )
    return (a.shape[0], b.shape[0], *size)


def _weights_shape(name: str, types: Types, attributes: Attributes) -> Shape:
    groups, size = _checked(name, types, attributes)
    a, b = types
    if a.shape[0] != b.shape[0]:
        raise OperandError(f"`{name}` of {a} and {b}: along axis 0 sizes differ")
    return (b.shape[1], dim_op("//", a.shape[1], groups), *size)


# --- gradients -------------------------------------------------------------------------------


def _known(shape: Sequence[object]) -> tuple[int, ...]:
    if not all(isinstance(n, int) for n in shape):
        raise OperandError("the gradient of a convolution needs weights whose sizes are numbers")
    return cast("tuple[int, ...]", tuple(shape))


def turned(b: GraphBuilder, w: Value, groups: int) -> Value:
    """Weights for the way back: channels exchanged within groups, places in the other order."""
    out, inner, *places = w.tensor_type.shape
    axes = range(3, 3 + len(places))
    parts = b.reshape(w, (groups, dim_op("//", out, groups), inner, *places))
    swapped = b.transpose(parts, (0, 2, 1, *axes))
    found = b.reshape(swapped, (dim_op("*", inner, groups), dim_op("//", out, groups), *places))
    return b.op("flip", found, axes=tuple(range(2, 2 + len(places))))


def by_input(b: GraphBuilder, x: TensorType, w: Value, y: Value, a: Attributes) -> Value:
    """The gradient of a convolution of ``x`` by it, of that of the result, ``y``."""
    places = _known(w.tensor_type.shape[2:])
    dilation, groups = integers(a, "dilation"), integer(a, "groups")
    before = tuple(
        d * (k - 1) - p for d, k, p in zip(dilation, places, integers(a, "before"), strict=True)
    )
    return b.op(
        "conv", y, turned(b, w, groups), size=rules.shape_attribute(x.shape[2:]),
        stride=a["spread"], before=before, dilation=dilation, spread=a["stride"], groups=groups,
    )  # fmt: skip


def _of_conv(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    x, w = o.operands
    by_weights = b.op("conv_weights", x, ct, **_attributes(o, w.tensor_type))
    return by_input(b, x.tensor_type, w, ct, o.attributes), by_weights


def _of_weights(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    x, y = o.operands
    return (
        by_input(b, x.tensor_type, ct, y, o.attributes),
        b.op("conv", x, ct, **_attributes(o, y.tensor_type)),
    )


def _attributes(o: Operation, like: TensorType) -> dict[str, Attribute]:
    return {**o.attributes, "size": rules.shape_attribute(like.shape[2:])}


# --- rows ------------------------------------------------------------------------------------


def _sharding(a: str, b: str, result: str, joined: str) -> ShardingRule:
    """Parts of the batch and, without groups, of channels (a letter for each of the first two
    axes); places are whole."""

    def rule(types: Types, attributes: Attributes, found: TensorType) -> Sharding:
        kept = "n" if integer(attributes, "groups") > 1 else "noc"

        def of(letters: str) -> tuple[str | None, ...]:
            return (*(n if n in kept else None for n in letters), *(None,) * (found.rank - 2))

        return Sharding((of(a), of(b)), of(result), {joined: "sum"} if joined in kept else {})

    return rule


def _work(operands: tuple[tuple[int, ...], ...], result: tuple[int, ...]) -> float:
    return 2.0 * math.prod(result) * math.prod(operands[1][1:])


def _weights_work(operands: tuple[tuple[int, ...], ...], result: tuple[int, ...]) -> float:
    return 2.0 * math.prod(result) * operands[1][0] * math.prod(operands[1][2:])


CONVOLUTIONS: tuple[Operator, ...] = (
    Operator(
        "conv", ("a", "b"), _ATTRIBUTES, _conv_shape, rules.floats,
        (Refused((_X, "!graph.tensor<f32, [6, 3, 3]>"), "axis 1 of the weights has size 3",
                 {**_ONE, "groups": 1}),
         Refused((_X, _W), "4 channels are not 3 equal groups", {**_ONE, "groups": 3}),
         Refused((_X, _W), "stride is at least 1", {**_ONE, "stride": (0,), "groups": 1}),
         Refused((_X, "!graph.tensor<f32, [6, 4]>"), "the same axes, three or more",
                 {**_ONE, "groups": 1}),
         Refused((_X, _W), "one number for each axis", {**_ONE, "before": (), "groups": 1}),
         Refused((_X, "!graph.tensor<f64, [6, 4, 3]>"), "dtypes differ", {**_ONE, "groups": 1})),
        f"convolved{_REFERENCE}", convolution, _of_conv, _work,
        _sharding("nc", "oc", "no", "c"), "sum", False,
    ),
    Operator(
        "conv_weights", ("a", "b"), _ATTRIBUTES, _weights_shape, rules.floats,
        (Refused((_X, "!graph.tensor<f32, [3, 6, 3]>"), "along axis 0 sizes differ",
                 {**_ONE, "groups": 1}),
         Refused((_X, "!graph.tensor<f32, [2, 5, 3]>"), "5 channels are not 2 equal groups",
                 {**_ONE, "groups": 2})),
        f"convolved_weights{_REFERENCE}", weights_of_convolution, _of_weights, _weights_work,
        _sharding("nc", "no", "oc", "n"), "sum", False,
    ),
)  # fmt: skip
