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
    "outer": ArrayName("a b", 2, "All products of the elements of two arrays, row by row."),
    "trace": ArrayName("x", 1, "The sum of the diagonal of a matrix."),
    "diagonal": ArrayName("x", 1, "The diagonal of a square matrix."),
    "atan2": ArrayName("y x", 2, "The angle of the point (x, y), from -pi to pi."),
    "hypot": ArrayName("a b", 2, "sqrt(a * a + b * b), without overflow on the way."),
    "fmax": ArrayName("a b", 2, "The greater of two elements; of a NaN and a number the number."),
    "fmin": ArrayName("a b", 2, "The lesser of two elements; of a NaN and a number the number."),
    "cbrt": ArrayName("x", 1, "The cube root of each float."),
    "heaviside": ArrayName("x h", 2, "0 below 0, 1 above it, and a number of its own at 0."),
    "sinc": ArrayName("x", 1, "sin(pi * x) / (pi * x), and 1 at 0."),
    "isposinf": ArrayName("x", 1, "Whether each element is the positive infinity."),
    "isneginf": ArrayName("x", 1, "Whether each element is the negative infinity."),
    "nan_to_num": ArrayName(
        "x nan posinf neginf", 1, "Numbers for NaN and for infinities: 0 and the largest ones."
    ),
    **{
        f"nan{n}": ArrayName("x axis keepdims", 1, f"`op.{n}` of the elements that are no NaN.")
        for n in ("sum", "prod", "mean", "max", "min")
    },
    "average": ArrayName("x axis weights", 1, "The mean, with weights of the elements."),
    "hstack": ArrayName("arrays", 1, "Vectors one behind the other, matrices side by side."),
    "vstack": ArrayName("arrays", 1, "Vectors as rows, matrices one below the other."),
    "column_stack": ArrayName("arrays", 1, "Vectors as columns, matrices side by side."),
    "diag": ArrayName("x", 1, "A matrix with this diagonal, or the diagonal of a matrix."),
    "inner": ArrayName("a b", 2, "Sums of products along the last axes of both."),
    "vdot": ArrayName("a b", 2, "The sum of the products of all elements."),
    "kron": ArrayName("a b", 2, "All products of the elements of two matrices, as blocks."),
    "cov": ArrayName(
        "x y",
        1,
        "The covariances of the rows of one array or of two, or of two vectors, divided by one less"
        " than their length.",
    ),
    "corrcoef": ArrayName(
        "x y", 1, "The correlations of the rows of one array or of two, or of two vectors."
    ),
    "gradient": ArrayName("x spacing", 1, "Central differences of a vector, at its ends one-sid."),
    "trapezoid": ArrayName("y x dx", 1, "The area below the last axis, by trapezoids."),
    "cross": ArrayName("a b", 2, "The cross product of vectors of three elements, or of rows."),
    "isin": ArrayName("x values", 2, "Whether each element is among the elements of a vector."),
    "searchsorted": ArrayName(
        "a v", 2, "How many elements of a sorted vector are below each number of another."
    ),
    "digitize": ArrayName("x bins", 2, "How many ascending bounds are at most each number."),
    "interp": ArrayName("x xp fp", 3, "Linear interpolation between points in ascending order."),
    "vecdot": ArrayName("a b axis", 2, "The sum of the products of elements along an axis."),
}
"""Members of ``op`` that are other words for what the language has."""

LIBRARY_NAMES: dict[str, str] = {
    "unique": "The elements in rising order, each once: `return_index=`, `return_counts=`.",
    "nonzero": "For each axis the places of the elements that are not 0.",
    "flatnonzero": "The places of the elements that are not 0, counted row by row.",
    "argwhere": "The indices of the elements that are not 0, a row each.",
    "extract": "The elements where a condition is true.",
    "union1d": "The elements of two arrays in rising order, each once.",
    "intersect1d": "The elements that two arrays have, in rising order.",
    "setdiff1d": "The elements of one array that another does not have, in rising order.",
    "setxor1d": "The elements that one of two arrays alone has, in rising order.",
    "append": "One array and then another, as a vector or along an axis.",
    "delete": "A vector without the elements at some places.",
    "bincount": "How often 0, 1, 2 ... stand in a vector of integers.",
    "histogram": "How many elements are in each of some intervals, and the ends of these.",
    "convolve": 'Sums of products of one vector and another from its end: "full", "same", "valid".',
    "correlate": "Sums of products of one vector and another that is moved along it.",
    "solve": "The x of `a @ x == b`, of a square matrix.",
    "inv": "The inverse of a square matrix.",
    "det": "The determinant of a square matrix.",
    "matrix_power": "A square matrix as a factor so many times.",
}
"""Members of ``op`` that the host program alone has, as functions of ``std.arrays``."""

_AXES = {"1d": "one axis", "2d": "two axes", "3d": "three axes"}
NETWORK_NAMES: dict[str, str] = {
    **{f"conv{n}": f"The convolution over {axes}, with the arguments of PyTorch."
       for n, axes in _AXES.items()},
    **{f"conv_transpose{n}": f"The gradient of `op.conv{n}` by its input: a transposed convolution."
       for n in _AXES},
    **{f"max_pool{n}": f"The greatest element of each window of {axes}."
       for n, axes in _AXES.items()},
    **{f"avg_pool{n}": f"The mean of each window of {axes}." for n, axes in _AXES.items()},
    "batch_norm": "Normalized by channel, over the whole batch or by running moments.",
    "group_norm": "Normalized over groups of channels of each example.",
    "instance_norm": "Normalized over each channel of each example.",
    "layernorm": "Normalized along the last axis, with a weight and a bias.",
    "rmsnorm": "Divided by the root of the mean square along the last axis.",
    "log_softmax": "The logarithm of the softmax along an axis.",
    "cross_entropy": "The loss of numbers of classes, by their softmax.",
    "nll_loss": "The loss of logarithms of probabilities of classes.",
    "mse_loss": "The mean of the squares of differences.",
    "l1_loss": "The mean of the magnitudes of differences.",
    "embedding": "The rows of an array at places.",
    "one_hot": "1 at the place that each element says, along a new last axis, and else 0.",
    "gather": "The elements at places along an axis.",
    "scaled_dot_product_attention": "`softmax(q @ k.mT * scale) @ v`, with a mask.",
    "dropout": "The elements that a counter-based random number keeps.",
    "fft": "The Fourier transform along axes: its real and its imaginary part.",
    "ifft": "The inverse Fourier transform: real and imaginary part.",
    "rfft": "The Fourier transform of real numbers: real and imaginary part.",
    "irfft": "The real numbers of such a transform.",
}  # fmt: skip
"""Members of ``op`` that plain functions have, in the host program and in graphs."""
