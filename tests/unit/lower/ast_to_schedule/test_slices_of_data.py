"""Slices whose bounds are read from memory: what is proved, what the run looks after, and what it
gives where a program reads outside."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

import tessera_lang as tessera

TEXT = """
def rows(a, k, n: int):
    return a[k:k+n, :]

@op.kernel
def whole(a: f32[m, 16], at: i32[q], y: mut f32[q, 8, 16]):
    for i in op.tile_range(q):
        c = max(at[i], 0)
        y[i, :, :] = a[c:c+8, :] + 0.0

@op.kernel
def page(a: f32[p, 8, 16], at: i32[q], y: mut f32[q, 8]):
    for i in op.tile_range(q):
        y[i, :] = op.max(a[at[i], :, :], axis=1) - 1.0

@op.kernel
def tested(a: f32[m, 16], at: i32[q], y: mut f32[16]):
    acc = op.zeros((16,), f32)
    for i in range(q):
        c = at[i]
        if c < 0:
            continue
        acc += op.sum(rows(a, c * 2, 4), axis=0)
    y[:] = acc

@op.kernel
def wrapped(a: f32[m, 16], at: i32[q], y: mut f32[16]):
    acc = op.zeros((16,), f32)
    for i in range(q):
        start = max(at[i], 0) * 1000
        acc += op.sum(a[start:start+4, :], axis=0)
    y[:] = acc

@op.kernel
def ragged(a: f32[m, 16], offsets: u32[q], y: mut f32[m, 16]):
    for g in op.tile_range(q - 1, independent=("g",)):
        end = offsets[g + 1]
        for r in range(offsets[g], end, 8):
            acc = op.zeros((8, 16), f32)
            acc += a[r:min(r+8, end), :]
            y[r:min(r+8, end), :] = acc * 2.0
"""

A = np.arange(40 * 16, dtype=np.float32).reshape(40, 16)
PAGES = A[:24].reshape(3, 8, 16)


@pytest.fixture(scope="module", params=["cpu", "sm_90a"])
def module(request: pytest.FixtureRequest) -> Any:
    arch = "" if request.param == "cpu" else str(request.param)
    options = replace(options_from_environment(), target="cpu", arch_as=arch)
    return Module("<source>", SessionProvider("<source>", options, text=TEXT), "cpu")


def called(function: Any, *arguments: Any) -> str:
    """What a call reports."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*arguments)
    except tessera.TesseraError as error:
        return str(error)
    return ""


def test_slices_that_are_whole(module: Any) -> None:
    y = np.zeros((3, 8, 16), np.float32)
    assert not called(module.whole, A, np.array([0, 32, 5], np.int32), y)
    assert (y == np.stack([A[0:8], A[32:40], A[5:13]])).all()


def test_slices_that_stick_out_are_reported_and_zero_there(module: Any) -> None:
    y = np.ones((2, 8, 16), np.float32)
    said = called(module.whole, A, np.array([36, 400], np.int32), y)
    assert "T0845" in said and "a[c:c+8, :]" in said
    wanted = np.zeros((2, 8, 16), np.float32)
    wanted[0, :4] = A[36:40]
    assert (y == wanted).all()


def test_an_index_outside_gives_zeros_of_the_same_extent(module: Any) -> None:
    y = np.ones((3, 8), np.float32)
    said = called(module.page, PAGES, np.array([1, 7, -2], np.int32), y)
    assert "T0845" in said
    assert (y[0] == PAGES[1].max(axis=1) - 1).all()
    assert (y[1:] == -1).all()  # a maximum of zeros, not of nothing


def test_a_branch_shows_that_a_start_is_not_negative(module: Any) -> None:
    y = np.zeros(16, np.float32)
    assert not called(module.tested, A, np.array([-3, 2, -1, 19], np.int32), y)
    assert (y == A[4:8].sum(axis=0) + A[38:42].sum(axis=0)).all()


def test_a_start_that_has_wrapped_is_outside(module: Any) -> None:
    y = np.zeros(16, np.float32)
    at = np.array([0, 2_147_484, 4_294_968 // 2 + 10], np.int32)  # 1000 times it wraps below 0
    assert not called(module.wrapped, A, at[:2], y)
    assert (y == A[:4].sum(axis=0)).all()


def test_ragged_rows(module: Any) -> None:
    y = np.zeros_like(A)
    assert not called(module.ragged, A, np.array([0, 3, 3, 21, 40], np.uint32), y)
    assert (y == 2 * A).all()
