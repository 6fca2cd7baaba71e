"""What to say of the language's own names, from the tables of the grammar and the checker."""

from __future__ import annotations

from tessera_grammar.keywords import BUILTINS, KEYWORDS, MODULE_MEMBERS, SIZE_UNITS, SOFT_KEYWORDS

from tessera_lang.sema.builtins import FUNCTIONS, TILE_FUNCTIONS, is_built, later

HEAD_WORDS: dict[str, str] = {
    "kernel": SOFT_KEYWORDS["kernel"],
    "op.kernel": "The decorator of a tile kernel: its body works on tiles, and runs once; its "
    "loops are spread over the groups by the compiler.",
    "gradient": "The decorator of a function that gives the gradient of another, or of a kernel.",
    "test": "The decorator of a test: a function without parameters that `tesserac test` runs.",
}
"""What may follow ``@``."""

CLAUSES: dict[str, str] = {
    "tile": f"{SOFT_KEYWORDS['tile']} `tile[(128,)]`",
    "shared": f"{SOFT_KEYWORDS['shared']} `shared(16_KiB)`",
    "grid": f"{SOFT_KEYWORDS['grid']} `grid[(ceil_div(n, 128),)]`",
    "registers": f"{SOFT_KEYWORDS['registers']} `registers(64)`",
}
"""What may follow a kernel's decorator."""

QUALIFIERS: dict[str, str] = {w: SOFT_KEYWORDS[w] for w in ("mut", "const")}

ARRAY_MEMBERS: dict[str, str] = {
    "shape": "The sizes, as a tuple.",
    "dtype": "The element type.",
    "ndim": "How many axes it has.",
    "device": 'On the host: `"cpu"` or `"cuda"`, what works on it.',
    "T": "On the host: the transposed view of an array of rank 2.",
    "to": "On the host: `x.to(f16)`, the values as another dtype.",
}

UNITS = SIZE_UNITS

_MORE: dict[str, str] = {
    "tshared.alloc": "Bare `tshared.alloc` takes what is left of the budget.",
    "range": "`range(stop)`, `range(start, stop)` or `range(start, stop, step)`.",
}
_SIGNATURES: dict[str, str] = {
    "op.zeros": "op.zeros(shape, dtype=)",
    "op.ones": "op.ones(shape, dtype=)",
    "op.full": "op.full(shape, value, dtype=)",
    "op.empty": "op.empty(shape, dtype=)",
    "op.workspace": "op.workspace(shape, dtype=)",
    "op.arange": "op.arange(start, stop, step, dtype=)",
    "op.random": "op.random(shape, seed=, dtype=)",
    "op.load": "op.load(path)",
    "op.save": "op.save(path, array)",
    "op.reshape": "op.reshape(x, shape)",
    "op.cast": "op.cast(x, dtype)",
    "op.tile_range": "op.tile_range(stop, ..., step=, independent=)",
}


def signature_of(full: str) -> str:
    """How a builtin is called: ``atomic_add(place, value, scope=, order=)``; else its name."""
    info = FUNCTIONS.get(full) or (TILE_FUNCTIONS.get(full) if full not in _SIGNATURES else None)
    if info is None or full in BUILTINS and BUILTINS[full].kind == "dtype":
        return _SIGNATURES.get(full, full)
    shown = [p if i < info.required else f"{p}=" for i, p in enumerate(info.parameters)]
    if info.variadic:
        shown = [*info.parameters[: max(info.required, 1)], "..."]
    return f"{full}({', '.join(shown)})"


def help_of(full: str) -> str:
    """What a builtin is, in a sentence; empty where the tables have none."""
    head, _, member = full.rpartition(".")
    if head:
        text = MODULE_MEMBERS.get(head, {}).get(member, "")
    else:
        text = BUILTINS[full].doc if full in BUILTINS else ""
    text = " ".join(t for t in (text, _MORE.get(full, "")) if t)
    if is_built(full):
        return text
    belongs = later(full)
    return text if belongs is None else f"{text} Not built yet ({belongs}).".lstrip()


def help_of_keyword(word: str) -> str | None:
    """What a reserved word does."""
    return KEYWORDS.get(word)
