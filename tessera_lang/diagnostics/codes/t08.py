"""T08: the host program, the runtime and the world around it.

T0801 to T0829: the host program and files (``evaluate``, ``driver``). T0830 to T0859: calls
and arrays (the runtime). T0860 to T0899: devices, drivers and tools (the backends).
"""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0801", "host-fault", "An operation of the host program cannot be done."),
    Code("T0802", "host-overflow", "A host integer left the range of 64 bits."),
    Code("T0803", "host-arithmetic", "An operator does not take these host values."),
    Code("T0804", "host-call", "A call in the host program does not fit what is called."),
    Code("T0805", "assertion-failed", "A host `assert` was false."),
    Code("T0806", "recursion-too-deep", "Host functions call each other without an end."),
    Code("T0807", "host-index", "A host index or key is not there."),
    Code("T0808", "unassigned-name", "A host name is read before it has a value."),
    Code("T0809", "not-built", "The construct is in the language, and this version lacks it."),
    Code("T0810", "unreadable-file", "A source file cannot be read."),
    Code("T0811", "empty-file", "A source file has no statement in it."),
    Code("T0812", "no-such-set-name", "`--set` names what the program does not have."),
    Code("T0813", "unreadable-data", "A data file cannot be read or written."),
    Code("T0814", "unknown-target", "No backend of that name, or it cannot run here."),
    Code("T0815", "bad-signature", "A signature given from outside does not fit the kernel."),
    Code("T0816", "host-unpack", "A host value does not have as many items as names."),
    Code("T0817", "no-member", "A host value has no such attribute."),
    Code("T0818", "host-type", "A host value is of a kind that cannot stand here."),
    Code("T0819", "no-kernel", "The file has no kernel, or none of that name."),
    Code("T0820", "bad-project", "The settings in `tessera.toml` are not usable."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
