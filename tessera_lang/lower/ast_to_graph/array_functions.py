"""``op.*`` of arrays as operators of a graph.

Owns which functions a graph has, and what each is made of. Must not know how arguments are
evaluated, or what a row of the table says.
"""

from __future__ import annotations

import math
from typing import cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.ir.core import Value
from tessera_lang.ir.graph.axis_operators import part_along
from tessera_lang.lower.ast_to_graph.convolution_functions import CONVOLUTIONS
from tessera_lang.lower.ast_to_graph.elementwise_functions import (
    FUNCTIONS_OF_ELEMENTS,
    ArrayFunction,
    Given,
    elementwise,
)
from tessera_lang.lower.ast_to_graph.integer_operands import in_floats
from tessera_lang.lower.ast_to_graph.padding import pad
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, is_double, not_here
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import WorldFault
from tessera_lang.types.dtype import (
    BOOL,
    F64,
    I32,
    I64,
    DType,
    common_dtype,
    dtype_named,
)
from tessera_lang.types.shape import Dim

# --- reading arguments -----------------------------------------------------------------------


def _array(w: GraphWorld, value: object) -> Value:
    if not w.is_array(value) or isinstance(value, GraphNumber):
        raise WorldFault(f"an array is expected here, not {kind_of(value)}", code="T0818")
    return w.lifted(value)


def _integer(value: object, what: str = "an axis") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WorldFault(f"{what} is an integer that is known, not {kind_of(value)}", code="T0818")
    return value


def _integers(value: object, what: str = "an axis") -> tuple[int, ...]:
    given = cast("tuple[object, ...]", value) if isinstance(value, tuple | list) else (value,)
    return tuple(_integer(v, what) for v in given)


def _axis(w: GraphWorld, given: Given, x: Value, default: int) -> int:
    return w.axis("axis", _integer(given.get("axis", default)), x.tensor_type.rank)


def _known(x: Value, what: str) -> tuple[int, ...]:
    """The sizes of an array, which are numbers."""
    shape = x.tensor_type.shape
    if not all(isinstance(n, int) for n in shape):
        raise not_here(f"{what} of an array whose sizes are names")
    return cast("tuple[int, ...]", shape)


def _dtype(value: object, default: DType) -> DType:
    if value is None:
        return default
    found = value if isinstance(value, DType) else dtype_named(str(value))
    if found is None:
        raise WorldFault(f"there is no dtype {value!r}", code="T0818")
    return found


# --- products and reductions -----------------------------------------------------------------


def product(w: GraphWorld, a: object, b: object, tile: tuple[int, ...] = ()) -> object:
    """``a @ b``, by NumPy's rules of axes. ``tile``: rows, columns and contraction of the tiles of
    its kernel, where they are said."""
    x, y = (_array(w, v) for v in w.met(a, b))
    left, right = x.tensor_type.dtype, y.tensor_type.dtype
    if left != right:
        narrow = sorted((left, right), key=lambda d: d.bits)[0]
        common = common_dtype(left, right)
        if common is not None and left.is_float != right.is_float:
            narrow = common
        elif not (left.is_float and right.is_float and narrow.bits < 32):
            raise WorldFault(f"`@` of {left} and {right} needs a cast", code="T0818")
        x, y = w.builder.cast(x, narrow), w.builder.cast(y, narrow)
    row, column = x.tensor_type.rank == 1, y.tensor_type.rank == 1
    x = w.builder.reshape(x, (1, *x.tensor_type.shape)) if row else x
    y = w.builder.reshape(y, (*y.tensor_type.shape, 1)) if column else y
    x, y = _with_batches(w, x, y)
    found = w.op("matmul", x, y, **({"tile": tile} if tile else {}))
    shape = found.tensor_type.shape
    front = shape[:-2]
    if row and column and not front:
        return w.number(w.builder.reshape(found, ()))
    kept = (*(() if row else shape[-2:-1]), *(() if column else shape[-1:]))
    return GraphArray(w.builder.reshape(found, (*front, *kept)))


