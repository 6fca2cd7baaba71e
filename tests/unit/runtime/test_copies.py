"""Copies of arrays that a plan asks for: what a call binds, and products of them on a device."""

from __future__ import annotations

from typing import Any

import pytest
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.bound_arguments import BoundCopy
from tessera_backend.runtime.call_binding import bind

import tessera_lang as tessera
from tessera_lang.target.launch_plan import CopyPlan, LaunchPlan, ParameterPlan, ResultPlan, Slot
from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.shape import Sym

BF16 = DTYPES["bf16"]


def plan() -> LaunchPlan:
    parameters = tuple(
        ParameterPlan(name, "tensor", "bf16", 2, dims)
        for name, dims in (("a", (Sym("m"), Sym("k"))), ("b", (Sym("k"), Sym("n"))))
    )
    slots = (
        Slot("data", 0), Slot("data", 1), Slot("data", 2), Slot("symbol", symbol="k"),
        Slot("data", 3), Slot("stride", 3, 0), Slot("stride", 4, 1),
        Slot("tensor_map", 4, box=(64, 64), axes=(1, 0), swizzle=128),
    )  # fmt: skip
    return LaunchPlan(
        "product", parameters, slots, (128,), (1,),
        results=(ResultPlan("bf16", (Sym("m"), Sym("n"))),),
        copies=(CopyPlan(0, (0, 1)), CopyPlan(1, (1, 0))),
    )  # fmt: skip


def test_a_call_binds_its_copies() -> None:
    a = ArrayView(BF16, (5, 65), (67, 1), 4096, 0, True, None)
    b = ArrayView(BF16, (65, 9), (1, 65), 8192, 0, True, None)
    bound = bind(plan(), (a, b), None)
    assert bound.memory.copies == (
        BoundCopy(0, (4,), 2, (5, 65), (67, 1), 256, 0),
        BoundCopy(1, (7,), 2, (9, 65), (65, 1), 256, 5 * 256),
    )
    assert bound.slots.data == [(0, 0), (1, 1), (2, 2)]
    assert (bound.slots.values[5], bound.slots.values[6]) == (128, 128)
    assert (bound.slots.maps[7].shape, bound.slots.maps[7].strides) == ((65, 9), (1, 128))
    assert [shape for _, shape in bound.memory.results] == [(5, 9)]


def test_a_plan_with_copies_survives_as_json() -> None:
    assert LaunchPlan.from_json(plan().to_json()) == plan()


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(301, 215, 443), (1, 3, 1), (1025, 3, 1027), (640, 513, 641)])
@pytest.mark.parametrize("form", ["rows", "columns", "slices", "one after the other"])
def test_products_of_odd_sizes(sizes: tuple[int, int, int], form: str) -> None:
    torch: Any = pytest.importorskip("torch")
    m, k, n = sizes
    rows, columns = (m + 2, k + 3) if form == "slices" else (m, k)
    a = torch.randn(rows, columns, device="cuda").bfloat16()
    b = torch.randn(k + rows - m, n, device="cuda").bfloat16()
    if form == "slices":
        a, b = a[2:, 3:], b[1 : k + 1]
    if form == "columns":
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    linalg = tessera.load("std.linalg")
    for turn in range(3 if form == "one after the other" else 1):
        found = torch.as_tensor(linalg.matmul(a + turn, b), device="cuda")
        wanted = (a + turn).double() @ b.double()
        assert (found.double() - wanted).norm() <= 1e-2 * wanted.norm()
