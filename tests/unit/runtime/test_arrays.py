from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.runtime import memory_overlap
from tessera_backend.runtime.arrays import HOST, ArrayView, describe
from tessera_backend.runtime.dlpack import make_capsule

from tessera_lang.diagnostics import TesseraError
from tessera_lang.types.dtype import DTYPES, F32


def view(x: object) -> ArrayView:
    found = describe(x, "x")
    assert found is not None
    return found


def code(x: object) -> str:
    with pytest.raises(TesseraError) as caught:
        describe(x, "x")
    return caught.value.diagnostics[0].code


@pytest.mark.parametrize(
    ("numpy", "ours"),
    [
        (np.bool_, "bool"), (np.int8, "i8"), (np.uint64, "u64"), (np.float16, "f16"),
        (np.float64, "f64"), (ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e4m3fn, "f8e4m3"),
        (ml_dtypes.float8_e5m2, "f8e5m2"),
    ],
)  # fmt: skip
def test_numpy_dtypes(numpy: type, ours: str) -> None:
    v = view(np.zeros((2, 3), numpy))
    assert (v.dtype, v.shape, v.strides, v.device) == (DTYPES[ours], (2, 3), (3, 1), HOST)


def test_strides_are_in_elements_and_keep_their_sign() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert view(x[::-1]).strides == (-6, 1)
    assert view(x[:, ::2]).strides == (6, 2)
    assert view(x.T).strides == (1, 6)
    assert view(np.broadcast_to(np.float32(1), (64, 2))).strides == (0, 0)
    assert view(x[::-1]).pointer == x.ctypes.data + 18 * 4


@pytest.mark.parametrize(
    ("make", "contiguous"),
    [
        (lambda x: x, True), (lambda x: x[::-1], False), (lambda x: x[:, :3], False),
        (lambda x: x[1:2, 2:4], True), (lambda x: x[:0], True), (lambda x: x.T, False),
        (lambda x: x[:, :1], False), (lambda x: x[:1, ::6], True),
    ],
)  # fmt: skip
def test_contiguous(make: object, contiguous: bool) -> None:
    x = np.zeros((4, 6), np.float32)
    assert view(make(x)).contiguous is contiguous  # type: ignore[operator]


def test_refused_arrays() -> None:
    assert code(np.zeros(3, ">f4")) == "T0842"
    assert code(np.zeros(3, complex)) == "T0832"
    assert code(np.zeros(3, object)) == "T0832"
    assert code(np.ma.masked_array(np.zeros(3), [0, 1, 0])) == "T0831"
    record = np.zeros(4, np.dtype([("a", "f4"), ("b", "i1")]))
    assert code(record["a"]) == "T0841"
    assert code(np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32)) == "T0841"


def test_read_only_is_seen() -> None:
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    assert view(x).read_only


class Producer:
    """An object that only speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **_: object) -> object:
        return make_capsule(self.array.ctypes.data, F32, self.array.shape, (1, 0), self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_dlpack_without_a_copy() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    v = view(Producer(x))
    assert (v.pointer, v.shape, v.strides, v.dtype) == (x.ctypes.data, (2, 3), (3, 1), F32)
    assert np.from_dlpack(Producer(x)).tolist() == x.tolist()


class CudaArray:
    def __init__(self, **interface: object) -> None:
        self.__cuda_array_interface__ = {"version": 3, **interface}


def test_cuda_array_interface() -> None:
    v = view(CudaArray(shape=(2, 3), typestr="<f4", data=(0x1000, True), strides=(4, 8), stream=5))
    assert (v.device, v.pointer, v.strides, v.read_only, v.ready_on) == (0, 0x1000, (1, 2), True, 5)


def test_numbers_and_lists_are_no_arrays() -> None:
    assert describe(3, "x") is None
    assert describe([1.0], "x") is None
    assert describe(np.float32(1), "x") is None


BASE = np.zeros((4, 6), np.float32)


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        (BASE[:2], BASE[2:], "no"),
        (BASE[:3], BASE[2:], "yes"),
        (BASE[:, :3], BASE[:, 3:], "no"),
        (BASE[:, :4], BASE[:, 3:], "undecided"),
        (BASE[:, ::2], BASE[:, 1::2], "no"),
        (BASE[::2], BASE[1::2], "no"),
        (BASE[::-1], BASE, "yes"),
        (BASE.T, BASE, "yes"),
        (BASE[:0], BASE, "no"),
    ],
)
def test_overlap(a: np.ndarray, b: np.ndarray, answer: str) -> None:
    assert memory_overlap.between(view(a), view(b)) == answer
    assert memory_overlap.between(view(b), view(a)) == answer


def test_overlap_never_says_no_wrongly() -> None:
    rng = np.random.default_rng(5)
    base = np.zeros(200, np.float32)
    for _ in range(2000):
        views = []
        for _ in range(2):
            shape = tuple(int(n) for n in rng.integers(1, 5, 2))
            strides = tuple(int(s) for s in rng.integers(-9, 10, 2))
            start = 100 + int(rng.integers(-20, 20))
            views.append(np.lib.stride_tricks.as_strided(
                base[start:], shape, tuple(4 * s for s in strides)))  # fmt: skip
        shared = np.shares_memory(*views)
        answer = memory_overlap.between(view(views[0]), view(views[1]))
        assert answer != ("no" if shared else "yes")
        own = memory_overlap.within(view(views[0]))
        places = {
            i * s + j * t
            for (s, t) in [view(views[0]).strides]
            for i in range(views[0].shape[0])
            for j in range(views[0].shape[1])
        }
        assert own != ("no" if len(places) < views[0].size else "yes")
