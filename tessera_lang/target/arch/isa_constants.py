"""What all architectures of NVIDIA have in common: numbers of the instruction set, no measurements.

The CUDA programming guide ("compute capabilities") and the PTX ISA say them. Must not know who
reads them; what differs between architectures is in ``rows``.
"""

from __future__ import annotations

WARP = 32
"""Lanes of a warp."""
WARP_GROUP = 4
"""Warps of a warp group, which multiply and set their registers together."""
GROUP_LANES = 1024
"""Lanes of a group, at most."""
CLUSTER_GROUPS = 8
"""Groups of a cluster, at most, on every machine that has clusters."""
LANE_REGISTERS = 255
"""Registers of a lane that instructions can name."""
REGISTER_UNIT = 8
"""Registers of a lane are given out in so many."""
LIMIT_REGISTERS = LANE_REGISTERS // REGISTER_UNIT * REGISTER_UNIT
"""The largest limit of registers that may be asked for."""
BANKS, BANK_BYTES = 32, 4
"""Banks of shared memory, and bytes of a word of each."""
LINE_BYTES, SECTOR_BYTES = 128, 32
"""Bytes of a line of the caches, and those of it that are moved at least."""
GROUP_BYTES = 1024
"""Bytes of shared memory that the system keeps for each group."""
VECTOR_BYTES = 16
"""Bytes of the widest access of a lane, and of what a swizzle moves as one."""
UNIT_ROWS = 64
"""Rows of an asynchronous product of one warp group."""
STEP_BYTES = 32
"""Bytes of the contraction that an instruction of the matrix units takes."""
COPY_BYTES = 4
"""Bytes of the smallest asynchronous copy of a lane."""
SWIZZLES, SWIZZLE_LINES = (128, 64, 32), 8
"""Bytes of the lines that the copy engine swizzles, the best first, and lines after which the
pattern repeats."""
MAP_BEFORE = 1 << 30
"""Elements before an array, where no box reaches it and 32 bits hold all coordinates."""
MAP_BOX = 256
"""Elements of a box along an axis, at most, that a tensor map describes."""
