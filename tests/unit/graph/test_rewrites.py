"""Every rewrite of Graph IR, by the tables that hold them: on random shapes and dtypes a function
gives before and after it what NumPy gives in float64, and so do its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation, Program, Region, TensorType, Value
from tessera_lang.ir.graph.builder import FOLDS, FUNCTION, RETURN, GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.verify import verify
from tessera_lang.lower.graph_to_kernels.mask_ranges import WAYS
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.opt.graph.decompose import REWRITES, decompose
from tessera_lang.opt.graph.differentiate import gradient_of
from tessera_lang.types.dtype import BF16, F16, F32, F64, DType
from tests.unit.graph import on_cpu, reference, samples

_NEAR = {"f64": 1e-10, "f32": 2e-4, "f16": 4e-2, "bf16": 0.2}
"""Of the largest element, by dtype: a few operators, products of up to 9 terms."""
_EXACT: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


class _Case:
    """Parameters of random shapes, and what is built of them."""

    def __init__(self, seed: int, dtype: DType) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = GraphBuilder(OPERATORS)
        self.dtype = dtype
        self.parameters: list[Value] = []
        self.front = tuple(self.number(1, 3) for _ in range(self.number(0, 2)))

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def given(self, *shape: int, dtype: DType | None = None) -> Value:
        made = Value(TensorType(dtype or self.dtype, shape), f"x{len(self.parameters)}")
        self.parameters.append(made)
        return made

    def sizes(self, count: int) -> tuple[int, ...]:
        return tuple(self.number(1, 9) for _ in range(count))

    def of_product(self) -> Value:
        """A product, and element-wise operators of it."""
        m, n, k = self.sizes(3)
        found = self.b.op("matmul", self.given(*self.front, m, k), self.given(*self.front, k, n))
        if self.flag():
            found = self.b.op("tanh", found)
        return self.b.times(found, 0.5) if self.flag() else found

    def inputs(self, more: tuple[Value, ...] = ()) -> list[Any]:
        made: list[Any] = []
        for v in (*self.parameters, *more):
            found = self.rng.uniform(-1.0, 1.0, v.tensor_type.shape)
            exact = _EXACT.get(v.tensor_type.dtype.name)
            made.append(found if exact is None else found.astype(exact))
        return made


def _softmax(c: _Case) -> Value:
    a = c.of_product()
    return c.b.op("softmax", a, axis=c.number(0, a.tensor_type.rank - 1))


def _logsumexp(c: _Case) -> Value:
    a = c.of_product()
    axes = (c.number(0, a.tensor_type.rank - 1),)
    return c.b.op("logsumexp", a, axes=axes, keepdims=c.flag())


def _axes(c: _Case, a: Value) -> tuple[int, ...]:
    rank = a.tensor_type.rank
    return tuple(sorted(int(i) for i in c.rng.permutation(rank)[: c.number(1, rank)]))


def _mean(c: _Case) -> Value:
    a = c.of_product()
    return c.b.op("mean", a, axes=_axes(c, a), keepdims=c.flag())


def _conditions(c: _Case) -> Value:
    a = c.of_product()
    seen = c.b.op("gt", a, c.b.like(a, 0.1))
    axes = (c.number(0, a.tensor_type.rank - 1),)
    found = c.b.op("any" if c.flag() else "all", seen, axes=axes, keepdims=True)
    return c.b.where(c.b.broadcast(found, a.tensor_type.shape), a, c.b.op("tanh", a))


def _transposed(c: _Case) -> Value:
    m, n, k = c.sizes(3)
    said: dict[str, Any] = {"tile": (64, 32, 16)} if c.flag() else {}
    left, right = c.given(*c.front, m, k), c.given(*c.front, k, n)
    return c.b.op("tanh", c.b.swapped(c.b.op("matmul", left, right, **said)))


def _reshaped(c: _Case) -> Value:
    a = c.given(*c.front, *c.sizes(2))
    name = ("sum", "reduce_max", "reduce_min", "mean", "prod", "logsumexp")[c.number(0, 5)]
    axes = _axes(c, a)[:1] if name == "logsumexp" else _axes(c, a)
    found = c.b.op(name, a, axes=axes, keepdims=True)
    shape = tuple(int(str(n)) for n in found.tensor_type.shape)
    return c.b.reshape(found, (*shape[1:], 1, shape[0]) if shape[0] == 1 else (*shape, 1))


def _sum_of_two(c: _Case) -> Value:
    m, n, k = c.sizes(3)
    y, a, b = c.given(*c.front, m, n), c.given(*c.front, m, k), c.given(*c.front, n, k)
    there = c.b.op("matmul", y, b)
    both = (y, c.b.op("matmul", a, c.b.swapped(b)))
    product = c.b.op("mul", *(both if c.flag() else both[::-1]))
    total = c.b.sum(product, (product.tensor_type.rank - 1,), keepdims=True)
    return c.b.add(there, c.b.broadcast(total, there.tensor_type.shape))


def _kept(c: _Case) -> Value:
    a = c.of_product()
    name = ("sum", "reduce_max", "reduce_min")[c.number(0, 2)]
    return c.b.op(name, a, axes=_axes(c, a), keepdims=True)


def _spread(c: _Case) -> Value:
    """A convolution, or its gradient by the weights, of an input that is spread along an axis."""
    of_weights, groups, rank = c.flag(), c.number(1, 2), c.number(1, 2)
    name = "conv_weights" if of_weights else "conv"
    row = samples.convolution(c.rng, of_weights, rank, groups)
    types, attributes = [t for _, t in row[0]], dict(row[1])
    at = c.number(0, rank - 1)
    attributes["spread"] = tuple(
        max(2, n) if i == at else n for i, n in enumerate(attributes["spread"])
    )
    given = [c.given(*(int(str(n)) for n in t.shape)) for t in types]
    return c.b.op(name, *given, **attributes)


_MAKERS: dict[str, Callable[[_Case], Value]] = {
    "softmax in parts": _softmax,
    "logsumexp in parts": _logsumexp,
    "mean as a sum": _mean,
    "conditions as numbers": _conditions,
    "convolution in phases": _spread,
    "product of transposes": _transposed,
    "reduction without its axes, reshaped": _reshaped,
    "sum behind another product": _sum_of_two,
    "reduction of a product without its axes": _kept,
}
_RULES = [rule.name for rule in REWRITES]


def test_every_rewrite_has_a_maker() -> None:
    """A rule without functions to which it applies is not tested."""
    assert sorted(_RULES) == sorted(_MAKERS)
    assert sorted(FOLDS) == sorted(_FOLDED)


def _made(name: str, seed: int, dtype: DType) -> tuple[_Case, Operation]:
    c = _Case(seed, dtype)
    result = _MAKERS[name](c)
    return c, without_unused(c.b.function("f", c.parameters, [result]))


def _alone(name: str, function: Operation) -> Operation:
    """A function, rewritten by one rule, which is used."""
    applied: list[str] = []
    rules = [rule for rule in REWRITES if rule.name == name]
    found = decompose(function, rules, applied)
    assert set(applied) == {name}
    verify(Program("graph", (found,)))
    ends = [f.regions[0].terminator.operands for f in (found, function)]
    assert [v.type for v in ends[0]] == [v.type for v in ends[1]]
    return found


def _same(name: str, found: list[Any], wanted: list[Any], near: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        limit = near * max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=0.0, atol=limit, err_msg=name)


def _gradient(function: Operation, count: int) -> Operation:
    made = without_unused(gradient_of(function, range(count), seeded=True))
    return verify(Program("graph", (made,))).operations[0]


@pytest.mark.parametrize("name", _RULES)
@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
@pytest.mark.sample(8)
def test_a_rule_keeps_results_and_gradients(name: str, dtype: DType) -> None:
    """As a formula: rewritten before and after differentiation, by NumPy in float64."""
    for seed in range(12):
        c, function = _made(name, seed, dtype)
        count = len(c.parameters)
        found = _alone(name, function)
        both = _gradient(function, count)
        given = c.inputs(both.regions[0].arguments[count:])
        inputs = [v.astype(np.float64) for v in given]
        wanted = reference.run(both, inputs)
        _same(name, reference.run(found, inputs[:count]), wanted[:1], 1e-12)
        _same(name, reference.run(_gradient(found, count), inputs), wanted, 1e-11)
        _same(name, reference.run(decompose(both), inputs), wanted, 1e-11)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [F64, F32, F16], ids=str)
@pytest.mark.parametrize("name", _RULES)
@pytest.mark.slow
def test_kernels_of_what_a_rule_gives(name: str, dtype: DType, seed: int) -> None:
    """With gradients, in the dtype of the program."""
    c, function = _made(name, 100 + seed, dtype)
    both = _gradient(_alone(name, function), len(c.parameters))
    inputs = c.inputs(both.regions[0].arguments[len(c.parameters) :])
    spreads = name == "convolution in phases"  # so do gradients, which are rewritten then
    found = on_cpu.run(decompose(both) if spreads else both, inputs)
    wanted = reference.run(both, [v.astype(np.float64) for v in inputs])
    _same(name, found, wanted, _NEAR[dtype.name])


# --- folds of the builder --------------------------------------------------------------------

_Folded = tuple[str, tuple[Value, ...], dict[str, Any]]


def _text_of(shape: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(map(str, shape))


def _to_own_dtype(c: _Case) -> _Folded:
    return "cast", (c.given(*c.sizes(2)),), {"dtype": c.dtype}


def _to_own_shape(c: _Case) -> _Folded:
    shape = c.sizes(c.number(1, 3))
    return ("broadcast", "reshape")[c.number(0, 1)], (c.given(*shape),), {"shape": _text_of(shape)}


def _turned_twice(c: _Case) -> _Folded:
    rank = c.number(2, 4)
    axes, again = (tuple(int(i) for i in c.rng.permutation(rank)) for _ in range(2))
    value = c.b.op("transpose", c.given(*c.sizes(rank)), axes=axes)
    turned = c.b.origin(value) is not None
    return "transpose", (value,), {"axes": again if turned else tuple(range(rank))}


def _moved_equal(c: _Case) -> _Folded:
    shape = (1, *c.sizes(2))
    value = c.b.full(shape, c.dtype, 0.75)
    match c.number(0, 4):
        case 0:
            return "broadcast", (value,), {"shape": _text_of((3, *shape[1:]))}
        case 1:
            return "reshape", (value,), {"shape": _text_of((shape[1] * shape[2],))}
        case 2:
            return "transpose", (value,), {"axes": (2, 0, 1)}
        case 3:
            return "flip", (value,), {"axes": (1,)}
        case _:
            return "slice", (value,), {"starts": (0, 0, 0), "stops": shape, "steps": (1, 2, 1)}


def _joined_again(c: _Case) -> _Folded:
    """Along an axis, from a place on, in pieces of one or several; some lose an axis and get it
    back."""
    sizes = list(c.sizes(c.number(1, 3)))
    axis = c.number(0, len(sizes) - 1)
    n = sizes[axis] = sizes[axis] + 2
    value = c.given(*sizes)
    ends = [c.number(0, 1), n - 1, n - c.number(0, 1)]
    parts: list[Value] = []
    for begin, end in itertools.pairwise(ends):
        starts = tuple(begin if a == axis else 0 for a in range(len(sizes)))
        stops = tuple(end if a == axis else m for a, m in enumerate(sizes))
        if begin == end:
            continue
        part = c.b.op("slice", value, starts=starts, stops=stops, steps=(1,) * len(sizes))
        if part is not value and c.flag():
            shape = part.tensor_type.shape
            part = c.b.reshape(c.b.reshape(part, (*shape, 1)), shape)
        parts.append(part)
    if len(parts) == 1:
        return _joined_again(c)
    return "concat", tuple(parts), {"axis": axis}


_FOLDED: dict[str, Callable[[_Case], _Folded]] = {
    "cast to the own dtype": _to_own_dtype,
    "broadcast or reshape to the own shape": _to_own_shape,
    "transpose of a transpose": _turned_twice,
    "equal elements, moved": _moved_equal,
    "slices of one tensor, joined": _joined_again,
}


def _as_built(c: _Case, operation: Operation) -> Operation:
    end = Operation(RETURN, operation.results)
    body = Region(tuple(c.parameters), (*c.b.operations, operation, end))
    names = tuple(v.name for v in c.parameters)
    return Operation(FUNCTION, attributes={"sym_name": "f", "parameters": names}, regions=(body,))


@pytest.mark.parametrize("name", sorted(FOLDS))
@pytest.mark.parametrize("dtype", [F64, F32, BF16], ids=str)
def test_a_fold_is_what_is_not_built(name: str, dtype: DType) -> None:
    """All folds are of linear operators: the gradient is that of the difference of two points."""
    for seed in range(20):
        c = _Case(seed, dtype)
        word, operands, attributes = _FOLDED[name](c)
        types = tuple(v.tensor_type for v in operands)
        result = Value(OPERATORS[word].type_of(types, attributes))
        unfolded = _as_built(c, Operation(f"graph.{word}", operands, (result,), attributes))
        made = FOLDS[name](c.b, word, operands, attributes)
        assert made is not None and made.type == result.type
        function = c.b.function("f", c.parameters, [made])
        inputs = [v.astype(np.float64) for v in c.inputs()]
        (found,), (wanted,) = (reference.run(f, inputs) for f in (function, unfolded))
        np.testing.assert_array_equal(found, wanted)
        weights = c.rng.uniform(-1.0, 1.0, wanted.shape)
        _, *gradients = reference.run(_gradient(function, len(inputs)), [*inputs, weights])
        zero = reference.run(unfolded, [0.0 * v for v in inputs])[0]
        slope = sum(float(np.sum(g * v)) for g, v in zip(gradients, inputs, strict=True))
        np.testing.assert_allclose(slope, np.sum((wanted - zero) * weights), atol=1e-12)


# --- what masks hide -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), sorted(WAYS))
def test_hidden_terms_are_what_the_table_says(name: str, number: float) -> None:
    """Whatever the other operand is."""
    row = OPERATORS[name]
    for way in WAYS[name, number]:
        for seed in range(8):
            rng = np.random.default_rng(seed)
            operands: list[Any] = [rng.uniform(-3.0, 3.0, (5,)) for _ in row.operands]
            if way.needs:
                operands[1] = np.abs(operands[1]) + 0.1
            for at, value in way.operands:
                operands[at] = np.full((5,), value)
            b = GraphBuilder(OPERATORS)
            parameters = [Value(TensorType(F64, (5,)), f"x{i}") for i in range(len(operands))]
            attributes: dict[str, Any] = {"dtype": F32} if name == "cast" else {}
            function = b.function("f", parameters, [b.op(name, *parameters, **attributes)])
            assert np.all(reference.run(function, operands)[0] == number)
