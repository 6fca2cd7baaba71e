"""Operations on host values: operators, comparisons, truth, text.

Owns what they do with scalars, arrays (asked of the ``World``) and unknown values. Must not
know expressions or scopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.fault import HostFault, fault, located, slice_changed
from tessera_lang.evaluate.value import (
    BuiltinFunction,
    FileModule,
    HostFunction,
    Kernel,
    Namespace,
    Scope,
    Unknown,
    is_unknown,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import World, WorldFault


def not_built(
    what: str, span: Span, instead: str = "write a kernel of it and call that"
) -> HostFault:
    """A fault for a construct of the language that this version lacks."""
    message = f"{what} {'are' if what.endswith('s') else 'is'} not built yet"
    return fault("T0809", message, span, helps=(instead,) if instead else ())


def helps_for_none(value: object) -> tuple[str, ...]:
    """What is missing where a function that returns nothing gave a value."""
    if value is not None:
        return ()
    return ("a function that ends without `return` gives None: write `return` and its value",)


class Operators:
    """Operations in a world; every method may raise HostFault."""

    def __init__(self, world: World) -> None:
        self.world = world

    def text(self, value: object, span: Span, format: str = "") -> str:
        """What ``print`` and f-strings show of a value."""
        with located(span):
            if self.world.is_array(value):
                return self.world.text(value, format)
        if format:
            try:
                return f"{value:{format}}"
            except (ValueError, TypeError):
                message = f"the format `{format}` does not fit {arithmetic.kind_of(value)}"
                raise fault("T0803", message, span) from None
        if isinstance(value, (tuple, list)):
            return self._sequence_text(cast("tuple[object, ...] | list[object]", value), span)
        named = isinstance(value, (HostFunction, Namespace, FileModule, BuiltinFunction))
        if named or isinstance(value, Kernel):
            name = value.reference.name if isinstance(value, Kernel) else value.name
            return f"<{arithmetic.kind_of(value).split()[-1]} {name}>"
        return str(value)

    def _sequence_text(self, value: tuple[object, ...] | list[object], span: Span) -> str:
        items = [repr(v) if isinstance(v, str) else self.text(v, span) for v in value]
        if isinstance(value, list):
            return f"[{', '.join(items)}]"
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"

    def operate(
        self, operator: ast.BinaryOperator, a: object, b: object, span: Span,
        operands: tuple[ast.Expr, ast.Expr] | None = None,
    ) -> object:  # fmt: skip
        """``a operator b`` of any host values; ``operands``: as they are written."""
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return self.unknown_result(operator, a, b)
        if operator == "@":
            a, b = self._operands(a, b, span)
            for value in (a, b):
                if not self.world.is_array(value):
                    message = f"`@` is the product of arrays, not of {arithmetic.kind_of(value)}"
                    raise fault("T0818", message, span)
            return self.product(a, b, span, operands)
        with located(span):
            if self.world.is_array(a) or self.world.is_array(b):
                return self.world.binary(operator, *self._operands(a, b, span))
            result = arithmetic.binary(operator, a, b)
        with located(span, "T0802"):
            return arithmetic.int64(result)

    def as_operand(self, value: object, span: Span) -> object:
        """A list or tuple as an array, beside another; any other value itself."""
        return value

    def _operands(self, a: object, b: object, span: Span) -> tuple[object, ...]:
        return self.as_operand(a, span), self.as_operand(b, span)

    def product(
        self, a: object, b: object, span: Span, operands: tuple[ast.Expr, ast.Expr] | None
    ) -> object:
        """``a @ b`` of two arrays; a kernel does it, so that the subclass that calls knows how."""
        raise NotImplementedError

    def unknown_result(self, operator: str, a: object, b: object) -> object:
        """The kind of a result of which an operand is unknown."""
        if self.world.is_array(a) or self.world.is_array(b):
            with_array = a if self.world.is_array(a) else b
            if operator == "@":
                return Unknown()  # an array of any rank, or a number
            try:
                return self.world.binary(operator, with_array, with_array)
            except WorldFault:  # two such arrays do not go together; what is unknown may
                return Unknown()
        kinds = {
            x.kind if isinstance(x, Unknown) else "float" if isinstance(x, float)
            else type(x).__name__ for x in (a, b)
        }  # fmt: skip
        if kinds <= {"int", "bool"} and operator != "/":
            return Unknown("int")
        return Unknown("float") if kinds <= {"int", "bool", "float"} else Unknown()

    def compare_once(
        self, operator: ast.CompareOperator, a: object, b: object, span: Span
    ) -> object:
        with located(span):
            if operator not in ("is", "is not"):
                if is_unknown(a) or is_unknown(b):
                    return Unknown("bool")
                if self.world.is_array(a) or self.world.is_array(b):
                    if operator in ("in", "not in"):
                        return self._among(operator, a, b, span)
                    return self.world.binary(operator, *self._operands(a, b, span))
            elif a is not b and (isinstance(a, Unknown) or isinstance(b, Unknown)):
                return Unknown("bool")
            return arithmetic.compare(operator, a, b)

    def _among(self, operator: str, a: object, b: object, span: Span) -> object:
        """Whether an element of an array is a number."""
        if not self.world.is_array(b):
            raise not_built("`in` for an array", span, "compare each element: `a == b`")
        found = self.world.reduce("any", self.world.binary("==", b, a), None)
        if isinstance(found, Unknown):
            return Unknown("bool")
        return bool(found) == (operator == "in")

    def either(self, a: object, b: object) -> object:
        """What is known of a value that is one of two."""
        same = type(a) is type(b) and not self.world.is_array(a) and a == b
        return a if a is b or same else Unknown()

    def truth(self, value: object, span: Span) -> bool:
        """The truth of a known value. Raises HostFault."""
        with located(span):
            if self.world.is_array(value):
                return self.world.truth(value)
            return arithmetic.truth(value)

    def named(self, value: object, depth: int = 3) -> object:
        """What a name of the value holds: slices, also those in a tuple or list, become values."""
        if self.world.is_array(value):
            return self.world.named(value)
        if not depth:
            return value
        if isinstance(value, tuple):
            items = cast("tuple[object, ...]", value)
            held = tuple(self.named(item, depth - 1) for item in items)
            return items if all(a is b for a, b in zip(items, held, strict=True)) else held
        found: object = value
        if isinstance(value, list):
            places = cast("list[object]", value)
            places[:] = [self.named(item, depth - 1) for item in places]
        elif isinstance(value, dict):
            table = cast("dict[object, object]", value)
            table.update({key: self.named(item, depth - 1) for key, item in table.items()})
        return found

    def own(self, array: object, target: ast.Expr, operator: str, scope: Scope, span: Span) -> None:
        """``array``, which ``target`` names, is about to change. Raises HostFault where it is the
        value of a slice or a view, and somebody sees the array of which it is one."""
        of = self.world.value_of(array)
        if of is None:
            return
        seen: Scope | None = scope
        while seen is not None:
            if any(self.shares(v, of) for v in (*seen.values.values(), *seen.given)):
                raise slice_changed(target, operator, scope, span)
            seen = seen.parent
        self.world.release(array)

    def shares(self, value: object, array: object) -> bool:
        """Whether a value, or an item of one, has memory in common with an array."""
        if isinstance(value, (tuple, list)):
            items = cast("tuple[object, ...] | list[object]", value)
            return any(self.shares(item, array) for item in items)
        return value is array or (self.world.is_array(value) and self.world.shares(value, array))

    def of_unknown_length(self, value: object) -> bool:
        """Whether only the run knows how many items a value has."""
        if not self.world.is_array(value):
            return isinstance(value, Unknown)
        sizes = self.world.shape(value)
        return isinstance(sizes, Unknown) or is_unknown(cast("tuple[object, ...]", sizes)[:1])

    def iterate(self, value: object, span: Span) -> Iterator[object]:
        """The items of an iterable host value."""
        if isinstance(value, (tuple, list, range, str, dict)):
            return iter(cast("tuple[object, ...]", value))
        sizes = self.world.shape(value) if self.world.is_array(value) else None
        if isinstance(sizes, tuple) and sizes and isinstance(sizes[0], int):
            return (self.world.read(value, (i,)) for i in range(sizes[0]))
        places = ("go through its places: `for i in range(len(x)):`, and `x[i]`",)
        helps = places if self.world.is_array(value) else helps_for_none(value)
        raise fault(
            "T0818", f"{arithmetic.kind_of(value)} cannot be gone through", span, helps=helps
        )
