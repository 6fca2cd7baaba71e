"""Random expressions over whole tensors against NumPy, before and after the passes."""

from __future__ import annotations

from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from tests.unit.lower.ast_to_schedule.lowering import lower_source
from tests.unit.lower.ast_to_schedule.programs import HEAD, softmax
from tests.unit.lower.ast_to_schedule.reference import Run, launch
from tests.unit.lower.ast_to_schedule.test_ast_to_schedule import passed

NAMES = "mnk"
KINDS = ("leaf", "add", "mul", "T", "matmul", "matmul", "softmax", "less", "mean", "where")


class Tree(NamedTuple):
    text: str
    value: Any


class Maker:
    """Grows an expression of rows and columns; a parameter per pair of sizes."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.sizes = {n: draw(st.sampled_from([1, 3, 8, 13])) for n in NAMES}
        self.random = np.random.default_rng(draw(st.integers(0, 99)))
        self.arrays: dict[str, Any] = {}

    def leaf(self, r: str, c: str) -> Tree:
        name = f"X{r}{c}"
        if name not in self.arrays:
            shape = self.sizes[r], self.sizes[c]
            self.arrays[name] = self.random.random(shape, dtype=np.float32) - np.float32(0.5)
        return Tree(name, self.arrays[name].astype(np.float64))

    def tree(self, r: str, c: str, depth: int) -> Tree:
        kinds = KINDS if depth else ("leaf",)
        kind = self.draw(st.sampled_from(kinds))
        if kind == "leaf":
            return self.leaf(r, c)
        if kind == "matmul":
            x = self.draw(st.sampled_from(NAMES))
            a, b = self.tree(r, x, depth - 1), self.tree(x, c, depth - 1)
            return Tree(f"({a.text} @ {b.text})", a.value @ b.value)
        if kind == "T":
            a = self.tree(c, r, depth - 1)
            return Tree(f"({a.text}).T", a.value.T)
        a = self.tree(r, c, depth - 1)
        if kind in ("add", "mul"):
            b = self.tree(r, c, depth - 1)
            sign = {"add": "+", "mul": "*"}[kind]
            value = a.value + b.value if kind == "add" else a.value * b.value
            return Tree(f"({a.text} {sign} {b.text})", value)
        axis = self.draw(st.integers(0, 1))
        if kind == "softmax":
            return Tree(f"op.softmax({a.text}, axis={axis})", softmax(a.value, axis))
        if kind == "where":
            return Tree(f"op.where({a.text} > 0.25, {a.text}, -1.0)",
                        np.where(a.value > 0.25, a.value, -1.0))  # fmt: skip
        new = "[None, :]" if axis == 0 else "[:, None]"
        if kind == "less":
            value = a.value - a.value.max(axis, keepdims=True)
            return Tree(f"({a.text} - op.max({a.text}, axis={axis}){new})", value)
        value = a.value * a.value.mean(axis, keepdims=True)
        return Tree(f"({a.text} * op.mean({a.text}, axis={axis}){new})", value)


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, dict[str, Any], Any]:
    maker = Maker(draw)
    tree = maker.tree("m", "n", 3)
    maker.leaf("m", "n")
    arrays = dict(sorted(maker.arrays.items()))
    parameters = ", ".join(f"{n}: f32[{n[1]}, {n[2]}]" for n in arrays)
    text = f"{HEAD}@op.kernel\ndef f({parameters}):\n    return {tree.text}\n"
    return text, arrays, tree.value


@settings(deadline=None)
@given(programs(), st.integers(0, 9))
def test_random_expressions(case: tuple[str, dict[str, Any], Any], seed: int) -> None:
    text, arrays, expected = case
    program, plan, found = lower_source(text, *arrays.values())
    assert not found, found
    sizes = {"$0": 4, "$1": 5, "$2": 3, **{f"${i}": 6 for i in range(3, 20)}}
    for made in (program, passed(program)[0]):
        run = Run(sizes=sizes, shuffle=np.random.default_rng(seed))
        (result,) = launch(made, plan, *arrays.values(), run=run)
        # What lies near a threshold may fall on either side of it.
        wrong = ~np.isclose(result, expected, rtol=2e-3, atol=2e-3)
        assert wrong.sum() == 0 or (">" in text and wrong.mean() < 0.2), (result, expected)
