from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime import array_files, host_array_arithmetic, random_numbers, scalars
from tessera_backend.runtime.dtypes import TO_NUMPY
from tessera_backend.runtime.host_environment import HostWorld
from tessera_backend.runtime.host_workspaces import Workspaces
from tessera_backend.runtime.results import aligned_empty

from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.host_world import WorldFault
from tessera_lang.types.dtype import BF16, DTYPES, F8E4M3, F16, F32, F64, I8, I32, I64, U8, U32


@pytest.fixture
def world() -> HostWorld:
    return HostWorld(None, "cpu", print)  # type: ignore[arg-type]


def fault(call: Any, *words: str) -> str:
    with pytest.raises(WorldFault) as caught:
        call()
    for word in words:
        assert word in caught.value.message
    return caught.value.code


def test_a_workspace_is_watched_as_long_as_a_view_of_it_is_there() -> None:
    held = Workspaces()
    whole, other = aligned_empty((4, 3), np.dtype(np.float32)), aligned_empty((2,), TO_NUMPY["i8"])
    for array in (whole, other):
        array[...] = 0
        held.add(array)
    part = whole[1:, :2]
    del whole
    assert held.hold_zeros()
    part[2, 1] = -0.0  # zeros are bits
    assert not held.hold_zeros()
    del part
    assert held.hold_zeros()
    other[1] = 1
    assert not held.hold_zeros()


# --- random numbers ----------------------------------------------------------------------------


def test_random_numbers_are_fixed_by_the_seed() -> None:
    a = random_numbers.uniform((1000,), F32, 7, 0.0, 1.0)
    assert a.tolist() == random_numbers.uniform((10, 100), F32, 7, 0.0, 1.0).reshape(-1).tolist()
    assert a.tolist() != random_numbers.uniform((1000,), F32, 8, 0.0, 1.0).tolist()
    assert a[:500].tolist() == random_numbers.uniform((500,), F32, 7, 0.0, 1.0).tolist()
    known = [0.7215082, 0.64970434, 0.54937434]
    assert np.allclose(a[:3], known, rtol=1e-6)


def test_random_numbers_are_spread_evenly() -> None:
    u = random_numbers.uniform((1 << 20,), F64, 3, 0.0, 1.0)
    counts, _ = np.histogram(u, 256, (0, 1))
    chi = ((counts - 4096) ** 2 / 4096).sum()
    assert 150 < chi < 380
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.005
    near = random_numbers.uniform((1 << 16,), F64, 4, 0.0, 1.0)
    assert abs(np.corrcoef(u[: 1 << 16], near)[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", [F16, BF16, F8E4M3, F32, F64])
def test_the_upper_end_is_open(dtype: Any) -> None:
    u = random_numbers.uniform((1 << 16,), dtype, 1, 0.0, 1.0).astype(np.float64)
    assert u.min() >= 0.0 and u.max() < 1.0


def test_random_integers() -> None:
    u = random_numbers.uniform((1000,), I32, 1, -3, 3)
    assert sorted(set(u.tolist())) == [-3, -2, -1, 0, 1, 2]


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8", "bool", "f16"])
def test_npy_and_npz_round_trip(world: HostWorld, tmp_path: Path, dtype: str) -> None:
    a = world.random((3, 4), DTYPES[dtype], 1, 0, 2)
    world.save(str(tmp_path / "a.npy"), {"": a})
    world.save(str(tmp_path / "b.npz"), {"one": a, "two": a})
    for found in (
        world.load(str(tmp_path / "a.npy"), None, None),
        world.load(str(tmp_path / "b.npz"), "two", None),
    ):
        assert isinstance(found, np.ndarray)
        assert found.tolist() == a.tolist() and world.dtype(found) == DTYPES[dtype]  # type: ignore[attr-defined]


def test_csv(world: HostWorld, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("# a comment\nyear,co2\n1958,315.7\n\n1959,316.0\n1960,\n")
    assert world.shape(world.load(str(path), None, None)) == (3, 2)
    column = world.load(str(path), "co2", F32)
    assert isinstance(column, np.ndarray)
    assert column[:2].tolist() == np.array([315.7, 316.0], np.float32).tolist()
    assert np.isnan(column[2])
    world.save(str(tmp_path / "b.csv"), {"": column[:2]})
    assert world.shape(world.load(str(tmp_path / "b.csv"), None, None)) == (2,)
    assert fault(lambda: world.load(str(path), "no2", None), "no2", "co2") == "T0813"


def damaged(tmp_path: Path) -> list[str]:
    good = tmp_path / "good.npy"
    np.save(good, np.arange(1000.0))
    data = good.read_bytes()
    archive = tmp_path / "cut.npz"
    np.savez(archive, a=np.arange(1000.0))
    archive.write_bytes(archive.read_bytes()[:-300])
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as z:
        z.writestr("a.txt", "no array")
    texts = {
        "cut.npy": data[:500], "header.npy": data[:20], "empty.npy": b"", "empty.npz": b"",
        "text.npy": b"hello", "ragged.csv": b"1,2\n3\n", "words.csv": b"a,b\n1,x\n",
        "binary.csv": bytes(range(256)),
        "huge.npy": data.replace(b"(1000,), }         ", b"(100000000000,), }"),
    }  # fmt: skip
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.npy").mkdir()
    others = ["cut.npz", "objects.npy", "text.npz", "folder.npy", "missing.npy", "unknown.xyz"]
    return [*texts, *others]


def test_damaged_files_end_in_a_sentence(world: HostWorld, tmp_path: Path) -> None:
    for name in damaged(tmp_path):
        path = str(tmp_path / name)
        assert fault(lambda p=path: world.load(p, None, None), name) == "T0813"


@pytest.mark.parametrize("byte", [b"\0", b"(", b"'", b"\\", b"\xff"])
def test_a_header_with_any_byte_wrong(world: HostWorld, tmp_path: Path, byte: bytes) -> None:
    """NumPy reads a header as Python text: whatever its tokenizer raises ends in a sentence."""
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3.0))
    good = path.read_bytes()
    for place in range(128):
        path.write_bytes(good[:place] + byte + good[place + 1 :])
        try:
            found = world.load(str(path), None, None)
        except WorldFault as error:
            assert error.code == "T0813", place
        else:
            assert found is not None


def test_files_of_the_other_byte_order(world: HostWorld, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4, dtype=">f4"))
    found = world.load(str(tmp_path / "a.npy"), None, None)
    assert found.tolist() == [0, 1, 2, 3]  # type: ignore[attr-defined]


