"""Statements of tile kernels.

Owns assignment, branches, results and what stands alone. Must not know how the type of an
expression is found.
"""

from __future__ import annotations

from functools import partial

from tessera_lang.record import dataclass
from tessera_lang.sema.assignments import declare
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.name_values import named_symbol, variable_term
from tessera_lang.sema.narrow_sums import adds_to_itself
from tessera_lang.sema.operators import Operand, operate
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.sema.statements import check_assert, expression_statement
from tessera_lang.sema.tile import (
    arrays_filled_again,
    created_arrays,
    in_place,
    masked_stores,
    results,
)
from tessera_lang.sema.tile.arrays_made_again import is_given_on
from tessera_lang.sema.tile.binary_operators import operate_tiles
from tessera_lang.sema.tile.context import TileContext, Value
from tessera_lang.sema.tile.directives import directive, directive_name, pipeline
from tessera_lang.sema.tile.expressions import require_bool
from tessera_lang.sema.tile.fits_narrow_index import learn_places
from tessera_lang.sema.tile.loops import for_loop, while_loop
from tessera_lang.sema.tile.operators import is_tiled, is_waiting, value_of_operand
from tessera_lang.sema.tile.shape_tuples import elements_of, unpacked
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.stores import WHOLE, augmented, store, whole_store, written_out
from tessera_lang.sema.tile.subscripts import as_tile
from tessera_lang.sema.tile.symbolic import (
    dim_of,
    is_worth,
    join,
    not_negative_where,
    set_scalar,
    shape_dims,
    told_where,
)
from tessera_lang.sema.tile.variables import bind, unpack
from tessera_lang.sema.variables import keeps_type
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Dim, DimOp
from tessera_lang.types.type import NONE, Scalar, Tensor, Tile, TupleType


def check_block(c: TileContext, body: tuple[ast.Stmt, ...]) -> None:
    """Type the statements of a block in order, up to one that control does not come behind: what
    follows is for other signatures, or dead."""
    c.left = False
    told = c.told
    for s in body:
        c.terms.clear()
        _statement(c, s)
        if c.left:
            break
    c.told = told


def _statement(c: TileContext, s: ast.Stmt) -> None:
    match s:
        case ast.Assign():
            _assign(c, s)
        case ast.AugmentedAssign():
            _augmented(c, s)
        case ast.AnnotatedAssign():
            _declare(c, s)
        case ast.ExprStmt():
            _expression(c, s)
        case ast.If():
            _if(c, s)
        case ast.For():
            for_loop(c, s, check_block)
        case ast.While():
            while_loop(c, s, check_block, partial(require_bool, c))
        case ast.With():
            _with(c, s)
        case ast.Return():
            results.check_return(c, s)
            c.left = True
        case ast.Assert():
            check_assert(c, s)
        case ast.Break() | ast.Continue():
            if c.loops:  # else the structure check says so
                ends = c.loops[-1].breaks if isinstance(s, ast.Break) else c.loops[-1].nexts
                ends.append(dict(c.env))
            c.left = True
        case _:
            pass


# --- assignment ----------------------------------------------------------------------------


def _assign(c: TileContext, s: ast.Assign) -> None:
    if isinstance(s.target, ast.TupleExpr):
        _unpack(c, s, s.target)
        return
    if isinstance(s.target, ast.Name) and created_arrays.is_array(c, s.target, s.value):
        created_arrays.make(c, s.target, s.value)
        return
    if isinstance(s.target, ast.Name) and (array := created_arrays.refilled(c, s.target)):
        _refill(c, s, s.target, array)
        return
    if masked_stores.is_masked(c, s.target):
        _masked(c, s, s.target)
        return
    if isinstance(s.value, ast.TupleExpr):
        term: Term = results.tuple_term(c, s.value)
    else:
        term = c.infer(s.value)
    _assign_one(c, s.target, s.value, term)


