"""Whole-array values that need their rows several times: each row is held, read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Program, TileType
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.record import replace
from tessera_lang.sema.instance import needed_sizes
from tessera_lang.sema.side_tables import FunctionSymbol, Signature, TensorArgument
from tessera_lang.target.array_facts import bucket, divisor
from tests.unit.lower.ast_to_schedule.lowering import Lowered, argument, lower_source, opened
from tests.unit.lower.ast_to_schedule.programs import softmax
from tests.unit.lower.ast_to_schedule.reference import Run, launch
from tests.unit.lower.ast_to_schedule.test_ast_to_schedule import passed

LOAD, STORE, FOR = (PREFIX + n for n in ("load", "store", "for"))
X = "x: f32[m, n]"


def signature(text: str, arrays: tuple[Any, ...]) -> Signature:
    """What the runtime says of arrays: bounds of the axes that are asked for, and divisors."""
    declaration, path, scope_at = opened(text)[:3]
    given = tuple(argument(a) for a in arrays)
    _, whole = needed_sizes(FunctionSymbol(declaration, path), given, scope_at)
    made: list[Any] = []
    for p, a, array in zip(declaration.parameters, given, arrays, strict=True):
        assert isinstance(a, TensorArgument)
        bounds = [bucket(n) if (p.name, i) in whole else None for i, n in enumerate(array.shape)]
        divisors = tuple(map(divisor, array.shape))
        made.append(replace(a, buckets=tuple(bounds), divisors=divisors))
    return tuple(made)


def lowered(parameters: str, body: str, *arrays: Any) -> Lowered:
    text = f"@op.kernel\ndef f({parameters}):\n    {body}\n"
    program, plan, found = lower_source(text, *arrays, signature=signature(text, arrays))
    assert not found, found
    return program, plan, found


def shapes(program: Program, name: str) -> list[Any]:
    """Of each access of one kind the shape of its tile."""
    made: list[Any] = []
    for o in program.operations[0].walk():
        if o.name == name:
            t = (o.results or o.operands)[0].type
            assert isinstance(t, TileType)
            made.append(t.shape)
    return made


def loops(program: Program) -> int:
    return sum(o.name == FOR for o in program.operations[0].walk())


def share(x: Any) -> Any:
    return x / x.sum(1, keepdims=True)


def layernorm(x: Any, w: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w


def rmsnorm(x: Any, w: Any) -> Any:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w


def softmax_of_double(x: Any) -> Any:
    return softmax(2 * x)


W = "x: f32[m, n], w: f32[n]"
ROWS: dict[str, tuple[str, str, Any]] = {
    "softmax": (X, "return op.softmax(x)", softmax),
    "softmax of an expression": (X, "return op.softmax(x * 2.0 + 1.0)", softmax_of_double),
    "of three axes": ("x: f32[b, m, n]", "return op.softmax(x)", softmax),
    "share": (X, "return x / op.sum(x, axis=1)[:, None]", share),
    "layernorm": (
        W,
        "return (x - op.mean(x, axis=1)[:, None]) / math.sqrt(op.var(x, axis=1)[:, None] + 1e-5)"
        " * w[None, :]",
        layernorm,
    ),
    "rmsnorm": (
        W,
        "return x / math.sqrt(op.mean(x * x, axis=1) + 1e-6)[:, None] * w[None, :]",
        rmsnorm,
    ),
    "into a place": (
        "x: f32[m, n], y: mut f32[m, n]",
        "y[:] = x - op.min(x, axis=-1)[:, None]",
        None,
    ),
    "masked": (X, "return op.softmax(op.causal(x))", None),
}
OTHERS = {
    "columns": (X, "return x / op.sum(x, axis=0)[None, :]"),
    "across memory": (X, "return op.softmax(x.T)"),
    "a product": ("x: f32[m, n], w: f32[n, n]", "return op.sum(x @ w, axis=1)"),
    "the same for all rows": (W, "return x * op.sum(w)"),
    "of all rows": (X, "return x / op.sum(x)"),
    "rows reduced once": (X, "return op.sum(x, axis=1)"),
    "tiles that are said": (X, "schedule.tile((4, 128))\n    return op.softmax(x)"),
}


def arrays_of(parameters: str, m: int, n: int) -> tuple[Any, ...]:
    sizes = {"b": 2, "m": m, "n": n}
    r: Any = np.random.default_rng(m + n)
    made: list[Any] = []
    for p in parameters.split(": ")[1:]:
        shape = p[p.index("[") + 1 : p.index("]")].split(", ")
        made.append(r.random([sizes[s] for s in shape], dtype=np.float32))
    return tuple(made)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("n", [1100, 2048])
@pytest.mark.sample
def test_a_row_is_read_once(name: str, n: int) -> None:
    parameters, body, want = ROWS[name]
    arrays = arrays_of(parameters, 3, n)
    program, plan, _ = lowered(parameters, body, *arrays)
    assert loops(program) == 1
    room = (-(-n // 128) * 128,)
    reads = len(arrays) - ("mut" in parameters)
    assert shapes(program, LOAD) == [room] * reads
    assert shapes(program, STORE) == [room]
    for made in (program, passed(program)[0]):
        results = launch(made, plan, *arrays, run=Run(sizes={}))
        if want is not None:
            np.testing.assert_allclose(results[0], want(*arrays), rtol=1e-4, atol=1e-6)


NUMBERS = {
    "variance": "return op.var(x, axis=-1)",
    "logarithm of the sum": "top = op.max(x, axis=-1)\n"
    "    return top + math.log(op.sum(math.exp(x - top[..., None]), axis=-1))",
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("shape", [(3, 1100), (2, 3, 2048)])
def test_rows_that_only_leave_a_number(name: str, shape: tuple[int, ...]) -> None:
    x: Any = np.random.default_rng(3).random(shape, dtype=np.float32)
    axes = ", ".join("bmn"[-x.ndim :])
    new = ", ".join((*":" * (x.ndim - 1), "None"))
    program, plan, _ = lowered(f"x: f32[{axes}]", NUMBERS[name].replace("..., None", new), x)
    assert loops(program) == 1
    assert shapes(program, LOAD) == [(-(-shape[-1] // 128) * 128,)]
    want = x.var(-1) if name == "variance" else np.log(np.exp(x).sum(-1))
    for made in (program, passed(program)[0]):
        (result,) = launch(made, plan, x, run=Run(sizes={}))
        np.testing.assert_allclose(result, want, rtol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_made_of_rows_is_cut(name: str) -> None:
    parameters, body = OTHERS[name]
    program = lowered(parameters, body, *arrays_of(parameters, 1280, 1280))[0]
    assert all(isinstance(n, str) for shape in shapes(program, STORE) for n in shape[-1:])
    assert all(isinstance(n, str) for shape in shapes(program, LOAD) for n in shape[-1:])


def test_short_rows_are_cut() -> None:
    """Several of them are a tile, and the first-level cache keeps it; but not of those that fill
    their room."""
    parameters, body, _ = ROWS["softmax"]
    program = lowered(parameters, body, *arrays_of(parameters, 3, 124))[0]
    assert shapes(program, STORE) == [("$0", "$1")]
    program = lowered(parameters, body, *arrays_of(parameters, 3, 128))[0]
    assert shapes(program, STORE) == [(128,)]


def test_rows_that_have_no_room_are_cut() -> None:
    parameters, body, _ = ROWS["softmax"]
    program = lowered(parameters, body, *arrays_of(parameters, 1, 131073))[0]
    assert shapes(program, STORE) == [("$0", "$1")]


def test_a_conversion_that_is_written_twice_is_one() -> None:
    (x,) = arrays_of(X, 3, 2000)
    text = "return x.to(f64) - op.mean(x.to(f64), axis=1)[:, None]"
    program = lowered(X, text, x)[0]
    casts = [o for o in program.operations[0].walk() if o.name == "tile.cast"]
    assert sum(isinstance(o.result.type, TileType) for o in casts) == 1


def test_it_is_the_loop_over_rows() -> None:
    """The same operations as by hand, so that all decisions are the same."""
    (x,) = arrays_of(X, 3, 2000)
    whole = lowered(X, "return x - op.max(x, axis=1)[:, None]", x)[0]
    hand = lowered(
        X,
        "y = op.empty_like(x)\n    for i in op.tile_range(m, step=1):\n"
        "        row = x[i, :]\n        y[i, :] = row - op.max(row)\n    return y",
        x,
    )[0]
    assert [o.name for o in whole.operations[0].walk()] == [
        o.name for o in hand.operations[0].walk()
    ]
