"""What a kernel under a schedule becomes on a GPU, in numbers: of Tile IR, the plan and PTX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import BufferType, Program
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan
from tests.fuzz.tile_programs import signature_text
from tests.fuzz.tile_schedules import Kernel, program_of

_PATH = "kernel.tessera"


class Code:
    """One kernel for an architecture. Raises TesseraError where its schedule is refused."""

    def __init__(
        self, kernel: Kernel, lines: Sequence[str], arch: str, dtype: str = "bf16", size: int = 1024
    ) -> None:
        program = program_of(kernel, dtype, lines)
        session = Session(overlay={_PATH: program.text()})
        sizes = {"m": size, "n": size, "k": size, "d": 64}
        wanted = session.signature(_PATH, "kernel", signature_text(program, sizes))
        machine = session.machine("cuda", arch)
        made = session.for_machine(_PATH, "kernel", wanted, machine)
        self.program: Program
        self.plan: LaunchPlan
        self.program, self.plan = session.tile(_PATH, "kernel", wanted, machine)
        options = TargetOptions("cuda", machine.arch)
        artifact = session.compile_kernel(_PATH, "kernel", wanted, options, ("ptx",))
        self.remarks = [f"{d.code} {d.message}" for d in made.remarks]
        self.ptx = re.sub(
            r"^\s*(//|\.loc|\.file).*$", "", artifact.texts["ptx"], flags=re.MULTILINE
        )
        self.resources = artifact.resources
        self.diagnostics = artifact.diagnostics

    def buffers(self) -> list[BufferType]:
        values = (v for o in self.program.walk() for v in o.results)
        return [v.type for v in values if isinstance(v.type, BufferType)]

    def stages(self) -> list[int]:
        """The depths of the rings."""
        return [b.shape[0] for b in self.buffers() if len(b.shape) == 3 and b.layout is not None]

    def layouts(self) -> list[tuple[int, int, int]]:
        """Panel, pitch and swizzle of every buffer that has them."""
        found = (b.layout for b in self.buffers())
        return [(x.panel, x.pitch, x.swizzle) for x in found if x is not None]

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.ptx))

    @property
    def tma_loads(self) -> int:
        return self.count(r"cp\.async\.bulk\.tensor[^\n]*shared::cluster\.global")

    @property
    def async_copies(self) -> int:
        return self.count(r"cp\.async\.c[ag]")

    @property
    def wgmma(self) -> int:
        return self.count(r"wgmma\.mma_async")

    def reported(self, directive: str) -> bool:
        return any(r.startswith("T0742") and directive in r for r in self.remarks)
