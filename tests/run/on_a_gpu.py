"""Examples, standard library and tile kernels on a GPU, small: what compute-sanitizer watches.

compute-sanitizer --tool memcheck python tests/run/on_a_gpu.py [--fill] [examples sort nn tiles ...]

Results are compared too, so that a tool that changes the timing may show a race. The cache of
kernels makes a second run short. initcheck does not see what TMA writes: with ``--fill`` the memory
of every result holds NaNs from the start, so that the tool is quiet and the comparison shows what
was not written; only examples, products and tile kernels need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import tessera_lang as tessera
from tessera_lang.driver.cli import main as tesserac

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.run.library import LANES, MODULES, SIZES, calls_of  # noqa: E402

# Tiles that fit and tiles that are cut, copies by TMA and by lanes, products by wgmma and by
# mma.sync, persistent groups, clusters, groups of warps with roles.
SCHEDULES = (
    (),
    ("schedule.tile((128, 128, 64))", "schedule.pipeline_stages(3)",
     "schedule.warp_specialize(True)", "schedule.persistent(True)"),
    ("schedule.tile((64, 64, 64))", "schedule.cluster((2, 1))", "schedule.pipeline_stages(2)",
     "schedule.warp_specialize(True)"),
    ("schedule.warp_specialize(False)", "schedule.pipeline_stages(2)"),
    ("schedule.async_copy(False)", "schedule.use_shared_memory(True, padding=8)"),
)  # fmt: skip


def run_examples() -> None:
    """Every host program among the examples, in this process."""
    examples = ROOT / "examples"
    for file in (*sorted(examples.glob("*.tessera")), *sorted(examples.glob("*/[1-9]*.tessera"))):
        try:
            tesserac(["run", "--target", "cuda", str(file)])
        except SystemExit as end:
            assert not end.code, (file.name, end.code)


def run_library(*names: str) -> None:
    for name in names:
        for function, call in calls_of(name, "cuda").items():
            try:
                call()
            except Exception as error:
                raise AssertionError(f"std.{name}.{function}") from error


def run_tiles() -> None:
    """Tile kernels of the fuzzer under schedules, sums of small integers exactly."""
    from tests.fuzz.tile_schedules import KERNELS, Case, tried

    layouts = (("plain",) * 3, ("turned", "stepped", "reversed"))
    for kernel in KERNELS:
        for number, lines in enumerate(SCHEDULES):
            if not kernel.axes:
                lines = [line for line in lines if "tile(" not in line]
            sizes = dict(zip("mnk", SIZES[number % 2], strict=True), d=64)
            case = Case(kernel, "bf16", list(lines), sizes, number, layouts[number % 4 == 3])
            outcome = tried(case, "cuda")
            assert not outcome.wrong, f"{outcome.wrong}\n{case}"


def fill_memory() -> None:
    """From here on memory of a device holds NaNs where nobody has written yet."""
    from tessera_backend.device.driver import Device
    from tessera_backend.device.memory import DeviceMemory

    plain = DeviceMemory.__init__

    def filled(self: DeviceMemory, device: Device, size: int, stream: int = 0) -> None:
        plain(self, device, size, stream)
        if size:
            with device.current():
                device.driver.call("cuMemsetD8Async", self.pointer, 0xFF, size, stream)

    DeviceMemory.__init__ = filled


PARTS: dict[str, Callable[[], None]] = {
    "examples": run_examples,
    "lanes": lambda: run_library(*LANES),
    **{build.__name__: lambda name=build.__name__: run_library(name)
       for build in MODULES if build.__name__ not in LANES},
    "tiles": run_tiles,
}  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    if "--fill" in arguments:
        fill_memory()
    for name in [a for a in arguments if a != "--fill"] or PARTS:
        PARTS[name]()
        tessera.synchronize()
        print(f"{name} ran")


if __name__ == "__main__":
    main(sys.argv[1:])
