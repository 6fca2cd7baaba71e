"""P10: performance of kernels. Shown where asked for; nothing here is wrong."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("P1001", "bank-conflict", "Lanes of a warp wait for one bank of shared memory."),
    Code("P1002", "uncoalesced-access", "A warp touches far more sectors than its data fills."),
    Code("P1003", "occupancy", "How many groups fit on a multiprocessor at once."),
    Code("P1004", "guard-kept", "An access is compared with the bounds of its array at run time."),
    Code(
        "P1005", "kernel-not-seen", "Nothing says for which arguments a kernel is to be looked at."
    ),
    Code("P1006", "constant-array", "Where lanes read a `const` array from."),
    Code("P1007", "unused-ignore", "A comment ignores a diagnostic that is not told there."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
