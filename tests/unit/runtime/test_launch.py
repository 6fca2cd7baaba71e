from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.module_interface import KernelInterface, ParameterInfo

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.target.launch_plan import Condition, FaultSite, LaunchPlan, ParameterPlan
from tessera_lang.types.shape import DimOp, Sym

Fake = Callable[..., Any]


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def refused(call: Callable[[], object]) -> Diagnostic:
    with pytest.raises(TesseraError) as caught:
        call()
    return caught.value.diagnostics[0]


@pytest.fixture
def add(fake: Fake, make_plan: Fake, param: Fake) -> Any:
    plan = make_plan(
        param("x", "n"), param("y", "n"), param("out", "n", mut=True), kernel="add",
        grid=(DimOp("ceil_div", Sym("n"), 128),),
    )  # fmt: skip
    return fake(plan)


def test_slots_and_grid(add: Any) -> None:
    x, y, out = f32(1000), f32(1000)[::-1], f32(2000)[::2]
    add.kernel(x, y, out)
    (launch,) = add.launches
    at = [a.__array_interface__["data"][0] for a in (x, y, out)]
    assert launch.grid == (8, 1, 1)
    minus_one = (1 << 64) - 1
    expected = [at[0], 1000, 1, at[1], 1000, minus_one, at[2], 1000, 2, 8]
    assert launch.block[:-1] == expected


def test_one_compilation_per_signature(add: Any) -> None:
    add.kernel(f32(10), f32(10), f32(10))
    add.kernel(f32(500), f32(500), f32(500))
    contiguous = {w for w, _ in add.compiled if all(e[3] for e in w)}
    assert len(add.compiled) == len(contiguous) <= 2  # aligned and not
    add.kernel(f32(10)[::-1], f32(10), f32(10))
    assert len(add.compiled) > len(contiguous)


def test_size_mismatch_names_both_arguments(add: Any) -> None:
    d = refused(lambda: add.kernel(f32(4), f32(5), f32(4)))
    assert d.code == "T0834"
    for word in ("`y`", "size 5", "axis 0", "`x`", "4"):
        assert word in d.message


def test_argument_count_and_names(add: Any) -> None:
    assert refused(lambda: add.kernel(f32(4))).code == "T0830"
    assert refused(lambda: add.kernel(f32(4), f32(4), f32(4), f32(4))).code == "T0830"
    assert refused(lambda: add.kernel(f32(4), f32(4), z=f32(4))).code == "T0830"
    assert refused(lambda: add.kernel(f32(4), f32(4), x=f32(4))).code == "T0830"
    add.kernel(out=f32(4), x=f32(4), y=f32(4))
    assert len(add.launches) == 1


def test_wrong_dtype_rank_and_kind(add: Any) -> None:
    assert refused(lambda: add.kernel(f32(4), np.zeros(4), f32(4))).code == "T0832"
    assert refused(lambda: add.kernel(f32(4, 1), f32(4), f32(4))).code == "T0833"
    assert refused(lambda: add.kernel(1.0, f32(4), f32(4))).code == "T0831"
    assert refused(lambda: add.kernel([1.0], f32(4), f32(4))).code == "T0831"


def test_every_fault_of_a_call_is_reported(add: Any) -> None:
    with pytest.raises(TesseraError) as caught:
        add.kernel(np.zeros(4), f32(4, 1), f32(4))
    assert [d.code for d in caught.value.diagnostics] == ["T0832", "T0833"]


def test_mut_arguments(add: Any) -> None:
    x = f32(64)
    assert refused(lambda: add.kernel(x, f32(64), x)).code == "T0836"
    assert refused(lambda: add.kernel(x[:32], f32(32), x[16:48])).code == "T0836"
    add.kernel(x[:32], x[:32], x[32:])
    add.kernel(x[::2], x[::2], x[1::2])


def test_undecided_overlap_says_so(add: Any) -> None:
    x = f32(64)
    d = refused(lambda: add.kernel(x[0:32:2], x[0:32:2], x[1:49:3]))
    assert d.code == "T0836"
    assert "may share" in d.message and "counts as overlap" in d.notes[0]


def test_broadcast_views_are_not_written(fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "m", "n"), param("out", "m", "n", mut=True)))
    ones = np.broadcast_to(np.float32(1), (64, 2))
    k.kernel(ones, f32(64, 2))
    assert refused(lambda: k.kernel(f32(64, 2), ones)).code == "T0835"
    shared = np.lib.stride_tricks.as_strided(f32(1), (64, 2), (0, 0))
    assert refused(lambda: k.kernel(f32(64, 2), shared)).code == "T0837"


def test_empty_arrays_launch_nothing(add: Any) -> None:
    for n in (0, 8, 0):
        add.kernel(f32(n), f32(n), f32(n))
    assert [x.grid for x in add.launches] == [(1, 1, 1)]