def _with_batches(w: GraphWorld, x: Value, y: Value) -> tuple[Value, Value]:
    """Factors with the same axes in front of their last two."""
    a, b = x.tensor_type.shape, y.tensor_type.shape
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    front = tuple(n if m == 1 else m for m, n in zip(a[:-2], b[:-2], strict=True))
    x, y = w.builder.reshape(x, a), w.builder.reshape(y, b)
    if front:
        x = w.op("broadcast", x, shape=tuple(map(str, (*front, *a[-2:]))))
        y = w.op("broadcast", y, shape=tuple(map(str, (*front, *b[-2:]))))
    return x, y


def _matmul(w: GraphWorld, given: Given) -> object:
    if given.get("precision", "exact") != "exact":
        raise not_here("`precision=` of `op.matmul`")
    tile = _integers(given["tile_shape"], "a size of a tile") if "tile_shape" in given else ()
    if len(tile) > 3 or any(n <= 0 for n in tile):
        raise WorldFault("`tile_shape` is rows, columns and contraction of a tile", code="T0610")
    return product(w, given["a"], given["b"], tile)


def _reduction(kind: str) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        axis = given.get("axis")
        axes = None if axis is None else _integers(axis)
        keepdims = given.get("keepdims", False) is True
        if kind in ("argmin", "argmax") and keepdims:
            raise not_here(f"`keepdims=` of `op.{kind}`", "add the axis: `places[:, None]`")
        return w.reduced(kind, given["x"], axes, keepdims)

    return function


def _spreading(w: GraphWorld, value: object) -> Value:
    """An array in the floats in which its elements are squared."""
    x = in_floats(w, _array(w, value))
    return w.builder.cast(x, w.floats) if x.tensor_type.dtype == BOOL else x


def _variance(w: GraphWorld, given: Given) -> Value:
    """Of the elements along axes, in the dtype of the array, with all its axes."""
    x = _spreading(w, given["x"])
    rank = x.tensor_type.rank
    axis = given.get("axis")
    axes = tuple(range(rank)) if axis is None else tuple(
        sorted(w.axis("axis", a, rank) for a in _integers(axis)))  # fmt: skip
    mean = w.op("mean", x, axes=axes, keepdims=True)
    apart = w.builder.sub(x, w.builder.broadcast(mean, x.tensor_type.shape))
    square = w.builder.mul(apart, apart)
    correction = given.get("correction", given.get("ddof", 0))
    found = w.op("mean", square, axes=axes, keepdims=True)
    if correction != 0:
        sizes = _known(x, "a correction")
        count = math.prod(sizes[a] for a in axes)
        found = w.builder.times(found, count / (count - cast("float", correction)))
    return found


def _spread(root: bool) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        found = _variance(w, given)
        return _without_axes(w, given, w.op("sqrt", found) if root else found)

    return function


def _without_axes(w: GraphWorld, given: Given, value: Value) -> object:
    """What a reduction that kept its axes gives where the call does not keep them."""
    if given.get("keepdims", False) is True:
        return GraphArray(value)
    rank, axis = value.tensor_type.rank, given.get("axis")
    over = set(range(rank)) if axis is None else {a % rank for a in _integers(axis)}
    left = tuple(n for i, n in enumerate(value.tensor_type.shape) if i not in over)
    found = w.builder.reshape(value, left)
    return GraphArray(found) if left else w.number(found)


def _norm(w: GraphWorld, given: Given) -> object:
    x = _spreading(w, given["x"])
    square = GraphArray(w.builder.mul(x, x))
    axis = given.get("axis")
    axes = x.tensor_type.rank if axis is None else len(_integers(axis))
    if given.get("ord") not in (None, {1: 2, 2: "fro"}.get(axes)):
        raise not_here("a norm of this order", "write `op.sum(op.abs(x))` or `op.max(op.abs(x))`")
    total = w.reduced("sum", square, None if axis is None else _integers(axis),
                      given.get("keepdims", False) is True)  # fmt: skip
    return elementwise("sqrt")(w, {"x": total})


def _softmax(w: GraphWorld, given: Given) -> object:
    x = in_floats(w, _array(w, given["x"]))
    return GraphArray(w.op("softmax", x, axis=_axis(w, given, x, -1)))


