"""Each directive of a schedule against the kernel without it: what changes, and that the result
does not."""

from __future__ import annotations

from functools import cache

import pytest

from tests.fuzz.tile_schedules import KERNELS, Case, tried
from tests.fuzz.tile_schedules_code import Code

BY_NAME = {k.name: k for k in KERNELS}
Said = tuple[str, ...]


@cache
def code(name: str, arch: str, *lines: str, dtype: str = "bf16") -> Code:
    return Code(BY_NAME[name], lines, arch, dtype)


def test_tile() -> None:
    plain, said = code("product", "sm_80"), code("product", "sm_80", "schedule.tile((64, 64, 32))")
    assert [b.shape[-2:] for b in said.buffers() if b.layout] == [(64, 32), (32, 64)]
    assert said.plan.shared_bytes < plain.plan.shared_bytes


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.sample(1)
def test_pipeline_stages(arch: str, stages: int) -> None:
    said = code("product", arch, f"schedule.pipeline_stages({stages})")
    other = code("product", arch, f"schedule.pipeline_stages({stages + 1})")
    assert (said.stages() or [1])[0] == stages and other.stages()[0] == stages + 1
    assert said.plan.shared_bytes < other.plan.shared_bytes


def test_async_copy() -> None:
    for arch in ("sm_80", "sm_90a"):
        plain = code("product", arch)
        said = code("product", arch, "schedule.async_copy(False)")
        assert plain.async_copies + plain.tma_loads and not said.async_copies + said.tma_loads
        assert said.count(r"ld\.global")


def test_use_shared_memory() -> None:
    plain = code("product", "sm_80")
    said = code("product", "sm_80", "schedule.use_shared_memory(False)")
    assert said.plan.shared_bytes < plain.plan.shared_bytes
    assert said.count(r"ld\.global") and not plain.count(r"ld\.global")


@pytest.mark.parametrize("padding", [1, 8])
@pytest.mark.sample(1)
def test_padding_is_a_pitch_or_reported(padding: int) -> None:
    lines = f"schedule.use_shared_memory(True, padding={padding})"
    said = code("product", "sm_80", lines)
    assert said.reported("padding") or any(pitch > panel for panel, pitch, _ in said.layouts())
    plain = code("product", "sm_80", lines, "schedule.async_copy(False)")
    assert plain.reported("padding") or any(pitch > panel for panel, pitch, _ in plain.layouts())


def test_padding_of_whole_pieces_is_honoured_by_copies_of_lines() -> None:
    said = code("product", "sm_80", "schedule.use_shared_memory(True, padding=8)")
    assert not said.reported("padding") and said.async_copies
    assert {(panel, swizzle) for panel, _, swizzle in said.layouts()} == {(0, 0)}


def test_swizzle() -> None:
    found = {
        n: {s for _, _, s in code("product", "sm_80", f"schedule.swizzle({n})").layouts()}
        for n in (0, 64, 128)
    }
    assert found == {0: {0}, 64: {64}, 128: {128}}


def test_vectorize() -> None:
    loads = r"ld\.global[.\w]*\.v{}\."
    for width, wide in ((1, 0), (2, 2), (4, 4)):
        said = code("sum", "sm_80", f"schedule.vectorize({width})")
        for n in (2, 4):
            assert bool(said.count(loads.format(n))) == (n == wide)


@pytest.mark.parametrize("warps", [2, 8])
def test_warps(warps: int) -> None:
    said = code("sum", "sm_80", f"schedule.warps({warps})")
    assert said.plan.group == (32 * warps,)


def test_warp_specialize() -> None:
    plain = code("product", "sm_90a")
    said = code("product", "sm_90a", "schedule.warp_specialize(False)")
    assert any(o.name == "tile.roles" for o in plain.program.walk())
    assert not any(o.name == "tile.roles" for o in said.program.walk())


@pytest.mark.slow
def test_cluster() -> None:
    two = code("product", "sm_90a", "schedule.cluster((2, 1))")
    one = code("product", "sm_90a", "schedule.cluster((1, 1))")
    assert two.plan.cluster == (2,) and two.count("multicast")
    assert not one.plan.cluster and not one.count("multicast")
    assert code("product", "sm_80", "schedule.cluster((2, 1))").reported("cluster")


@pytest.mark.slow
def test_persistent() -> None:
    yes = code("product", "sm_90a", "schedule.persistent(True)")
    no = code("product", "sm_90a", "schedule.persistent(False)")
    assert yes.plan.persistent and not no.plan.persistent
    assert code("product", "sm_80", "schedule.persistent(True)").reported("persistent")


HEARD = [
    (arch, name, line)
    for arch in ("sm_80", "sm_90a")
    for name in ("product", "sum")
    for line in (
        f"schedule.use_shared_memory({name == 'sum'})",
        "schedule.pipeline_stages(3)", "schedule.swizzle(64)", "schedule.unroll(4)",
        "schedule.vectorize(1)", "schedule.warps(2)", "schedule.cluster((4, 1))",
        "schedule.persistent(True)",
    )
]  # fmt: skip


@pytest.mark.parametrize(("arch", "name", "line"), HEARD)
@pytest.mark.sample(2)
def test_each_directive_is_heard(arch: str, name: str, line: str) -> None:
    """It changes the code, or a remark says why not."""
    plain, said = code(name, arch), code(name, arch, line)
    word = line.removeprefix("schedule.").split("(")[0]
    assert said.ptx != plain.ptx or said.plan != plain.plan or said.reported(word)


FIRST = ("schedule.async_copy(False)", "schedule.use_shared_memory(False)")
SECOND = (
    "schedule.pipeline_stages(3)", "schedule.swizzle(0)", "schedule.vectorize(1)",
    "schedule.warps(16)", "schedule.use_shared_memory(True, padding=8)",
)  # fmt: skip
TWO = [(a, b) for a in FIRST for b in SECOND if b.split("(")[0] != a.split("(")[0]]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("first", "second"), TWO)
@pytest.mark.sample(1)
def test_of_two_directives_the_second_is_heard(first: str, second: str, arch: str) -> None:
    one, two = code("product", arch, first), code("product", arch, first, second)
    word = "padding" if "padding" in second else second.removeprefix("schedule.").split("(")[0]
    assert two.ptx != one.ptx or two.plan != one.plan or two.reported(word)


LINES = (
    "schedule.tile((64, 32))", "schedule.pipeline_stages(1)", "schedule.pipeline_stages(5)",
    "schedule.async_copy(False)", "schedule.use_shared_memory(False)",
    "schedule.use_shared_memory(True, padding=1)", "schedule.swizzle(0)", "schedule.vectorize(1)",
    "schedule.unroll(4)", "schedule.warps(8)", "schedule.warp_specialize(False)",
    "schedule.persistent(True)", "schedule.cluster((1, 1))",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
@pytest.mark.sample(1)
def test_none_changes_a_result(line: str, target: str) -> None:
    case = Case(BY_NAME["product"], "bf16", [line], {"m": 65, "n": 130, "k": 97}, 1)
    outcome = tried(case, target)
    assert not outcome.wrong and not outcome.refused
