"""Methods of lists in the host program: ``a.append(v)``, ``a.pop()``, ``a.sort(key=f)``.

Owns what they do and their faults, those of Python. Must not know arrays, or how a symbolic run
forgets a list that changes.
"""

from __future__ import annotations

from typing import Protocol, cast

from tessera_lang.evaluate.arguments import Arguments, bind, integer_of
from tessera_lang.evaluate.builtin_protocol import Host
from tessera_lang.evaluate.fault import fault, located, outside
from tessera_lang.evaluate.python_functions import PYTHON_FUNCTIONS
from tessera_lang.evaluate.value import Unknown, is_unknown
from tessera_lang.source import Span
from tessera_lang.syntax import ast

LIST_METHODS = tuple("append clear copy count extend index insert pop remove reverse sort".split())


class _Lists(Host, Protocol):
    """An evaluator whose lists change."""

    def grow(self, items: list[object], more: list[object]) -> None: ...
    def replace(self, items: list[object], new: list[object]) -> None: ...
    def named(self, value: object) -> object: ...
    def compare_once(
        self, operator: ast.CompareOperator, a: object, b: object, span: Span
    ) -> object: ...


def list_method(host: _Lists, items: list[object], name: str, arguments: Arguments) -> object:
    """What ``items.name(...)`` gives; Unknown where an argument that it goes by is not known."""
    parameters, required = _PARAMETERS[name]
    given = bind(arguments, f".{name}", parameters, required)
    span = arguments.call.span
    match name:
        case "append":
            return host.grow(items, [outside(items, given["value"], span)])
        case "extend":
            value = given["value"]
            known = not isinstance(value, Unknown)
            more = list(host.iterate(value, span)) if known else [value]
            return host.grow(items, [outside(items, v, span) for v in more])
        case "sort":
            return _sort(host, items, arguments)
        case "copy":
            return list(items)
        case "clear":
            return host.replace(items, [])
        case "reverse":
            return host.replace(items, items[::-1])
        case "insert":
            return _insert(host, items, given["index"], given["value"], arguments)
        case "pop":
            return _pop(host, items, given.get("index", -1), arguments)
        case _:
            return _of_equal(host, items, name, given["value"], span)


_PARAMETERS: dict[str, tuple[tuple[str, ...], int]] = {
    **dict.fromkeys(("append", "extend", "count", "index", "remove"), (("value",), 1)),
    **dict.fromkeys(("clear", "copy", "reverse"), ((), 0)),
    "insert": (("index", "value"), 2), "pop": (("index",), 0), "sort": (("key", "reverse"), 0),
}  # fmt: skip


def _sort(host: _Lists, items: list[object], arguments: Arguments) -> None:
    if arguments.values:
        message = "`.sort` takes `key=` and `reverse=` by name alone"
        raise fault("T0804", message, arguments.span_of("", 0))
    given = Arguments(arguments.call, (items,), arguments.keywords)
    with located(arguments.call.span):
        found = PYTHON_FUNCTIONS["sorted"](host, given, "")
    host.replace(items, cast("list[object]", found) if isinstance(found, list) else [Unknown()])


def _insert(
    host: _Lists, items: list[object], index: object, value: object, arguments: Arguments
) -> None:
    if isinstance(index, Unknown):
        return host.replace(items, [Unknown()])
    at = integer_of(index, arguments.span_of("index", 0), "a place of a list")
    value = outside(items, value, arguments.call.span)
    return host.replace(items, [*items[:at], host.named(value), *items[at:]])


def _pop(host: _Lists, items: list[object], index: object, arguments: Arguments) -> object:
    if isinstance(index, Unknown):
        host.replace(items, [Unknown()])
        return Unknown()
    at = integer_of(index, arguments.span_of("index", 0), "a place of a list")
    if not -len(items) <= at < len(items):
        message = f"`pop({at})` of a list of {len(items)}" if items else "`pop` of an empty list"
        raise fault("T0807", message, arguments.call.span)
    at %= len(items)
    item = items[at]
    host.replace(items, items[:at] + items[at + 1 :])
    return item


def _of_equal(host: _Lists, items: list[object], name: str, value: object, span: Span) -> object:
    """``count``, ``index`` and ``remove``: of the items that equal ``value``."""
    found: list[int] = []
    for i, item in enumerate(items):
        same = item is value or host.compare_once("==", item, value, span)
        if is_unknown(same):
            if name == "remove":
                host.replace(items, [Unknown()])
            return Unknown("int")
        if host.truth(same, span):
            found.append(i)
    if name == "count":
        return len(found)
    if not found:
        raise fault("T0807", f"`{name}`: no item of the list equals {host.text(value, span)}", span)
    if name == "index":
        return found[0]
    return host.replace(items, items[: found[0]] + items[found[0] + 1 :])
