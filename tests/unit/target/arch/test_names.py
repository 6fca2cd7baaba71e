"""What names and devices mean: rows, members of families, models, and where code runs."""

from __future__ import annotations

from itertools import product

import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.arch import (
    FEATURES,
    MEMBERS,
    ROWS,
    architecture_named,
    architecture_of,
    capability_of,
    find_architecture,
    is_gpu_name,
    name_of,
    runs_on,
    specific_to,
)
from tessera_lang.target.machine import machine_named

UNKNOWN = ["sm_75", "sm_130", "sm_13", "sm_80x", "sm_", "sm_90A", "gfx90a", "90", "", "sm_80a",
           "sm_123a", "sm_91f", "compute_90", "H20"]  # fmt: skip


@pytest.mark.parametrize("name", [*ROWS, *MEMBERS])
def test_a_known_name_keeps_its_name(name: str) -> None:
    row = architecture_named(name)
    assert row.name == name
    assert row.capability == capability_of(name)
    assert row.ptx >= MEMBERS.get(name, 0)


@pytest.mark.parametrize("name", UNKNOWN)
def test_another_name_is_refused_with_those_there_are(name: str) -> None:
    assert find_architecture(name) is None
    with pytest.raises(TesseraError) as caught:
        machine_named("cuda", name)
    (found,) = caught.value.diagnostics
    assert found.code == "T0880"
    assert all(row in found.notes[0] for row in ROWS)


@pytest.mark.parametrize(("major", "minor"), list(product((8, 9, 10, 11, 12), range(10))))
def test_any_member_of_a_family_is_compiled_by_an_older_row(major: int, minor: int) -> None:
    """What it may use and the room that it has are those of its family at least."""
    found = architecture_of((major, minor))
    family = [a for a in ROWS.values() if a.capability[0] == major]
    assert found.capability[0] == major and found.capability <= (major, minor)
    assert runs_on(found.name, (major, minor), machine_code=True)
    if name_of((major, minor)) not in ROWS:
        assert found.limits.group_shared == min(a.limits.group_shared for a in family)
        assert found.limits.warps == min(a.limits.warps for a in family)
        older = [a for a in family if a.capability <= (major, minor)]
        assert set(found.features) <= set.union(*(set(a.features) for a in older))
        assert specific_to(found) is found, "code for another architecture alone does not run there"


def test_newer_members_of_a_family_can_do_what_older_ones_can() -> None:
    """A member without a row is compiled as an older one, so nothing may get lost."""
    rows = [a for a in ROWS.values() if a.name == name_of(a.capability)]
    for a, b in product(rows, rows):
        if a.capability[0] == b.capability[0] and a.capability < b.capability:
            assert set(a.features) <= set(b.features), (a.name, b.name)


@pytest.mark.parametrize("capability", [(7, 5), (13, 0), (6, 1)])
def test_a_device_of_no_family_is_refused(capability: tuple[int, int]) -> None:
    with pytest.raises(TesseraError) as caught:
        architecture_of(capability)
    assert caught.value.diagnostics[0].code == "T0880"


def test_only_the_specific_row_has_asynchronous_products() -> None:
    for row in ROWS.values():
        assert row.has("wgmma") == row.has("setmaxnreg") == (row.name == "sm_90a")
    assert set(FEATURES) == {f for row in ROWS.values() for f in row.features}


def test_tile_kernels_of_the_general_row_are_made_for_the_specific_one() -> None:
    assert specific_to(architecture_named("sm_90")).name == "sm_90a"
    assert specific_to(architecture_named("sm_91")).name == "sm_90"  # whose code runs on 9.1 too
    assert specific_to(architecture_named("sm_100")).name == "sm_100"


@pytest.mark.parametrize(
    ("name", "bandwidth", "wanted"),
    [
        ("NVIDIA H100 80GB HBM3", 0.0, "H100"),
        ("NVIDIA H100 80GB HBM3", 3352.0, "H100"),
        ("NVIDIA H200", 4917.0, "H200"),
        ("NVIDIA H100 PCIe", 2039.0, "H100"),
        ("NVIDIA GH200 480GB", 4022.0, "H100"),  # HBM3
        ("NVIDIA GH200 144G HBM3e", 4915.0, "H200"),
        ("Graphics Device", 4917.0, "H200"),
        ("Graphics Device", 0.0, None),
    ],
)
def test_a_device_is_known_by_its_name_or_its_memory(
    name: str, bandwidth: float, wanted: str | None
) -> None:
    found = architecture_of((9, 0)).model_of_device(name, bandwidth)
    assert (found.name if found else None) == wanted


def test_a_model_is_its_architecture_with_its_own_memory() -> None:
    usual, h100, h200 = (machine_named("cuda", n) for n in ("sm_90", "H100", "h200"))
    assert (h100.arch, h200.arch) == ("sm_90", "sm_90")
    assert h100.rates.memory < usual.rates.memory < h200.rates.memory
    assert h200.model == "H200" and not usual.model
    assert is_gpu_name("h200") and is_gpu_name("sm_75") and not is_gpu_name("znver4")


def test_models_of_an_architecture_are_those_of_its_specific_one() -> None:
    for row in ROWS.values():
        assert specific_to(row).models == row.models


@pytest.mark.parametrize(
    ("name", "capability", "ptx", "machine_code"),
    [
        ("sm_80", (8, 0), True, True),
        ("sm_80", (8, 6), True, True),
        ("sm_80", (9, 0), True, False),
        ("sm_86", (8, 0), False, False),
        ("sm_90a", (9, 0), True, True),
        ("sm_90a", (9, 1), False, False),
        ("sm_90a", (10, 0), False, False),
        ("sm_100f", (10, 3), True, True),
        ("sm_100f", (12, 0), False, False),
        ("sm_103f", (10, 0), False, False),
        ("sm_103", (10, 0), False, False),
        ("sm_103", (12, 0), True, False),
        ("H200", (9, 0), True, True),
        ("znver4", (9, 0), False, False),
    ],
)
def test_where_code_runs(
    name: str, capability: tuple[int, int], ptx: bool, machine_code: bool
) -> None:
    assert runs_on(name, capability, machine_code=False) == ptx
    assert runs_on(name, capability, machine_code=True) == machine_code
