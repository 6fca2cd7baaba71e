"""Atomic updates of small arrays: what each gives, with one thread and several, whatever a thread
keeps for itself; and which arrays those are."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.cpu.privatized_atomics import _MOST_BYTES, Counters

import tessera_lang as tessera

KERNEL = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: i64[n], out: mut {dtype}[m], out2: mut {dtype}[2, m2]):
    i = grid_tile_linear_id()
    if i < n:
        v = {dtype}(x[i])
        atomic_{kind}(out[x[i] % m], v)
        atomic_{kind}(out2[x[i] & 1, x[i] % m2], v)
"""
JOINED = {
    "add": np.add, "or": np.bitwise_or, "xor": np.bitwise_xor, "and": np.bitwise_and,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@pytest.mark.parametrize("kind", JOINED)
@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64", "f32"])
@pytest.mark.sample(8)
def test_each_update_is_made_once(kind: str, dtype: str) -> None:
    if dtype == "f32" and kind in ("or", "xor", "and"):
        return
    numpy = {"i": np.int32, "u": np.uint32, "f": np.float32}[dtype[0]]
    if dtype.endswith("64"):
        numpy = {"i": np.int64, "u": np.uint64}[dtype[0]]
    kernel = tessera.compile(KERNEL.format(kind=kind, dtype=dtype), target="cpu").k
    most = _MOST_BYTES // np.dtype(numpy).itemsize
    for n in (1, 130, 5000, 3 * most):
        for m in (1, 7, 256, most, most + 1):
            rng = np.random.default_rng(n + m)
            x = rng.integers(0, 1 << 20, n)
            out, out2 = np.full(m, 5, numpy), np.full((2, 9), 12, numpy)
            want, want2 = out.copy(), out2.copy()
            JOINED[kind].at(want, x % m, x.astype(numpy))
            JOINED[kind].at(want2, (x & 1, x % 9), x.astype(numpy))
            kernel(x, out, out2)
            if dtype == "f32":
                np.testing.assert_allclose(out, want, rtol=1e-3)
            else:
                np.testing.assert_array_equal(out, want)
                np.testing.assert_array_equal(out2, want2)


@pytest.mark.parametrize("guard", ["if i < n: ", ""])
def test_an_update_outside_is_reported_and_not_made(guard: str) -> None:
    text = f"""
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: i32[n], out: mut i32[m]):
    i = grid_tile_linear_id()
    {guard}atomic_add(out[x[i]], 1)
"""
    kernel = tessera.compile(text, target="cpu").k
    x = np.arange(640, dtype=np.int32) % 9
    out = np.zeros(8, np.int32)
    with pytest.raises(tessera.TesseraError, match="8"):
        kernel(x, out)


USES = {
    "atomic_add(out[a], 1)": "add",
    "atomic_max(out[a], i32(i))": "max",
    "atomic_sub(out[a], 1)": "",
    "old = atomic_add(out[a], 1)\n        x[i] = old": "",
    "atomic_add(out[a], 1)\n        x[i] = out[a]": "",
    "atomic_add(out[a], 1)\n        x[i] = atomic_load(out[a])": "",
    "atomic_add(out[a], 1)\n        atomic_max(out[a], 1)": "",
    "atomic_add(out[a], 1)\n        out[a] = 1": "",
    "atomic_add(out[a], 1, order='acq_rel')": "",
    "atomic_add(out[a], 1)\n        atomic_add(x[i], 1)": "add",
}


@pytest.mark.parametrize("use", USES)
def test_which_arrays(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something else is done with the array, others may see what a thread would keep."""
    found: list[list[str]] = []
    answer = Counters.rules

    def rules(own: Counters, given: object) -> object:
        found.append(sorted(own.kinds.values()))
        return answer(own, given)  # type: ignore[arg-type]

    monkeypatch.setattr(Counters, "rules", rules)
    text = f"""
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: mut i32[n], out: mut i32[m]):
    i = grid_tile_linear_id()
    if i < n:
        a = x[i]
        {use}
# {monkeypatch!r}
"""
    kernel = tessera.compile(text, target="cpu").k
    kernel(np.zeros(64, np.int32), np.zeros(8, np.int32))
    wanted = [USES[use]] if USES[use] else []
    assert found == [wanted]


def test_several_threads_join_what_they_have() -> None:
    """Each thread of a launch of many groups ends with an update of its own."""
    text = """
@kernel tile[(256,)] grid[(ceil_div(n, 256),)]
def k(x: u8[n], out: mut i32[256]):
    i = grid_tile_linear_id()
    if i < n: atomic_add(out[x[i]], 1)
"""
    kernel = tessera.compile(text, target="cpu").k
    x = np.random.default_rng(0).integers(0, 256, 3_000_000).astype(np.uint8)
    for times in range(1, 4):
        out = np.zeros(256, np.int32)
        for _ in range(times):
            kernel(x, out)
        np.testing.assert_array_equal(out, np.bincount(x, minlength=256) * times)
