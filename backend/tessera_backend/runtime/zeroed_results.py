"""Results that are zeros when their kernel begins.

Must not know plans, nor how memory was allocated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.loaded_code import Frame


def zeros_first(frame: Frame, zeroed: Sequence[tuple[int, int]], device: int) -> Frame:
    """The same block; what launches it first fills the arrays of these slots, of so many bytes,
    on the stream of the launch."""
    block, fire = frame
    if device == HOST:

        def on_the_host(stream: int) -> None:
            for slot, size in zeroed:
                ctypes.memset(block[slot], 0, size)
            fire(stream)

        return block, on_the_host

    from tessera_backend.device.driver import device as cuda_device
    from tessera_backend.device.memory import zero_function

    zero = zero_function(cuda_device(device))

    def on_the_device(stream: int) -> None:
        for slot, size in zeroed:
            zero(block[slot], size, stream)
        fire(stream)

    return block, on_the_device