def test_grid_from_the_call(fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n"), grid=None))
    assert refused(lambda: k.kernel(f32(4))).code == "T0839"
    k.kernel[7](f32(4))
    k.kernel[2, 3](f32(4))
    k.kernel[0](f32(4))
    assert [x.grid for x in k.launches] == [(7, 1, 1), (3, 2, 1)]
    assert refused(lambda: k.kernel[-1](f32(4))).code == "T0846"
    assert refused(lambda: k.kernel["a"](f32(4))).code == "T0839"
    too_many = refused(lambda: k.kernel[2**31](f32(4)))
    assert too_many.code == "T0840"
    assert str(2**31) in too_many.message and str(2**31 - 1) in too_many.message


def test_second_axis_of_a_grid(torch: Any, fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n"), grid=None))
    x = torch.Tensor(0x1000, (4,))
    assert refused(lambda: k.kernel[65536, 1](x)).code == "T0840"
    k.kernel[65535, 1](x)


def test_grid_groups_from_a_shape(fake: Fake, make_plan: Fake, param: Fake) -> None:
    out = param("out", "grid_groups", mut=True)
    k = fake(make_plan(param("x", "n"), out, grid=(Sym("grid_groups"),)))
    k.kernel(f32(100), f32(5))
    k.kernel[5](f32(100), f32(5))
    assert [x.grid for x in k.launches] == [(5, 1, 1)] * 2
    d = refused(lambda: k.kernel[4](f32(100), f32(5)))
    assert d.code == "T0834" and "4" in d.message and "5" in d.message


def test_conditions(fake: Fake, make_plan: Fake, param: Fake) -> None:
    where = Condition(DimOp("%", Sym("n"), 4), "==", 0, "n % 4 == 0")
    k = fake(make_plan(param("x", "n"), conditions=(where,)))
    k.kernel(f32(8))
    d = refused(lambda: k.kernel(f32(6)))
    assert d.code == "T0838" and "n % 4 == 0" in d.message and "n = 6" in d.notes[0]


def test_scalars(fake: Fake, make_plan: Fake, param: Fake) -> None:
    plan = make_plan(
        param("x", "n"), ParameterPlan("a", "scalar", "f32"), ParameterPlan("b", "scalar", "i8")
    )
    k = fake(plan)
    k.kernel(f32(1), 1.5, -3)
    assert k.launches[0].block[3:5] == [0x3FC00000, (1 << 64) - 3]
    k.kernel(f32(1), 2, np.int8(7))
    assert k.launches[1].block[3:5] == [0x40000000, 7]
    for a, b in ((1.0, 128), (1e39, 1), (1.0, 1.5), ("x", 1), (np.float64(1), np.int64(1))):
        with pytest.raises(TesseraError):
            k.kernel(f32(1), a, b)


def test_a_scalar_that_sizes_are_made_of(fake: Fake, make_plan: Fake, param: Fake) -> None:
    plan = make_plan(param("x", "k"), ParameterPlan("k", "scalar", "index"))
    kernel = fake(plan)
    kernel.kernel(f32(4), 4)
    d = refused(lambda: kernel.kernel(f32(4), 5))
    assert d.code == "T0834"


def test_compile_time_parameters(fake: Fake, make_plan: Fake, param: Fake) -> None:
    plan = make_plan(param("x", "n"), ParameterPlan("size", "constant", "int"))
    interface = KernelInterface("k", (
        ParameterInfo("x", "array", "f32", 1), ParameterInfo("size", "constant", "int", default=32),
    ))  # fmt: skip
    k = fake(plan, interface_=interface)
    k.kernel(f32(4))
    k.kernel(f32(4), size=64)
    k.kernel(f32(4), 64)
    assert {w[1] for w, _ in k.compiled} == {("c", "int", 32), ("c", "int", 64)}
    assert refused(lambda: k.kernel(f32(4), size=1.5)).code == "T0850"


# --- torch tensors: the short way ------------------------------------------------------------


def device_add(torch: Any, n: int = 64) -> tuple[Any, Any, Any]:
    return tuple(torch.Tensor(0x10000 * (i + 1), (n,)) for i in range(3))  # type: ignore[return-value]


def test_short_way_is_taken(torch: Any, add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, out = device_add(torch)
    add.kernel(x, y, out)
    general = type(add.kernel)._general
    monkeypatch.setattr(type(add.kernel), "_general", lambda *a, **k: pytest.fail("the long way"))
    add.kernel(x, y, out)
    monkeypatch.setattr(type(add.kernel), "_general", general)
    assert add.launches[0] == add.launches[1]
    assert add.launches[0].stream == 7


def test_each_fact_is_checked_each_time(torch: Any, add: Any) -> None:
    x, y, out = device_add(torch)
    for _ in range(2):
        add.kernel(x, y, out)
    changes: list[tuple[str, object, str]] = [
        ("shape", (63,), "T0834"), ("dtype", "torch.float64", "T0832"),
        ("pointer", 0x10000, "T0836"), ("index", 1, "T0844"), ("strides", (0,), "T0837"),
        ("shape", (8, 8), "T0833"),
    ]  # fmt: skip
    for attribute, value, code in changes:
        before = getattr(out, attribute)
        setattr(out, attribute, value)
        if value == (8, 8):
            out.strides = (8, 1)
        assert refused(lambda: add.kernel(x, y, out)).code == code
        setattr(out, attribute, before)
        out.strides = (1,)
        add.kernel(x, y, out)


def test_swapped_storage_is_seen(torch: Any, add: Any) -> None:
    x, y, out = device_add(torch)
    add.kernel(x, y, out)
    bound = add.kernel.bind(x, y, out)
    bound()
    out.pointer = 0x90000
    add.kernel(x, y, out)
    assert [launch.block[6] for launch in add.launches] == [0x30000, 0x30000, 0x90000]
    assert refused(bound).code == "T0851"


def test_current_stream_is_honoured(torch: Any, add: Any) -> None:
    x, y, out = device_add(torch)
    bound = add.kernel.bind(x, y, out)
    for stream in (7, 8, 9):
        torch.current = stream
        add.kernel(x, y, out)
        bound()
    add.kernel.on(3)(x, y, out)
    add.kernel(x, y, out, stream=4)
    assert [launch.stream for launch in add.launches] == [7, 7, 8, 8, 9, 9, 3, 4]
    assert refused(lambda: add.kernel.on("s")).code == "T0852"


def test_unaligned_tensors_get_other_code(torch: Any, add: Any) -> None:
    x, y, out = device_add(torch)
    add.kernel(x, y, out)
    x.pointer += 4
    add.kernel(x, y, out)
    assert [w[0][4] for w, _ in add.compiled] == [True, False]
    assert [e[4] for e in add.compiled[1][0]] == [False] * 3


def test_lazy_views_are_refused(torch: Any, add: Any) -> None:
    x, y, out = device_add(torch)
    x.negated = True
    assert refused(lambda: add.kernel(x, y, out)).code == "T0831"


def test_scalars_on_the_short_way(torch: Any, fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n", mut=True), ParameterPlan("a", "scalar", "f32")))
    x = torch.Tensor(0x1000, (4,))
    for a in (1.0, 2.0, 3):
        k.kernel(x, a)
    assert [launch.block[3] for launch in k.launches] == [0x3F800000, 0x40000000, 0x40400000]
    assert refused(lambda: k.kernel(x, 1e39)).code == "T0843"


def test_two_devices(torch: Any, add: Any) -> None:
    x, y, out = device_add(torch)
    y.index = 1
    assert refused(lambda: add.kernel(x, y, out)).code == "T0844"
    for t in (x, y, out):
        t.index = 1
    add.kernel(x, y, out)
    assert add.codes[-1].device == 1


# --- faults ----------------------------------------------------------------------------------


def faulty(make_plan: Fake, param: Fake) -> LaunchPlan:
    site = FaultSite("write", "out", "", 7, 5)
    return make_plan(param("x", "n"), param("out", "n", mut=True), sites=(site,))


def test_a_fault_is_raised_once(torch: Any, fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(faulty(make_plan, param))
    x, _, out = device_add(torch)
    k.kernel(x, out)
    bound = k.kernel.bind(x, out)
    for call in (lambda: k.kernel(x, out), bound):
        k.codes[0].fault(1, 0, 64, 64, 2, 9)
        d = refused(call)
        assert d.code == "T0845"
        for word in ("`out`", "skipped"):
            assert word in d.message
        assert "index 64 along axis 0, where 0 to 63 are inside" in " ".join(d.notes)
        assert "group 2, lane 9" in " ".join(d.notes)
        call()
    assert len(k.launches) == 3


# --- threads ---------------------------------------------------------------------------------


def test_two_threads_compile_once(add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Barrier(8)
    slow = add.artifact

    def artifact(*arguments: Any) -> Any:
        threading.Event().wait(0.05)
        return slow(*arguments)

    monkeypatch.setattr(add, "artifact", artifact)
    arrays = [f32(64) for _ in range(3)]

    def work() -> None:
        started.wait()
        add.kernel(*arrays)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(add.compiled) == 1
    assert len(add.launches) == 8


def test_blocks_are_not_shared_between_threads(torch: Any, add: Any) -> None:
    sets = [
        tuple(torch.Tensor(0x100000 * (t + 1) + 0x1000 * i, (64,)) for i in range(3))
        for t in range(4)
    ]
    add.kernel(*sets[0])
    code = add.codes[0]
    seen: list[tuple[int, ...]] = []
    record = code.launch

    def launch(block: list[int], grid: Any, stream: int) -> None:
        before = tuple(block)
        sys.setswitchinterval(1e-6)
        assert tuple(block) == before
        seen.append((before[0], before[3], before[6]))
        record(block, grid, stream)

    code.launch = launch
    add.kernel._memo.clear()
    add.kernel._fast_memo.clear()
    threads = [
        threading.Thread(target=lambda s=s: [add.kernel(*s) for _ in range(200)]) for s in sets
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.setswitchinterval(0.005)
    wanted = {tuple(t.pointer for t in s) for s in sets}
    assert set(seen) == wanted and len(seen) == 800
