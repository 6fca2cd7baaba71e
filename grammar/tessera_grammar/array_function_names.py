"""Names of array libraries that stand for a short expression, each with its parameters and a line.

Owns the names only: what they stand for is in ``tessera_lang.evaluate.expansion_texts``.
Must not know the compiler.
"""

from __future__ import annotations

from typing import NamedTuple


class ArrayName(NamedTuple):
    """``parameters`` in order, of which the first ``required`` must be given."""

    parameters: str
    required: int
    doc: str


_OF_ONE = {
    "positive": "The elements as they are.",
    "copy": "The elements of now: an array of its own where elements of it are stored.",
    "negative": "Each element with the other sign.",
    "square": "Each element times itself.",
    "reciprocal": "1 / x of each element.",
    "sign": "-1, 0 or 1 of each element, as it is below, equal to or above 0; NaN of NaN.",
    "signbit": "Whether the sign bit of each float is set, as that of -0.0 is.",
    "deg2rad": "Degrees in radians.",
    "rad2deg": "Radians in degrees.",
    "fabs": "`abs` by NumPy's name for floats.",
    "rint": "`op.round` by NumPy's name: halves to even.",
    "fliplr": "The elements of axis 1 in the other order.",
    "flipud": "The elements of axis 0 in the other order.",
    "isnan": "Whether each element is NaN.",
    "isinf": "Whether each element is an infinity.",
    "isfinite": "Whether each element is neither NaN nor an infinity.",
    "logical_not": "Whether each bool is false.",
    "bitwise_invert": "Each element with all bits changed.",
}
_OF_TWO = {
    "add": "The sum of elements.",
    "subtract": "The difference of elements.",
    "multiply": "The product of elements.",
    "divide": "The quotient of floats.",
    "floor_divide": "The quotient of elements, rounded down.",
    "remainder": "What a division that rounds down leaves, with the sign of the divisor.",
    "power": "One element to the power of the other.",
    "maximum": "The greater of two elements; NaN if one is.",
    "minimum": "The lesser of two elements; NaN if one is.",
    "copysign": "The magnitude of one float with the sign of the other.",
    "logaddexp": "log(exp(a) + exp(b)), without overflow.",
    "equal": "Whether elements are equal.",
    "not_equal": "Whether elements differ.",
    "less": "Whether the first element is less.",
    "less_equal": "Whether the first element is less or equal.",
    "greater": "Whether the first element is greater.",
    "greater_equal": "Whether the first element is greater or equal.",
    "logical_and": "Whether both bools are true.",
    "logical_or": "Whether one of two bools is true.",
    "logical_xor": "Whether one of two bools alone is true.",
    "bitwise_and": "The bits that both elements have.",
    "bitwise_or": "The bits that one of two elements has.",
    "bitwise_xor": "The bits that one of two elements alone has.",
    "bitwise_left_shift": "The bits of one element moved up by the other.",
    "bitwise_right_shift": "The bits of one element moved down by the other.",
}

ARRAY_NAMES: dict[str, ArrayName] = {
    **{name: ArrayName("x", 1, doc) for name, doc in _OF_ONE.items()},
    **{name: ArrayName("a b", 2, doc) for name, doc in _OF_TWO.items()},
    "clip": ArrayName("x min max", 1, "Each element, not below the one limit nor above the other."),
    "astype": ArrayName("x dtype", 2, "The values in another dtype."),
    "count_nonzero": ArrayName("x axis keepdims", 1, "How many elements are not 0, in i32."),
    "isclose": ArrayName(
        "a b rtol atol", 2, "Whether floats are equal but for a part of the second and a number."
    ),
    "allclose": ArrayName(
        "a b rtol atol", 2, "Whether all floats are equal but for a part and a number."
    ),
    "array_equal": ArrayName("a b", 2, "Whether all elements of two arrays are equal."),
    "ptp": ArrayName("x axis keepdims", 1, "The greatest element less the least one."),
    "cumulative_sum": ArrayName("x axis", 1, "`op.cumsum` by the name of the array API standard."),
    "cumulative_prod": ArrayName(
        "x axis", 1, "`op.cumprod` by the name of the array API standard."
    ),
    "concatenate": ArrayName("arrays axis", 1, "`op.concat` by NumPy's name."),
    "permute_dims": ArrayName("x axes", 2, "`op.transpose` by the name of the array API standard."),
    "matrix_transpose": ArrayName("x", 1, "The last two axes in the other order."),
    "dot": ArrayName("a b", 2, "The product `a @ b`."),
    "outer": ArrayName("a b", 2, "All products of the elements of two vectors."),
    "trace": ArrayName("x", 1, "The sum of the diagonal of a matrix."),
    "diagonal": ArrayName("x", 1, "The diagonal of a square matrix."),
    "atan2": ArrayName("y x", 2, "The angle of the point (x, y), from -pi to pi."),
    "hypot": ArrayName("a b", 2, "sqrt(a * a + b * b), without overflow on the way."),
    "vecdot": ArrayName("a b axis", 2, "The sum of the products of elements along an axis."),
}
"""Members of ``op`` that are other words for what the language has."""
