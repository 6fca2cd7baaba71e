"""A small world on NumPy, and a way to run a program in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.target.host_world import KernelReference, WorldFault
from tessera_lang.types.dtype import DTYPES, F32, DType

_NUMPY = {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "bool": "bool"}


class NumpyWorld:
    """What a ``World`` is asked for, as far as these tests ask."""

    floats = F32

    def __init__(self) -> None:
        self.output = ""
        self.launches: list[tuple[Any, ...]] = []

    def is_array(self, value: object) -> bool:
        return isinstance(value, np.ndarray)

    def dtype(self, array: Any) -> DType:
        return next(DTYPES[k] for k, v in _NUMPY.items() if np.dtype(v) == array.dtype)

    def shape(self, array: Any) -> tuple[int, ...]:
        return array.shape

    def device(self, array: Any) -> str:
        return "cpu"

    def fill(self, kind: str, shape: Any, dtype: DType, value: Any = None) -> Any:
        start = {"zeros": 0, "empty": 0, "ones": 1}.get(kind, value)
        return np.full(shape, start, _NUMPY[dtype.name])

    def of_numbers(self, array: Any, numbers: object = None) -> Any:
        return array

    def beside(self, array: Any, dtype: DType) -> Any:
        return array

    def is_of_numbers(self, array: Any) -> bool:
        return False

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> Any:
        return np.arange(start, stop, step).astype(_NUMPY[dtype.name])

    def random(self, shape: Any, dtype: DType, seed: int, low: float, high: float) -> Any:
        return np.random.default_rng(seed).uniform(low, high, shape).astype(_NUMPY[dtype.name])

    def load(self, path: str, key: str | None, dtype: DType | None) -> Any:
        raise WorldFault(f"no file {path}", code="T0813")

    def save(self, path: str, arrays: dict[str, object]) -> None:
        self.output += f"saved {path}: {sorted(arrays)}\n"

    def read(self, array: Any, items: Any) -> Any:
        try:
            found = array[items]
        except IndexError as error:
            raise WorldFault(str(error), code="T0807") from None
        return found if isinstance(found, np.ndarray) else found.item()

    def named(self, array: Any) -> Any:
        return array

    def value_of(self, array: Any) -> Any:
        return None

    def release(self, array: Any) -> None:
        pass

    def viewed(self, array: Any, of: Any) -> Any:
        return array

    def shares(self, a: Any, b: Any) -> bool:
        return np.may_share_memory(a, b)

    def write(self, array: Any, items: Any, value: Any) -> None:
        array[items] = value

    def unary(self, operator: str, a: Any) -> Any:
        return np.abs(a) if operator == "abs" else -a

    def binary(self, operator: str, a: Any, b: Any) -> Any:
        functions = {
            "+": np.add, "-": np.subtract, "*": np.multiply, "<": np.less, "==": np.equal,
            "max": np.maximum, "min": np.minimum,
        }  # fmt: skip
        return functions[operator](a, b)

    def reduce(self, kind: str, array: Any, axis: int | None) -> Any:
        found = getattr(np, kind)(array, axis=axis)
        return found.item() if axis is None else found

    def convert(self, array: Any, dtype: DType) -> Any:
        return array.astype(_NUMPY[dtype.name])

    def view(self, kind: str, array: Any, shape: Any = ()) -> Any:
        return array.reshape(shape) if kind == "reshape" else array if kind != "T" else array.T

    def truth(self, array: Any) -> bool:
        return bool(array)

    def text(self, array: Any, format: str = "") -> str:
        return str(array)

    def launch(
        self, kernel: KernelReference, arguments: Any, constants: Mapping[str, object],
        groups: Any,
    ) -> None:  # fmt: skip
        self.launches.append((kernel.name, arguments, dict(constants), groups))

    def print(self, text: str) -> None:
        self.output += text

    def finish(self) -> None:
        return None


Run = Callable[..., NumpyWorld]


@pytest.fixture
def run() -> Run:
    """Runs a program; the world it ran in. ``files`` are other files beside it."""

    def runner(text: str, files: Mapping[str, str] | None = None, **given: object) -> NumpyWorld:
        session = Session(overlay={"main.tessera": text, **(files or {})})
        faults = session.parsed("main.tessera").diagnostics
        assert not faults, faults
        world = NumpyWorld()
        session.run("main.tessera", world, given)  # type: ignore[arg-type]
        return world

    return runner


@pytest.fixture
def output(run: Run) -> Callable[..., str]:
    return lambda *args, **given: run(*args, **given).output


@pytest.fixture
def failure(run: Run) -> Callable[..., tuple[str, str, int]]:
    """Code, message and 1-based line of the fault that ends a program."""

    def runner(text: str, files: Mapping[str, str] | None = None) -> tuple[str, str, int]:
        with pytest.raises(HostFault) as caught:
            run(text, files)
        (found,) = caught.value.diagnostics
        line = -1 if found.span is None else text[: found.span.lo].count("\n") + 1
        return found.code, found.message, line

    return runner
