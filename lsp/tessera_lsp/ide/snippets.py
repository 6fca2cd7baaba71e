"""Pieces of programs with places to fill in, by the word that is typed. Must not know LSP."""

from __future__ import annotations

TOP: dict[str, tuple[str, str]] = {
    "lane kernel": (
        "a kernel whose body runs once for each lane",
        "@kernel tile[(${1:128},)] grid[(ceil_div(n, $1),)]\n"
        "def ${2:name}(x: f32[n], out: mut f32[n]):\n"
        "    i = grid_tile_linear_id()\n    if i < n:\n        out[i] = ${0:x[i]}\n",
    ),
    "tile kernel": (
        "a kernel whose body works on tiles of arrays",
        "@op.kernel\ndef ${1:name}(x: f32[m, n]):\n    return ${0:x}\n",
    ),
    "test function": (
        "a test that `tesserac test` runs",
        "@test\ndef ${1:name}():\n    assert ${0:op.all(a == b)}\n",
    ),
}
"""At the first column: by label, what it is and its text. ``$0``: where the cursor ends."""

INSIDE: dict[str, tuple[str, str]] = {
    "for range": ("a loop over numbers", "for ${1:i} in range(${2:n}):\n    $0"),
    "shared array": (
        "an array in the shared memory of the group",
        "${1:buf} = tshared.alloc((${2:128},), ${3:f32})\n$0",
    ),
}
"""In a body."""

CLAUSES: dict[str, str] = {
    "tile": "tile[(${1:128},)]$0",
    "grid": "grid[(${1:ceil_div(n, 128)},)]$0",
    "shared": "shared(${1:16_KiB})$0",
    "registers": "registers(${1:64})$0",
}
"""Clauses with their brackets."""
