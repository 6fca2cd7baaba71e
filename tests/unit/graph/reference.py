"""A graph by NumPy in float64: the reference column of the table, evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera_lang.ir.core import Attribute, Operation
from tessera_lang.ir.graph.custom import WITH_GRADIENT
from tessera_lang.ir.graph.operators import operator_of
from tessera_lang.ir.graph.regions import IF, WHILE, counted, function_of
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


def _met(a: Any, count: Any, place: Any, stride: Any, before: Any, dilation: Any,
         spread: Any) -> Any:  # fmt: skip
    """For each of ``count`` places of the result what a place of the weights meets; 0 outside."""
    for axis, n in enumerate(count, 2):
        i = axis - 2
        at = np.arange(int(n)) * stride[i] + place[i] * dilation[i] - before[i]
        inside = (at % spread[i] == 0) & (at >= 0) & (at < a.shape[axis] * spread[i])
        found = np.take(a, np.where(inside, at // spread[i], 0), axis)
        shape = tuple(-1 if j == axis else 1 for j in range(a.ndim))
        a = found * inside.reshape(shape)
    return a


def convolved(a: Any, b: Any, size: Any, stride: Any, before: Any, dilation: Any, spread: Any,
              groups: int) -> Any:  # fmt: skip
    size = tuple(int(str(n)) for n in size)
    inner, outer = b.shape[1], b.shape[0] // groups
    found = np.zeros((a.shape[0], b.shape[0], *size))
    for place in np.ndindex(b.shape[2:]):
        met = _met(a, size, place, stride, before, dilation, spread)
        for g in range(groups):
            rows, own = (slice(g * n, g * n + n) for n in (outer, inner))
            found[:, rows] += np.einsum(
                "oc,nc...->no...", b[(rows, slice(None), *place)], met[:, own]
            )
    return found


def convolved_weights(a: Any, b: Any, size: Any, stride: Any, before: Any, dilation: Any,
                      spread: Any, groups: int) -> Any:  # fmt: skip
    size = tuple(int(str(n)) for n in size)
    inner, outer = a.shape[1] // groups, b.shape[1] // groups
    found = np.zeros((b.shape[1], inner, *size))
    for place in np.ndindex(*size):
        met = _met(a, b.shape[2:], place, stride, before, dilation, spread)
        for g in range(groups):
            rows, own = (slice(g * n, g * n + n) for n in (outer, inner))
            flat = (b[:, rows].reshape(len(b), outer, -1), met[:, own].reshape(len(b), inner, -1))
            found[(rows, slice(None), *place)] = np.einsum("noq,ncq->oc", *flat)
    return found


def converted(a: Any, dtype: Any) -> Any:
    if dtype.bits == 1:
        return a != 0
    return a.astype(np.float64 if dtype.is_float else np.int64)


_HELPERS = {
    "np": np, "erf": erf, "softmax": softmax, "logsumexp": logsumexp, "scanned": scanned,
    "scattered": scattered, "convolved": convolved, "convolved_weights": convolved_weights,
    "ordered": ordered, "converted": converted,
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
    return {k: shape_of_attribute(attributes, k) if k in ("shape", "size") else v
            for k, v in attributes.items()}  # fmt: skip


def _control(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of an operation with regions."""
    regions = list(map(function_of, operation.regions))
    if operation.name == WITH_GRADIENT:
        return run(regions[0], operands)
    if operation.name == IF:
        return run(regions[0 if operands[0] else 1], operands[1:])
    if operation.name == WHILE:
        count = len(operation.results)
        carried, rest = list(operands[:count]), operands[count:]
        while run(regions[0], [*carried, *rest])[0]:
            carried = run(regions[1], [*carried, *rest])
        return carried
    loop, given = counted(operation), list(operands)
    steps = int(given.pop(0)) if loop.steps is None else loop.steps
    ends = len(loop.carried), len(loop.carried) + len(loop.sliced)
    carried, rows, rest = given[: ends[0]], given[ends[0] : ends[1]], given[ends[1] :]
    pieces: list[Any] = [None] * steps
    for i in reversed(range(steps)) if loop.reverse else range(steps):
        found = run(regions[0], [np.int64(i), *carried, *(v[i] for v in rows), *rest])
        carried, pieces[i] = found[: ends[0]], found[ends[0] :]
    return [*carried, *(np.stack(p) for p in zip(*pieces, strict=True))]


def run(function: Operation, inputs: Sequence[Any]) -> list[Any]:
    """The results of a function of Graph IR."""
    (body,) = function.regions
    values: dict[Any, Any] = dict(zip(body.arguments, inputs, strict=True))
    with np.errstate(all="ignore"):
        for operation in body.operations[:-1]:
            operands = [values[v] for v in operation.operands]
            if operation.regions:
                found = _control(operation, operands)
                values.update(zip(operation.results, found, strict=True))
                continue
            values[operation.result] = evaluate(operation, operands)
    return [values[v] for v in body.terminator.operands]
