"""No kernel of the standard library keeps a guard, but where an index is data of the caller."""

from __future__ import annotations

import pytest

from tessera_lang.analysis.ranges.integer_ranges import ACCESSES
from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.driver.pipeline import TILE
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.modules import kernel_level
from tests.house.places import PACKAGES

LIBRARY = PACKAGES["tessera_stdlib"]
SIGNATURES = {
    "arrays": ("T=f32",),
    "elementwise": ("T=f32", "T=bf16", "S=i32, T=f32"),
    "layout": ("T=f32",),
    "reduce_kernels": (
        'how="sum", A=f32, T=f32, O=f32', 'how="max", V=f32, T=f32', 'how="max", V=f32',
        'how="sum", L=8, A=f32, T=f32, O=f32', 'how="max", L=8, V=f32, S=f32, T=f32',
    ),
    "scan_on_cpu": (
        'how="sum", exclusive=False, alone=True, rows=8, T=f32, A=f32, O=f32',
        'how="max", exclusive=False, alone=False, rows=8, T=f32, A=f32, O=f32',
        'how="sum", A=f32', 'how="sum", rows=8, A=f32, O=f32',
    ),
    "sort_on_cpu": (
        'kind="float", bits=32, T=f32, K=u32, W=u32',
        'kind="float", ties=True, bits=32, T=f32, K=u32', 'S=u32', 'bits=32, K=u32, S=u32',
        'pairs=True, bits=32, K=u32, S=u32, V=i64',
        'kind="float", pairs=True, bits=32, T=f32, K=u32, S=u32, V=i64',
    ),
    "reduce_parts": ('how="max", V=f32, T=f32, O=f32', 'how="max", V=f32, T=f32'),
}  # fmt: skip
"""For kernels that no test of their own file calls."""
DATA = {
    **{("sparse", k): {"x"} for k in ("matvec_into", "_matvec_stream", "_matvec_warps")},
    ("arrays", "_sums_of_bins"): {"order", "w"},
    ("arrays", "_pivot"): {"A", "B"}, ("arrays", "_eliminate"): {"A", "B"},
    ("arrays", "_substitute"): {"A", "B", "X"},
}  # fmt: skip
"""Arrays whose indices are read from memory, or are numbers of the call, so that nothing can prove
them."""


def guarded(name: str) -> dict[str, set[str]]:
    """Lane kernels of a file, with the arrays of which an access is guarded in some instance."""
    path, session = str(LIBRARY / f"{name}.tessera"), Session()
    session.check(path, SIGNATURES.get(name, ()))
    if name == "reduce_kernels":
        session.check(str(LIBRARY / "reduce.tessera"))
    found: dict[str, set[str]] = {}
    for program, plan in session.lowered(path):
        kernel = run_passes(program, TILE).operations[0]
        found.setdefault(plan.kernel, set()).update(
            operation.operands[ACCESSES[operation.name]].name
            for operation in kernel.walk()
            if operation.attributes.get("bounds") == "guarded"
        )
    lanes = {f.name for f in session.kernels(path) if kernel_level(f) == "lane"}
    assert set(found) == lanes, "a kernel was not looked at"
    return found


LONG = ("scan", "sort")
FILES = [
    pytest.param(p.stem, marks=[pytest.mark.slow] if p.stem in LONG else [])
    for p in sorted(LIBRARY.glob("*.tessera"))
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.sample(1)
def test_nothing_is_guarded(name: str) -> None:
    for kernel, arrays in guarded(name).items():
        assert arrays <= DATA.get((name, kernel), set()), kernel
