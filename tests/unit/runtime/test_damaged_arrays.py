"""Arrays whose protocols lie, raise or are cut short: T0831, and never the exception itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError

KERNEL = """\
@kernel tile[(32,)] grid[(1,)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i]
"""
DATA = np.arange(4, dtype=np.float32)
GOOD = dict(DATA.__array_interface__)
FAULTS = (KeyError("typestr"), ValueError("x"), RuntimeError("Array has been deleted."),
          TypeError("a tracer"), AttributeError("no"), OverflowError(), ZeroDivisionError(),
          NotImplementedError(), OSError("device lost"))  # fmt: skip


@pytest.fixture(scope="module")
def k() -> Any:
    return tessera.compile(KERNEL, target="cpu").k


def code(k: Any, value: Any) -> str:
    with pytest.raises(TesseraError) as caught:
        k(value, np.zeros(4, np.float32))
    assert "`x`" in str(caught.value)
    with pytest.raises(TesseraError):  # a failed call leaves nothing behind
        k(value, np.zeros(4, np.float32))
    return caught.value.diagnostics[0].code


def with_interface(name: str, value: Any) -> Any:
    return type("Holder", (), {name: value})()


BROKEN: list[dict[str, Any]] = [
    {**{k: v for k, v in GOOD.items() if k != missing}} for missing in ("typestr", "shape", "data")
] + [
    {**GOOD, **change}
    for change in (
        {"typestr": "nonsense"}, {"typestr": None}, {"typestr": 7}, {"typestr": b"\xff"},
        {"shape": None}, {"shape": 4}, {"shape": ("a",)}, {"shape": (-4,)}, {"shape": (4, None)},
        {"shape": ({},)}, {"strides": (4, 4)}, {"strides": "ab"}, {"strides": (None,)},
        {"strides": 4}, {"data": None}, {"data": (None, False)}, {"data": (0, False)},
        {"data": ("x", False)}, {"data": (1 << 70, False)}, {"data": (-64, False)}, {"data": ()},
        {"data": (64,)}, {"data": 64}, {"stream": "x"}, {"mask": DATA},
    )
]  # fmt: skip


@pytest.mark.parametrize("protocol", ["__array_interface__", "__cuda_array_interface__"])
@pytest.mark.parametrize("at", range(len(BROKEN)))
def test_interfaces(k: Any, protocol: str, at: int) -> None:
    assert code(k, with_interface(protocol, BROKEN[at])) in ("T0831", "T0832", "T0841")


@pytest.mark.parametrize("value", [None, 3, "text", [], {}, object()])
def test_what_is_no_interface(k: Any, value: Any) -> None:
    assert code(k, with_interface("__array_interface__", value)) == "T0831"


class Raising:
    """A protocol of which a part raises."""

    def __init__(self, fault: Exception, part: str) -> None:
        self.fault, self.part = fault, part

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.part == "device":
            raise self.fault
        return 1, 0

    def __dlpack__(self, **arguments: Any) -> Any:
        if self.part == "dlpack":
            raise self.fault
        return {"none": None, "object": object(), "number": 3}[self.part]


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_producer_that_raises(k: Any, fault: Exception) -> None:
    """As a deleted or traced array of JAX does, and a lost device."""
    for part in ("device", "dlpack"):
        assert code(k, Raising(fault, part)) == "T0831"

    def interface(self: Any) -> Any:
        raise fault

    for name in ("__array_interface__", "__cuda_array_interface__"):
        assert code(k, type("Holder", (), {name: property(interface)})()) == "T0831"


@pytest.mark.parametrize("part", ["none", "object", "number"])
def test_a_producer_that_gives_no_capsule(k: Any, part: str) -> None:
    assert code(k, Raising(ValueError(), part)) == "T0831"


@pytest.mark.parametrize("device", [None, 3, (), ("x", 0), (1,), (99, 0), (1, None, 2)])
def test_devices(k: Any, device: Any) -> None:
    holder = type("Holder", (), {
        "__dlpack_device__": lambda self: device,
        "__dlpack__": lambda self, **arguments: DATA.__dlpack__(),
    })()  # fmt: skip
    assert code(k, holder) in ("T0831", "T0844")


def test_a_protocol_without_its_other_half(k: Any) -> None:
    only = type("Holder", (), {"__dlpack__": lambda self, **arguments: DATA.__dlpack__()})()
    assert code(k, only) == "T0831"


@pytest.mark.parametrize(("module", "name"), [
    ("torch", "Tensor"), ("cupy", "ndarray"), ("jaxlib", "ArrayImpl"), ("jax", "Array"),
])  # fmt: skip
def test_objects_of_libraries_that_are_broken(k: Any, module: str, name: str) -> None:
    """A type that calls itself one of theirs and has none of it."""
    assert code(k, type(name, (), {"__module__": module})()) == "T0831"


def test_what_is_stopped_stays_stopped(k: Any) -> None:
    """Ctrl-C within a producer is no fault of the argument."""
    with pytest.raises(KeyboardInterrupt):
        k(Raising(KeyboardInterrupt(), "dlpack"), np.zeros(4, np.float32))  # type: ignore[arg-type]


def test_arrays_that_are_right_are_taken(k: Any) -> None:
    for name, value in (("__array_interface__", GOOD),):
        out = np.zeros(4, np.float32)
        k(with_interface(name, value), out)
        assert (out == DATA).all()
    empty = {**GOOD, "shape": (0,), "data": (0, False)}
    k(with_interface("__array_interface__", empty), np.zeros(0, np.float32))
