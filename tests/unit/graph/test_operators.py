"""The table of operators: every column, of every operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation, Program, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import (
    NoGradient,
    OperandError,
    Operator,
    Sharding,
    table,
)
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.spelling import tensor_type
from tessera_lang.ir.verify import verify
from tessera_lang.opt.graph.dead_code import remove_dead_code
from tessera_lang.opt.graph.differentiate import gradient_of
from tessera_lang.record import field_names, replace
from tests.run.graph_page import PAGE, in_page
from tests.unit.graph import reference
from tests.unit.graph.samples import sample_of

NAMES = sorted(OPERATORS)
SAMPLES = 4


def _random(name: str, seed: int) -> Any:
    return np.random.default_rng([*name.encode(), seed])


def _of_one(row: Operator, types: list[TensorType], attributes: dict[str, Any]) -> Operation:
    """The function that is the operator."""
    builder = GraphBuilder(OPERATORS)
    parameters = [Value(t, f"x{i}") for i, t in enumerate(types)]
    result = builder.op(row.name, *parameters, **attributes)
    return builder.function("f", parameters, [result])


@pytest.mark.parametrize("name", NAMES)
def test_types_are_those_of_the_reference(name: str) -> None:
    """The shape rule and the dtype rule, against NumPy; printed, parsed and verified."""
    row = OPERATORS[name]
    for seed in range(SAMPLES):
        operands, attributes = sample_of(row, _random(name, seed))
        function = _of_one(row, [t for _, t in operands], attributes)
        program = verify(Program("graph", (function,)))
        text = print_program(program)
        assert print_program(verify(parse_program(text))) == text
        (found,) = reference.run(function, [v for v, _ in operands])
        result = function.regions[0].terminator.operands[0].tensor_type
        assert found.shape == result.shape
        kinds = {"f": "float", "b": "bool", "i": "int", "u": "uint"}
        assert kinds[found.dtype.kind] == result.dtype.kind


@pytest.mark.parametrize("name", NAMES)
def test_what_is_refused(name: str) -> None:
    for refused in OPERATORS[name].errors:
        types = tuple(tensor_type(t[len("!graph.tensor<") : -1]) for t in refused.operands)
        with pytest.raises(OperandError) as error:
            OPERATORS[name].type_of(types, refused.attributes)
        assert refused.says in str(error.value)


def _differences(function: Operation, inputs: list[Any], weights: Any, at: int) -> Any:
    """The gradient of the weighted sum of the result by central differences."""
    h = 1e-6
    found = np.zeros_like(inputs[at])
    for place in np.ndindex(found.shape):
        sides: list[Any] = []
        for step in (h, -h):
            moved = [v.copy() for v in inputs]
            moved[at][place] += step
            sides.append(np.sum(reference.run(function, moved)[0] * weights))
        found[place] = (sides[0] - sides[1]) / (2 * h)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_differences(name: str) -> None:
    """The gradient column against central differences in float64: no gradient goes without."""
    row = OPERATORS[name]
    compared = 0
    if isinstance(row.gradient, NoGradient) and not row.gradient.zero:
        pytest.skip(row.gradient.why)
    for seed in range(SAMPLES):
        rng = _random(name, seed)
        operands, attributes = sample_of(row, rng)
        types = [t for _, t in operands]
        function = _of_one(row, types, attributes)
        result = function.regions[0].terminator.operands[0].tensor_type
        wrt = [i for i, t in enumerate(types) if t.dtype.is_float]
        if not wrt or not result.dtype.is_float:
            continue
        gradient = gradient_of(function, wrt, seeded=True)
        program = remove_dead_code(verify(Program("graph", (gradient,))))
        weights = rng.uniform(-1.0, 1.0, result.shape)
        inputs = [v for v, _ in operands]
        _, *found = reference.run(verify(program).operations[0], [*inputs, weights])
        for at, value in zip(wrt, found, strict=True):
            wanted = _differences(function, inputs, weights, at)
            assert value.shape == wanted.shape
            np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=2e-6)
            compared += 1
    assert compared or isinstance(row.gradient, NoGradient) or not row.operands


_JOIN = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def _part(value: Any, factors: Any, factor: str, side: int) -> Any:
    """One of two parts of an operand along a factor."""
    for axis, found in enumerate(factors):
        if found == factor:
            value = np.array_split(value, 2, axis)[side]
    return value


@pytest.mark.parametrize("name", NAMES)
def test_results_are_made_of_parts(name: str) -> None:
    """The sharding column: two parts along each factor give what the whole gives."""
    row = OPERATORS[name]
    for seed in range(SAMPLES):
        operands, attributes = sample_of(row, _random(name, seed))
        types = [t for _, t in operands]
        result = row.type_of(tuple(types), attributes)
        rule = row.sharding(tuple(types), attributes, result)
        assert len(rule.operands) == len(types)
        factors = {f for one in rule.operands for f in one if f}
        assert {f for f in rule.result if f} | set(rule.joined) == factors
        for factor in sorted(factors):
            _check_factor(row, rule, factor, operands, attributes)


def _check_factor(
    row: Operator, rule: Sharding, factor: str, operands: list[Any], attributes: dict[str, Any]
) -> None:
    inputs = [v for v, _ in operands]
    whole = reference.run(_of_one(row, [t for _, t in operands], attributes), inputs)[0]
    parts: list[Any] = []
    for side in range(2):
        mine = [_part(v, f, factor, side) for v, f in zip(inputs, rule.operands, strict=True)]
        if any(0 in v.shape for v in mine):
            return
        types = [replace(t, shape=v.shape) for v, (_, t) in zip(mine, operands, strict=True)]
        local = dict(attributes)
        if row.name in ("reshape", "broadcast"):
            at = rule.result.index(factor)
            shape = [int(n) for n in attributes["shape"]]
            shape[at] = np.array_split(range(shape[at]), 2)[side].size
            local["shape"] = tuple(map(str, shape))
        if row.name == "slice":
            at = rule.result.index(factor)
            local["stops"] = tuple(
                mine[0].shape[i] if i == at else n for i, n in enumerate(attributes["stops"])
            )
        parts.append(reference.run(_of_one(row, types, local), mine)[0])
    if factor in rule.joined:
        found = _JOIN[rule.joined[factor]](*parts)
    else:
        found = np.concatenate(parts, rule.result.index(factor))
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_work_is_counted(name: str) -> None:
    row = OPERATORS[name]
    operands, attributes = sample_of(row, _random(name, 0))
    types = tuple(t for _, t in operands)
    sizes = tuple(v.shape for v, _ in operands)
    result = row.type_of(types, attributes)
    assert row.work(sizes, tuple(int(str(n)) for n in result.shape)) >= 0.0


def test_no_operator_without_a_column() -> None:
    """A row that lacks a column makes no table."""
    row = OPERATORS["exp"]
    optional = {"operands", "attributes", "elementwise"}
    for column in set(field_names(row)) - optional:
        with pytest.raises(TypeError, match=column):
            table((replace(row, **{column: () if column == "errors" else ""}),))
    with pytest.raises(TypeError, match="twice"):
        table((row, row))


def test_the_page_has_the_table() -> None:
    """docs/graph.md lists the operators as they are (``tests.run.graph_page --write``)."""
    text = PAGE.read_text(encoding="utf-8")
    assert in_page(text) == text
