"""The words of the language, each with one line that an editor can show.

Owns the names only: what they mean is decided in ``tessera_lang.sema``. Must not know the
compiler. The editors' grammar, completion and hover read these tables.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tessera_grammar.array_function_names import ARRAY_NAMES, LIBRARY_NAMES, NETWORK_NAMES
from tessera_grammar.directives import DIRECTIVES

BuiltinKind = Literal["dtype", "module", "constant", "function", "memory", "symbol"]


class Builtin(NamedTuple):
    """A name that is there without an import; any of them may be shadowed."""

    name: str
    kind: BuiltinKind
    doc: str


# Reserved everywhere.
KEYWORDS: dict[str, str] = {
    "and": "True if both operands are; the right one is evaluated only if the left is true.",
    "as": "Gives an import or a context another name.",
    "assert": "Reports a fault if the condition is false.",
    "break": "Leaves the innermost loop.",
    "continue": "Goes on with the next iteration of the innermost loop.",
    "def": "Declares a function.",
    "elif": "Tests another condition if those above were false.",
    "else": "What is done if the conditions above were false.",
    "False": "The truth value false.",
    "for": "Runs a block for each value of a range or sequence.",
    "from": "Imports names from a module.",
    "if": "Runs a block if the condition is true.",
    "import": "Imports a module.",
    "in": "Stands between the variable and the values of a loop; tests membership.",
    "is": "Compares with None.",
    "lambda": "A function without a name.",
    "None": "No value; in an index, a new axis of size 1.",
    "not": "The opposite of a truth value.",
    "or": "True if one operand is; the right one is evaluated only if the left is false.",
    "pass": "Does nothing.",
    "return": "Leaves the function, with a value if one is given.",
    "True": "The truth value true.",
    "while": "Runs a block as long as the condition is true.",
    "with": "Runs a block within a context.",
}
HARD_KEYWORDS = frozenset(KEYWORDS)

# Words only in their places; names everywhere else.
SOFT_KEYWORDS: dict[str, str] = {
    "const": "In front of a type: a tensor that no launch changes, read by a read-only path.",
    "grid": "Behind a decorator: the number of groups on each axis of the launch.",
    "kernel": "The decorator of a lane kernel: the body runs once for each lane of each group.",
    "mut": "In front of a type: the argument is written.",
    "registers": "Behind a decorator: the most registers that a lane has on a GPU.",
    "shared": "Behind a decorator: the budget of shared memory of a group, in bytes.",
    "tile": "Behind a decorator: the lanes of a group on each axis.",
    "where": "Behind a signature: facts that are checked once at the call.",
}

# Words of Python that this language leaves out, and what to do in their place.
UNSUPPORTED_WORDS: dict[str, str] = {
    "async": "calls run in order; there is nothing to wait for",
    "await": "calls run in order; there is nothing to wait for",
    "class": "use functions, and pass values as parameters",
    "del": "a name ends with its function; there is nothing to delete",
    "except": "check with 'if' or 'assert' before the operation",
    "finally": "check with 'if' or 'assert' before the operation",
    "global": "pass the value as a parameter and return the new one",
    "match": "use 'if' and 'elif'",
    "nonlocal": "pass the value as a parameter and return the new one",
    "raise": "use 'assert condition, message'",
    "try": "check with 'if' or 'assert' before the operation",
    "yield": "return a list or write into an array",
}

SIZE_UNITS: dict[str, str] = {
    "B": "Bytes.",
    "KiB": "1024 bytes.",
    "MiB": "1024 KiB.",
    "GiB": "1024 MiB.",
}

_DTYPES = {
    "bool": "A truth value.",
    "i8": "A signed integer of 8 bits; wraps.",
    "i16": "A signed integer of 16 bits; wraps.",
    "i32": "A signed integer of 32 bits; wraps.",
    "i64": "A signed integer of 64 bits; wraps.",
    "u8": "An unsigned integer of 8 bits; wraps.",
    "u16": "An unsigned integer of 16 bits; wraps.",
    "u32": "An unsigned integer of 32 bits; wraps.",
    "u64": "An unsigned integer of 64 bits; wraps.",
    "f16": "An IEEE float of 16 bits.",
    "bf16": "A float of 16 bits with the range of f32.",
    "f32": "An IEEE float of 32 bits.",
    "f64": "An IEEE float of 64 bits.",
    "f8e4m3": "A float of 8 bits: 4 of exponent, 3 of mantissa.",
    "f8e5m2": "A float of 8 bits: 5 of exponent, 2 of mantissa.",
    "index": "A 64-bit integer in meaning: the type of ids, sizes and loop counters.",
    "int": "An integer fixed at compile time, as the type of a parameter.",
    "float": "A float fixed at compile time, as the type of a parameter.",
    "str": "A string fixed at compile time, as the type of a parameter.",
    "dtype": "A dtype fixed at compile time, as the type of a parameter.",
}

_MODULES = {
    "op": "Operations on tiles and whole tensors.",
    "schedule": "Directives that say how a kernel is tiled, staged and pipelined.",
    "tile": "Operations of one group on tiles.",
    "dist": "Meshes, placements and collectives.",
    "tshared": "Shared memory of the group.",
    "tlocal": "Arrays that each lane has of its own.",
    "graph": "Profiling and inspection of graphs of operators.",
    "std": "The standard library, written in Tessera.",
    "math": "Functions of numbers with the same bits on every target.",
    "fast": "The hardware's approximations of functions of numbers.",
}

_CONSTANTS = {
    "inf": "Positive infinity; takes the float type of what it meets.",
    "nan": "Not a number; takes the float type of what it meets.",
}

_SYMBOLS = {
    "grid_groups": "In a parameter's shape: the number of groups of the launch.",
}

_MEMORY = {
    "prefetch": "Moves an array's pages to a device ahead of use.",
    "advise": "Tells the driver where an array's pages belong.",
}

_FUNCTIONS = {
    "tile_linear_id": "Number of this lane in its group, the last axis fastest.",
    "tile_id": "Position of this lane on one axis of its group.",
    "group_linear_id": "Number of this group in the grid, the last axis fastest.",
    "group_id": "Position of this group on one axis of the grid.",
    "group_tile_count": "Lanes in a group.",
    "group_count": "Groups on one axis of the grid.",
    "grid_tile_linear_id": "Number of this lane in the whole grid.",
    "grid_tile_count": "Lanes in the whole grid.",
    "lane_id": "Number of this lane in its warp.",
    "warp_id": "Number of this lane's warp in its group.",
    "tbarrier": "Waits for all lanes of the group and makes their earlier writes visible to it.",
    "tfence": "Orders this lane's accesses to memory for a scope.",
    "atomic_add": "Adds to an element in one step; gives the value before.",
    "atomic_sub": "Subtracts from an element in one step; gives the value before.",
    "atomic_min": "Keeps the smaller value in one step; gives the value before.",
    "atomic_max": "Keeps the larger value in one step; gives the value before.",
    "atomic_and": "Bitwise and with an element in one step; gives the value before.",
    "atomic_or": "Bitwise or with an element in one step; gives the value before.",
    "atomic_xor": "Bitwise exclusive or with an element in one step; gives the value before.",
    "atomic_exchange": "Puts a value into an element in one step; gives the value before.",
    "atomic_cas": "Puts a value into an element if it holds another; gives the value before.",
    "atomic_load": "Reads an element in one step.",
    "atomic_store": "Writes an element in one step.",
    "warp_sum": "Sum over the lanes of the warp.",
    "warp_max": "Largest value over the lanes of the warp.",
    "warp_min": "Smallest value over the lanes of the warp.",
    "warp_shuffle": "The value of another lane of the warp.",
    "warp_any": "Whether a condition holds in some lane of the warp.",
    "warp_all": "Whether a condition holds in every lane of the warp.",
    "warp_ballot": "The lanes of the warp in which a condition holds, as bits.",
    "warp_match": "The lanes of the warp that have the same number, as bits.",
    "group_sum": "Sum over the lanes of the group.",
    "group_max": "Largest value over the lanes of the group.",
    "group_min": "Smallest value over the lanes of the group.",
    "range": "The integers from a start up to, not with, a stop.",
    "min": "The smallest argument; NaN if one is.",
    "max": "The largest argument; NaN if one is.",
    "abs": "The absolute value.",
    "ceil_div": "Division of integers rounded up.",
    "clamp": "A value kept between two bounds.",
    "bitcast": "The same bits as a value of another dtype of the same width.",
    "exp": "The exponential function.",
    "len": "The number of items of a list or tuple, or the size of the first axis.",
    "print": "Prints its arguments.",
    "fused": "A function over whole arrays as one graph, whose kernels are fused.",
    "grad": "The gradient of a function, as a function.",
    "value_and_grad": "What a function gives and its gradient, as a function.",
    "vjp": "What a function gives, and the function of a cotangent that gives the gradients.",
    "jvp": "What a function gives, and how it changes when its arguments change by tangents.",
    "autotune": "Finds the best configuration of an autotunable function.",
}


class Elementwise(NamedTuple):
    """A function of each element of a tile: ``op.NAME(x)``. ``bare``: a tile kernel may leave out
    ``op.``, where nothing else has the name."""

    doc: str
    bare: bool = False


ELEMENTWISE: dict[str, Elementwise] = {
    "exp": Elementwise("e to the power of each element.", bare=True),
    "exp2": Elementwise("2 to the power of each element.", bare=True),
    "log": Elementwise("The natural logarithm of each element.", bare=True),
    "log2": Elementwise("The logarithm to the base 2 of each element.", bare=True),
    "log10": Elementwise("The logarithm to the base 10 of each element.", bare=True),
    "log1p": Elementwise("log(1 + x) of each element, exact in small ones."),
    "expm1": Elementwise("exp(x) - 1 of each element, exact in small ones.", bare=True),
    "sqrt": Elementwise("The square root of each element, correctly rounded.", bare=True),
    "rsqrt": Elementwise("1 / sqrt(x) of each element.", bare=True),
    "tanh": Elementwise("The hyperbolic tangent of each element.", bare=True),
    "sin": Elementwise("The sine of each element, in radians.", bare=True),
    "cos": Elementwise("The cosine of each element, in radians.", bare=True),
    "tan": Elementwise("The tangent of each element, in radians.", bare=True),
    "asin": Elementwise(
        "The angle whose sine each element is; NaN where there is none.", bare=True
    ),
    "acos": Elementwise(
        "The angle whose cosine each element is; NaN where there is none.", bare=True
    ),
    "atan": Elementwise("The angle whose tangent each element is.", bare=True),
    "sinh": Elementwise("The hyperbolic sine of each element.", bare=True),
    "cosh": Elementwise("The hyperbolic cosine of each element.", bare=True),
    "asinh": Elementwise("The inverse of sinh of each element.", bare=True),
    "acosh": Elementwise("The inverse of cosh of each element; NaN below 1.", bare=True),
    "atanh": Elementwise("The inverse of tanh of each element; NaN beyond -1 and 1.", bare=True),
    "erf": Elementwise("The error function of each element.", bare=True),
    "sigmoid": Elementwise("1 / (1 + exp(-x)) of each element.", bare=True),
    "softplus": Elementwise("log(1 + exp(x)) of each element."),
    "silu": Elementwise("x * sigmoid(x) of each element."),
    "gelu": Elementwise("x times the share of the normal distribution below x, of each element."),
    "relu": Elementwise("The greater of x and 0, of each element."),
    "floor": Elementwise("The largest whole number that is not above each element.", bare=True),
    "ceil": Elementwise("The smallest whole number that is not below each element.", bare=True),
    "round": Elementwise("The nearest whole number to each element, ties to even.", bare=True),
    "trunc": Elementwise("Each element without its fraction."),
    "abs": Elementwise("Absolute values."),
}
"""The functions of each element. One that is no operation of the IR is a function of ``std.math``
of that name, or of ``_NAME`` for f32 and ``_NAME_f64`` where only tiles have it."""

_MODULE_MEMBERS: dict[str, dict[str, str]] = {
    "tshared": {"alloc": "Takes shared memory of the group: tshared.alloc((64, 64), f32)."},
    "tlocal": {"alloc": "Gives each lane an array of its own: tlocal.alloc((16,), f32)."},
    "math": {
        "sqrt": "The square root, correctly rounded.",
        "floor": "The largest whole number that is not above a float, as a float.",
        "ceil": "The smallest whole number that is not below a float, as a float.",
        "trunc": "A float without its fraction.",
        "round": "The nearest whole number, ties to even, as a float.",
        "fma": "a * b + c with one rounding.",
        "exp": "e to the power of a float.",
        "exp2": "2 to the power of a float.",
        "sigmoid": "1 / (1 + exp(-x)).",
        "tanh": "The hyperbolic tangent.",
        "log": "The natural logarithm; -inf of 0, NaN below it.",
        "log2": "The logarithm to the base 2; -inf of 0, NaN below it.",
        "log10": "The logarithm to the base 10; -inf of 0, NaN below it.",
        "log1p": "log(1 + x), exact in small x.",
        "expm1": "exp(x) - 1, exact in small x.",
        "pow": "x to the power of y, with the special values of IEEE 754.",
        "sin": "The sine of a number of radians of any size.",
        "cos": "The cosine of a number of radians of any size.",
        "tan": "The tangent of a number of radians of any size.",
        "asin": "The angle whose sine is x, from -pi/2 to pi/2.",
        "acos": "The angle whose cosine is x, from 0 to pi.",
        "atan": "The angle whose tangent is x, from -pi/2 to pi/2.",
        "sinh": "The hyperbolic sine.",
        "cosh": "The hyperbolic cosine.",
        "asinh": "The inverse of sinh.",
        "acosh": "The inverse of cosh; NaN below 1.",
        "atanh": "The inverse of tanh; NaN beyond -1 and 1.",
        "atan2": "The angle of the point (x, y), from -pi to pi: math.atan2(y, x).",
        "hypot": "sqrt(x * x + y * y), without overflow on the way.",
        "erf": "The error function.",
        "gelu": "x times the share of the normal distribution below x.",
    },
    "fast": {
        "exp": "e to the power of an f32, by the machine's approximation.",
        "exp2": "2 to the power of an f32, by the machine's approximation.",
        "log": "The natural logarithm of an f32 above 0, by the machine's approximation.",
        "log2": "The logarithm to the base 2 of an f32 above 0, by the machine's approximation.",
        "sin": "The sine of -2 pi to 2 pi radians, by the machine's approximation.",
        "cos": "The cosine of -2 pi to 2 pi radians, by the machine's approximation.",
        "tanh": "The hyperbolic tangent of an f32, by the machine's approximation.",
        "sqrt": "The square root of an f32, by the machine's approximation.",
        "rsqrt": "1 / sqrt(x) of an f32, by the machine's approximation.",
        "reciprocal": "1 / x of an f32, by the machine's approximation.",
        "divide": "x / y of f32, by the machine's approximation.",
        "sigmoid": "1 / (1 + exp(-x)) of an f32, by the machine's approximation.",
        "gelu": "x times the share of the normal distribution below an f32 x, likewise.",
        "pow": "x to the power of y of f32, x above 0, by the machine's approximation.",
        "machine": "One approximation of the machine by name, with an exact stand-in.",
    },
    "op": {
        **{name: one.doc for name, one in ELEMENTWISE.items()},
        **{name: one.doc for name, one in ARRAY_NAMES.items()},
        **LIBRARY_NAMES,
        **NETWORK_NAMES,
        "kernel": "The decorator of a tile kernel: the body runs once.",
        "autotunable": "The decorator of a function whose configuration is tuned.",
        "zeros": "An array of zeros.",
        "ones": "An array of ones.",
        "full": "An array of one value.",
        "empty": "An array whose values are not set.",
        "zeros_like": "Zeros of the shape and dtype of another array.",
        "ones_like": "Ones of the shape and dtype of another array.",
        "full_like": "One value in the shape and dtype of another array.",
        "empty_like": "An array of the shape and dtype of another whose values are not set.",
        "arange": "Evenly spaced values.",
        "random": "Random values from a seed.",
        "load": "Reads an array from a .npy, .npz or .csv file.",
        "save": "Writes an array to a file.",
        "reshape": "The same values in another shape.",
        "contiguous": "The same values without gaps.",
        "cast": "The values in another dtype.",
        "sum": "Sum over an axis, or over all.",
        "min": "Smallest value over an axis, or over all; NaN if one is.",
        "max": "Largest value over an axis, or over all; NaN if one is.",
        "mean": "Mean over an axis, or over all.",
        "all": "Whether all values are true.",
        "any": "Whether some value is true.",
        "argmin": "First index of the smallest value.",
        "argmax": "First index of the largest value.",
        "tile_range": "The starts of tiles over an iteration space.",
        "shared": "Takes shared memory of the group for a tile.",
        "prefetch": "Copies a tile into shared memory ahead of use.",
        "barrier": "Waits for all lanes of the group.",
        "matmul": "Matrix product.",
        "softmax": "Softmax over the last axis.",
        "window": "A slice that may reach past the edges, with a fill.",
        "prod": "Product over an axis, or over all.",
        "var": "Variance over an axis, or over all.",
        "std": "Standard deviation over axes, or over all.",
        "norm": "Square root of the sum of squares over axes, or over all.",
        "logsumexp": "log(sum(exp(x))) over axes, or over all, without overflow.",
        "cumsum": "Sums from the start to each element along an axis.",
        "cumprod": "Products from the start to each element along an axis.",
        "take_along_axis": "The elements at places of each line of an axis, as `op.argsort` gives.",
        "cummax": "The greatest element from the start to each element along an axis.",
        "cummin": "The least element from the start to each element along an axis.",
        "tril": "Zeros right of a diagonal of the last two axes.",
        "triu": "Zeros left of a diagonal of the last two axes.",
        "transpose": "The axes in another order; without one the other way around.",
        "expand_dims": "Axes of one element at some places.",
        "squeeze": "Without axes of one element.",
        "roll": "The elements of an axis moved on, the last ones to the front.",
        "diff": "The differences of neighbours along an axis.",
        "repeat": "Each element of an axis several times.",
        "tile": "The whole of a tile several times along axes.",
        "take": "The elements at some places of an axis.",
        "moveaxis": "Axes moved to other places.",
        "swapaxes": "Two axes in the place of each other.",
        "array": "A few numbers: op.array([1.0, 2.0]).",
        "sort": "The elements of each line of an axis in order, NaN last.",
        "argsort": "The places of the elements of each line of an axis in order.",
        "topk": "The greatest elements of each line of an axis, and their places.",
        "median": "The middle of each line of an axis in order, or of all elements.",
        "quantile": "Below what a share `q` of each line lies, between neighbours linearly.",
        "percentile": "`op.quantile` of `q` hundredths.",
        "pad": "An array with more elements of one value around it.",
        "ravel": "All elements of an array along one axis.",
        "einsum": 'Sums of products over letters: op.einsum("ij,jk->ik", a, b).',
        "broadcast_to": "The same elements along new axes and along axes of one element.",
        "flip": "The elements of an axis in reverse order.",
        "concat": "Arrays one behind the other along an axis.",
        "stack": "Arrays one behind the other along a new axis.",
        "eye": "Ones on a diagonal, zeros elsewhere.",
        "linspace": "Evenly spaced numbers from a first to a last one.",
        "where": "Of two values the first where a condition holds, else the second.",
        "clamp": "Each element, not below the one limit nor above the other.",
        "causal": "Scores with -inf where a column is behind its row.",
        "iota": "The place of each element along an axis.",
        "workspace": "An array that a function keeps from call to call; its values are not set.",
    },
    "tile": {"mma_sync": "Product of two tiles: `tile.mma_sync(a, b)`."},
    "schedule": {
        **{name: one.doc for name, one in DIRECTIVES.items()},
        "pipeline": "`with schedule.pipeline(...)`: the loops in it copy ahead.",
        "prefetch": "Has a tile copied ahead of its use, into shared memory.",
    },
}


def _table() -> dict[str, Builtin]:
    groups: tuple[tuple[BuiltinKind, dict[str, str]], ...] = (
        ("dtype", _DTYPES),
        ("module", _MODULES),
        ("constant", _CONSTANTS),
        ("symbol", _SYMBOLS),
        ("memory", _MEMORY),
        ("function", _FUNCTIONS),
    )
    return {name: Builtin(name, kind, doc) for kind, words in groups for name, doc in words.items()}


BUILTINS: dict[str, Builtin] = _table()
MODULE_MEMBERS: dict[str, dict[str, str]] = _MODULE_MEMBERS


def builtins_of(kind: BuiltinKind) -> tuple[str, ...]:
    """The names of one kind, in the order of the table."""
    return tuple(builtin.name for builtin in BUILTINS.values() if builtin.kind == kind)
