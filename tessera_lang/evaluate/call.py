"""Calls in the host program: functions of the program, kernels, names of the language.

Owns how arguments meet parameters and what is called for them. Must not know statements:
the body of a function is run by ``host.py``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import cast

from tessera_grammar.keywords import MODULE_MEMBERS

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.annotations import bind_sizes
from tessera_lang.evaluate.arguments import Arguments, bind, plural, wrong_count
from tessera_lang.evaluate.array_functions import OF_ARRAYS, convert, dtype_of
from tessera_lang.evaluate.builtin import BUILTINS, OP_LATER
from tessera_lang.evaluate.derivatives import fused_of, pulled
from tessera_lang.evaluate.double import like
from tessera_lang.evaluate.expression import Expressions
from tessera_lang.evaluate.fault import HostFault, fault, key_of, located, with_call
from tessera_lang.evaluate.foreign_names import RENAMED, TILE_FORMS, lacks, library_help
from tessera_lang.evaluate.list_methods import list_method
from tessera_lang.evaluate.lists_of_numbers import as_array, with_arrays
from tessera_lang.evaluate.one_call_kernels import IN_KERNELS_ALONE, chosen, product
from tessera_lang.evaluate.operators import not_built
from tessera_lang.evaluate.value import (
    BuiltinFunction,
    Derivative,
    HostFunction,
    Kernel,
    Method,
    Pullback,
    Scope,
    Unknown,
    is_unknown,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DType

_LATER = {
    "op": "graph functions", "schedule": "schedules", "tile": "tile operations",
    "dist": "distribution", "graph": "graph functions", "fast": "`fast` mathematics",
}  # fmt: skip


def _no_member(
    call: ast.Call, head: str, member: str, own: Iterable[str], elsewhere: tuple[str, ...]
) -> HostFault:
    """The fault of a member that a namespace lacks; ``own``: those that it has."""
    own = tuple(own)
    renamed = RENAMED.get(member)
    close = renamed if renamed in own else nearest(member, own)
    helps = (f"did you mean `{head}.{close}`?",) if close else elsewhere
    if close and close == renamed:
        helps = (f"write `{head}.{close}`, with the same arguments",)
    if not close and head == "op" and member in TILE_FORMS:
        helps = (TILE_FORMS[member],)
    if not isinstance(call.function, ast.Attribute):
        return fault("T0104", lacks(head, member), call.span, helps=helps)
    at = call.function.name_span
    fixes = (Fix(f"write `{close}`", (Edit(at, close),), "unsafe"),) if close else ()
    return fault("T0104", lacks(head, member), at, helps=helps, fixes=fixes)


def _as_method(call: ast.Call) -> bool:
    """Whether ``op.f(x)`` was written as ``x.f()``: the name of the function is all there is."""
    return (
        isinstance(call.function, ast.Attribute) and call.function.span == call.function.name_span
    )


class Calls(Expressions):
    """Evaluates calls; ``run_function`` comes from the subclass."""

    def run_function(self, function: HostFunction, values: dict[str, object], call: ast.Call
    ) -> object:  # fmt: skip
        """The result of a function of the program with its parameters bound."""
        raise NotImplementedError

    def call_value(self, function: HostFunction | Derivative, arguments: Arguments) -> object:
        """What a function of the program gives, or a derivative of one."""
        if isinstance(function, Derivative):
            return self._differentiated(function, arguments)
        values = self.bound(function, arguments)
        return self.run_function(function, values, arguments.call)

    def call(self, e: ast.Call, function: object, scope: Scope) -> object:
        arguments = Arguments(
            e,
            tuple([self.value(a, scope) for a in e.arguments]),
            {k.name: self.value(k.value, scope) for k in e.keywords},
        )
        match function:
            case BuiltinFunction():
                return self.builtin_call(function, arguments, scope)
            case DType():
                value = bind(arguments, function.name, ("x",), 1)["x"]
                plain = not (isinstance(value, Unknown) or self.world.is_array(value))
                if function == BOOL and plain:
                    return self.truth(value, e.span)  # of anything, as in Python
                with located(e.span):
                    return convert(self, value, function)
            case HostFunction():
                values = self.bound(function, arguments)
                try:
                    return self.run_function(function, values, e)
                except HostFault as inner:
                    text = f"in this call of `{function.name}`"
                    raise HostFault(
                        tuple(with_call(d, e.span, text) for d in inner.diagnostics)
                    ) from None
            case Derivative():
                return self.call_value(function, arguments)
            case Pullback():
                return pulled(self, function, arguments)
            case Kernel():
                return self._launch(function, arguments)
            case Method():
                return self._method(function, arguments)
            case Unknown():
                return Unknown()
            case _:
                raise fault(
                    "T0818", f"{arithmetic.kind_of(function)} cannot be called", e.function.span
                )

    def _differentiated(self, function: Derivative, arguments: Arguments) -> object:
        """A call of ``grad(f)``: the arguments of ``f``, and ``cotangent=``."""
        call = arguments.call
        cotangent = arguments.keywords.get("cotangent")
        rest = ast.Call(call.span, call.function, call.arguments, tuple(
            k for k in call.keywords if k.name != "cotangent"))  # fmt: skip
        given = Arguments(rest, arguments.values, arguments.keywords)
        values = self.bound(function.innermost, given)
        return self.modules.library.differentiated(self, function, values, call, cotangent)

    def arguments_of(self, function: Derivative, arguments: Arguments) -> dict[str, object]:
        """The parameters of the function that a derivative is of, by name."""
        return self.bound(function.innermost, arguments)

    def profiled(self, arguments: Arguments, path: str) -> None:
        """``graph.profile(f, ...)``: the function, its arguments, and ``trace=``."""
        call, of = arguments.call, arguments.values[0] if arguments.values else None
        if not isinstance(of, HostFunction | Derivative):
            raise fault("T0761", "`graph.profile` takes a plain function, and its arguments",
                        call.span)  # fmt: skip
        own = of if isinstance(of, Derivative) else fused_of(of, call.span)
        trace = arguments.keywords.get("trace", "")
        if not isinstance(trace, str):
            raise fault("T0818", "`trace=` is the name of a file", call.span)
        keywords = tuple(k for k in call.keywords if k.name != "trace")
        rest = ast.Call(call.span, call.arguments[0], call.arguments[1:], keywords)
        named = {k: v for k, v in arguments.keywords.items() if k != "trace"}
        values = self.bound(own.innermost, Arguments(rest, arguments.values[1:], named))
        file = self.file(trace, path) if trace else ""
        self.modules.library.profiled(self, own, values, call, file)

    def file(self, name: str, path: str) -> str:
        """A data file of a program: relative names stand beside the program's file."""
        if path.startswith("<"):
            return name
        return os.path.join(os.path.dirname(path), name)

    # --- names of the language ---------------------------------------------------------

    def builtin_call(self, function: BuiltinFunction, arguments: Arguments, scope: Scope) -> object:
        """What a function of the language gives."""
        implementation = BUILTINS.get(function.name)
        if implementation is None:
            raise self._missing(function.name, arguments.call, top=scope.parent is None)
        first = arguments.values[0] if arguments.values else None
        if function.name in OF_ARRAYS and isinstance(first, Unknown):
            return Unknown()
        if function.name == "op.copy" and isinstance(first, list) and _as_method(arguments.call):
            return list_method(
                self,
                cast("list[object]", first),
                "copy",
                Arguments(arguments.call, arguments.values[1:], arguments.keywords),
            )
        with located(arguments.call.span):
            arguments = with_arrays(self, function.name, arguments)
            found = implementation(self, arguments, scope.path)
        return like(found, *arguments.values, *arguments.keywords.values())

    def as_operand(self, value: object, span: Span) -> object:
        return as_array(self, value, span)

    def product(
        self, a: object, b: object, span: Span, operands: tuple[ast.Expr, ast.Expr] | None
    ) -> object:
        return product(self, a, b, span, operands)

    def chosen(self, array: object, items: tuple[object, ...], span: Span) -> object:
        return chosen(self, array, items, span)

    def _missing(self, name: str, call: ast.Call, *, top: bool) -> HostFault:
        head, _, member = name.partition(".")
        if head == "schedule" and top:
            message = f"`{name}` says nothing at the top of a file"
            helps = ("write it at the top of a tile kernel's body",)
            return fault("T0611", message, call.span, helps=helps)
        elsewhere = library_help(member, host=True)
        if head == "op" and member not in OP_LATER:
            own = (n.removeprefix("op.") for n in BUILTINS if n.startswith("op."))
            return _no_member(call, head, member, own, elsewhere)
        if head in ("math", "fast") and member not in MODULE_MEMBERS[head]:
            return _no_member(call, head, member, MODULE_MEMBERS[head], elsewhere)
        if head == "op" and member in IN_KERNELS_ALONE:
            return fault("T0818", f"`{name}` can be called in a kernel only", call.function.span)
        if head in _LATER:
            what = f"`{name}`, one of the {_LATER[head]},"
            instead = elsewhere or ("write a kernel of it and call that",)
            return not_built(what, call.function.span, instead[0])
        if head == "math":
            return not_built(f"`{name}` in the host program", call.function.span)
        return fault("T0818", f"`{name}` can be called in a kernel only", call.function.span)

    def grow(self, items: list[object], more: list[object]) -> None:
        """``items`` get ``more`` at their end, under every name that they have."""
        items.extend([self.named(item) for item in more])

    def replace(self, items: list[object], new: list[object]) -> None:
        """``items`` are others, under every name that they have."""
        items[:] = new

    def _method(self, method: Method, arguments: Arguments) -> object:
        receiver = method.receiver
        if isinstance(receiver, list):
            return list_method(self, cast("list[object]", receiver), method.name, arguments)
        if isinstance(receiver, str):
            return self._joined_texts(receiver, arguments)
        if isinstance(receiver, dict):
            return self._of_dict(cast("dict[object, object]", receiver), method.name, arguments)
        if method.name in ("item", "tolist"):
            bind(arguments, method.name, (), 0)
            with located(arguments.call.span):
                return self._items_of(receiver, method.name == "item")
        dtype = bind(arguments, method.name, ("dtype",), 1)["dtype"]
        with located(arguments.call.span):
            target = dtype_of(dtype, arguments.span_of("dtype", 0))
            return self.world.convert(method.receiver, target)

    def _joined_texts(self, between: str, arguments: Arguments) -> object:
        """``"".join(texts)``."""
        given = bind(arguments, ".join", ("texts",), 1)["texts"]
        if isinstance(given, Unknown):
            return Unknown("str")
        texts = list(self.iterate(given, arguments.call.span))
        if any(isinstance(text, Unknown) for text in texts):
            return Unknown("str")
        known = [text for text in texts if isinstance(text, str)]
        if len(known) < len(texts):
            wrong = next(text for text in texts if not isinstance(text, str))
            raise fault("T0818", f"`join` takes strings, not {arithmetic.kind_of(wrong)}",
                        arguments.call.span, helps=("convert each: `str(v)`",))  # fmt: skip
        return between.join(known)

    def _of_dict(self, table: dict[object, object], name: str, arguments: Arguments) -> object:
        if name == "get":
            given = bind(arguments, ".get", ("key", "default"), 1)
            key = key_of(given["key"], arguments.span_of("key", 0))
            return Unknown() if is_unknown(key) else table.get(key, given.get("default"))
        bind(arguments, f".{name}", (), 0)
        return list({"items": table.items, "keys": table.keys, "values": table.values}[name]())

    def _items_of(self, value: object, one: bool) -> object:
        """The numbers of an array in lists; ``one``: its only number."""
        if not self.world.is_array(value):
            return value
        shape = self.world.shape(value)
        if not isinstance(shape, tuple) or is_unknown(cast("tuple[object, ...]", shape)):
            return Unknown()
        sizes = cast("tuple[int, ...]", shape)
        if one and math.prod(sizes) != 1:
            raise arithmetic.ArithmeticFault(f"`item` of an array of {math.prod(sizes)} elements")
        if one or not sizes:
            return self.world.read(value, (0,) * len(sizes))
        return [self._items_of(self.world.read(value, (i,)), False) for i in range(sizes[0])]

    # --- functions and kernels of the program ------------------------------------------

    def bound(self, function: HostFunction, arguments: Arguments) -> dict[str, object]:
        """The parameters of a plain function by name, defaults evaluated where it stands."""
        declaration = function.declaration
        brackets = declaration.brackets if isinstance(declaration, ast.FunctionDef) else ()
        if len(function.constants) > len(brackets):
            takes = plural(len(brackets), "compile-time parameter")
            count = len(function.constants)
            raise wrong_count(function.name, takes, count, arguments.call.span)
        values = {p.name: v for p, v in zip(brackets, function.constants, strict=False)}
        self._bind(function.name, brackets, declaration.parameters, arguments, function.scope,
                   values)  # fmt: skip
        missing = [p.name for p in brackets if p.name not in values]
        if missing:
            message = f"the call of `{function.name}` lacks `{missing[0]}`"
            helps = (f"write `{function.name}[...](...)` or `{missing[0]}=...`",)
            raise fault("T0804", message, arguments.call.span, helps=helps)
        bind_sizes(self.world, self.value, function, values, arguments.call.span)
        return values

    def _bind(
        self, name: str, brackets: tuple[ast.Parameter, ...],
        parameters: tuple[ast.Parameter, ...], arguments: Arguments, scope: Scope,
        values: dict[str, object],
    ) -> None:  # fmt: skip
        """Fill ``values`` with parameters, and with brackets that are given or have defaults."""
        for keyword in arguments.call.keywords:
            if any(b.name == keyword.name for b in brackets):
                if keyword.name in values:
                    raise fault("T0804", f"`{keyword.name}` is given twice", keyword.name_span)
                values[keyword.name] = arguments.keywords[keyword.name]
        rest = Arguments(
            ast.Call(
                arguments.call.span, arguments.call.function, arguments.call.arguments,
                tuple(k for k in arguments.call.keywords if k.name not in values),
            ),
            arguments.values, arguments.keywords,
        )  # fmt: skip
        optional = {p.name for p in parameters if p.default is not None}
        ordered = tuple(p.name for p in parameters)
        needed = next((i for i, p in enumerate(ordered) if p in optional), len(ordered))
        given = bind(rest, name, ordered, needed)
        missing = [p for p in ordered if p not in given and p not in optional]
        if missing:
            names = ", ".join(f"`{p}`" for p in missing)
            raise fault("T0804", f"the call of `{name}` lacks {names}", arguments.call.span)
        values.update(given)
        for parameter in (*brackets, *parameters):
            if parameter.name not in values and parameter.default is not None:
                values[parameter.name] = self.value(parameter.default, scope)

    def _launch(self, kernel: Kernel, arguments: Arguments) -> object:
        declaration = kernel.declaration
        values: dict[str, object] = {}
        self._bind(declaration.name, declaration.brackets, declaration.parameters, arguments,
                   kernel.scope, values)  # fmt: skip
        ordered = tuple(values[p.name] for p in declaration.parameters)
        constants = {b.name: values[b.name] for b in declaration.brackets if b.name in values}
        with located(arguments.call.span):
            return self.launched(kernel, ordered, constants, arguments.call.span)

    def launched(
        self, kernel: Kernel, arguments: tuple[object, ...], constants: dict[str, object],
        span: Span,
    ) -> object:  # fmt: skip
        """What a kernel returns, of the arguments of its parameters in order."""
        return self.world.launch(kernel.reference, arguments, constants, kernel.groups)
