"""T02: types of values (``sema``)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0201", "mixed-types", "Two types meet whose conversion could lose a value."),
    Code("T0202", "literal-does-not-fit", "A literal does not fit the type it meets."),
    Code("T0203", "variable-changes-type", "A variable of a kernel would take a second type."),
    Code("T0204", "integer-division", "`/` is used on integers."),
    Code("T0205", "condition-not-bool", "A condition is a number."),
    Code("T0206", "wrong-operand", "An operator does not take a value of this type."),
    Code(
        "T0207", "wrong-argument",
        "An argument has the wrong type or is none of the allowed values.",
    ),
    Code("T0208", "wrong-element", "A value is stored to an array of another type."),
    Code("T0209", "power-exponent", "The exponent of `**` is no small literal."),
    Code(
        "T0210", "narrow-accumulator",
        "A variable that started as a literal adds up in 16 bits or fewer (a warning).",
    ),
    Code("T0211", "atomic-type", "An atomic operation does not support this element type."),
    Code("T0212", "wrong-result", "A result does not fit: of a kernel, or of a tuple assignment."),
    Code("T0213", "no-such-attribute", "A value has no elements or no such attribute."),
    Code("T0214", "shift-too-wide", "A shift by at least the width of the type."),
    Code("T0215", "index-not-integer", "An index or bound is no integer."),
    Code(
        "T0216", "not-callable",
        "Something is called that is no function, or a function is used as a value.",
    ),
    Code("T0217", "unknown-type", "An annotation names no type."),
    Code("T0218", "not-compile-time", "A compile-time value is needed."),
    Code(
        "T0219", "bare-buffer-type",
        "The element type of a bare shared buffer is unknown or contradictory.",
    ),
    Code("T0220", "bitcast-width", "`bitcast` between types of different width."),
    Code("T0221", "step-zero", "A `range` has step 0."),
    Code("T0222", "constant-fault", "A constant expression has no value."),
    Code("T0223", "division-by-zero", "An integer is divided by a constant 0."),
    Code("T0224", "assertion-never-holds", "An `assert` on compile-time values is false."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