def test_writing_where_it_is_not_possible(tmp_path: Path) -> None:
    with pytest.raises(array_files.DataFault, match="cannot be written"):
        array_files.save(str(tmp_path / "none" / "a.npy"), {"": np.zeros(1)})
    with pytest.raises(array_files.DataFault):
        array_files.save(str(tmp_path / "a.npy"), {"a": np.zeros(1), "b": np.zeros(1)})
    with pytest.raises(array_files.DataFault):
        array_files.save(str(tmp_path / "a.csv"), {"": np.zeros((1, 1, 1))})
    assert list(tmp_path.iterdir()) == []


# --- arithmetic --------------------------------------------------------------------------------


def test_casts_follow_the_language() -> None:
    a = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 300.0])
    assert host_array_arithmetic.convert(a, I8).tolist() == [1, -1, 0, 127, -128, 127]
    assert host_array_arithmetic.convert(a, I64).tolist()[3:5] == [2**63 - 1, -(2**63)]
    assert host_array_arithmetic.convert(np.array([257, -1]), U8).tolist() == [1, 255]
    big = np.array([1e6, -1e6, np.nan], np.float32)
    assert host_array_arithmetic.convert(big, F8E4M3).astype(np.float32).tolist()[:2] == [448, -448]
    exact = np.array([257, 259, 511, -259], np.int32)
    assert host_array_arithmetic.convert(exact, BF16).astype(np.float32).tolist() == [
        256,
        260,
        512,
        -260,
    ]


def test_mixing() -> None:
    f, i, u = np.ones(2, np.float32), np.ones(2, np.int32), np.ones(2, np.uint32)
    assert host_array_arithmetic.binary("+", f, np.ones(2, np.float16)).dtype == np.float32
    assert host_array_arithmetic.binary("+", f, 1).dtype == np.float32
    for a, b in ((f, i), (i, u), (f, np.ones(2))):
        with pytest.raises(WorldFault):
            host_array_arithmetic.binary("+", a, b)
    assert host_array_arithmetic.binary("+", i, 1.5).dtype == np.float64
    large = np.array([1721142608025344941], np.uint64)
    small = np.array([-1], np.int64)
    assert host_array_arithmetic.binary(">", large, small).tolist() == [True]
    with pytest.raises(WorldFault):
        host_array_arithmetic.binary("+", np.ones(2), np.ones(3))
    with pytest.raises(WorldFault):
        host_array_arithmetic.binary("+", np.ones((3, 2)), np.ones(3))


