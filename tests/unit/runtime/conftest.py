"""A device that is not there: fake code, fake torch tensors, plans made by hand."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tessera_backend.runtime import arrays, launch_fast_path
from tessera_backend.runtime.kernel import Launcher, new_kernel
from tessera_backend.runtime.module_interface import KernelInterface
from tessera_backend.runtime.signature import Asked

from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.shape import Dim, Sym


class Tensor:
    """Looks like ``torch.Tensor`` to the runtime."""

    __module__ = "torch"
    layout = "torch.strided"

    def __init__(
        self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
        dtype: str = "torch.float32", device: int = 0,
    ) -> None:  # fmt: skip
        self.pointer, self.shape, self.dtype, self.index = pointer, shape, dtype, device
        if strides is None:
            from tessera_backend.runtime.dlpack import row_major

            strides = row_major(shape)
        self.strides = strides
        self.negated = False
        self.device = types.SimpleNamespace(type="cuda" if device >= 0 else "cpu")

    def data_ptr(self) -> int:
        return self.pointer

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.index

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return self.negated


@dataclass
class Launch:
    block: list[int]
    grid: tuple[int, int, int]
    stream: int


class FakeCode:
    """Records launches. ``fault`` puts words into the record of the kernel."""

    def __init__(self, plan: LaunchPlan, device: int) -> None:
        from tessera_backend.runtime.faults import Faults

        self.plan, self.device = plan, device
        self.then: tuple[LaunchPlan, ...] = ()
        self.offsets = (0,)
        self.words = len(plan.slots)
        self.launches: list[Launch] = []
        self.memory = bytearray(8 * 8 * 16)
        block = types.SimpleNamespace(pointer=0x1000, view=lambda: memoryview(self.memory))
        self._faults = Faults(lambda size: block, lambda: None)
        self._slot = self._faults.slot(plan)
        self.flags, self.quiet = self._slot.flags, self._slot.quiet
        self.report = self._faults.report

    def frame(self, bound: Any, block: Any = None) -> Any:
        assert block is None
        block = list(bound.slots.values)
        if bound.slots.fault >= 0:
            block[bound.slots.fault] = self._slot.address
        x, y, z = (*reversed(bound.axes), 1, 1)[:3]
        return block, lambda stream: self.launch(block, (x, y, z), stream)

    def launch(self, block: list[int], grid: tuple[int, int, int], stream: int) -> None:
        self.launches.append(Launch(list(block), grid, stream))

    def fault(self, *words: int) -> None:
        memoryview(self.memory).cast("q")[: len(words)] = memoryview(
            b"".join(w.to_bytes(8, "little", signed=True) for w in words)
        ).cast("q")


@dataclass
class FakeKernel:
    """A kernel on fake code: ``kernel`` to call, ``codes`` by signature and device."""

    plan: LaunchPlan
    target: str = "auto"
    codes: list[FakeCode] = field(default_factory=list)
    compiled: list[tuple[Any, ...]] = field(default_factory=list)
    interface_: KernelInterface | None = None
    asked_: Asked | None = None  # of a tile kernel

    def __post_init__(self) -> None:
        self.kernel: Launcher = new_kernel(self.plan.kernel, self, self.target, self._load)

    def interface(self, name: str) -> KernelInterface:
        level = "lane" if self.asked_ is None else "tile"
        return self.interface_ or KernelInterface.of_plan(name, self.plan.parameters, level)

    def settled(self, name: str, wanted: Any) -> Any:
        return wanted

    def asked(self, name: str, wanted: Any) -> Asked:
        assert self.asked_ is not None and all(len(e) == 6 for e in wanted if e[0] == "t")
        return self.asked_

    def artifact(self, name: str, wanted: Any, device: int, grid_rank: int = 0) -> Artifact:
        self.compiled.append((wanted, device))
        small = any(e[5] for e in wanted if e[0] == "t")
        parameters = tuple(replace(p, small=p.small and small) for p in self.plan.parameters)
        plan = replace(self.plan, grid_rank=max(1, grid_rank), parameters=parameters)
        return Artifact("ptx", b"", name, plan, TargetOptions("cuda"))

    def _load(self, artifact: Artifact, device: int) -> FakeCode:
        self.codes.append(FakeCode(artifact.plan, device))
        return self.codes[-1]

    @property
    def launches(self) -> list[Launch]:
        return [x for code in self.codes for x in code.launches]


def tensor(name: str, *dims: Dim | str, dtype: str = "f32", mut: bool = False) -> ParameterPlan:
    sizes = tuple(Sym(d) if isinstance(d, str) else d for d in dims)
    return ParameterPlan(name, "tensor", dtype, len(sizes), sizes, mut)


def plan_of(*parameters: ParameterPlan, **changes: Any) -> LaunchPlan:
    """A plan whose slots are all addresses, scalars, sizes and strides, then the fault."""
    slots: list[Slot] = []
    for i, p in enumerate(parameters):
        if p.kind == "tensor":
            slots.append(Slot("data", i))
            slots += [Slot("size", i, a) for a in range(p.rank)]
            slots += [Slot("stride", i, a) for a in range(p.rank)]
        elif p.kind == "scalar":
            slots.append(Slot("scalar", i, dtype=p.dtype))
    slots += [Slot("groups"), Slot("fault")]
    fields: dict[str, Any] = {
        "kernel": "k", "parameters": parameters, "slots": tuple(slots), "group": (128,),
        "grid": (1,), **changes,
    }  # fmt: skip
    return LaunchPlan(**fields)


@pytest.fixture
def fake() -> Callable[..., FakeKernel]:
    return FakeKernel


@pytest.fixture
def make_plan() -> Callable[..., LaunchPlan]:
    return plan_of


@pytest.fixture
def param() -> Callable[..., ParameterPlan]:
    return tensor


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module named torch whose current stream is ``torch.current``."""
    module = types.ModuleType("torch")
    module.Tensor = Tensor  # type: ignore[attr-defined]
    module.current = 7  # type: ignore[attr-defined]
    module._C = types.SimpleNamespace(  # type: ignore[attr-defined]
        _cuda_getCurrentRawStream=lambda device: module.current  # type: ignore[attr-defined]
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(arrays, "_raw_stream", [])
    monkeypatch.setattr(arrays, "_known_types", {})
    launch_fast_path._maker.cache_clear()
    return module
