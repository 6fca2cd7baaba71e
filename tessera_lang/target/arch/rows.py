"""The architectures that code is made for: one row each. The only place that lists them.

Limits: CUDA programming guide, "compute capabilities"; features: PTX ISA, "target"; units and
memory: data sheets. Rates of sm_80, sm_90 and their neighbours were fitted to measurements
(docs/performance.md); those of sm_100 and later are data sheets' alone. Must not know who reads it.
"""

from __future__ import annotations

from tessera_lang.record import replace
from tessera_lang.target.arch.architecture import Architecture, Feature, Limits, Model, Rates

_KIB = 1 << 10

_AMPERE: tuple[Feature, ...] = ("cp_async", "mma")
_ADA: tuple[Feature, ...] = (*_AMPERE, "f8_mma")  # it has f8_convert from PTX 8.1 on
_HOPPER: tuple[Feature, ...] = (
    *_ADA, "f8_convert", "bf16_atomics", "stmatrix", "mbarrier", "bulk_copy", "tma", "cluster",
)  # fmt: skip
# Clusters of desktop devices share no copies, and their shared memory was never measured.
_DESKTOP_BLACKWELL: tuple[Feature, ...] = tuple(f for f in _HOPPER if f != "cluster")

_SERVER = Limits(64, 32, 164 * _KIB, 163 * _KIB)
_LARGE = replace(_SERVER, shared=228 * _KIB, group_shared=227 * _KIB)
_DESKTOP = Limits(48, 24, 100 * _KIB, 99 * _KIB)

_SM_90A = Architecture(
    "sm_90a", (9, 0), 81, "H100, H200", _LARGE, 132, (*_HOPPER, "setmaxnreg", "wgmma"),
    Rates(2048, 128, 128, 64, (50, 40), 2300, 26),
    models=(Model("H100", 3350, 1900), Model("H200", 4800, 2700)),
)  # fmt: skip
_SM_100 = Architecture(
    "sm_100", (10, 0), 86, "B200", _LARGE, 148, _HOPPER,
    Rates(4096, 128, 128, 64, (48, 31), 4000),
)  # fmt: skip
_SM_120 = Architecture(
    "sm_120", (12, 0), 87, "RTX 5090, RTX PRO 6000", _DESKTOP, 188, _DESKTOP_BLACKWELL,
    Rates(512, 128, 128, 32, (32, 20), 900),
)  # fmt: skip

ROWS: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture(
            "sm_80", (8, 0), 74, "A100", _SERVER, 108, _AMPERE,
            Rates(1024, 64, 128, 32, (32, 20), 1100),
        ),
        Architecture(
            "sm_86", (8, 6), 74, "A40, RTX 3090", replace(_DESKTOP, groups=16), 84, _AMPERE,
            Rates(512, 128, 128, 24, (24, 16), 520),
        ),
        Architecture(
            "sm_87", (8, 7), 74, "Orin", replace(_SERVER, warps=48, groups=16), 16, _AMPERE,
            Rates(512, 128, 128, 24, (24, 16), 150),
        ),
        Architecture(
            "sm_89", (8, 9), 78, "L40, RTX 4090", _DESKTOP, 142, _ADA,
            Rates(512, 128, 128, 32, (32, 20), 400),
        ),
        replace(
            _SM_90A, name="sm_90", ptx=78, features=_HOPPER, specific="sm_90a",
            rates=replace(_SM_90A.rates, matrix=1270),  # what products by warps reach
        ),
        _SM_90A,
        _SM_100,
        replace(_SM_100, name="sm_103", capability=(10, 3), ptx=88, devices="B300", units=160),
        replace(
            _SM_100, name="sm_110", capability=(11, 0), ptx=90, devices="Thor", units=20,
            limits=replace(_LARGE, warps=48, groups=24),
            rates=replace(_SM_100.rates, memory=170),
        ),
        _SM_120,
        replace(
            _SM_120, name="sm_121", capability=(12, 1), ptx=88, devices="GB10", units=48,
            rates=replace(_SM_120.rates, memory=110),
        ),
    )
}  # fmt: skip

MEMBERS: dict[str, int] = {
    "sm_88": 90, "sm_101": 86,
    "sm_100a": 86, "sm_101a": 86, "sm_103a": 88, "sm_110a": 90, "sm_120a": 87, "sm_121a": 88,
    "sm_100f": 88, "sm_101f": 88, "sm_103f": 88, "sm_110f": 90, "sm_120f": 88, "sm_121f": 88,
}  # fmt: skip
"""Further targets of PTX, with the lowest PTX ISA that has them: code for them is made by the row
of their family, as their own features are not used."""

OLDEST = ROWS["sm_80"]