def _refill(c: TileContext, s: ast.Assign, target: ast.Name, array: Tensor) -> None:
    """``p = p @ P`` of an array that the kernel makes and stores into: the new elements go into
    it, where they are as many and of one dtype."""
    found = c.kernel.filled_in_place.get(s)
    if found is None:
        value = created_arrays.value_refilled(c, target.id, s.value)
        found = arrays_filled_again.in_place(s, target, value, len(array.shape))
        c.kernel.filled_in_place[s] = found
    term = c.infer(found.value)
    o = value_of_operand(c, Operand(found.value, term))
    if is_silent(o.term):
        return
    if found.value is s.value and not _is_as(c, array, o):
        c.report(
            "T0609", f"`{target.id}` is `{array}`, of which elements are stored, and this is"
            f" `{text_of(o.term)}`", s.span, "another dtype or other sizes",
            helps=("give the other value a name of its own",),
        )  # fmt: skip
        return
    if c.final:
        c.typed.in_place[s] = found
    assert isinstance(found.target, ast.Subscript)
    store(c, found.target, found.value, term)


def _is_as(c: TileContext, array: Tensor, o: Operand) -> bool:
    """Whether a value has the dtype and the sizes of an array."""
    if not isinstance(o.term, Tile) or len(o.term.axes) != len(array.shape):
        return False
    if not is_waiting(o.term) and o.term.dtype != array.dtype:
        return False
    return all(
        agree(c, a.capacity if a.extent is None else a.extent, dim, o.e.span)
        for a, dim in zip(o.term.axes, array.shape, strict=True)
    )


def _masked(c: TileContext, s: ast.Assign | ast.AugmentedAssign, target: ast.Expr) -> None:
    assert isinstance(target, ast.Subscript)
    found = masked_stores.spelled_out(c, s, target)
    if found is not None:
        assert isinstance(found.target, ast.Subscript)
        store(c, found.target, found.value, c.infer(found.value))


def _assign_one(c: TileContext, target: ast.Expr, value: ast.Expr, term: Term) -> None:
    match target:
        case ast.Name():
            if isinstance(term, Tensor) and is_given_on(c, value):
                term = as_tile(c, value, term)
            in_place.note_slice(c, target.id, value, term)
            bind(c, target, value, term)
            variable = c.variables.get(target.id)
            if variable is not None and adds_to_itself(target, value):
                variable.accumulates = target.span
        case ast.Subscript():
            store(c, target, value, term)
        case ast.ErrorExpr():
            pass
        case _:
            c.report(
                "T0118", "a tile kernel assigns to variables and to slices", target.span,
                helps=("write `name = ...` or `x[i:i+n] = ...`",),
            )  # fmt: skip


def _unpack(c: TileContext, s: ast.Assign, target: ast.TupleExpr) -> None:
    count, value = len(target.items), unpacked(c, s.value)
    if isinstance(value, ast.TupleExpr):
        if len(value.items) == count:
            pairs = list(zip(target.items, value.items, strict=True))
            arrays = [isinstance(t, ast.Name) and created_arrays.is_array(c, t, item)
                      for t, item in pairs]  # fmt: skip
            terms = [Unknown() if made else c.infer(item)
                     for made, item in zip(arrays, value.items, strict=True)]  # fmt: skip
            for made, (t, item), term in zip(arrays, pairs, terms, strict=True):
                if made and isinstance(t, ast.Name):
                    created_arrays.make(c, t, item)
                else:
                    _assign_one(c, t, item, term)
            return
        found = len(value.items)
    else:
        term = c.infer(s.value)
        if is_silent(term):
            return
        if isinstance(term, TupleType) and len(term.items) == count:
            unpack(c, target, term)
            if isinstance(s.value, ast.Call) and count == 2:
                if named_symbol(c, s.value.function) == Builtin("op.topk"):
                    learn_places(c, s.value, target.items[1])
            if isinstance(s.value, ast.Attribute) and s.value.name == "shape":
                dims = shape_dims(c.infer(s.value.value)) or ()
                for t, dim in zip(target.items, dims, strict=True):
                    if isinstance(t, ast.Name) and dim is not None:
                        set_scalar(c, t.id, dim)
            return
        elements = elements_of(c, s.value, term, count)
        if elements is not None:
            for t, item in zip(target.items, elements.items, strict=True):
                _assign_one(c, t, item, c.infer(item))
            return
        found = len(term.items) if isinstance(term, TupleType) else 1
    c.report("T0212", f"{found} value{'' if found == 1 else 's'} for {count} names", s.span)


