"""Arrays of lanes, `tlocal.alloc`, and the clause `registers(...)`: values, places, diagnostics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.stdlib.arrays import DTYPES, TARGETS

TURNED = """
@kernel tile[(96,)]
def turned(x: {t}[n], out: mut {t}[n]):
    kept = tlocal.alloc((3, 4), {t})
    first = group_linear_id() * 1152 + tile_linear_id()
    for i in range(3):
        for k in range(4):
            kept[i, k] = x[first + (i * 4 + k) * 96] if first + (i * 4 + k) * 96 < n else {t}(0)
    tbarrier()
    for i in range(3):
        for k in range(4):
            to = group_linear_id() * 1152 + tile_linear_id() * 12 + i * 4 + k
            if to < n: out[to] = kept[2 - i, -1] if k == 0 else kept[2 - i, 3 - k]
"""
CHOSEN = """
def put(cells, at: index, v): cells[at] = v

@kernel tile[(64,)]
def chosen(x: i32[n], out: mut i32[n]):
    cells = tlocal.alloc((5,), i32)
    i = grid_tile_linear_id()
    for k in range(len(cells)): put(cells, k, i32(k) * 100)
    assert cells.shape[0] == 5
    if i < n:
        put(cells, x[i], i32(i))
        total = i32(0)
        for k in range(5): total += cells[k]
        out[i] = total + cells[x[i]]
