"""What a launch takes of a GPU, in cycles: ``LAUNCH_CYCLES`` of the table of constants.

Run: python -m benchmarks.launch_cycles
A kernel of one warp that writes one number, launched through everything that a call has. Between
two events stand many launches that wait in the queue behind a kernel that spins, so that the host
is no part of it; then one launch alone, less two events with nothing between. Cycles are those in
which a kernel of a known number of them spins. What a launch takes in a queue is what a kernel
adds to a program, so that is the number for the constant.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import tessera_lang as tessera
from tessera_lang.target.tuned_constants import LAUNCH_CYCLES

LAUNCHES, RUNS = 500, 21
SPIN = 40_000_000
"""Cycles for which the queue fills: some 20 ms, in which the host launches 500 times."""
SOURCE = """\
@kernel grid[(1,)] tile[(32,)]
def nothing(x: mut f32[1]):
    if lane_id() == 0:
        x[0] = 1.0
"""


def elapsed(step: Callable[[], object], spin: int = 0) -> float:
    """Seconds of the device between two events around a step, behind a kernel that spins."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if spin:
        torch.cuda._sleep(spin)
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def median(step: Callable[[], object], spin: int = 0) -> float:
    return statistics.median(elapsed(step, spin) for _ in range(RUNS))


def main() -> None:
    import torch

    x = torch.zeros(1, device="cuda")
    launch = tessera.compile(SOURCE, target="cuda").nothing.bind(x)
    launch()
    assert x.item() == 1.0
    clock = SPIN / median(lambda: torch.cuda._sleep(SPIN))

    def many() -> None:
        for _ in range(LAUNCHES):
            launch()

    queued = median(many, SPIN) / LAUNCHES
    alone = median(launch, SPIN) - median(lambda: None, SPIN)
    name = torch.cuda.get_device_name()
    print(f"{name}, {clock / 1e6:.0f} MHz")
    for what, seconds in (("in a queue", queued), ("alone", alone)):
        print(f"a launch {what}: {1e6 * seconds:.2f} us = {seconds * clock:.0f} cycles")
    print(f"LAUNCH_CYCLES is {LAUNCH_CYCLES:.0f}; measured in a queue: {queued * clock:.0f}")


if __name__ == "__main__":
    main()
