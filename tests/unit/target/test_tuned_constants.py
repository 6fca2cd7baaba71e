"""Numbers that were measured or chosen are in one module, each with its unit, machine and page;
elsewhere a number of a module is small, or one of structure that is listed here with a reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tessera_lang.ir.tile import tile_rules
from tessera_lang.target import tuned_constants
from tessera_lang.target.arch import isa_constants

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("tessera_lang/opt", "tessera_lang/lower", "backend/tessera_backend/nvptx",
         "tessera_lang/analysis/resources")  # fmt: skip
MODULES = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py")) if p.stem != "tuning"]
MEASURED = re.compile(
    r"\bmeasured|\b[HAB][12]00\b|\d us\b|\d %|\d\.\d+ of a copy|\bslower\b|\bfaster\b"
)


def numbers_of(value: ast.expr) -> list[int | float]:
    """The numbers of a literal, however they are nested; none of what is called or named."""
    match value:
        case ast.Constant(value=int() | float() as n) if not isinstance(n, bool):
            return [n]
        case ast.UnaryOp(operand=x):
            return numbers_of(x)
        case ast.BinOp(left=a, right=b):
            return [*numbers_of(a), *numbers_of(b)]
        case ast.Tuple(elts=held) | ast.List(elts=held) | ast.Dict(values=held):
            return [n for x in held for n in numbers_of(x)]
        case _:
            return []


@cache
def constants(path: Path) -> list[tuple[str, list[int | float], str]]:
    """The numbers of a module: name, values, and what stands beside or below them."""
    text = path.read_text(encoding="utf-8")
    lines, body = text.splitlines(), ast.parse(text).body
    found: list[tuple[str, list[int | float], str]] = []
    for i, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        numbers = numbers_of(node.value)
        if numbers:
            said = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            behind = body[i + 1] if i + 1 < len(body) else None
            if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
                said += str(behind.value.value)
            found.append((ast.unparse(node), numbers, said))
    return found


SMALL = 8
STRUCTURE = {
    "lower/ast_to_graph/derivative.py:MOST_GRAPHS": "that are kept, as recorded calls are",
    "lower/ast_to_schedule/sort_calls.py:_HALF": "bits of a place beside a key in an i64",
    "opt/schedule/canonical/transpose_products.py:_MANY": "rows of which nothing is known",
    "opt/schedule/cost/lane_sized_iterations.py:_MOST_LOOKED_AT": "parts of a number that are read",
    "opt/tile/delinearize_lane_axis.py:_FEWEST": "lanes of a warp: a row of fewer is no warp's",
    "opt/schedule/query/alignment.py:_ALL": "divides 0",
    "opt/schedule/query/float_ranges.py:_DEEP": "beyond it nothing is known",
    "opt/schedule/query/index_forms.py:_FAR": "no index is further from 0",
    "opt/schedule/query/index_forms.py:_MOST_TERMS": "of a product of two sums",
    "opt/schedule/query/monotone_conditions.py:_NEAR_BITS": "of 64, with places for sums of three",
    "opt/schedule/query/monotone_conditions.py:_SIZE_BITS": "an address has no more",
    "opt/schedule/query/scalar_facts.py:MOST": "divisors beyond it are of no interest",
    "opt/schedule/query/staging_rings.py:SLOT_BARRIERS": "bytes of two barriers of 8",
    "opt/schedule/query/staging_rings.py:STORE_LINES": "two of the swizzles",
    "opt/schedule/query/warp_grids.py:_MMA": "rows and columns of an instruction",
    "opt/tile/shared_allocation.py:SWIZZLE_ALIGNMENT": "bytes after which a swizzle repeats",
    "lower/ast_to_schedule/demand_driven_evaluation.py:MOST_PARTS": "beyond it a kernel is refused",
    "lower/ast_to_schedule/flip_concat_nodes.py:MOST_COMPARED": "beyond it a slice is refused",
    "lower/ast_to_schedule/reduction_calls.py:_FAR": "no place is there",
    "lower/schedule_to_tile/lowering.py:MOST_INSTRUCTIONS": "beyond it other loops are taken",
    "lower/graph_to_kernels/overflow_proofs.py:FACTOR": "room that sums have, of the range of f32",
    "lower/graph_to_kernels/running_normalizers.py:_LEAST": "quotients are floats, by dtype",
    "lower/graph_to_kernels/running_normalizers.py:_MOST": "the same",
    "lower/ast_to_tile/uniform_conditions.py:_MOST": "beyond it a condition stays as it is",
    "lower/ast_to_tile/slice_reductions.py:_LONGEST": "no axis has more elements",
    "lower/schedule_to_tile/lowering.py:_WARPS": "what tiles are spread over",
    "nvptx/hopper/fragments.py:_MOST_COLUMNS": "of an instruction",
    "nvptx/hopper/rules.py:_PTX": "a version",
    "nvptx/hopper/tma.py:_HINTS": "codes of the instruction set",
    "nvptx/hopper/wgmma.py:_MOST_OPERANDS": "of one piece of assembly, for ptxas",
    "nvptx/hopper/wgmma.py:_NEVER": "bits that no number of a program has by chance",
    "nvptx/hopper/wgmma.py:_WINDOW": "bits of an address",
    "nvptx/lanes/target_hooks.py:_BULK_PTX": "a version",
    "nvptx/lanes/target_hooks.py:_CONSTANT_BANK": "bytes of the hardware",
    "nvptx/lanes/warp.py:_TABLE": "cells, one for each byte",
    "nvptx/tiles/global_memory.py:_ALL, _NONE": "all and no columns",
    "nvptx/tiles/mma.py:_F8_PTX": "a version",
    "nvptx/tiles/reciprocal_division.py:TOGETHER": "a quarter of the tile that a warp group stores",
    "nvptx/tiles/reciprocal_division.py:_SPAN": "no step of theirs has a subnormal",
    "nvptx/tiles/shared_addressing.py:_SWIZZLED": "bytes after which a swizzle repeats",
    "nvptx/toolchain/nvidia_tools.py:TIMEOUT_SECONDS": "beyond it a program of others hangs",
    "nvptx/toolchain/nvidia_tools.py:_PROBE_SECONDS": "the same of a question to it",
}
"""Numbers above ``SMALL`` that no measurement would change, each with what it is."""


def large_numbers() -> Iterator[str]:
    for path in MODULES:
        room = path.relative_to(ROOT).as_posix()
        room = room.removeprefix("tessera_lang/").removeprefix("backend/tessera_backend/")
        for text, numbers, _ in constants(path):
            if any(abs(n) > SMALL for n in numbers):
                yield f"{room}:{text.partition('=')[0].partition(':')[0].strip(' ()')}"


def test_large_numbers_are_tuned_or_of_structure() -> None:
    found = set(large_numbers())
    assert found - set(STRUCTURE) == set(), (
        "to target/tuned_constants.py, target/arch, or here with a reason"
    )
    assert set(STRUCTURE) - found == set(), "they are gone"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_measured_number_outside_the_module(path: Path) -> None:
    """A fraction is never structure, nor is what a comment calls measured."""
    for text, numbers, said in constants(path):
        assert all(isinstance(n, int) for n in numbers), f"{path.stem}: {text} belongs to tuning"
        assert not MEASURED.search(said), f"{path.stem}: {text} belongs to tuning"


def test_the_rule_sees_measured_numbers(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(
        'A = {1: (0, 0.5)}\nB = 3\n"""Three were slower."""\nC = 8  # 132 us for 140\nD = 4\n'
    )
    (_, a, _), (_, _, b), (_, _, c), (_, _, d) = constants(path)
    assert a == [0, 0.5]
    assert [bool(MEASURED.search(x)) for x in (b, c, d)] == [True, True, False]


def headings(page: str) -> set[str]:
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", t).replace(" ", "-") for t in titles}


def test_every_value_says_its_unit_machine_and_page() -> None:
    for m in tuned_constants.MEASUREMENTS:
        page, _, heading = m.page.partition("#")
        assert m.unit and m.machine and m.what, m
        assert heading in headings(page), m.page


def test_every_number_of_the_module_is_such_a_value() -> None:
    body = ast.parse(Path(tuned_constants.__file__).read_text(encoding="utf-8")).body
    values = {
        t.id: getattr(tuned_constants, t.id)
        for node in body if isinstance(node, ast.Assign)
        for t in node.targets if isinstance(t, ast.Name) and t.id.isupper() and t.id[0] != "_"
    }  # fmt: skip
    assert list(values.values()) == [m.value for m in tuned_constants.MEASUREMENTS]


def test_every_value_is_used() -> None:
    counts = Counter(
        word for p in MODULES for word in re.findall(r"\w+", p.read_text(encoding="utf-8"))
    )
    body = ast.parse(Path(tuned_constants.__file__).read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and "_measured(" in ast.unparse(node.value):
            (target,) = node.targets
            name = ast.unparse(target)
            assert counts[name] > 1, f"{name} is only imported"


def test_the_instruction_set_is_said_once() -> None:
    """The IR stands below the architectures and has a warp of its own."""
    assert tile_rules.WARP == isa_constants.WARP
    for path in MODULES:
        for text, _, _ in constants(path):
            assert not re.match(r"_?(WARP|BANKS) = ", text), path
