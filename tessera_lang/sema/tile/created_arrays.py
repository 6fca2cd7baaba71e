"""Arrays that a tile kernel makes: those that it returns, and those that only it sees.

Owns which variables are such an array, and their shapes and dtypes. Must not know how a runtime
allocates, nor what is stored into them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.sema.argument_binding import bind_builtin
from tessera_lang.sema.bound_names import (
    expressions,
    statement_expressions,
    statements,
    targets,
)
from tessera_lang.sema.builtins import TILE_FUNCTIONS
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.indexing import index
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.side_tables import Builtin, FunctionSymbol, ModuleSymbol
from tessera_lang.sema.tile.array_creation import dtype_argument, of_the_call, shape_items
from tessera_lang.sema.tile.arrays_filled_again import filled_again, is_fresh, value_filled
from tessera_lang.sema.tile.arrays_made_again import nobody_sees_the_last, only_making
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.operators import (
    default_of_literals,
    give_tile,
    is_waiting,
    value_of_operand,
)
from tessera_lang.sema.tile.symbolic import dim_of, shape_dims
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import I32
from tessera_lang.types.shape import Dim, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile

MAKERS = (
    *(f"op.{n}{like}" for n in ("zeros", "ones", "empty", "full") for like in ("", "_like")),
    "op.copy",
)


def is_maker(c: TileContext, e: ast.Expr) -> bool:
    symbol = named_symbol(c, e.function) if isinstance(e, ast.Call) else None
    return isinstance(symbol, Builtin) and symbol.name in MAKERS


def result_names(c: TileContext) -> frozenset[str]:
    """Variables that are returned, made once by ``op.empty`` or the like, outside of loops. Where
    there are several ways out, each of them returns the variable at the same place."""
    if c.inlined:
        return frozenset()
    returned = {n for names in _returned(c.declaration.body) for n in names if len(names) == 1}
    return frozenset(returned & _made_once(c))


def private_names(c: TileContext) -> frozenset[str]:
    """Other variables that are made so, and stored into or copies: arrays that nobody else
    sees."""
    copies = {
        target.id
        for s in c.declaration.body
        for target, value in _named_values(s)
        if isinstance(value, ast.Call) and named_symbol(c, value.function) == Builtin("op.copy")
    }
    return ((stored_names(c) | copies) & _made_once(c)) - result_names(c)


def stored_names(c: TileContext) -> frozenset[str]:
    """Names that the function stores into, by their elements."""
    found = c.stored.get(c.declaration)
    if found is None:
        found = c.stored[c.declaration] = _stored(c, c.scope, c.declaration, {})
    return found


def is_array(c: TileContext, target: ast.Name, value: ast.Expr) -> bool:
    """Whether an assignment makes an array."""
    if target in filled_again(c, target.id):
        return False
    if not (is_maker(c, value) or is_fresh(c, value)):
        return False
    if c.reached_once and (target.id in result_names(c) or target.id in private_names(c)):
        return True
    return not c.in_tile_loop and target.id in names_made_again(c)


def names_made_again(c: TileContext) -> frozenset[str]:
    """Variables that are made in a loop, in a condition or in a function that is called there, and
    stored into: each round fills the array again."""
    found = c.made_again.get(c.declaration)
    if found is None:
        names: set[str] = set()
        called_again = any(x.loops or x.branches for x in c.kernel.callers)
        for name in stored_names(c) - (set[str]() if called_again else _made_once(c)):
            made = only_making(c, name)
            values = {t.id: v for t, v in _named_values(made)} if made is not None else {}
            if made is not None and name in values and (
                is_maker(c, values[name]) or is_fresh(c, values[name])
            ) and nobody_sees_the_last(c, name, made):  # fmt: skip
                names.add(name)
        found = c.made_again[c.declaration] = frozenset(names)
    return found


def refilled(c: TileContext, target: ast.Name) -> Tensor | None:
    """The array into which the new elements of ``name = value`` are stored, if it is one."""
    v = c.variables.get(target.id)
    again = target in filled_again(c, target.id) and target.id in stored_names(c)
    return v.type if again and v is not None and isinstance(v.type, Tensor) else None


def value_refilled(c: TileContext, name: str, value: ast.Expr) -> ast.Expr:
    """What is stored into an array that ``name = value`` fills again."""
    given = [v for s in statements(c.declaration.body) for t, v in _named_values(s) if t.id == name]
    first = min(given, key=lambda v: v.span.start)
    return value_filled(c, first, value) or value


def could_be_array(c: TileContext, name: str) -> bool:
    """Whether a variable would be an array if it was made outside of loops, and once."""
    return any(
        target.id == name and (is_maker(c, value) or is_fresh(c, value))
        for s in statements(c.declaration.body)
        for target, value in _named_values(s)
    )


def refill(c: TileContext, name: str) -> str:
    """What is stored into an array where a loop or a condition makes it anew, if it stands in front
    of them: the right side of ``name[:] = ...``. Empty where it holds nothing, or is made there."""
    top = {target for s in c.declaration.body for target, _ in _named_values(s)}
    for s in statements(c.declaration.body):
        for target, value in _named_values(s):
            if target.id == name and target not in top and isinstance(value, ast.Call):
                symbol = named_symbol(c, value.function)
                made = symbol.name if isinstance(symbol, Builtin) else ""
                if made in ("op.full", "op.full_like") and len(value.arguments) > 1:
                    return source_of(value.arguments[1])
                return {"op.zeros": "0", "op.ones": "1"}.get(made.removesuffix("_like"), "")
    return ""


def other_value(c: TileContext, name: str) -> tuple[Span, str] | None:
    """Where a variable that would be an array gets a value beside the one that makes it, and what
    stores that value into it; empty where it is made in a loop or a condition."""
    made: list[ast.Name] = []
    top = {target for s in c.declaration.body for target, _ in _named_values(s)}
    for s in statements(c.declaration.body):
        values = dict(_named_values(s))
        for t in targets(s):
            if not isinstance(t, ast.Name) or t.id != name:
                continue
            value = values.get(t)
            if value is not None and not made and (is_maker(c, value) or is_fresh(c, value)):
                made.append(t)
            elif not isinstance(s, ast.AugmentedAssign):
                alone = isinstance(s, ast.Assign) and s.target is t
                stored = alone and made and made[0] in top and value is not None
                return t.span, f"{name}[:] = {source_of(value)}" if stored and value else ""
    return None


def exchanged(c: TileContext, name: str) -> str:
    """What stores the elements of arrays that `a, b = b, a` exchanges; empty without that."""
    for s in statements(c.declaration.body):
        if isinstance(s, ast.Assign) and isinstance(s.target, ast.TupleExpr):
            pairs = list(_named_values(s))
            left, right = [t.id for t, _ in pairs], [source_of(v) for _, v in pairs]
            if name in left and len(pairs) > 1 and sorted(left) == sorted(right):
                places = ", ".join(f"{x}[:]" for x in left)
                return f"{places} = {', '.join(f'{x}.copy()' for x in right)}"
    return ""


def _named_values(s: ast.Stmt) -> Iterator[tuple[ast.Name, ast.Expr]]:
    """Names that a statement assigns to, each with its value: ``x, y = a, b`` has two."""
    if not isinstance(s, ast.Assign):
        return
    pairs = [(s.target, s.value)]
    if isinstance(s.target, ast.TupleExpr) and isinstance(s.value, ast.TupleExpr):
        pairs = list(zip(s.target.items, s.value.items, strict=False))
    for target, value in pairs:
        if isinstance(target, ast.Name):
            yield target, value


def _made_once(c: TileContext) -> set[str]:
    """Variables that ``op.empty`` or the like makes outside of loops and conditions, and that
    take no other value, nor one of the call; or that a computed value does, if elements of them
    are stored. Where elements of `C` are stored too, `C -= e` and `C = C @ D` are no other
    values: they go into the array."""
    stored = stored_names(c)
    counts = {p.name: 1 for p in c.declaration.parameters}
    added = {t.id for s in statements(c.declaration.body) if isinstance(s, ast.AugmentedAssign)
             for t in targets(s) if isinstance(t, ast.Name)}  # fmt: skip
    inside = added & stored
    for s in statements(c.declaration.body):
        for t in targets(s):
            if isinstance(t, ast.Name) and not (
                isinstance(s, ast.AugmentedAssign) and t.id in inside
            ):
                counts[t.id] = counts.get(t.id, 0) + 1
    for name in stored:
        counts[name] = counts.get(name, 0) - len(filled_again(c, name))
    return {
        target.id
        for s in c.declaration.body
        for target, value in _named_values(s)
        if counts[target.id] == 1
        and target not in filled_again(c, target.id)
        and (is_maker(c, value) or (target.id in stored and is_fresh(c, value)))
    }


def _returned(body: tuple[ast.Stmt, ...]) -> list[set[str]]:
    """For each thing that is returned the names of variables that are, "" for what has none."""
    found: list[set[str]] = []
    for s in statements(body):
        if isinstance(s, ast.Return) and s.value is not None:
            items = s.value.items if isinstance(s.value, ast.TupleExpr) else (s.value,)
            found += [set() for _ in range(len(items) - len(found))]
            for names, e in zip(found, items, strict=False):
                names.add(e.id if isinstance(e, ast.Name) else "")
    return found


# --- how one is made -----------------------------------------------------------------------


def make(c: TileContext, target: ast.Name, value: ast.Expr) -> None:
    """``y = op.empty((m, n), bf16)`` of an array: the runtime allocates it."""
    if not is_maker(c, value):
        _make_of_value(c, target, value)
        return
    assert isinstance(value, ast.Call)
    symbol = named_symbol(c, value.function)
    assert isinstance(symbol, Builtin)
    info = TILE_FUNCTIONS[symbol.name]
    bound = bind_builtin(value, info, lambda _: None)
    v = c.variables.get(target.id)
    if bound is None or v is None:
        return
    if c.final:
        c.typed.symbols[value.function] = symbol
        c.typed.arguments[value] = tuple(bound.get(p) for p in info.parameters)
        c.typed.symbols[target] = v.local
        c.typed.made[v.local] = c.reached_once and target.id in result_names(c)
    dtype = dtype_argument(c, bound.get("dtype"))
    if "value" in bound:
        term = c.infer(bound["value"])
        if dtype is None and isinstance(term, Scalar) and "shape" in bound:
            dtype = term.dtype
        if dtype is None and "shape" in bound and default_of_literals(term) == I32:
            dtype = c.kernel.filled.setdefault(target.id, I32)
    if "shape" in bound:
        shape = _sizes(c, bound["shape"])
    else:
        like = c.infer(bound["x"])
        if symbol.name == "op.copy":
            like = value_of_operand(c, Operand(bound["x"], like)).term
        if isinstance(like, (Tensor, Tile)):
            dtype = dtype or like.dtype
        shape = known_dims(c, shape_dims(like), bound["x"], "an array that a kernel makes")
    if shape is None:
        return
    tensor = Tensor(dtype or c.cells.floats, shape, mut=True)
    if "value" in bound and not give_tile(
        c, bound["value"], c.infer(bound["value"]), tensor.dtype, False
    ):
        value = bound["value"]
        c.report("T0208", f"an array of `{tensor.dtype}` is not filled with this", value.span,
                 helps=(f"convert it: `{tensor.dtype}({source_of(value)})`",))  # fmt: skip
    v.type, v.since = tensor, target.span
    c.note(value, tensor)
    c.note(target, tensor)
    c.terms.pop(target, None)


def _make_of_value(c: TileContext, target: ast.Name, value: ast.Expr) -> None:
    """An array that begins with a computed value."""
    v = c.variables.get(target.id)
    found = value_of_operand(c, Operand(value, c.infer(value))).term
    if v is None or not isinstance(found, Tile) or is_waiting(found):
        return
    if c.final:
        c.typed.symbols[target] = v.local
        c.typed.made[v.local] = c.reached_once and target.id in result_names(c)
    dims = tuple(a.capacity if a.extent is None else a.extent for a in found.axes)
    shape = known_dims(c, dims, value, "an array that a kernel makes")
    if shape is None:
        return
    v.type, v.since = Tensor(found.dtype, shape, mut=True), target.span
    c.note(target, v.type)
    c.terms.pop(target, None)


def _sizes(c: TileContext, e: ast.Expr) -> tuple[Dim, ...] | None:
    what = "an array that a kernel makes"
    if isinstance(e, ast.Attribute) and e.name == "shape":
        like = c.infer(e.value)
        if isinstance(like, (Tensor, Tile)):
            c.infer(e)
            return known_dims(c, shape_dims(like), e, what)
    dims: list[Dim | None] = []
    for item in shape_items(e):
        if is_silent(c.infer(item)):
            return None
        index(c, item)
        dims.append(dim_of(c, item))
    if isinstance(e, ast.TupleExpr):
        c.infer(e)
    return known_dims(c, tuple(dims), e, what)


def known_dims(
    c: TileContext, dims: tuple[Dim | None, ...] | None, e: ast.Expr, what: str
) -> tuple[Dim, ...] | None:
    """Sizes that the caller can compute before the kernel runs; ``what`` has them."""
    if dims is None:
        return None
    known: list[Dim] = []
    for dim in dims:
        now = None if dim is None else c.kernel.facts.resolve(dim)
        if now is None or not all(n in c.kernel.origins for n in symbols_of(now)):
            c.report(
                "T0613", f"the size of {what} is made of sizes of arguments", e.span,
                "" if now is None else f"`{source_of(e) if '@' in str(now) else now}` is known only"
                " while the kernel runs",
                helps=(of_the_call(c, dim, e) or "take the most that it may be, and use the first"
                       " elements; or compute the number in the host program, and pass it as a"
                       " parameter `size: int`",),
            )  # fmt: skip
            return None
        known.append(now)
    return tuple(known)


# --- what is stored into -------------------------------------------------------------------

_Known = dict[ast.FunctionDef, frozenset[str]]


def _stored(
    c: TileContext, scope: ModuleScope, declaration: ast.FunctionDef, known: _Known
) -> frozenset[str]:
    """Names that a function stores into, by a second name or through a function too."""
    if declaration in known:
        return known[declaration]
    known[declaration] = frozenset()  # while it is looked at
    found: set[str] = set()
    second: list[tuple[str, str]] = []
    for s in statements(declaration.body):
        for t in targets(s):
            if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name):
                found.add(t.value.id)
        if isinstance(s, ast.Assign) and isinstance(s.target, ast.Name):
            if isinstance(s.value, ast.Name):
                second.append((s.target.id, s.value.id))
        for e in (e for root in statement_expressions(s) for e in expressions(root)):
            if isinstance(e, ast.Call):
                found.update(_stored_by_call(c, scope, e, known))
    for name, other in reversed(second):
        if name in found:
            found.add(other)
    known[declaration] = frozenset(found)
    return known[declaration]


def _stored_by_call(
    c: TileContext, scope: ModuleScope, e: ast.Call, known: _Known
) -> Iterator[str]:  # fmt: skip
    """Names among the arguments of a call that the function stores into."""
    f = e.function.value if isinstance(e.function, ast.Subscript) else e.function
    symbol = scope.names.get(f.id) if isinstance(f, ast.Name) else None
    if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
        module = scope.names.get(f.value.id)
        symbol = scope.member(module, f.name) if isinstance(module, ModuleSymbol) else None
    if not isinstance(symbol, FunctionSymbol) or symbol.declaration.decorators:
        return
    inner = _stored(c, c.scope_of(symbol), symbol.declaration, known)
    names = [p.name for p in symbol.declaration.parameters]
    given = [*zip(names, e.arguments, strict=False), *((k.name, k.value) for k in e.keywords)]
    for name, argument in given:
        if isinstance(argument, ast.Name) and name in inner:
            yield argument.id