def test_integers() -> None:
    a = np.array([-7, 7, -(2**31)], np.int32)
    assert host_array_arithmetic.binary("//", a[:2], 2).tolist() == [-4, 3]
    assert host_array_arithmetic.binary("%", a[:2], 2).tolist() == [1, 1]
    assert host_array_arithmetic.binary("//", a, -1).tolist()[2] == -(2**31)
    assert host_array_arithmetic.binary("<<", a, 32).tolist() == [0, 0, 0]
    assert host_array_arithmetic.binary(">>", a, 40).tolist() == [-1, 0, -1]
    with pytest.raises(WorldFault):
        host_array_arithmetic.binary("//", a, 0)
    assert host_array_arithmetic.binary("/", a, 2).tolist() == [-3.5, 3.5, -(2.0**30)]


def test_reductions() -> None:
    r = host_array_arithmetic.reduce
    assert r("sum", np.ones(1024, np.bool_), None) == 1024
    assert r("sum", np.full(300, 100, np.int8), None) == 30000
    assert r("sum", np.zeros(0, np.float32), None) == 0
    assert r("max", np.zeros(0, np.float32), None) == -np.inf
    assert r("max", np.zeros(0, np.int8), None) == -128
    assert r("argmax", np.array([np.nan, 6, 8], np.float32), None) == 0
    assert np.isnan(r("max", np.array([1, np.nan], np.float32), None))  # type: ignore[arg-type]
    assert r("sum", np.ones((2, 3), np.float32), 0).tolist() == [2, 2, 2]  # type: ignore[attr-defined]
    assert r("max", np.full(11, -2, np.float16), None) == -2
    with pytest.raises(WorldFault):
        r("sum", np.ones(3), 1)


# --- elements ----------------------------------------------------------------------------------


def test_elements(world: HostWorld) -> None:
    a = world.arange(0, 6, 1, F32)
    assert world.read(a, (2,)) == 2.0 and type(world.read(a, (2,))) is float
    assert fault(lambda: world.read(a, (6,)), "index 6", "0 to 5") == "T0807"
    assert fault(lambda: world.write(a, (-7,), 1.0), "index -7") == "T0807"
    world.write(a, (slice(0, 2, None),), 9.0)
    assert world.text(a) == "[9., 9., 2., 3., 4., 5.]"
    assert world.text(a, ".1f") == "[9.0, 9.0, 2.0, 3.0, 4.0, 5.0]"
    b = world.fill("full", (2,), I8, 3)
    assert fault(lambda: world.write(b, (0,), 300)) == "T0843"
    assert fault(lambda: world.fill("full", (2,), I8, 1.5)) == "T0843"
    assert fault(lambda: world.fill("zeros", (-1,), I8)) == "T0846"
    assert fault(lambda: world.fill("zeros", (1 << 60,), F32), "memory") == "T0846"
    view = world.read(a, (slice(None, None, -1),))
    world.write(view, (0,), 7.0)
    assert world.read(a, (5,)) == 7.0


# --- scalars -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "bits"),
    [
        (1.0, F16, 0x3C00), (65519.0, F16, 0x7BFF), (1.0, BF16, 0x3F80), (1.0, F32, 0x3F800000),
        (float("inf"), F32, 0x7F800000), (448, F8E4M3, 0x7E), (-1, I8, (1 << 64) - 1),
        (2**32 - 1, U32, 2**32 - 1), (True, DTYPES["bool"], 1),
    ],
)  # fmt: skip
def test_scalar_bits(value: object, dtype: Any, bits: int) -> None:
    assert scalars.encode(value, dtype, "a") == bits


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (65520.0, F16), (1e39, F32), (500.0, F8E4M3), (float("inf"), F8E4M3), (128, I8), (-1, U8),
        (1.0, I32), (True, I32), (1, DTYPES["bool"]), (np.float32(1), I32), (np.int64(1), I32),
    ],
)  # fmt: skip
def test_scalars_that_do_not_fit(value: object, dtype: Any) -> None:
    with pytest.raises(TesseraError) as caught:
        scalars.encode(value, dtype, "a")
    assert caught.value.diagnostics[0].code == "T0843"
