"""T0830 to T0859: calls, arrays, launches, the cache and built artifacts (the runtime).

Owns the rows only; the builders stand in ``tessera_backend.runtime`` beside the checks.
"""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0830", "argument-count", "A call gives too many, too few or unknown arguments."),
    Code("T0831", "not-an-array", "An argument is not something that a kernel can take."),
    Code("T0832", "argument-dtype", "An argument's element type is not the parameter's."),
    Code("T0833", "argument-rank", "An argument has another number of axes."),
    Code("T0834", "size-mismatch", "Two sizes that must be equal differ."),
    Code("T0835", "read-only-argument", "A `mut` parameter was given a read-only array."),
    Code("T0836", "overlapping-arguments", "A `mut` argument shares memory with another."),
    Code("T0837", "elements-share-memory", "Elements of a `mut` argument share memory."),
    Code("T0838", "condition-not-met", "A `where` condition does not hold for a call."),
    Code("T0839", "unknown-grid", "Nothing says how many groups to launch."),
    Code("T0840", "grid-too-large", "A launch has more groups than the target takes."),
    Code("T0841", "unusable-stride", "A stride or address is no multiple of the element size."),
    Code("T0842", "byte-order", "An array holds its numbers in the other byte order."),
    Code("T0843", "scalar-argument", "A number does not fit the parameter's type."),
    Code("T0844", "mixed-devices", "The arguments of a call live on different devices."),
    Code("T0845", "kernel-fault", "A kernel left the bounds of an array or divided by zero."),
    Code("T0846", "negative-size", "A size or number of groups is below 0, too large or unknown."),
    Code("T0847", "array-copied", "A host array is copied to the device for a launch."),
    Code("T0848", "cache-not-kept", "The compile cache is kept in memory only."),
    Code("T0849", "damaged-artifacts", "A folder of built artifacts cannot be used."),
    Code("T0850", "compile-time-argument", "A compile-time parameter got an unusable value."),
    Code("T0851", "stale-binding", "An array of a bound launch has moved to another address."),
    Code("T0852", "unusable-stream", "A stream is not one that the launch can use."),
    Code("T0853", "checked-fault", "A checked run found a race or a read of nothing written."),
    Code("T0854", "workspace-not-zero", "A kernel left a workspace as something else than zeros."),
    Code("T0855", "unmet-premise", "A call is not as the compiled code assumes."),
    Code("T0856", "thread-count", "A number of threads is not an integer from 1 to 256."),
    Code("T0857", "no-effect", "A kernel returns nothing and changes none of its arguments."),
    Code("T0858", "framework-operator", "A function cannot be an operator of PyTorch or JAX."),
    Code("T0859", "measurement", "A measurement is asked for in a way that cannot be made."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
