"""How many groups of a kernel run on a device at once: what a persistent kernel starts.

Must not know plans.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tessera_backend.device.driver import Device

_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` of the driver's interface."""

    _fields_ = (
        ("grid_x", ctypes.c_uint), ("grid_y", ctypes.c_uint), ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint), ("block_y", ctypes.c_uint), ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute`` with the value of a cluster's sizes."""

    _fields_ = (
        ("identity", ctypes.c_int), ("padding", ctypes.c_int),
        ("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint),
        ("rest", ctypes.c_uint * 13),
    )  # fmt: skip


def resident_groups(
    device: Device, function: int, group: tuple[int, int, int], shared_bytes: int, cluster: int
) -> int:
    """Groups that run at once, a multiple of ``cluster`` (groups along x); at least one."""
    if cluster > 1:
        clusters = _clusters(device, function, group, shared_bytes, cluster)
        return max(clusters, 1) * cluster
    lanes = group[0] * group[1] * group[2]
    with device.current():
        each = device.driver.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, lanes, shared_bytes,
            action="asking how many groups run at once",
        )  # fmt: skip
    return max(int(each), 1) * device.units


def _clusters(
    device: Device, function: int, group: tuple[int, int, int], shared_bytes: int, cluster: int
) -> int:
    attribute = _Attribute(_CLUSTER_DIMENSION, 0, cluster, 1, 1)
    config = LaunchConfig(
        cluster, 1, 1, *group, shared_bytes, None, ctypes.addressof(attribute), 1
    )  # fmt: skip
    found = ctypes.c_int(0)
    with device.current():
        status = _query(device)(ctypes.addressof(found), function, ctypes.addressof(config))
    if status:
        raise device.driver.failure(status, "asking how many clusters run at once")
    return found.value


def _query(device: Device) -> Any:
    pointer = ctypes.c_void_p
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer)
    return prototype(device.driver.entry_point("cuOccupancyMaxActiveClusters"))
