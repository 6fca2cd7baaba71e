"""Names of C for names of kernels: the one table of what may not be used, and the numbering.

C, C++ and their libraries take names; so do the headers themselves, and file systems and linkers
that do not tell cases apart. Must not know plans.
"""

from __future__ import annotations

import re

_KEYWORDS = """
alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool
break case catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept
const const_cast consteval constexpr constinit continue decltype default delete do double
dynamic_cast else enum explicit export extern false final float for friend goto if import inline int
long module mutable namespace new noexcept not not_eq nullptr operator or or_eq override private
protected public reflexpr register reinterpret_cast requires restrict return short signed sizeof
static static_assert static_cast struct switch synchronized template this thread_local throw true
try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t
while xor xor_eq
"""
# Macros, and names of the C library that a header of it may define as one.
_LIBRARY = """
abort abs acos asin assert atan atan2 atexit atof atoi bsearch calloc ceil cos div errno exit
exp fabs fclose feof ferror fflush fgetc fgets floor fma fmax fmin fmod fopen fpclassify fprintf
fputc fread free frexp fseek fwrite getc getchar getenv getline index int16_t int32_t int64_t
int8_t isfinite isinf isnan isnormal labs ldexp linux log log10 log2 longjmp main major malloc
memchr memcmp memcpy memmove memset minor modf null offsetof perror pow printf putc putchar puts
qsort raise rand read realloc remove rename round scanf setjmp signal signbit sin size_t sqrt
srand stderr stdin stdout strcat strchr strcmp strcpy strlen strtol tan time trunc uint16_t
uint32_t uint64_t uint8_t unix write y0 y1 yn j0 j1 jn
"""
# What functions of the headers have of their own.
_OWN = """
bad call capability entry groups grid_groups holds known launch needs options status total
"""
RESERVED = frozenset((_KEYWORDS + _LIBRARY + _OWN).split())
"""In lower case: what differs from one of them in case only is not used either."""
_LONGEST = 60


class Names:
    """Gives out names that are none of the table's, and differ in more than case."""

    def __init__(self, reserved: frozenset[str] = RESERVED) -> None:
        self._taken = set(reserved)

    def take(self, name: str) -> str:
        """A name like this one; the next is another, whatever its case."""
        stem = plain(name)
        found, number = stem, 1
        while found.lower() in self._taken:
            number += 1
            found = f"{stem}_{number}"
        self._taken.add(found.lower())
        return found


def plain(name: str) -> str:
    """Letters of ASCII, digits and underscores, and not too many of them."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)[:_LONGEST]
    return f"_{word}" if word[:1].isdigit() or not word else word


def text_of(value: str) -> str:
    """A text as a literal of C."""
    out: list[str] = []
    for byte in value.encode():
        character = chr(byte)
        if character in '"\\?' or not 32 <= byte < 127:
            out.append(f"\\{byte:03o}")
        else:
            out.append(character)
    return f'"{"".join(out)}"'


def comment_of(value: str) -> str:
    """A text within a comment of C."""
    return (
        "".join(c if c.isprintable() else " " for c in value)
        .replace("*/", "* /")
        .replace("/*", "/ *")
    )