def _logsumexp(w: GraphWorld, given: Given) -> object:
    x = in_floats(w, _array(w, given["x"]))
    rank = x.tensor_type.rank
    axis = given.get("axis")
    axes = tuple(range(rank)) if axis is None else tuple(
        w.axis("axis", a, rank) for a in _integers(axis))  # fmt: skip
    keepdims = given.get("keepdims", False) is True
    if axis is None and rank > 1:
        x, axes = w.builder.reshape(x, (math.prod(_known(x, "`op.logsumexp`")),)), (0,)
    if keepdims and len(axes) != rank and len(axes) != 1 or len(axes) != 1:
        raise not_here("`op.logsumexp` along several axes", "go along one after the other")
    found = w.op("logsumexp", x, axes=axes, keepdims=keepdims)
    return GraphArray(found) if found.tensor_type.rank else w.number(found)


def _scan(name: str) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        x = _array(w, given["x"])
        if x.tensor_type.rank != 1 and "axis" not in given:
            raise WorldFault(f"`op.{name}` of several axes needs `axis=`", code="T0804")
        return GraphArray(w.op(
            name, x, axis=_axis(w, given, x, 0), exclusive=given.get("exclusive", False) is True,
            reverse=given.get("reverse", False) is True,
        ))  # fmt: skip

    return function


# --- shapes ----------------------------------------------------------------------------------


