"""A graph by NumPy in float64: the reference column of the table, evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera_lang.ir.core import Attribute, Operation
from tessera_lang.ir.graph.operators import operator_of
from tessera_lang.ir.graph.rules import shape_of_attribute

erf = np.vectorize(math.erf, otypes=[np.float64])


def softmax(a: Any, axis: Any) -> Any:
    e = np.exp(a - np.max(a, axis, keepdims=True))
    return e / np.sum(e, axis, keepdims=True)


def logsumexp(a: Any, axis: Any, keepdims: bool) -> Any:
    top = np.max(a, axis, keepdims=True)
    found = np.log(np.sum(np.exp(a - top), axis, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis)


def scanned(scan: Any, a: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    a = np.flip(a, axis) if reverse else a
    if exclusive:
        first = np.full_like(np.take(a, [0], axis), 0.0 if scan is np.cumsum else 1.0)
        a = np.concatenate((first, np.take(a, range(a.shape[axis] - 1), axis)), axis)
    found = scan(a, axis)
    return np.flip(found, axis) if reverse else found


def ordered(order: Any, a: Any, axis: int, descending: bool) -> Any:
    """Stable, as equal elements stay in order."""
    found = order(-a if descending else a, axis, kind="stable")
    return -found if descending and order is np.sort else found


def scattered(places: Any, updates: Any, shape: Any) -> Any:
    found = np.zeros((*shape, updates.shape[1]), updates.dtype)
    np.add.at(found, places, updates)
    return found


def converted(a: Any, dtype: Any) -> Any:
    if dtype.bits == 1:
        return a != 0
    return a.astype(np.float64 if dtype.is_float else np.int64)


_HELPERS = {
    "np": np, "erf": erf, "softmax": softmax, "logsumexp": logsumexp, "scanned": scanned,
    "scattered": scattered, "ordered": ordered, "converted": converted,
}  # fmt: skip


def evaluate(operation: Operation, operands: Sequence[Any]) -> Any:
    """The result of one operation: floats as float64, whatever their dtype is."""
    row = operator_of(operation)
    given: dict[str, Any] = dict(_attributes(operation.attributes))
    if row.operands and row.operands[-1].endswith("..."):
        given[row.operands[-1][:-3]] = tuple(operands)
    else:
        given.update(zip(row.operands, operands, strict=True))
    found = np.asarray(eval(row.reference, {**_HELPERS, **given}))
    dtype = operation.result.tensor_type.dtype
    if row.operands:
        return found
    return found.astype(np.float64 if dtype.is_float else np.bool_ if dtype.bits == 1 else np.int64)


def _attributes(attributes: Mapping[str, Attribute]) -> Mapping[str, Any]:
    return {k: shape_of_attribute(attributes) if k == "shape" else v for k, v in attributes.items()}


def run(function: Operation, inputs: Sequence[Any]) -> list[Any]:
    """The results of a function of Graph IR."""
    (body,) = function.regions
    values: dict[Any, Any] = dict(zip(body.arguments, inputs, strict=True))
    with np.errstate(all="ignore"):
        for operation in body.operations[:-1]:
            values[operation.result] = evaluate(operation, [values[v] for v in operation.operands])
    return [values[v] for v in body.terminator.operands]
