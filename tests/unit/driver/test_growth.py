"""What a program costs grows as the program does: calls of functions are counted, not seconds.

A program of a kind is made with n, 2n and 4n parts. The second doubling may add a little more than
twice what the first one added; what grows with the square of a program adds four times that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera_lang.driver.session import Session
from tests.unit.driver.growing_programs import LANE, NESTS, TILE, Maker, tile

MOST = 2.7


def calls(work: Callable[[], object]) -> int:
    """Calls of Python functions that a piece of work makes."""
    count = 0

    def see(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def checked(text: str) -> Session:
    session = Session()
    session.set_text("program.tessera", text, 1)
    found = [d for d in session.check("program.tessera") if d.severity == "error"]
    assert not found, found[0]
    return session


def lowered(session: Session, target: str = "", arch: str = "") -> object:
    """The passes of the kernel; nothing of LLVM."""
    signature = session.signature("program.tessera", "f")
    machine = session.machine(target, arch) if target else None
    return session.tile("program.tessera", "f", signature, machine)


def growth(make: Maker, n: int, work: Callable[[str], object]) -> float:
    """How much more the second doubling adds than the first."""
    work(make(2))  # what is imported and remembered once
    a, b, c = (calls(lambda k=k: work(make(k))) for k in (n, 2 * n, 4 * n))
    return (c - b) / max(1, b - a)


@pytest.mark.parametrize("kind", LANE)
@pytest.mark.sample(3)
def test_lane_kernels(kind: str) -> None:
    # From 32 stores on, places of a group meet those of the next one, whose lanes are compared too:
    # a step, which is the same for all programs behind it.
    few = 64 if kind.startswith("guards") else 8
    assert growth(LANE[kind], few, lambda text: lowered(checked(text))) < MOST


@pytest.mark.parametrize("kind", TILE)
@pytest.mark.sample(1)
def test_tile_kernels(kind: str) -> None:
    assert growth(TILE[kind], 4, checked) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in TILE if kind != "products"])
@pytest.mark.parametrize(("target", "arch"), [("cpu", "native"), ("cuda", "sm_90")])
def test_tile_kernels_for_machines(kind: str, target: str, arch: str) -> None:
    assert growth(TILE[kind], 4, lambda text: lowered(checked(text), target, arch)) < 2 * MOST


@pytest.mark.parametrize("kind", NESTS)
@pytest.mark.sample(1)
def test_nests(kind: str) -> None:
    """Of a nest every part may be looked at from all that is around it."""
    assert growth(NESTS[kind], 4, checked) < 2 * MOST


@pytest.mark.slow
def test_more_products_are_no_more_choices_of_tiles() -> None:
    """Each product doubled the sizes that were compared."""
    few, many = (
        calls(lambda n=n: lowered(checked(TILE["products"](n)), "cuda", "sm_90")) for n in (4, 12)
    )
    assert many < 8 * few


def test_files_that_import_two_others(tmp_path: Path) -> None:
    """Twice as many files are twice as much work, though the ways to each are as many as its
    Fibonacci number."""
    for j in range(32):
        lines = [f"from m{k} import g{k}" for k in (j - 1, j - 2) if k >= 0]
        lines += [f"def g{j}(v):", f"    return {f'g{j - 1}(v)' if j else 'v'} * 1.5"]
        (tmp_path / f"m{j}.tessera").write_text("\n".join(lines) + "\n")
    session = Session()
    session.check(str(tmp_path / "m1.tessera"))
    few = calls(lambda: Session().check(str(tmp_path / "m15.tessera")))
    many = calls(lambda: Session().check(str(tmp_path / "m31.tessera")))
    assert many < 3 * few


def test_a_chain_of_reductions_without_capacity_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them computes all before it again."""
    monkeypatch.setattr(
        "tessera_lang.lower.ast_to_schedule.demand_driven_evaluation.MOST_PARTS", 1000
    )
    session = Session()
    lines = ["for i in op.tile_range(m, step=1):", "    r = x[i, :]"]
    lines += ["    r = r - op.max(r)"] * 60 + ["    out[i, :] = r"]
    text = tile(lines, "x: f32[m, n], out: mut f32[m, n]")
    session.set_text("program.tessera", text, 1)
    assert [d.code for d in session.check("program.tessera")] == ["T0316"]