"""


def loaded(tmp_path: Path, text: str, target: str = "cpu") -> Any:
    path = tmp_path / "k.tessera"
    path.write_text(text)
    return tessera.load(path, target=target)


def code(tmp_path: Path, text: str, name: str, signature: str) -> tuple[str, Any]:
    """PTX, and what ptxas says of it."""
    path = tmp_path / "k.tessera"
    path.write_text(text)
    session = Session()
    made = session.compile_kernel(
        str(path), name, session.signature(str(path), name, signature),
        TargetOptions("cuda", "sm_90"), ("ptx",),
    )  # fmt: skip
    return made.texts["ptx"], made.resources


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["f32", "i8", "f64", "bool"])
def test_each_lane_has_its_own(tmp_path: Path, target: str, t: str) -> None:
    n = 1152 * 2 + 100
    x = np.random.default_rng(1).integers(0, 2 if t == "bool" else 100, n).astype(DTYPES[t])
    out = np.zeros(n, DTYPES[t])
    loaded(tmp_path, TURNED.format(t=t), target).turned[3](x, out)
    padded = np.zeros(1152 * 3, DTYPES[t])
    padded[:n] = x
    read = padded.reshape(3, 3, 4, 96)
    wanted = read[:, ::-1, ::-1].transpose(0, 3, 1, 2).copy()
    wanted[..., 0] = read[:, ::-1, 3].transpose(0, 2, 1)
    np.testing.assert_array_equal(out, wanted.reshape(-1)[:n])


@pytest.mark.parametrize("target", TARGETS)
def test_an_index_known_at_run_time(tmp_path: Path, target: str) -> None:
    x = np.random.default_rng(2).integers(0, 5, 200).astype(np.int32)
    out = np.zeros(200, np.int32)
    loaded(tmp_path, CHOSEN, target).chosen[4](x, out)
    np.testing.assert_array_equal(out, 1000 - x * 100 + 2 * np.arange(200))


def test_an_index_outside_is_a_fault(tmp_path: Path) -> None:
    x = np.full(64, 5, np.int32)
    with pytest.raises(tessera.TesseraError) as caught:
        loaded(tmp_path, CHOSEN).chosen[1](x, np.zeros(64, np.int32))
    assert "`cells[at]`" in str(caught.value) and "where 0 to 4" in str(caught.value)


def test_known_indices_are_registers(tmp_path: Path) -> None:
    ptx, _ = code(tmp_path, TURNED.format(t="f32"), "turned", "x: f32[n], out: mut f32[n]")
    assert ".local" not in ptx and "local_depot" not in ptx
    assert "shared" not in ptx
    ptx, _ = code(tmp_path, CHOSEN, "chosen", "x: i32[n], out: mut i32[n]")
    assert ".local" in ptx


def test_registers_are_limited(tmp_path: Path) -> None:
    text = TURNED.format(t="f32").replace("tile[(96,)]", "tile[(96,)] registers(32)")
    ptx, resources = code(tmp_path, text, "turned", "x: f32[n], out: mut f32[n]")
    assert ".maxnreg 32" in ptx
    assert resources.registers <= 32


@pytest.mark.parametrize(("old", "new", "code", "words"), [
    ("x[i], i32(i))", "x[i], atomic_add(cells[0], 1))", "T0207", "memory that lanes share"),
    ("alloc((5,), i32)", "alloc((n,), i32)", "T0309", "`tlocal.alloc`"),
    ("alloc((5,), i32)", "alloc((200000,), i32)", "T0315", "512 KiB"),
    ("alloc((5,), i32)", "alloc((5,), 7)", "T0218", "`tlocal.alloc`"),
    ("tile[(64,)]", "tile[(64,)] registers(8)", "T0314", "24 to 255"),
    ("tile[(64,)]", "tile[(64,)] registers(32, 64)", "T0314", "24 to 255"),
])  # fmt: skip
def test_wrong_programs(tmp_path: Path, old: str, new: str, code: str, words: str) -> None:
    assert old in CHOSEN
    zeros = np.zeros(64, np.int32)
    with pytest.raises(tessera.TesseraError) as caught:
        loaded(tmp_path, CHOSEN.replace(old, new)).chosen[1](zeros, zeros.copy())
    assert f"[{code}]" in str(caught.value) and words in str(caught.value)


def test_a_read_of_what_was_never_written(tmp_path: Path) -> None:
    x, out = np.zeros(1152, np.float32), np.zeros(1152, np.float32)
    text = TURNED.format(t="f32").replace("range(3)", "range(2)", 1)
    with pytest.raises(tessera.TesseraError) as caught:
        loaded(tmp_path, text).turned[1](x, out)
    assert "[T0411]" in str(caught.value)
    assert "`kept[2, 3]`, and nothing has written it" in str(caught.value)


REDUCED = """
@kernel tile[(96,)] grid[(1,)]
def reduced(x: i32[n], out: mut i32[n], of_rows: mut i32[n]):
    own = tlocal.alloc(({size},), i32)
    rows = tlocal.alloc((3, {size}), i32)
    i = tile_linear_id()
    for j in range({size}):
        own[j] = x[i] ^ i32(j)
        for r in range(3): rows[r, j] = x[i] * i32(r) - i32(j)
    out[i] = op.sum(own) + op.max(own[1:]) * 3 + i32(op.argmin(own[::2])) - op.min(own[:n])
    of_rows[i] = op.sum(rows) + op.max(rows[i % 3, :]) + op.sum(rows[:, 1])
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [5, 32, 33, 100])
@pytest.mark.sample(2)
def test_reductions_of_what_a_lane_has(tmp_path: Path, target: str, size: int) -> None:
    """Of any length, by each lane for itself: a group shares what all its lanes see alone."""
    x = np.random.default_rng(size).integers(-50, 50, 96).astype(np.int32)
    out, of_rows = np.zeros(96, np.int32), np.zeros(96, np.int32)
    loaded(tmp_path, REDUCED.format(size=size), target).reduced(x, out, of_rows)
    own, lane = x[:, None] ^ np.arange(size), np.arange(96)
    rows = x[:, None, None] * np.arange(3)[:, None] - np.arange(size)
    least = own[:, ::2].argmin(1) - own[:, :96].min(1)
    np.testing.assert_array_equal(out, own.sum(1) + own[:, 1:].max(1) * 3 + least)
    wanted = rows.sum((1, 2)) + rows[lane, lane % 3].max(1) + rows[:, :, 1].sum(1)
    np.testing.assert_array_equal(of_rows, wanted)


def test_what_a_lane_has_is_not_the_same_for_all(tmp_path: Path) -> None:
    """Nor what is read of it, so that no barrier depends on it."""
    head = "@kernel tile[(64,)] grid[(1,)]\ndef k(x: i32[64], out: mut i32[64]):\n"
    body = (
        "    own = tlocal.alloc((40,), i32)\n    for j in range(40): own[j] = x[tile_linear_id()]\n"
    )
    for test in ("own[0] > 3", "op.sum(own) > 3", "op.sum(x[0:own[1]]) > 3"):
        session = Session()
        session.set_text("k.tessera", f"{head}{body}    if {test}: tbarrier()\n", 1)
        assert [d.code for d in session.check("k.tessera")] == ["T0401"], test
