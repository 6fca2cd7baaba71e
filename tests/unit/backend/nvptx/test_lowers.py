"""Every row of the table of intrinsics is compiled and assembled.

LLVM ends the process on what it cannot select, so this runs in a child of its own.
"""

from __future__ import annotations

import subprocess
import sys

from tessera_backend.nvptx.lanes.target_hooks import LOWERS
from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas

from tessera_lang.target.arch import architecture_named
from tests.unit.backend.nvptx.kernels import needs_ptxas

_OPERANDS = {"fma": 3, "minimum": 2, "maximum": 2}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def _calls() -> list[tuple[str, str, str]]:
    """Result type, name and argument list of one call a row."""
    found: list[tuple[str, str, str]] = []
    for intrinsic, kinds in sorted(LOWERS.items()):
        for kind in sorted(kinds):
            suffix = _SUFFIX.get(kind, kind)
            if intrinsic.endswith(".sat"):
                found += [
                    (f"i{bits}", f"llvm.{intrinsic}.i{bits}.{suffix}", kind)
                    for bits in (8, 16, 32, 64)
                ]
            elif intrinsic == "ctlz":
                found.append((kind, f"llvm.ctlz.{suffix}", f"{kind}, i1"))
            else:
                arguments = ", ".join([kind] * _OPERANDS.get(intrinsic, 1))
                found.append((kind, f"llvm.{intrinsic}.{suffix}", arguments))
    return found


def _module() -> str:
    parts = ['target triple = "nvptx64-nvidia-cuda"']
    for number, (result, name, arguments) in enumerate(_calls()):
        kinds = arguments.split(", ")
        parameters = ", ".join(f"{k} %a{i}" for i, k in enumerate(kinds) if k != "i1")
        given = ", ".join("i1 false" if k == "i1" else f"{k} %a{i}" for i, k in enumerate(kinds))
        parts.append(f"declare {result} @{name}({arguments})")
        parts.append(
            f"define ptx_kernel void @k{number}(ptr addrspace(1) %o, {parameters}) {{\n"
            f"  %r = call {result} @{name}({given})\n"
            f"  store {result} %r, ptr addrspace(1) %o\n  ret void\n}}"
        )
    return "\n".join(parts)


def main() -> None:
    tool = find_ptxas()
    assert tool is not None
    for name in ("sm_80", "sm_120"):
        arch = architecture_named(name)
        ptx = translate(_module(), arch).ptx
        assert "call" not in ptx, "a library call was made"
        assert assemble(tool, ptx, name).cubin


@needs_ptxas
def test_every_row_of_the_table_lowers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.backend.nvptx.test_lowers"],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    main()
