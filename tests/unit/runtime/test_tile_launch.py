"""Calls of tile kernels on code that only records: facts, results, slots, refusals."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment
from tessera_backend.runtime.signature import Asked

from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.target.array_facts import (
    array_facts,
    bucket,
    bucket_below,
    coarser,
    divisor,
    size_class,
    size_in_bucket,
)
from tessera_lang.target.launch_plan import Condition, LaunchPlan, ParameterPlan, ResultPlan, Slot
from tessera_lang.types.shape import Sym, dim_op

Fake = Any
M, K, K2, N = (Sym(s) for s in ("A.shape[0]", "A.shape[1]", "B.shape[0]", "B.shape[1]"))


def free(name: str, rank: int = 2, mut: bool = False) -> ParameterPlan:
    """A parameter without annotation."""
    return ParameterPlan(name, "tensor", "f32", rank, mut=mut)


def product(**changes: Any) -> LaunchPlan:
    """``return A @ B``."""
    fields: dict[str, Any] = {
        "kernel": "product",
        "parameters": (free("A"), free("B")),
        "slots": (
            Slot("data", 0), Slot("tensor_map", 0, box=(64, 32), axes=(0, 1)), Slot("data", 1),
            Slot("data", 2), Slot("size", 2, 1), Slot("stride", 2, 0), Slot("workspace"),
        ),
        "group": (128,),
        "grid": (M, N),
        "conditions": (Condition(K, "==", K2, "A.shape[1] == B.shape[0]", ("p.tessera", 3, 5)),),
        "results": (ResultPlan("f32", (M, N)),),
        "workspace": dim_op("*", M, 4),
        **changes,
    }  # fmt: skip
    return LaunchPlan(**fields)


def arrays(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((m, k), np.float32), np.ones((k, n), np.float32)


def test_plans_survive_as_json() -> None:
    scratch = dim_op("*", N, 128)
    plan = product(cluster=(2, 1), persistent=True, scratch=scratch, parameters=(
        ParameterPlan("A", "tensor", "f32", 2, sizes=(None, 64), divisors=(1, 64), unit=1,
                      pitches=True, buckets=(None, 128)), free("B"),
    ))  # fmt: skip
    assert LaunchPlan.from_json(plan.to_json()) == plan


def test_results_are_allocated_and_returned(fake: Fake) -> None:
    k = fake(product(), asked_=Asked())
    for _ in range(3):  # the general way, then the short one
        got = k.kernel(*arrays(3, 5, 7))
        assert got.shape == (3, 7) and got.dtype == np.float32
        assert got.ctypes.data % 64 == 0
        (launch,) = k.launches[-1:]
        assert launch.block[3:6] == [got.ctypes.data, 7, 7]
        assert launch.grid == (7, 3, 1)
    assert len(k.codes) == 1


def test_a_map_takes_the_address_as_data_does(fake: Fake) -> None:
    k = fake(product(), asked_=Asked())
    a, b = arrays(3, 5, 7)
    for _ in range(2):
        k.kernel(a, b)
        assert k.launches[-1].block[:3] == [a.ctypes.data, a.ctypes.data, b.ctypes.data]


def test_two_results_are_a_tuple(fake: Fake) -> None:
    plan = product(results=(ResultPlan("f32", (M, N)), ResultPlan("i32", (2,))))
    k = fake(plan, asked_=Asked())
    for _ in range(2):
        one, two = k.kernel(*arrays(2, 2, 2))
        assert one.shape == (2, 2) and two.dtype == np.int32


def test_results_of_empty_arrays(fake: Fake) -> None:
    k = fake(product(), asked_=Asked())
    assert k.kernel(*arrays(0, 5, 7)).shape == (0, 7)
    assert not k.launches
    k.kernel(*arrays(2, 0, 7))
    assert len(k.launches) == 1  # a product over nothing writes zeros


def test_results_lie_beside_the_arguments(fake: Fake, torch: Any) -> None:
    made: list[Any] = []

    def device(kind: str, index: int = 0) -> tuple[str, int]:
        return kind, index

    torch.float32, torch.device = "torch.float32", device

    def empty(shape: tuple[int, ...], dtype: str, device: Any) -> Any:
        assert device == ("cuda", 0)
        made.append(torch.Tensor(0x4000 * (len(made) + 1), shape))
        return made[-1]

    torch.empty = empty
    k = fake(product(workspace=0), asked_=Asked())
    from tessera_backend.runtime.torch_memory import torch_empty

    torch_empty.cache_clear()
    a, b = torch.Tensor(0x1000, (3, 5)), torch.Tensor(0x2000, (5, 7))
    for _ in range(2):
        got = k.kernel(a, b)
        assert got is made[-1]
        assert k.launches[-1].block[3] == got.data_ptr()


def test_an_agreement_names_both_arrays(fake: Fake) -> None:
    k = fake(product(), asked_=Asked())
    a, b = arrays(3, 5, 7)
    with pytest.raises(TesseraError) as caught:
        k.kernel(a, b[:4])
    (found,) = caught.value.diagnostics
    assert found.code == "T0838"
    assert "`A.shape[1]` is 5 and `B.shape[0]` is 4" in found.message


def test_groups_are_made_by_the_loops(fake: Fake) -> None:
    k = fake(product(), asked_=Asked())
    with pytest.raises(TesseraError, match="its loops make the groups"):
        k.kernel[4](*arrays(1, 1, 1))


def test_a_bound_launch_keeps_its_results(fake: Fake) -> None:
    k = fake(product(), asked_=Asked())
    again = k.kernel.bind(*arrays(3, 5, 7))
    assert again() is again()


def test_code_is_made_for_what_is_asked(fake: Fake) -> None:
    k = fake(product(), asked_=Asked(needed=(("A", 1),), whole=(("B", 1),)))
    k.kernel(*arrays(100, 48, 200))
    k.kernel(*arrays(101, 48, 200))  # of one class, and so of one signature but for divisors
    k.kernel(*arrays(103, 48, 200))
    assert len(k.compiled) == 2
    (_, a), (_, b) = ((e[1], e[6]) for e in k.compiled[0][0])
    sizes, hints, divisors, unit, pitches, buckets = a
    assert (sizes, hints, divisors) == ((None, 48), (104, 48), (4, 16))
    assert (unit, pitches, buckets) == (1, True, (None, None))
    assert b[5] == (None, 256)
    k.kernel(*arrays(100, 49, 200))
    assert len(k.compiled) == 3


def test_strided_arguments_say_so(fake: Fake) -> None:
    k = fake(product(conditions=(), workspace=0), asked_=Asked())
    a, b = arrays(64, 32, 16)
    seen: list[tuple[Any, ...]] = []
    for x in (a.T, a[:, ::2], a[::-1], np.broadcast_to(a[:1], (64, 32)), a[:, 1:]):
        k.kernel(x, b)
        entry = k.compiled[-1][0][0]
        seen.append((entry[3], entry[6][3], entry[6][4]))
    assert seen == [
        (False, 0, True), (False, -1, False), (False, 1, False), (False, 1, False),
        (False, 1, True),
    ]  # fmt: skip


def test_size_classes() -> None:
    sizes = [*range(1, 5000), 65535, 65536, 65537, 10**9]
    assert {size_class(n) for n in range(17)} == {1, 8, 16}
    assert len({(size_class(n), divisor(n)) for n in range(17)}) <= 8
    for n in sizes:
        of = size_class(n)
        assert size_class(of) == of and n <= of
        assert n <= 16 or of <= n * 9 / 8 + 1
        assert n % divisor(n) == 0 and divisor(n) <= 128
    assert len({size_class(n) for n in range(1024, 2048)}) == 9
    buckets = [bucket(n) for n in (0, 1, 64, 65, 128, 129, 8192, 8193, 131072, 131073)]
    assert buckets == [64, 64, 64, 128, 128, 256, 8192, 8320, 131072, None]
    for n in range(1, 1000):  # a size that its bucket and its divisor leave is that size
        capacity = bucket(n)
        assert capacity is not None and bucket_below(capacity) < n <= capacity
        assert size_in_bucket(capacity, divisor(n)) in (None, n)


def test_an_empty_axis_is_never_whole() -> None:
    """Every number divides 0: as a fact of a size it would say that a tile is full."""
    facts = array_facts((0, 0), (0, 1), 4, (), (1,))
    assert facts.divisors == (1, 1)
    for capacity in facts.buckets:
        assert capacity is None or size_in_bucket(capacity, facts.divisors[1]) is None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_coarser_classes_hold_for_the_same_sizes(level: int) -> None:
    for n in [*range(2000), 65536, 10**6]:
        (hint,), (of,) = coarser((size_class(n),), (divisor(n),), level)
        assert n % of == 0 and (hint == 0 or n <= hint)
        assert level == 0 or hint & (hint - 1) == 0
    assert coarser((), (), level) == ((), ())


def test_the_number_of_variants_is_bounded(tmp_path: Path) -> None:
    """However many sizes a kernel is called with."""
    file = tmp_path / "m.tessera"
    file.write_text("@op.kernel\ndef f(a, b):\n    return a @ b\n")
    provider = SessionProvider(str(file), options_from_environment())
    r, found = random.Random(0), set[Any]()
    shapes = [tuple(r.randint(0, 3000) for _ in range(3)) for _ in range(3000)]
    for m, n, k in shapes:
        found.add(provider.settled("f", signature_of(((m, k), (k, n)))))
    assert len(found) <= 160
    first = shapes[0]
    of = signature_of(((first[0], first[2]), (first[2], first[1])))
    assert provider.settled("f", of) == of  # those of the begin keep what they have


def signature_of(shapes: tuple[tuple[int, int], ...]) -> Any:
    entries: list[Any] = []
    for shape in shapes:
        f = array_facts(shape, (shape[1], 1), 4, (), ())
        facts = (f.sizes, f.hints, f.divisors, f.unit, f.pitches, f.buckets)
        entries.append(("t", "f32", 2, True, True, False, facts))
    return tuple(entries)


def test_axes_of_one_element_have_no_pitch() -> None:
    assert array_facts((1, 64), (3, 1), 4, (), ()).pitches
    assert array_facts((64, 1), (1, 1), 4, (), ()).unit == 0
    assert array_facts((1, 1), (5, 7), 4, (), ()).unit == 1
    assert not array_facts((2, 64), (65, 1), 4, (), ()).pitches