def _transpose(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    rank = x.tensor_type.rank
    axes = given.get("axes")
    order = tuple(reversed(range(rank))) if axes is None else tuple(
        w.axis("op.transpose", a, rank) for a in _integers(axes))  # fmt: skip
    return GraphArray(w.op("transpose", x, axes=order))


def _swapaxes(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    order = list(range(x.tensor_type.rank))
    p, q = (w.axis("axis", _integer(given[n]), len(order)) for n in ("axis1", "axis2"))
    order[p], order[q] = order[q], order[p]
    return GraphArray(w.op("transpose", x, axes=tuple(order)))


def _moveaxis(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    rank = x.tensor_type.rank
    source, target = (w.axis("axis", _integer(given[n]), rank) for n in ("source", "destination"))
    order = [i for i in range(rank) if i != source]
    order.insert(target, source)
    return GraphArray(w.op("transpose", x, axes=tuple(order)))


def _ravel(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    return GraphArray(w.builder.reshape(x, (math.prod(_known(x, "`op.ravel`")),)))


def _expand_dims(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    rank = x.tensor_type.rank + 1
    at = w.axis("op.expand_dims", _integer(given["axis"]), rank)
    shape = x.tensor_type.shape
    return GraphArray(w.builder.reshape(x, (*shape[:at], 1, *shape[at:])))


def _squeeze(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    shape = x.tensor_type.shape
    gone = {i for i, n in enumerate(shape) if n == 1}
    if given.get("axis") is not None:
        wanted = {w.axis("op.squeeze", a, len(shape)) for a in _integers(given["axis"])}
        if not wanted <= gone:
            raise WorldFault("`op.squeeze` takes away axes of one element", code="T0834")
        gone = wanted
    return GraphArray(w.builder.reshape(x, tuple(n for i, n in enumerate(shape) if i not in gone)))


def _broadcast_to(w: GraphWorld, given: Given) -> object:
    value = w.lifted(given["x"])
    shape: tuple[Dim, ...] = _integers(given["shape"], "a size")
    lacking = len(shape) - value.tensor_type.rank
    if lacking > 0:
        value = w.builder.reshape(value, (*(1,) * lacking, *value.tensor_type.shape))
    return GraphArray(w.op("broadcast", value, shape=tuple(map(str, shape))))


def _flip(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    rank, axis = x.tensor_type.rank, given.get("axis")
    axes = tuple(range(rank)) if axis is None else tuple(
        w.axis("op.flip", a, rank) for a in _integers(axis))  # fmt: skip
    return GraphArray(w.op("flip", x, axes=axes))


def _parts(w: GraphWorld, given: Given) -> list[Value]:
    arrays = given["arrays"]
    if not isinstance(arrays, tuple | list) or not arrays:
        raise WorldFault("a tuple of arrays is expected here", code="T0818")
    parts = [_array(w, a) for a in w.met(*cast("tuple[object, ...]", arrays))]
    common: DType | None = parts[0].tensor_type.dtype
    for part in parts:
        common = None if common is None else common_dtype(common, part.tensor_type.dtype)
    return parts if common is None else [w.builder.cast(part, common) for part in parts]


def _concat(w: GraphWorld, given: Given) -> object:
    parts = _parts(w, given)
    return GraphArray(w.op("concat", *parts, axis=_axis(w, given, parts[0], 0)))


def _stack(w: GraphWorld, given: Given) -> object:
    parts = _parts(w, given)
    rank = parts[0].tensor_type.rank + 1
    at = w.axis("op.stack", _integer(given.get("axis", 0)), rank)

    def stacked(axis: int) -> Value:
        shapes = [v.tensor_type.shape for v in parts]
        pairs = zip(parts, shapes, strict=True)
        lined = [w.builder.reshape(v, (*s[:axis], 1, *s[axis:])) for v, s in pairs]
        return w.op("concat", *lined, axis=axis)

    first = stacked(0)
    made = w.builder.origin(first)
    if not at or (made is not None and made.name == "graph.concat"):
        return GraphArray(first if not at else stacked(at))
    # One array along its first axis: results of the steps of a loop.
    return GraphArray(w.builder.transpose(first, (*range(1, at + 1), 0, *range(at + 1, rank))))


def _roll(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    axis = given.get("axis")
    if axis is None:
        if x.tensor_type.rank != 1:
            raise not_here("`op.roll` without `axis=`")
        axis = 0
    for shift, along in zip(_integers(given["shift"], "a shift"), _integers(axis), strict=False):
        at = w.axis("op.roll", along, x.tensor_type.rank)
        n = _known(x, "`op.roll`")[at]
        cut = -shift % n if n else 0
        if cut:
            x = w.op("concat", _along(w, x, at, cut, n), _along(w, x, at, 0, cut), axis=at)
    return GraphArray(x)


def _along(w: GraphWorld, x: Value, axis: int, start: int, stop: int) -> Value:
    shape = _known(x, "a part")
    return w.op(
        "slice", x, starts=tuple(start if i == axis else 0 for i in range(len(shape))),
        stops=tuple(stop if i == axis else n for i, n in enumerate(shape)),
        steps=(1,) * len(shape),
    )  # fmt: skip


def _diff(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    at = _axis(w, given, x, -1)
    parts = [_one_place(w, x, at, given.get(k)) for k in ("prepend", "append")]
    if any(parts):
        before, after = parts
        x = w.op("concat", *(p for p in (before, x, after) if p is not None), axis=at)
    for _ in range(_integer(given.get("n", 1), "a count")):
        n = _known(x, "`op.diff`")[at]
        x = w.op("sub", _along(w, x, at, min(1, n), n), _along(w, x, at, 0, max(n - 1, 0)))
    return GraphArray(x)


def _one_place(w: GraphWorld, x: Value, axis: int, value: object) -> Value | None:
    """What `op.diff` joins: an array as it is, a number at one place along the axis."""
    if value is None:
        return None
    if isinstance(value, GraphArray) and value.type.rank:
        return value.value
    number = w.builder.cast(w.lifted(value), x.tensor_type.dtype)
    return w.builder.broadcast(number, _known(_along(w, x, axis, 0, 1), "`op.diff`"))


# --- places ----------------------------------------------------------------------------------


def _taken(w: GraphWorld, x: Value, places: Value, axis: int) -> Value:
    """Rows by places, which may have several axes."""
    if places.tensor_type.dtype.kind not in ("int", "uint", "index"):
        raise WorldFault(f"places are integers, not {places.tensor_type.dtype}", code="T0807")
    shape = places.tensor_type.shape
    if len(shape) == 1:
        return w.op("take", x, places, axis=axis)
    row = w.builder.reshape(places, (math.prod(_known(places, "places")),))
    found = w.op("take", x, row, axis=axis)
    own = x.tensor_type.shape
    return w.builder.reshape(found, (*own[:axis], *shape, *own[axis + 1 :]))


def _take(w: GraphWorld, given: Given) -> object:
    x = _array(w, given["x"])
    if given.get("axis") is None and x.tensor_type.rank != 1:
        raise not_here("`op.take` without `axis=`")
    places = _array(w, given["indices"])
    return GraphArray(_taken(w, x, places, _axis(w, given, x, 0)))


def _take_along_axis(w: GraphWorld, given: Given) -> object:
    """By a comparison with every place: one element of each line is chosen."""
    x, places = _array(w, given["x"]), _array(w, given["indices"])
    rank = x.tensor_type.rank
    at = _axis(w, given, x, -1)
    sizes, wanted = _known(x, "`op.take_along_axis`"), _known(places, "places")
    if len(wanted) != rank or any(
        m != n for i, (m, n) in enumerate(zip(sizes, wanted, strict=True)) if i != at
    ):
        raise WorldFault("places have the shape of the array, but along the axis", code="T0834")
    return GraphArray(w.op("take_along", x, places, axis=at))


def _sorted(name: str) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        x = _array(w, given["x"])
        return GraphArray(w.op(name, x, axis=_axis(w, given, x, -1),
                               descending=given.get("descending", False) is True))  # fmt: skip

    return function


def _topk(w: GraphWorld, given: Given) -> object:
    """The first of all places in order, and what is there."""
    x, k = _array(w, given["x"]), _integer(given["k"], "a number of elements")
    at, sizes = _axis(w, given, x, -1), _known(x, "`op.topk`")
    if not 1 <= k <= sizes[at]:
        raise WorldFault(f"`op.topk` takes 1 to {sizes[at]} of {sizes[at]} elements, not {k}",
                         code="T0834")  # fmt: skip
    places = w.op("argsort", x, axis=at, descending=given.get("largest", True) is True)
    places = part_along(w.builder, places, at, 0, k)
    return GraphArray(w.op("take_along", x, places, axis=at)), GraphArray(places)


def _triangle(upper: bool) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        x = _array(w, given["x"])
        shape = _known(x, "a triangle")
        if len(shape) < 2:
            raise WorldFault("a triangle has two axes", code="T0833")
        rows, columns = _grid(w, shape[-2:])
        edge = w.builder.plus(rows, _integer(given.get("k", 0), "a diagonal"))
        kept = w.op("ge" if upper else "le", columns, edge)
        front = (*(1,) * (len(shape) - 2), *shape[-2:])
        kept = w.builder.broadcast(w.builder.reshape(kept, front), shape)
        return GraphArray(w.builder.where(kept, x, w.builder.zeros(x)))

    return function


def _grid(w: GraphWorld, shape: tuple[int, ...]) -> tuple[Value, Value]:
    """The row and the column of each element."""
    b = w.builder
    rows, columns = (w.op("arange", shape=(str(n),), dtype=I64) for n in shape)
    return (b.broadcast(b.reshape(rows, (shape[0], 1)), shape),
            b.broadcast(b.reshape(columns, (1, shape[1])), shape))  # fmt: skip


def _eye(w: GraphWorld, given: Given) -> object:
    n = _integer(given["n"], "a size")
    m = _integer(given.get("m", n), "a size")
    rows, columns = _grid(w, (n, m))
    on = w.op("eq", columns, w.builder.plus(rows, _integer(given.get("k", 0), "a diagonal")))
    made = GraphArray(w.builder.cast(on, _dtype(given.get("dtype"), w.floats)))
    return made if "dtype" in given else w.of_numbers(made)


def _made_of(w: GraphWorld, given: Given) -> object:
    """``op.array`` of numbers that the function computes, in lists in lists."""
    numbers: list[object] = []
    shape = _nested(given["items"], numbers)
    floats = any(isinstance(n, float) or w.lifted(n).tensor_type.dtype.is_float for n in numbers)
    own = F64 if any(map(is_double, numbers)) else w.floats if floats else I32
    dtype = _dtype(given.get("dtype"), own)
    parts = [w.builder.reshape(w.builder.cast(w.lifted(n), dtype), (1,)) for n in numbers]
    return GraphArray(w.builder.reshape(w.op("concat", *parts, axis=0), shape))


def _nested(value: object, numbers: list[object]) -> tuple[int, ...]:
    """The shape of lists in lists; the numbers in order go to ``numbers``."""
    if not isinstance(value, tuple | list):
        if not isinstance(value, bool | int | float | GraphNumber):
            raise WorldFault(f"`op.array` takes numbers, not {kind_of(value)}", code="T0818")
        numbers.append(value)
        return ()
    items = cast("tuple[object, ...] | list[object]", value)
    shapes = [_nested(item, numbers) for item in items]
    if any(shape != shapes[0] for shape in shapes):
        raise WorldFault("the lists of `op.array` have one length along each axis", code="T0818")
    return (len(items), *(shapes[0] if shapes else ()))


FUNCTIONS_OF_ARRAYS: dict[str, tuple[str, int, ArrayFunction]] = {
    **FUNCTIONS_OF_ELEMENTS, **CONVOLUTIONS,
    "matmul": ("a b precision tile_shape", 2, _matmul),
    **{n: ("x axis keepdims", 1, _reduction(n)) for n in (
        "sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin")},
    "var": ("x axis keepdims correction ddof", 1, _spread(False)),
    "std": ("x axis keepdims correction ddof", 1, _spread(True)),
    "norm": ("x axis keepdims ord", 1, _norm),
    "softmax": ("x axis", 1, _softmax),
    "logsumexp": ("x axis keepdims", 1, _logsumexp),
    "cumsum": ("x axis exclusive reverse", 1, _scan("cumsum")),
    "cumprod": ("x axis exclusive reverse", 1, _scan("cumprod")),
    "transpose": ("x axes", 1, _transpose), "permute_dims": ("x axes", 2, _transpose),
    "swapaxes": ("x axis1 axis2", 3, _swapaxes),
    "moveaxis": ("x source destination", 3, _moveaxis),
    "ravel": ("x", 1, _ravel), "expand_dims": ("x axis", 2, _expand_dims),
    "squeeze": ("x axis", 1, _squeeze), "broadcast_to": ("x shape", 2, _broadcast_to),
    "flip": ("x axis", 1, _flip), "concat": ("arrays axis", 1, _concat),
    "concatenate": ("arrays axis", 1, _concat), "stack": ("arrays axis", 1, _stack),
    "pad": ("x pad_width mode constant_values", 2, pad), "roll": ("x shift axis", 2, _roll),
    "diff": ("x n axis prepend append", 1, _diff), "take": ("x indices axis", 2, _take),
    "take_along_axis": ("x indices axis", 2, _take_along_axis),
    "sort": ("x axis descending", 1, _sorted("sort")),
    "argsort": ("x axis descending", 1, _sorted("argsort")),
    "topk": ("x k axis largest", 2, _topk),
    "tril": ("x k", 1, _triangle(False)), "triu": ("x k", 1, _triangle(True)),
    "eye": ("n m k dtype", 1, _eye), "array": ("items dtype", 1, _made_of),
}  # fmt: skip
"""By name without ``op.``: parameters, how many of them are needed, and the function."""


def chosen(w: GraphWorld, array: object, items: tuple[object, ...]) -> object:
    """``array[items]`` where one item holds places: rows along its axis, of the slices of the
    others."""
    own = [i for i in items if w.is_array(i)]
    if len(own) != 1 or isinstance(own[0], GraphNumber):
        raise not_here("choosing elements by several arrays of places",
                       "use `op.take_along_axis`")  # fmt: skip
    places = _array(w, own[0])
    if places.tensor_type.dtype == BOOL:
        raise not_here("choosing elements by bools", "choose with `op.where`")
    if any(i is None or isinstance(i, int) for i in items):
        raise not_here("places beside indices", "write them one after the other: `x[i][p]`")
    at = next(i for i, item in enumerate(items) if item is own[0])
    if places.tensor_type.dtype.kind == "int":  # those below 0 count from the end
        b, n = w.builder, _known(w.lifted(array), "places")[at]
        places = b.where(b.op("lt", places, b.zeros(places)), b.plus(places, n), places)
    rest = tuple(slice(None) if i == at else item for i, item in enumerate(items))
    part = w.read(_own(w, array), cast("tuple[slice, ...]", rest))
    exact = w.numbers(part)
    made = _taken(w, w.lifted(part), places, at)
    return GraphArray(made, None if exact is None else _taken(w, exact, places, at))


def _own(w: GraphWorld, array: object) -> GraphArray:
    if isinstance(array, GraphArray):
        return array
    return GraphArray(w.lifted(array), w.numbers(array))
