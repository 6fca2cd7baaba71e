"""std.sparse against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, EPSILON, TARGETS, module, near, one_thread

KINDS = list(itertools.product(("f32", "f64"), ("i32", "i64")))


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.sparse", str(request.param))


def matrix(rows: int, columns: int, length: float, dtype: str, index: str) -> Any:
    """Offsets, columns and values of rows of random lengths, some empty, with repeated columns."""
    r: Any = np.random.default_rng(rows + columns)
    lengths = r.poisson(length, rows) * (r.random(rows) < 0.8) * (columns > 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(DTYPES[index])
    places = r.integers(0, max(columns, 1), offsets[-1]).astype(DTYPES[index])
    return offsets, places, r.standard_normal(offsets[-1]).astype(DTYPES[dtype])


def lengths_of(offsets: Any) -> Any:
    return offsets[1:] - offsets[:-1]


def rows_of(lengths: Any) -> Any:
    return np.array([r for r, n in enumerate(lengths) for _ in range(n)], np.int64)


def check(found: Any, parts: Any, x: Any, dtype: str) -> None:
    offsets, columns, values = parts
    assert found.dtype == DTYPES[dtype]
    terms = values.astype(np.longdouble) * x.astype(np.longdouble)[columns]
    lengths = lengths_of(offsets)
    rows = rows_of(lengths)
    exact, size = np.zeros((2, offsets.size - 1), np.longdouble)
    np.add.at(exact, rows, terms)
    np.add.at(size, rows, np.abs(terms))
    near(found, exact, EPSILON[dtype] * (lengths + 8) * size + 1e-300)


@pytest.mark.parametrize(("dtype", "index"), KINDS)
@pytest.mark.parametrize("length", [0, 1, 3, 6, 14, 40, 300])
@pytest.mark.sample
def test_rows_of_every_length(std: Any, dtype: str, index: str, length: int) -> None:
    for rows, columns in ((0, 3), (1, 1), (3, 0), (5, 7), (33, 129), (257, 1000)):
        parts = matrix(rows, columns, length, dtype, index)
        x = np.random.default_rng(1).standard_normal(columns).astype(DTYPES[dtype])
        check(std.matvec(*parts, x), parts, x, dtype)


def test_long_rows_among_short_ones(std: Any) -> None:
    """Over the ends of what a group reads at a time, at its first and its last row."""
    r: Any = np.random.default_rng(5)
    lengths = r.integers(0, 4, 1500)
    lengths[[0, 255, 256, 700, 1499]] = 2047, 2049, 4100, 6000, 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = r.integers(0, 500, offsets[-1]).astype(np.int32)
    values = r.standard_normal(offsets[-1]).astype(np.float32)
    x = r.standard_normal(500).astype(np.float32)
    check(std.matvec(offsets, columns, values, x), (offsets, columns, values), x, "f32")


def test_one_long_row(std: Any) -> None:
    parts = matrix(1, 1000, 30000, "f64", "i32")
    parts = (np.array([0, parts[2].size], np.int32), *parts[1:])
    x = np.random.default_rng(1).standard_normal(1000)
    check(std.matvec(*parts, x), parts, x, "f64")


@pytest.mark.parametrize("longest", [60, 3000, 9000])
@pytest.mark.parametrize("name", ["_matvec_stream", "_matvec_warps"])
@pytest.mark.sample(1)
def test_the_kernels_of_a_gpu_on_any_target(std: Any, name: str, longest: int) -> None:
    """Rows that begin anywhere, a last unit that is not full, and one long row."""
    r: Any = np.random.default_rng(longest)
    lengths = r.integers(0, 40, 333)
    lengths[[3, 200]] = longest
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = r.integers(0, 900, offsets[-1]).astype(np.int32)
    values, x = (r.standard_normal(n).astype(np.float32) for n in (offsets[-1], 900))
    sizes = {"LANES": 2, "EACH": 8, "ROWS": 64} if name == "_matvec_stream" else {}
    found = np.full(333, 9, np.float32)
    getattr(std, name)(offsets, columns, values, x, found, **sizes)
    check(found, (offsets, columns, values), x, "f32")


def test_indices_of_two_dtypes_and_strided_inputs(std: Any) -> None:
    offsets, columns, values = matrix(40, 60, 5, "f32", "i64")
    x = np.random.default_rng(1).standard_normal(120).astype(np.float32)[::2]
    wide = np.repeat(values, 2)[::2]
    found = std.matvec(offsets, np.repeat(columns, 2).astype(np.int32)[::2], wide, x)
    check(found, (offsets, columns, values), x, "f32")


@pytest.mark.parametrize("column", [3, 2**31 - 1, -1])
def test_a_column_outside_is_reported(std: Any, column: int) -> None:
    columns = np.array([0, column, 2], np.int32)
    with pytest.raises(tessera.TesseraError, match="outside") as caught:
        np.asarray(std.matvec(np.array([0, 1, 3], np.int32), columns, np.ones(3), np.ones(3)))
    assert str(column) in str(caught.value)


@pytest.mark.parametrize(("dtype", "index"), KINDS)
@pytest.mark.parametrize("span", [1, 900, 4096, 4097, 50000])
@pytest.mark.sample
def test_columns_near_each_other_and_not(std: Any, dtype: str, index: str, span: int) -> None:
    """Those of a group of rows may be near each other, beyond the reach of a window, or both."""
    r: Any = np.random.default_rng(span)
    lengths = r.integers(0, 11, 700)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(DTYPES[index])
    first = 60000 - span - np.repeat(np.arange(700), lengths) // 300
    columns = (first + r.integers(0, span, offsets[-1])).astype(DTYPES[index])
    columns[columns.size // 2] = first[columns.size // 2] + span - 1  # both ends are there
    columns[columns.size // 2 + 1] = first[columns.size // 2 + 1]
    values = r.standard_normal(offsets[-1]).astype(DTYPES[dtype])
    x = r.standard_normal(60000).astype(DTYPES[dtype])
    check(std.matvec(offsets, columns, values, x), (offsets, columns, values), x, dtype)


@pytest.mark.parametrize("each", [1, 5, 12, 40, 200])
def test_rows_much_longer_than_most(std: Any, each: int) -> None:
    """At the first and the last place of a matrix and beside each other, for every mean length."""
    r: Any = np.random.default_rng(each)
    lengths = r.integers(0, 2 * each, 300)
    lengths[[0, 1, 150, 299]] = 17 * each + 300, 9000, 5000, 4097
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = r.integers(0, 700, offsets[-1]).astype(np.int32)
    values = r.standard_normal(offsets[-1])
    x = r.standard_normal(700)
    check(std.matvec(offsets, columns, values, x), (offsets, columns, values), x, "f64")


@pytest.mark.parametrize("place", [0, 4, 777, 1499])
def test_one_column_outside_among_many_is_reported(std: Any, place: int) -> None:
    columns, offsets = np.arange(1500, dtype=np.int32), np.arange(1501, dtype=np.int32)
    columns[place] = 1500
    with pytest.raises(tessera.TesseraError, match="outside") as caught:
        np.asarray(std.matvec(offsets, columns, np.ones(1500), np.ones(1500)))
    assert "1500" in str(caught.value)


@pytest.mark.parametrize("offsets", [(0, 4, 3), (0, 3, 99), (-1, 2, 3), (0, 2**31 - 1, 3)])
def test_wrong_offsets_are_reported(std: Any, offsets: tuple[int, ...]) -> None:
    with pytest.raises(tessera.TesseraError, match="offsets of a matrix"):
        np.asarray(std.matvec(np.array(offsets, np.int32), np.zeros(3, np.int32), np.ones(3),
                              np.ones(3)))  # fmt: skip


def test_every_run_gives_the_same_bits(std: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = matrix(500, 400, 20, "f32", "i32")
    x = np.random.default_rng(1).standard_normal(400).astype(np.float32)
    bits: set[bytes] = set()
    for threads in (1, 2, 5):
        one_thread(monkeypatch, threads)
        bits.add(std.matvec(*parts, x).tobytes())
    assert len(bits) == 1


@pytest.mark.parametrize("call", [
    "matvec(none, i, v, v)", "matvec(i, i, v, short)", "matvec(i, i, v, halves)", "matvec(i, i, v)",
    "matvec(v, i, v, v)", "matvec(i, v, v, v)", "matvec(i, i, i, v)", "matvec(i, short, v, v)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {"none": np.zeros(0, np.int32), "i": np.zeros(3, np.int32), "v": np.ones(3),
             "short": np.ones(2, np.float32), "halves": np.ones(3, np.float16)}  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)
