"""Whether two arrays, or two elements of one array, share memory.

Exact where the elements of one lie in the gaps of the other in a regular way; what is not
decided counts as overlap, and the answer says so. Must not know kernels.
"""

from __future__ import annotations

from math import gcd
from typing import Literal

from tessera_backend.runtime.arrays import ArrayView

Overlap = Literal["no", "yes", "undecided"]


def _blocks(view: ArrayView) -> tuple[int, list[tuple[int, int]]]:
    """Bytes of the dense run at each place, and the (count, byte stride) of the places."""
    run = view.dtype.bytes
    axes = sorted(
        (abs(stride) * view.dtype.bytes, n)
        for n, stride in zip(view.shape, view.strides, strict=True)
        if n > 1
    )
    rest: list[tuple[int, int]] = []
    for stride, n in axes:
        if stride == run and not rest:
            run *= n
        else:
            rest.append((n, stride))
    return run, rest


def between(a: ArrayView, b: ArrayView) -> Overlap:
    """Whether two arrays of one device share a byte."""
    if a.size == 0 or b.size == 0 or a.device != b.device:
        return "no"
    (a_low, a_high), (b_low, b_high) = a.extent(), b.extent()
    a_start, b_start = a.pointer + a_low, b.pointer + b_low
    if a_start >= b.pointer + b_high or b_start >= a.pointer + a_high:
        return "no"
    a_run, a_rest = _blocks(a)
    b_run, b_rest = _blocks(b)
    if not a_rest and not b_rest:
        return "yes"
    if a.pointer == b.pointer:
        return "yes"
    # All places of both are congruent to their starts modulo the common step.
    step = gcd(*(stride for _, stride in (*a_rest, *b_rest)))
    shift = (b_start - a_start) % step if step else 0
    if step and shift >= a_run and shift + b_run <= step:
        return "no"
    return "undecided"


def within(view: ArrayView) -> Overlap:
    """Whether two elements of one array share memory."""
    if view.size == 0:
        return "no"
    reach = view.dtype.bytes
    axes = sorted(
        (abs(stride) * view.dtype.bytes, n)
        for n, stride in zip(view.shape, view.strides, strict=True)
        if n > 1
    )
    for stride, n in axes:
        if stride == 0:
            return "yes"
        if stride < reach:
            return "undecided"
        reach = stride * (n - 1) + reach
    return "no"
