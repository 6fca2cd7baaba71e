"""What stands behind an exit that a compile-time test decides is for other signatures: it is not
typed, in lanes and in tile kernels alike; what control still comes to is."""

from __future__ import annotations

import textwrap

import pytest

from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.types.dtype import F32, I32, DType
from tests.unit.sema.program import check as check_lanes
from tests.unit.sema.tile.programs import check as check_tiles

ROOT = "y[0] = math.sqrt(x[0])"  # wrong of whole numbers
FINE = "y[0] = x[0]"

ENDED: dict[str, str] = {
    "return": "if x.dtype == i32:\n    return\nROOT",
    "return behind work": "if x.dtype == i32:\n    FINE\n    return\nROOT",
    "the other side": "if x.dtype != i32:\n    ROOT\nelse:\n    return\nROOT",
    "both sides": "if x.dtype == f32:\n    ROOT\n    return\nelse:\n    FINE\n    return\nROOT",
    "elif": "if x.dtype == f16:\n    ROOT\nelif x.dtype == i32:\n    return\nelse:\n    FINE\nROOT",
    "nested": "if x.dtype == i32:\n    if x.dtype != f32:\n        FINE\n        return\nROOT",
    "nested twice": "if x.dtype == i32:\n    if x.dtype == f32:\n        FINE\n    else:\n"
                    "        if x.dtype == i32:\n            return\nROOT",
    "break": "for k in range(2):\n    if x.dtype == i32:\n        break\n    ROOT",
    "continue": "for k in range(2):\n    if x.dtype == i32:\n        FINE\n        continue\n"
                "    ROOT",
    "else continue": "for k in range(2):\n    if x.dtype != i32:\n        ROOT\n    else:\n"
                     "        continue\n    ROOT",
    "while": "k = 0\nwhile k < 2:\n    k += 1\n    if x.dtype == i32: break\n    ROOT",
    "loops in loops": "for k in range(2):\n    for q in range(3):\n        if x.dtype == i32:\n"
                      "            continue\n        ROOT\n    FINE",
    "behind a run-time test": "if x[0] > x[1]:\n    if x.dtype == i32:\n        return\n    ROOT",
    "not in lists": "if x.dtype in (i32, i16):\n    return\nROOT",
}  # fmt: skip

GOES_ON: dict[str, str] = {
    "behind the loop": "for k in range(2):\n    if x.dtype == i32:\n        break\n    FINE\nROOT",
    "behind continue": "for k in range(2):\n    if x.dtype == i32:\n        continue\n    FINE\n"
                       "ROOT",
    "the test is false": "if x.dtype == f32:\n    return\nROOT",
    "only one run-time side": "if x[0] > x[1]:\n    if x.dtype == i32:\n        return\nROOT",
    "outer loop": "for k in range(2):\n    for q in range(3):\n        if x.dtype == i32:\n"
                  "            break\n    ROOT",
    "the taken side": "if x.dtype == i32:\n    ROOT\n    return\nFINE",
}  # fmt: skip


def codes(body: str, dtype: DType, tiles: bool) -> list[str]:
    body = textwrap.indent(body.replace("ROOT", ROOT).replace("FINE", FINE), "    ")
    if tiles:
        text = f"@op.kernel\ndef k(x, y):\n{body}\n"
        array = f"{dtype} n"
        return [d.code for d in check_tiles(text, array, array).diagnostics if _is_error(d)]
    text = f"@kernel tile[(32,)] grid[(1,)]\ndef k(x, y):\n{body}\n"
    array = TensorArgument(dtype, 1)
    found = check_lanes(text, {"k": (array, array)})
    return [d.code for d in found.diagnostics if _is_error(d)]


def _is_error(d: object) -> bool:
    return getattr(d, "severity", "") == "error"


@pytest.mark.parametrize("tiles", [False, True], ids=["lanes", "tiles"])
@pytest.mark.parametrize("name", list(ENDED))
def test_what_is_behind_a_decided_exit_is_not_typed(name: str, tiles: bool) -> None:
    assert codes(ENDED[name], I32, tiles) == []
    assert codes(ENDED[name], F32, tiles) == []


@pytest.mark.parametrize("tiles", [False, True], ids=["lanes", "tiles"])
@pytest.mark.parametrize("name", list(GOES_ON))
def test_what_control_comes_to_is_typed(name: str, tiles: bool) -> None:
    assert codes(GOES_ON[name], I32, tiles), "a root of whole numbers is wrong"
    assert codes(GOES_ON[name], F32, tiles) == []


@pytest.mark.parametrize("tiles", [False, True], ids=["lanes", "tiles"])
@pytest.mark.parametrize("dtype", [F32, I32], ids=str)
def test_a_function_with_several_ways_out(dtype: DType, tiles: bool) -> None:
    function = (
        "def root(v):\n    if v.dtype == i32:\n        return v\n    if v.dtype == f32:\n"
        "        w = math.sqrt(v)\n        return w\n    return math.sqrt(v) + 1.0\n"
    )
    head = "@op.kernel\n" if tiles else "@kernel tile[(32,)] grid[(1,)]\n"
    text = f"{function}{head}def k(x, y):\n    y[0] = root(x[0])\n"
    if tiles:
        array = f"{dtype} n"
        assert not [d for d in check_tiles(text, array, array).diagnostics if _is_error(d)]
        return
    array = TensorArgument(dtype, 1)
    assert not [d for d in check_lanes(text, {"k": (array, array)}).diagnostics if _is_error(d)]
