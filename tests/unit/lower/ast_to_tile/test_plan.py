"""The launch plan: slots, dims, conditions, and what lowering refuses."""

from __future__ import annotations

from tessera_lang.sema.side_tables import ScalarArgument, TensorArgument
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import F32, INDEX
from tessera_lang.types.shape import Sym
from tests.unit.lowering import lower_source


def slots(plan: LaunchPlan) -> list[str]:
    """Each slot in a word."""
    return [
        s.symbol if s.kind == "symbol" else f"{s.kind}{s.parameter}"
        + (f".{s.axis}" if s.axis >= 0 else "")
        for s in plan.slots
    ]  # fmt: skip


def test_strides_only_where_not_contiguous() -> None:
    text = (
        "@kernel tile[(32,)]\ndef k(x: f32[m, n], out: mut f32[m]):\n"
        "    i = grid_tile_linear_id()\n    if i < m and n > 0: out[i] = x[i, n - 1]\n"
    )
    signature = (TensorArgument(F32, 2, contiguous=False), TensorArgument(F32, 1, aligned=True))
    program, plan, _ = lower_source(text, signature)
    assert slots(plan) == ["data0", "stride0.0", "stride0.1", "data1", "m", "n"]
    x, out = (o for o in program.walk() if o.name == "tile.view")
    assert len(x.operands) == 5 and len(out.operands) == 2
    assert not plan.parameters[0].contiguous and plan.parameters[1].aligned
    assert plan.parameters[0].dims == (Sym("m"), Sym("n"))
    assert LaunchPlan.from_json(plan.to_json()) == plan


def test_unannotated_parameters_have_sizes_of_their_own() -> None:
    text = (
        "@kernel tile[(32,)]\ndef k(x, out, a):\n"
        "    i = grid_tile_linear_id()\n"
        "    if i < x.shape[0] and i < out.shape[0]: out[i] = x[i] * a\n"
    )
    signature = (TensorArgument(F32, 1), TensorArgument(F32, 1), ScalarArgument(F32))
    _, plan, diagnostics = lower_source(text, signature)
    assert diagnostics == ()
    assert slots(plan) == ["data0", "data1", "scalar2", "size0.0", "size1.0"]
    assert plan.parameters[1].mut and not plan.parameters[0].mut
    assert plan.parameters[0].dims == ()
    assert plan.grid is None


def test_sizes_are_arithmetic_on_symbols() -> None:
    program, plan, _ = lower_source(
        "@kernel tile[(32,)] grid[(ceil_div(n, 32), m)]\n"
        "def k(x: f32[n], y: f32[m], z: mut f32[n // 2 + 1, 4]):\n"
        "    z[0, group_id(1) % 4] = x[0] + y[0]\n"
    )
    assert slots(plan) == ["data0", "data1", "data2", "n", "m"]
    assert program.operations[0].attributes["grid_rank"] == 2
    (view,) = [o for o in program.walk() if o.name == "tile.view" and o.result.name == "z"]
    assert view.result.type.shape == (None, 4)  # type: ignore[union-attr]


def test_unused_sizes_and_compile_time_parameters_take_no_slot() -> None:
    _, plan, _ = lower_source(
        "@kernel tile[(32,)]\n"
        "def k(x: mut f32[n], scale: int = 3, flag: bool = True):\n"
        "    if flag: x[0] = f32(scale)\n"
    )
    assert slots(plan) == ["data0", "n"]
    assert [(p.name, p.kind, p.value) for p in plan.parameters[1:]] == [
        ("scale", "constant", 3), ("flag", "constant", True),
    ]  # fmt: skip


def test_where_becomes_conditions() -> None:
    _, plan, diagnostics = lower_source(
        "@kernel tile[(32,)]\n"
        "def k(x: f32[n], y: f32[m]) where n % 4 == 0 and 1 <= m <= min(n, 100):\n    pass\n"
    )
    assert diagnostics == ()
    assert [f"{c.left} {c.comparison} {c.right}" for c in plan.conditions] == [
        "(n % 4) == 0", "1 <= m", "m <= min(n, 100)",
    ]  # fmt: skip
    assert plan.conditions[1].text == "1 <= m <= min(n, 100)"


def test_what_is_not_there_is_refused() -> None:
    where = " or ".join(f"(n > {k} and n < {k + 9} and n % {k} == 0)" for k in (10, 20, 30, 40))
    text = f"@kernel tile[(32,)]\ndef k(x: mut f32[n]) where {where}:\n    pass\n"
    _, _, diagnostics = lower_source(text)
    (found,) = diagnostics
    assert found.code == "T0490" and found.span is not None
    assert text[found.span.lo : found.span.hi] == where


def test_the_budget_holds_for_what_is_asked() -> None:
    _, _, diagnostics = lower_source(
        "@kernel tile[(64,)] shared(1_KiB)\ndef k(x: mut f32[n]):\n"
        "    a = tshared.alloc((64,), f64)\n    b = tshared.alloc((256,), f32)\n"
        "    a[0] = 1.0\n    b[0] = 2.0\n"
    )
    (found,) = diagnostics
    assert found.code == "T0501"
    assert found.notes == ("a  f64[64]  512 bytes", "b  f32[256]  1024 bytes")


def test_long_chains_do_not_nest() -> None:
    text = "@kernel tile[(32,)]\ndef k(x: f32[n], out: mut f32[n], a: index):\n    if "
    text += " and ".join(f"x[{i}] > 0.0" for i in range(400)) + ":\n        out[0] = "
    text += " + ".join(f"x[{i}]" for i in range(2000)) + "\n"
    program, _, diagnostics = lower_source(text)
    assert diagnostics == ()
    assert sum(o.name == "tile.load" for o in program.walk()) == 2400


def test_an_index_scalar_is_no_size() -> None:
    """What is bound by no shape may be negative or huge."""
    _, plan, _ = lower_source(
        "@kernel tile[(32,)]\ndef k(x: mut f32[n], a: index):\n    x[a] = 1.0\n",
        (TensorArgument(F32, 1), ScalarArgument(INDEX)),
    )
    assert slots(plan) == ["data0", "scalar1", "n"]
