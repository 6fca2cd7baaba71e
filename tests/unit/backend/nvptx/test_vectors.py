"""Neighbours that a lane reads and writes one by one become one instruction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.target.backend import TargetOptions

LOOPS = {
    "counted": """
    for i in range(grid_tile_linear_id() * 4, n - 3, grid_tile_count() * 4):
        out[i] = x[i] + 1.0
        out[i + 1] = x[i + 1] + 2.0
        out[i + 2] = x[i + 2] + 3.0
        out[i + 3] = x[i + 3] + 4.0
""",
    "turns": """
    kept = tlocal.alloc((4,), f32)
    for i in range(grid_tile_linear_id() * 4, n - 3, grid_tile_count() * 4):
        for k in range(4): kept[k] = x[i + k]
        for k in range(4): out[i + k] = kept[3 - k]
""",
    "while": """
    i = grid_tile_linear_id() * 4
    while i < n - 3:
        out[i] = x[i] + 1.0
        out[i + 1] = x[i + 1] + 2.0
        out[i + 2] = x[i + 2] + 3.0
        out[i + 3] = x[i + 3] + 4.0
        i += grid_tile_count() * 4
""",
    "array": """
    kept = tlocal.alloc((2, 4), f32)
    first = group_linear_id() * 1024 + tile_linear_id() * 4
    if group_linear_id() * 1024 + 1024 <= n:
        for s in range(2):
            for k in range(4): kept[s, k] = x[first + s * 512 + k]
        for s in range(2):
            for k in range(4): out[first + s * 512 + k] = kept[1 - s, k]
""",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_neighbours_are_one_access(tmp_path: Path, name: str, small: bool) -> None:
    """Also where indices have 32 bits, of which LLVM must see that they are neighbours."""
    path, session = tmp_path / "k.tessera", Session()
    grid = "" if name == "array" else " grid[(min(ceil_div(n, 512), 264),)]"
    head = f"@kernel tile[(128,)]{grid}\ndef k(x: f32[n], out: mut f32[n]):"
    path.write_text(head + LOOPS[name])
    signature = tuple(
        replace(a, aligned=True, small=small) if isinstance(a, TensorArgument) else a
        for a in session.signature(str(path), "k", "x: f32[n], out: mut f32[n]")
    )
    options = TargetOptions("cuda", "sm_90")
    ptx = session.compile_kernel(str(path), "k", signature, options, ("ptx",)).texts["ptx"]
    loads, stores = (
        [line.split()[0] for line in ptx.splitlines() if f"\t{what}.global" in line]
        for what in ("ld", "st")
    )
    assert set(loads) == {"ld.global.nc.v4.b32"}
    assert set(stores) == {"st.global.v4.b32"}
