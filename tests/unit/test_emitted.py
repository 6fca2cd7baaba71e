"""What ``tests.run.emitted`` compares: every kernel there is, and any difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.evaluate.modules import kernel_level
from tests.run.emitted import compare, emit, lane_kernels
from tests.run.emitted_cases import lane_files, tile_cases


def test_every_tile_kernel_is_listed() -> None:
    listed = {(case.path, case.kernel) for case in tile_cases()}
    for path in lane_files().values():
        for function in Session().kernels(str(path)):
            if kernel_level(function) == "tile":
                assert (str(path), function.name) in listed, (path.name, function.name)


@pytest.mark.slow
def test_every_lane_kernel_has_a_signature() -> None:
    for path in lane_files().values():
        session = Session()
        known = {kernel for kernel, _ in lane_kernels(session, path)}
        lanes = {f.name for f in session.kernels(str(path)) if kernel_level(f) == "lane"}
        assert lanes == known, path.name


def test_a_difference_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for out in (before, after):
        assert emit(out, ("sm_90a",), ["sum_reduce"], 1) == 3
    assert compare(before, after, ["ptx", "tile", "plan"], 3) == 0
    one = next(after.glob("*/*.ptx"))
    one.write_text(one.read_text().replace("sm_90", "sm_91"))
    assert compare(before, after, ["tile", "plan"], 3) == 0
    assert compare(before, after, ["ptx", "tile"], 3) == 1
    one.unlink()
    assert compare(before, after, ["ptx"], 3) == 1
    shown = capsys.readouterr().out
    assert "-.target sm_90" in shown and f"only in {before}" in shown