def _augmented(c: TileContext, s: ast.AugmentedAssign) -> None:
    c.places[s.target] = s
    if masked_stores.is_masked(c, s.target):
        _masked(c, s, s.target)
        return
    if isinstance(s.target, ast.Subscript):
        augmented(c, s, s.target)
        return
    if not isinstance(s.target, ast.Name):
        c.report("T0118", "a tile kernel assigns to variables and to slices", s.target.span)
        return
    value, old = c.infer(s.value), c.infer(s.target)
    variable = c.variables.get(s.target.id)
    if variable is None or is_silent(value) or is_silent(old):
        return
    if in_place.refuse_slice(c, s, s.target.id):
        return
    a, b = Operand(s.target, old), Operand(s.value, value)
    if isinstance(old, Tensor):
        if old.mut:
            augmented(c, *in_place.place_of(c, s, s.target, old))
        else:
            in_place.refuse(c, s, s.target, old)
    elif isinstance(old, Tile) and old.buffer:
        c.report(
            "T0609", f"`{s.target.id}` names a buffer", s.target.span,
            helps=(f"store into it: `{s.target.id}[:] {s.operator}= ...`",),
        )  # fmt: skip
    elif is_tiled(old) and s.operator in WHOLE:
        made = written_out(c, s, s.target)
        bind(c, s.target, made, c.infer(made))
    elif is_tiled(value) or is_tiled(old):
        _augmented_tile(c, s, s.target, a, b)
    else:
        _augmented_scalar(c, s, s.target, a, b)


def _augmented_tile(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Name, a: Operand, b: Operand
) -> None:
    variable = c.variables[target.id]
    if s.operator in ("+", "-", "*"):
        variable.accumulates = s.span
    result = operate_tiles(c, s.operator, s.operator_span, a, b)
    if isinstance(result, Tile) and _stretches(c, s, target, a.term, result):
        return
    if isinstance(result, (Tile, Scalar)):
        bind(c, target, None, result)


def _stretches(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Name, old: Term, result: Tile
) -> bool:
    """Reports a value that would not keep the shape of its variable."""
    if not isinstance(old, Tile) or not old.axes:
        return False
    longer = [i for i, (a, b) in enumerate(zip(old.axes, result.axes, strict=False))
              if a.capacity == 1 != b.capacity]  # fmt: skip
    if not longer and len(old.axes) == len(result.axes):
        return False
    axis = f" one element along axis {longer[0]}" if longer else f" {len(old.axes)} axes"
    c.report(
        "T0601", f"`{target.id}` has{axis}, and `{s.operator}=` keeps its shape", s.span,
        helps=(f"for another shape write `{target.id} = {target.id} {s.operator} ...`",),
    )  # fmt: skip
    return True


def _augmented_scalar(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Name, a: Operand, b: Operand
) -> None:
    variable = c.variables[target.id]
    if s.operator in ("+", "-", "*"):
        variable.accumulates = s.span
    result = operate(c, s.operator, s.operator_span, a, b)
    if c.final:
        c.typed.coercions.pop(target, None)
    if isinstance(result, Scalar) and isinstance(a.term, Scalar) and result != a.term:
        keeps_type(c, variable, s.value, result, a.term)
    integer = isinstance(result, Scalar) and result.dtype.is_integer
    if integer or (isinstance(result, Open) and result.cell.root().kind == "int"):
        now = c.env.get(target.id)
        if s.operator in ("+", "-", "*") and now is not None and not isinstance(now, tuple):
            dim = c.kernel.facts.resolve(DimOp(s.operator, now, dim_of(c, s.value)))
        else:
            dim = c.fresh(s, c.full(target.id))
        set_scalar(c, target.id, dim)


def _declare(c: TileContext, s: ast.AnnotatedAssign) -> None:
    term = c.infer(s.value) if s.value is not None else None
    if isinstance(term, Tile) and isinstance(s.target, ast.Name) and term.axes:
        c.report(
            "T0203", f"`{s.target.id}` is declared as a number and is given a tile", s.span,
            helps=("drop the annotation: a tile's dtype is that of its value",),
        )  # fmt: skip
        return
    declare(c, s)
    if isinstance(s.target, ast.Name) and s.target.id in c.variables and s.value is not None:
        kind = variable_term(c, c.variables[s.target.id])
        if isinstance(kind, Scalar) and kind.dtype.is_integer:
            set_scalar(c, s.target.id, dim_of(c, s.value))


