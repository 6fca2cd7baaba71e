"""Expressions of the host program on known values and arrays.

Owns the meaning of every expression but a call's (``call.py``); statements and the bodies of
functions are in ``host.py``. Must not know NumPy, a device or how a kernel is compiled: all of
that is asked of the ``World``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.arithmetic import ArithmeticFault
from tessera_lang.evaluate.assigned_names import targets
from tessera_lang.evaluate.builtin_names import (
    LANE_NAMES,
    LATER,
    NAMESPACES,
    PLAIN_BUILTINS,
    builtin,
    member,
)
from tessera_lang.evaluate.constant import BUILTIN_CONSTANTS
from tessera_lang.evaluate.fault import HostFault, fault, key_of, located, outside, placed
from tessera_lang.evaluate.foreign_names import (
    FOREIGN_NAMES,
    LIBRARY,
    helps_for_member,
    library_help,
)
from tessera_lang.evaluate.list_methods import LIST_METHODS
from tessera_lang.evaluate.missing_axes import with_missing_axes
from tessera_lang.evaluate.modules import GIVE_A_CONSTANT, ONLY_AT_RUN, Modules, no_member
from tessera_lang.evaluate.operators import Operators, not_built
from tessera_lang.evaluate.value import (
    BuiltinFunction,
    FileModule,
    HostFunction,
    Kernel,
    Method,
    Namespace,
    Scope,
    Unknown,
    is_unknown,
)  # fmt: skip
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import as_array
from tessera_lang.target.host_world import Index, World, WorldFault
from tessera_lang.types.dtype import BOOL, I64, dtype_named

_MISSING = object()
MAX_CANDIDATES = 1000  # among more, each look for a near name would take long


MAX_GRID_AXES = 3
DICT_METHODS = ("get", "items", "keys", "values")


class Expressions(Operators):
    """Evaluates expressions in a scope; ``call`` comes from the subclass."""

    def __init__(self, world: World, modules: Modules) -> None:
        super().__init__(world)
        self.modules = modules
        # The comparison whose operands are kept for an assertion's message, and those.
        self.watched: ast.Compare | None = None
        self.sides: tuple[object, ...] = ()
        self._table: dict[type, Callable[[ast.Expr, Scope], object]] = {
            ast.IntLit: self._literal, ast.FloatLit: self._literal, ast.StringLit: self._literal,
            ast.BoolLit: self._literal, ast.NoneLit: lambda e, s: None, ast.Name: self._name,
            ast.FString: self._fstring, ast.TupleExpr: self._tuple, ast.ListExpr: self._list,
            ast.DictExpr: self._dict, ast.Comprehension: self._comprehension,
            ast.Unary: self._unary, ast.Binary: self._binary, ast.BoolOp: self._chain,
            ast.Compare: self._compare, ast.Conditional: self._conditional,
            ast.Call: self._call, ast.Attribute: self._attribute,
            ast.Subscript: self._subscript, ast.Lambda: self._lambda,
        }  # fmt: skip

    def value(self, e: ast.Expr, scope: Scope) -> object:
        """The value of an expression. Raises HostFault."""
        handler = self._table.get(type(e))
        if handler is None:
            raise fault("T0818", "this cannot stand in the host program", e.span)
        try:
            return handler(e, scope)
        except (WorldFault, ArithmeticFault) as error:  # no part of it has given it a place
            raise placed(error, e.span) from None

    def call(self, e: ast.Call, function: object, scope: Scope) -> object:
        """The value of a call."""
        raise NotImplementedError

    def undecided(self, value: object) -> bool:
        """Whether a value has a truth, and which is not known."""
        return isinstance(value, Unknown)

    def check_interrupted(self) -> None:
        """Called once an iteration of every loop."""

    # --- leaves ------------------------------------------------------------------------

    def _literal(self, e: ast.Expr, scope: Scope) -> object:
        value = cast("ast.IntLit", e).value
        with located(e.span, "T0802"):
            return arithmetic.int64(value)

    def _name(self, e: ast.Expr, scope: Scope) -> object:
        name = cast("ast.Name", e).id
        at: Scope | None = scope
        while at is not None:
            value = at.values.get(name, _MISSING)
            if value is not _MISSING:
                return value
            if name in at.locals:
                raise fault("T0808", f"`{name}` is read before it has a value", e.span)
            at = at.parent
        value = builtin(name)
        if value is None:
            raise self._undefined(name, e.span, scope)
        return value

    def _undefined(self, name: str, span: Span, scope: Scope) -> HostFault:
        names: list[str] = [*NAMESPACES, *PLAIN_BUILTINS, *BUILTIN_CONSTANTS]
        at: Scope | None = scope
        while at is not None:
            if name in at.at_run:
                return fault("T0101", f"`{name}` {ONLY_AT_RUN}", span, helps=GIVE_A_CONSTANT)
            names.extend(at.values)
            at = at.parent
        few = names if len(names) <= MAX_CANDIDATES else []
        spelled = dtype_named(name)
        close = spelled.name if spelled is not None else nearest(name, few)
        helps = (f"did you mean `{close}`?",) if close else library_help(name, host=True)
        fixes = (Fix(f"write `{close}`", (Edit(span, close),), "unsafe"),) if close else ()
        if name in FOREIGN_NAMES:
            helps, fixes = (FOREIGN_NAMES[name],), ()
        if name in LATER:
            return not_built(f"`{name}` ({LATER[name]})", span, "")
        if name in LANE_NAMES:
            return fault("T0818", f"`{name}` can be used in a kernel only", span)
        return fault("T0101", f"`{name}` is not defined", span, helps=helps, fixes=fixes)

    def _fstring(self, e: ast.Expr, scope: Scope) -> object:
        pieces: list[str] = []
        for part in cast("ast.FString", e).parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = self.value(part.value, scope)
            if is_unknown(value):
                return Unknown("str")
            pieces.append(self.text(value, part.span, part.format))
        return "".join(pieces)

    def _tuple(self, e: ast.Expr, scope: Scope) -> object:
        return tuple([self.value(item, scope) for item in cast("ast.TupleExpr", e).items])

    def _list(self, e: ast.Expr, scope: Scope) -> object:
        return [self.value(item, scope) for item in cast("ast.ListExpr", e).items]

    def _dict(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.DictExpr", e)
        result: dict[object, object] = {}
        for key, item in zip(e.keys, e.values, strict=True):
            k = key_of(self.value(key, scope), key.span)
            result[k] = self.value(item, scope)
        return Unknown() if any(is_unknown(k) for k in result) else result

    def _lambda(self, e: ast.Expr, scope: Scope) -> object:
        return HostFunction(cast("ast.Lambda", e), scope)

    def _comprehension(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Comprehension", e)
        source = self.value(e.iterable, scope)
        if is_unknown(source) or self.of_unknown_length(source):
            return Unknown()
        inner = Scope(scope.path, {}, scope, frozenset(targets(e.target)))
        result: list[object] = []
        for item in self.iterate(source, e.iterable.span):
            self.check_interrupted()
            self.assign(e.target, item, inner)
            taken = self._conditions(e.conditions, inner)
            if taken is None:
                return Unknown()
            if not taken:
                continue
            value = self.value(e.element, inner)
            if not e.joined:
                result.append(value)
            elif isinstance(value, list):
                result.extend(cast("list[object]", value))
            else:
                return Unknown()
        return result

    def _conditions(self, conditions: tuple[ast.Expr, ...], scope: Scope) -> bool | None:
        """Whether an item is taken; None where that is not known."""
        for condition in conditions:
            value = self.value(condition, scope)
            if self.undecided(value):
                return None
            if not self.truth(value, condition.span):
                return False
        return True

    # --- operators ---------------------------------------------------------------------

    def _unary(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Unary", e)
        if e.operator == "-" and isinstance(e.operand, ast.IntLit):
            with located(e.span, "T0802"):
                return arithmetic.int64(-e.operand.value)
        value = self.value(e.operand, scope)
        if isinstance(value, Unknown):
            return Unknown("bool") if e.operator == "not" else value
        if e.operator == "not" and self.undecided(value):
            return Unknown("bool")
        with located(e.span):
            if self.world.is_array(value):
                if e.operator == "not":
                    return not self.world.truth(value)
                return self.world.unary(e.operator, value)
            result = arithmetic.unary(e.operator, value)
        with located(e.span, "T0802"):
            return arithmetic.int64(result)

    def _binary(self, e: ast.Expr, scope: Scope) -> object:
        chain: list[ast.Binary] = []
        left: ast.Expr = e
        while isinstance(left, ast.Binary):
            chain.append(left)
            left = left.left
        value = self.value(left, scope)
        for node in reversed(chain):
            right = self.value(node.right, scope)
            try:
                value = self.operate(
                    node.operator, value, right, node.span, (node.left, node.right)
                )
            except HostFault as error:
                sides = (node.left, value), (node.right, right)
                raise with_missing_axes(error, self.world, sides) from None
        return value

    def _chain(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.BoolOp", e)
        value: object = None
        for i, item in enumerate(e.values):
            value = self.value(item, scope)
            if self.undecided(value):
                return self._decided_later(e, e.values[i + 1 :], scope)
            if self.truth(value, item.span) != (e.operator == "and"):
                return value
        return value

    def _decided_later(
        self, e: ast.BoolOp, rest: tuple[ast.Expr, ...], scope: Scope
    ) -> object:  # fmt: skip
        """What is not known `and` False is False all the same; `or` True is True."""
        for item in rest:
            try:
                value = self.value(item, scope)
            except HostFault:  # the run may not get there
                break
            if value is (e.operator == "or"):
                return value
        return Unknown()

    def _compare(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Compare", e)
        left, at = self.value(e.first, scope), e.first
        result: object = True
        unknown = False
        sides = [left]
        for operator, item in zip(e.operators, e.rest, strict=True):
            right = self.value(item, scope)
            sides.append(right)
            if e is self.watched:
                self.sides = tuple(sides)
            try:
                result = self.compare_once(operator, left, right, e.span)
            except HostFault as error:
                both = (at, left), (item, right)
                raise with_missing_axes(error, self.world, both) from None
            if isinstance(result, Unknown) or (len(e.rest) > 1 and self.undecided(result)):
                unknown = True
            elif len(e.rest) > 1 and not self.truth(result, e.span):
                return False
            left, at = right, item
        return Unknown("bool") if unknown else result

    def _conditional(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Conditional", e)
        test = self.value(e.test, scope)
        if self.undecided(test):
            return self.either(self.value(e.then, scope), self.value(e.orelse, scope))
        return self.value(e.then if self.truth(test, e.test.span) else e.orelse, scope)

    # --- members and items -------------------------------------------------------------

    def _attribute(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Attribute", e)
        owner = self.value(e.value, scope)
        if isinstance(owner, Unknown):
            return Unknown()
        if isinstance(owner, Namespace):
            return self._namespace_member(owner, e, scope)
        if isinstance(owner, FileModule):
            if e.name in owner.scope.values:
                return owner.scope.values[e.name]
            inner = self.modules.find(f"{owner.name}.{e.name}", scope.path)
            if inner is not None:
                return inner
            raise no_member(owner, e.name, e.name_span)
        if self.world.is_array(owner):
            return self._array_member(owner, e)
        if isinstance(owner, list):
            if e.name in LIST_METHODS:
                return Method(cast("object", owner), e.name)
            raise fault("T0817", f"a list has no attribute `{e.name}`", e.name_span,
                        helps=(f"it has {', '.join(f'`{m}`' for m in LIST_METHODS)}",))  # fmt: skip
        if isinstance(owner, str) and e.name == "join":
            return Method(owner, e.name)
        if isinstance(owner, dict) and e.name in DICT_METHODS:
            return Method(cast("object", owner), e.name)
        owner = cast("object", owner)
        if e.name == "item" and arithmetic.is_number(owner):
            return Method(owner, e.name)
        helps: tuple[str, ...] = ()
        if isinstance(owner, BuiltinFunction) and owner.name == "op.fft":
            helps = ("of real and imaginary parts, along one to three axes, there are `op.fft`,"
                     " `op.ifft`, `op.rfft` and `op.irfft`",)  # fmt: skip
        raise fault(
            "T0817", f"{arithmetic.kind_of(owner)} has no attribute `{e.name}`", e.name_span,
            helps=helps,
        )  # fmt: skip

    def _namespace_member(self, owner: Namespace, e: ast.Attribute, scope: Scope) -> object:
        dotted = f"{owner.name}.{e.name}"
        if owner.name == "tessera":
            value = builtin(e.name)
        elif owner.name == "std" or owner.name.startswith("std."):
            value = self.modules.find(dotted, scope.path)
        else:
            value = member(owner.name, e.name)
        if value is None:
            close = nearest(e.name, LIBRARY) if owner.name == "std" else None
            message = f"`{owner.name}` has no `{e.name}`"
            if close is None:
                raise fault("T0817", message, e.name_span)
            fix = Fix(f"write `{close}`", (Edit(e.name_span, close),), "unsafe")
            helps = (f"did you mean `std.{close}`?",)
            raise fault("T0817", message, e.name_span, helps=helps, fixes=(fix,))
        return value

    def _array_member(self, array: object, e: ast.Attribute) -> object:
        with located(e.span):
            match e.name:
                case "shape":
                    return self.world.shape(array)
                case "size" | "ndim":
                    return self._counted(e.name, self.world.shape(array))
                case "dtype":
                    return self.world.dtype(array)
                case "device":
                    return self.world.device(array)
                case "T" | "mT":
                    return self.world.view(e.name, array)
                case "to" | "item" | "tolist":
                    return Method(array, e.name)
                case _:
                    raise fault(
                        "T0817", f"an array has no attribute `{e.name}`", e.name_span,
                        helps=(*helps_for_member(e.name),
                               "it has `shape`, `dtype`, `ndim`, `size`, `device`, `T`, `mT` and"
                               " `to(dtype)`"),
                    )  # fmt: skip

    def _counted(self, name: str, shape: object) -> object:
        sizes = cast("tuple[object, ...]", shape)
        if name == "ndim" and isinstance(shape, tuple):
            return len(sizes)
        if not isinstance(shape, tuple) or is_unknown(sizes):
            return Unknown("int")
        return math.prod(cast("tuple[int, ...]", sizes))

    def _subscript(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Subscript", e)
        owner = self.value(e.value, scope)
        if isinstance(owner, (Kernel, HostFunction)):
            return self._bracketed(owner, e, scope)
        items = tuple([self._index(i, scope) for i in e.items])
        if isinstance(owner, Unknown):
            return Unknown()
        if self.world.is_array(owner):
            items = self._places(items, e)
            dtypes = [self.world.dtype(i) for i in items if self.world.is_array(i)]
            if any(isinstance(d, Unknown) for d in dtypes):
                return Unknown()
            if any(d != BOOL for d in dtypes):
                return self.chosen(owner, items, e.span)
            return self.read(owner, items, e.span)
        return self._item(owner, items, e)

    def _places(self, items: tuple[object, ...], e: ast.Subscript) -> tuple[object, ...]:
        """Lists of places, or of bools, as arrays of them."""
        if not any(isinstance(i, list) for i in items):
            return items
        found = list(items)
        for i, (item, at) in enumerate(zip(items, e.items, strict=True)):
            if item == []:
                found[i] = self.world.arange(0, 0, 1, I64)
            elif isinstance(item, list):
                given = Scope("", {"places": cast("object", item)})
                found[i] = self.value(as_array(ast.Name(at.span, "places")), given)
        return tuple(found)

    def read(self, array: object, items: tuple[object, ...], span: Span) -> object:
        """``array[items]``."""
        with located(span, "T0807"):
            return self.world.read(array, cast("tuple[Index, ...]", items))

    def chosen(self, array: object, items: tuple[object, ...], span: Span) -> object:
        """``array[items]`` where an item is an array of places."""
        raise NotImplementedError

    def _bracketed(self, owner: Kernel | HostFunction, e: ast.Subscript, scope: Scope) -> object:
        values = tuple([self.value(item, scope) for item in e.items])
        if isinstance(owner, HostFunction):
            return HostFunction(owner.declaration, owner.scope, values)
        if owner.level == "tile":
            raise fault(
                "T0839", f"`{owner.declaration.name}` is a tile kernel: its loops make the groups",
                e.span, helps=("compile-time parameters are named in the call",),
            )  # fmt: skip
        if len(values) == 1 and isinstance(values[0], tuple):
            values = cast("tuple[object, ...]", values[0])
        if len(values) > MAX_GRID_AXES:
            message = f"a grid has at most {MAX_GRID_AXES} axes, and this is {len(values)} numbers"
            raise fault("T0839", message, e.span)
        for value, item in zip(values, e.items, strict=False):
            known = isinstance(value, int) and not isinstance(value, bool)
            if not known and not isinstance(value, Unknown):
                raise fault("T0818", "the number of groups is an integer", item.span)
            if isinstance(value, int) and value < 0:
                raise fault("T0818", f"the number of groups is {value}", item.span)
        groups = cast("tuple[int, ...]", values)
        return Kernel(owner.declaration, owner.reference, owner.level, owner.scope, groups)

    def index(self, e: ast.Expr, scope: Scope) -> object:
        """One item of a subscript: an integer, a slice, None, or (in a dict) any key."""
        return self._index(e, scope)

    def _index(self, e: ast.Expr, scope: Scope) -> object:
        if isinstance(e, ast.SliceExpr):
            lower, upper = (self._bound(b, scope) for b in (e.lower, e.upper))
            step = None if e.step is None else self.value(e.step, scope)
            for part in (lower, upper, step):
                if not (part is None or isinstance(part, (int, Unknown))):
                    raise fault("T0807", "a slice goes from integer to integer", e.span)
            if step == 0:
                raise fault("T0807", "the step of a slice is 0", e.span)
            return Unknown() if is_unknown((lower, upper, step)) else slice(lower, upper, step)
        return self._bound(e, scope)

    def _bound(self, e: ast.Expr | None, scope: Scope) -> object:
        """An index; one below 0 counts from the end, as in Python."""
        return None if e is None else self.value(e, scope)

    def _item(self, owner: object, items: tuple[object, ...], e: ast.Subscript) -> object:
        if is_unknown(items):
            return Unknown()
        if len(items) != 1:
            raise fault("T0807", f"{arithmetic.kind_of(owner)} has one axis", e.span)
        (index,) = items
        if isinstance(owner, dict):
            table = cast("dict[object, object]", owner)
            if key_of(index, e.items[0].span) not in table:
                raise fault("T0807", f"the dict has no key {index!r}", e.span)
            return table[index]
        if not isinstance(owner, (tuple, list, str, range)):
            raise fault("T0807", f"{arithmetic.kind_of(owner)} has no items", e.span)
        sequence = cast("tuple[object, ...]", owner)
        if not isinstance(index, (int, slice)):
            raise fault("T0807", "an index is an integer or a slice", e.items[0].span)
        try:
            return sequence[index]
        except IndexError:
            message = f"the index is {index} and there are {len(sequence)} items"
            raise fault("T0807", message, e.span) from None

    # --- binding -----------------------------------------------------------------------

    def assign(self, target: ast.Expr, value: object, scope: Scope) -> None:
        """Bind a value to a name, an item or a tuple of targets."""
        match target:
            case ast.Name():
                scope.values[target.id] = self.named(value)
            case ast.TupleExpr() | ast.ListExpr():
                value = self.named(value)
                for item, part in zip(
                    target.items, self._unpacked(value, target, len(target.items)), strict=True
                ):
                    self.assign(item, part, scope)
            case ast.Subscript():
                self._assign_item(target, value, scope)
            case _:
                raise fault("T0818", "this cannot be assigned to", target.span)

    def _unpacked(self, value: object, target: ast.Expr, count: int) -> tuple[object, ...]:
        if self.of_unknown_length(value):
            return (Unknown(),) * count
        parts = tuple(self.iterate(value, target.span))
        if len(parts) != count:
            raise fault(
                "T0816", f"{count} names, and the value has {len(parts)} items", target.span
            )
        return parts

    def _assign_item(self, target: ast.Subscript, value: object, scope: Scope) -> None:
        owner = self.value(target.value, scope)
        items = tuple([self._index(i, scope) for i in target.items])
        if self.world.is_array(owner):
            items = self._places(items, target)
            self.own(owner, target.value, "", scope, target.span)
            value = self.as_operand(value, target.span)
            with located(target.span, "T0807"):
                self.world.write(owner, cast("tuple[Index, ...]", items), value)
        elif is_unknown(items) or isinstance(owner, Unknown):
            return
        elif isinstance(owner, dict):
            kept = outside(cast("object", owner), self.named(value), target.span)
            if len(items) != 1:
                raise fault("T0807", "a dict has one axis", target.span)
            key = key_of(items[0], target.items[0].span)
            cast("dict[object, object]", owner)[key] = kept
        elif isinstance(owner, list) and len(items) == 1 and isinstance(items[0], int):
            sequence = cast("list[object]", owner)
            try:
                sequence[items[0]] = outside(sequence, self.named(value), target.span)
            except IndexError:
                message = f"the index is {items[0]} and there are {len(sequence)} items"
                raise fault("T0807", message, target.span) from None
        else:
            what = arithmetic.kind_of(cast("object", owner))
            message = f"the items of {what} cannot be assigned"
            raise fault("T0818", message, target.span)

    def _call(self, e: ast.Expr, scope: Scope) -> object:
        e = cast("ast.Call", e)
        return self.call(e, self.value(e.function, scope), scope)
