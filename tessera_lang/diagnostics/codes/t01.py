"""T01: names, modules and the structure of functions (``sema``)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0101", "undefined-name", "A name is used that nothing defines."),
    Code("T0102", "duplicate-definition", "Two definitions have one name."),
    Code("T0104", "unknown-member", "A module has no such name."),
    Code("T0105", "call-arguments", "A call gives too many or too few arguments."),
    Code("T0106", "keyword-argument", "A keyword argument is unknown or given twice."),
    Code("T0107", "misplaced-statement", "`break`, `continue` or `return` stands where it cannot."),
    Code("T0108", "missing-return", "Some path of a function that returns values gives none."),
    Code("T0109", "maybe-unset", "A variable is read where it may have no value."),
    Code("T0110", "recursion-in-lanes", "A function called from a kernel calls itself."),
    Code("T0111", "missing-mut", "An array is written that is not declared `mut`."),
    Code("T0112", "fixed-name", "A compile-time parameter or a size is assigned."),
    Code("T0113", "unknown-decorator", "A decorator or clause is unknown or given twice."),
    Code(
        "T0114", "not-built-yet",
        "A construct of the language that this version of the compiler lacks.",
    ),
    Code("T0115", "module-variable-in-lanes", "A kernel reads a variable of the module."),
    Code("T0118", "not-for-lanes", "A construct of the host program stands in lanes."),
    Code("T0119", "unreachable-statement", "A statement can never run (a warning)."),
    Code("T0121", "not-called", "A function is named as a statement and not called."),
    Code("T0122", "default-order", "A parameter without a default follows one that has one."),
    Code("T0123", "not-a-test", "`@test` stands on what is no plain function without parameters."),
    Code("T0124", "endless-loop", "Nothing changes the condition of a `while` (a warning)."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