# --- control -------------------------------------------------------------------------------


def _if(c: TileContext, s: ast.If) -> None:
    require_bool(c, s.test, c.infer(s.test))
    test = c.try_value(s.test)
    if test is not None:
        check_block(c, s.body if test else s.orelse)
        return
    before, told = dict(c.env), c.told
    c.branches += 1
    then = _side(c, s, s.body, True, before)
    other = _side(c, s, s.orelse, False, before)
    c.branches -= 1
    for side, opposite in ((then, other), (other, then)):
        if not opposite.left:  # what a side knows is not known behind the branch
            kept = {n: before[n] for n, v in side.learnt.items() if side.env.get(n) is v}
            side.env.update(kept)
    c.left = then.left and other.left
    c.told = told
    if then.left or other.left:
        c.env = other.env if then.left else then.env
        c.told = (*told, *(other.told if then.left else then.told))
    else:
        c.env = join(c, s, then.env, other.env)


@dataclass(frozen=True, slots=True)
class _Side:
    """A side of a branch behind its last statement: what names are worth, what the test has
    taught of them, and whether control leaves."""

    env: dict[str, Value]
    learnt: dict[str, Value]
    told: tuple[Dim, ...]
    left: bool


def _side(
    c: TileContext, s: ast.If, body: tuple[ast.Stmt, ...], holds: bool, before: dict[str, Value]
) -> _Side:
    names = not_negative_where(c, s.test, holds)
    learnt: dict[str, Value] = {
        name: c.fresh((s, holds), c.full(name), negative=False) for name in names
    }
    c.env = dict(before)
    told = tuple(told_where(c, s.test, holds))
    c.env.update(learnt)
    if learnt:  # the same of their new names
        told = (*told, *told_where(c, s.test, holds))
    around = c.told
    c.told = (*around, *told)
    for name, value in learnt.items():
        if not isinstance(value, tuple):
            is_worth(c, name, value)
    check_block(c, body)
    c.told = around
    return _Side(c.env, learnt, told, c.left)


def _with(c: TileContext, s: ast.With) -> None:
    if pipeline(c, s):
        check_block(c, s.body)
    # anything else: the structure check says so


def _expression(c: TileContext, s: ast.ExprStmt) -> None:
    e = s.value
    name = directive_name(c, e)
    if name is not None and isinstance(e, ast.Call):
        directive(c, e, name)
        return
    if isinstance(e, ast.Call) and named_symbol(c, e.function) == Builtin("op.prefetch"):
        _prefetch(c, e)
        return
    expression_statement(c, s)
    term = c.terms.get(e)
    if isinstance(e, ast.Call) and isinstance(term, (Tile, Scalar)):
        c.report(
            "T0121", "this value is not used", e.span, helps=("write `x = ...` to keep it",),
            warning=True,
        )  # fmt: skip


def _prefetch(c: TileContext, e: ast.Call) -> None:
    """``op.prefetch(buffer, value)``: an asynchronous whole store."""
    given = {k.name: k.value for k in e.keywords}
    positional = dict(zip(("buffer", "value"), e.arguments, strict=False))
    buffer = positional.get("buffer") or given.get("buffer")
    value = positional.get("value") or given.get("value")
    if buffer is None or value is None:
        return  # the structure check says so
    if c.final:
        c.typed.symbols[e.function] = Builtin("op.prefetch")
        c.typed.arguments[e] = (buffer, value)
    c.note(e, NONE)
    term, base = c.infer(value), c.infer(buffer)
    if is_silent(base):
        return
    if not isinstance(base, Tile) or not base.buffer or not isinstance(buffer, ast.Name):
        c.report(
            "T0609", f"`op.prefetch` fills a buffer, and `{source_of(buffer)}` is"
            f" `{text_of(base)}`", buffer.span,
            helps=("make one: `buf = op.shared(shape, dtype=...)`",),
        )  # fmt: skip
        return
    whole_store(c, buffer, base, value_of_operand(c, Operand(value, term)))
