"""PTX of several kernels in one file: one header, and names that do not meet."""

from __future__ import annotations

import io
import re
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

from tessera_lang.driver.cli import run
from tessera_lang.target.ptx_merge import joined

FIRST = """\
.version 8.1
.target sm_90
.address_size 64

.visible .shared .align 16 .b8 shared[2048];
.global .align 4 .b8 table_0[4] = {1, 2, 3, 4};
.visible .entry a()
{
	mov.u32 %r1, shared;
	mov.u32 %r2, shared_1;
	ret;
}
"""
KERNELS = """\
@op.kernel
def soft(x: f32[n, m]) -> (f32[n, m], f32[m]):
    s = op.sum(x, axis=0)
    return x / s[None, :], s

@op.kernel
def product(x: f32[n, m], y: f32[m, k]) -> f32[n, k]:
    return x @ y

@kernel tile[(64,)] shared(1_KiB) grid[(1,)]
def turned(out: mut f32[64]):
    s = tshared.alloc((64,), f32)
    s[tile_linear_id()] = 1.0
    tbarrier()
    out[tile_linear_id()] = s[63 - tile_linear_id()]

@kernel tile[(64,)] shared(1_KiB) grid[(1,)]
def other(out: mut f32[64]):
    s = tshared.alloc((64,), f32)
    s[tile_linear_id()] = 2.0
    tbarrier()
    out[tile_linear_id()] = s[63 - tile_linear_id()]
"""


def test_headers_become_one() -> None:
    second = FIRST.replace("8.1", "8.6").replace("sm_90", "sm_90a").replace(" a()", " b()")
    both = joined([FIRST, second])
    assert re.findall(r"^\.version.*|^\.target.*", both, re.M) == [".version 8.6", ".target sm_90a"]
    assert both.count(".shared .align 16 .b8 shared[2048]") == 1
    assert both.count(".shared .align 16 .b8 shared__2[2048]") == 1
    assert both.count("mov.u32 %r1, shared;") == both.count("mov.u32 %r1, shared__2;") == 1
    assert both.count("shared_1;") == 2 and "table_0__2[4]" in both
    assert joined([FIRST]) == FIRST
    three = joined([FIRST, FIRST.replace(" a()", " b()"), FIRST.replace(" a()", " c()")])
    assert "shared__3[2048]" in three and three.count(".address_size") == 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kernels", [["soft"], ["turned", "other"], []])
@pytest.mark.sample(1)
def test_a_file_of_several_is_assembled(tmp_path: Path, arch: str, kernels: list[str]) -> None:
    """Kernels of one file, and the launches of one call."""
    tool = find_ptxas()
    if tool is None:
        pytest.skip("no ptxas here")
    (tmp_path / "k.tessera").write_text(KERNELS)
    out = tmp_path / "k.ptx"
    names = [f"--kernel={name}" for name in kernels]
    with redirect_stdout(io.StringIO()):
        assert run(["emit", str(tmp_path / "k.tessera"), "--stage=ptx", f"--arch={arch}", "-o",
                    str(out), *names]) == 0  # fmt: skip
    text = out.read_text()
    assert text.count(".version") == 1 and text.count(".entry") >= max(len(kernels), 2)
    path = str(getattr(tool, "path", tool))
    target = re.search(r"\.target (\w+)", text)
    assert target is not None
    done = subprocess.run([path, f"-arch={target[1]}", str(out), "-o", str(tmp_path / "k.cubin")],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
