"""Record classes: what ``dataclasses`` gives, with every method written when first called.

Owns ``dataclass``, ``field``, ``replace`` and ``field_names``. The compiler has hundreds of
records, one run needs few of their methods, and text that is compiled at import is most of
what a short run would pay. A type checker sees the standard library's own functions; of
their arguments, these take what the project uses. Must not know any record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

__all__ = ["dataclass", "field", "field_names", "replace"]

_MISSING: Any = object()


class Entry:
    """What is known of one field."""

    __slots__ = ("compare", "default", "factory")

    def __init__(self, default: Any, factory: Any, compare: bool) -> None:
        self.default = default
        self.factory = factory
        self.compare = compare


def make_entry(
    *, default: Any = _MISSING, default_factory: Any = _MISSING, compare: bool = True
) -> Any:
    return Entry(default, default_factory, compare)


def make_record(
    cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True
) -> Any:
    """The decorator."""

    def decorate(given: type) -> Any:
        return _record(given, frozen, slots, eq)

    return decorate if cls is None else decorate(cls)


def copy_with(record: Any, /, **changes: Any) -> Any:
    """A record like this one, but for these fields."""
    kind = cast("Any", type(record))
    for name in kind.__match_args__:
        if name not in changes:
            changes[name] = getattr(record, name)
    return kind(**changes)


def field_names(thing: object) -> tuple[str, ...]:
    """The fields of a record or of a class of records; of all else, none."""
    kind: Any = thing if isinstance(thing, type) else type(thing)
    return kind.__match_args__ if hasattr(kind, "__record__") else ()


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = make_record, make_entry, copy_with


class _StandardFields:
    """``__dataclass_fields__``, for what the standard library does with a record."""

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def __get__(self, record: object, kind: Any) -> Any:
        if kind not in self._made:
            self._made[kind] = self._fields_of(kind)
        return self._made[kind]

    def _fields_of(self, kind: Any) -> Any:
        import dataclasses

        def standard(entry: Entry) -> Any:
            given: dict[str, Any] = {"compare": entry.compare}
            if entry.default is not _MISSING:
                given["default"] = entry.default
            if entry.factory is not _MISSING:
                given["default_factory"] = entry.factory
            return dataclasses.field(**given)

        fields = [(name, Any, standard(entry)) for name, entry in kind.__record__.items()]
        made: Any = dataclasses.make_dataclass(kind.__name__, fields)
        return made.__dataclass_fields__


_STANDARD_FIELDS = _StandardFields()


def _record(cls: Any, frozen: bool, slots: bool, eq: bool) -> Any:
    if frozen and not slots:
        raise TypeError("a frozen record has slots")
    entries, own = _entries(cls)
    added: dict[str, Any] = {
        "__record__": entries,
        "__dataclass_fields__": _STANDARD_FIELDS,
        "__match_args__": tuple(entries),
        "__repr__": _repr,
    }
    written: dict[str, Callable[[Any], Any]] = {
        "__init__": _write_guarded_init if frozen else _write_init
    }
    if eq:
        written["__eq__"] = _write_eq
        added["__hash__"] = None
        if frozen:
            written["__hash__"] = _write_hash
    if frozen:
        added["__setattr__"] = _refuse_set
        added["__reduce__"] = _reduce
        added["__delattr__"] = _refuse_delete
    given = cls.__dict__
    added = {name: value for name, value in added.items() if name not in given}
    cls = _with_slots(cls, added, own) if slots else _without_slots(cls, added, own, entries)
    for name, write in written.items():
        if name not in given:
            setattr(cls, name, _deferred(cls, name, write))
    return cls


def _entries(cls: Any) -> tuple[dict[str, Entry], list[str]]:
    """All fields by name, those of base classes first, and the names of its own."""
    entries: dict[str, Entry] = {}
    for base in cls.__mro__[-1:0:-1]:
        entries.update(base.__dict__.get("__record__", {}))
    own: list[str] = []
    for name, annotation in cls.__annotations__.items():
        if "ClassVar" in str(annotation):
            continue
        default = cls.__dict__.get(name, _MISSING)
        if not isinstance(default, Entry):
            default = Entry(default, _MISSING, True)
        if name not in entries:
            own.append(name)
        entries[name] = default
    return entries, own


def _with_slots(cls: Any, added: dict[str, Any], own: list[str]) -> Any:
    """The class again, with slots for its fields: they cannot be added to one that is there."""
    left_out = {*own, "__dict__", "__weakref__"}
    names = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    made = type(cls)(cls.__name__, cls.__bases__, {**names, **added, "__slots__": tuple(own)})
    made.__qualname__ = cls.__qualname__
    return made


def _without_slots(
    cls: Any, added: dict[str, Any], own: list[str], entries: dict[str, Entry]
) -> Any:
    for name in own:
        if isinstance(cls.__dict__.get(name), Entry):
            delattr(cls, name)
        if entries[name].default is not _MISSING:
            added[name] = entries[name].default
    for name, value in added.items():
        setattr(cls, name, value)
    return cls


def _deferred(cls: Any, name: str, write: Callable[[Any], Any]) -> Callable[..., Any]:
    """A method that puts the written one in its place and calls it."""

    def method(*arguments: Any, **named: Any) -> Any:
        written = write(cls)
        written.__qualname__ = f"{cls.__qualname__}.{name}"
        written.__module__ = cls.__module__
        setattr(cls, name, written)
        return written(*arguments, **named)

    return method


def _define(line: str, body: list[str], known: dict[str, Any]) -> Any:
    text = f"def {line}:\n " + "\n ".join(body or ["pass"])
    exec(text, known)
    return known[line.partition("(")[0]]


def _write_init(cls: Any) -> Any:
    return _init(cls, "self.{0} = {1}", {})


def _write_guarded_init(cls: Any) -> Any:
    """Of a frozen record, whose own ``__setattr__`` refuses."""
    setters = {f"_set_{name}": getattr(cls, name).__set__ for name in cls.__record__}
    return _init(cls, "_set_{0}(self, {1})", setters)


def _init(cls: Any, assignment: str, known: dict[str, Any]) -> Any:
    known["_MISSING"] = _MISSING
    parameters, body = ["self"], list[str]()
    for name, entry in cls.__record__.items():
        value = name
        if entry.factory is not _MISSING:
            known[f"_make_{name}"] = entry.factory
            parameters.append(f"{name}=_MISSING")
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        elif entry.default is not _MISSING:
            known[f"_default_{name}"] = entry.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(assignment.format(name, value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return _define(f"__init__({', '.join(parameters)})", body, known)


def _values(cls: Any, owner: str) -> str:
    names = [name for name, entry in cls.__record__.items() if entry.compare]
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


def _write_eq(cls: Any) -> Any:
    body = [
        "if other is self:",
        " return True",
        "if other.__class__ is self.__class__:",
        f" return {_values(cls, 'self')} == {_values(cls, 'other')}",
        "return NotImplemented",
    ]
    return _define("__eq__(self, other)", body, {})


def _write_hash(cls: Any) -> Any:
    return _define("__hash__(self)", [f"return hash({_values(cls, 'self')})"], {})


def _repr(self: Any) -> str:
    kind = cast("Any", type(self))
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in kind.__match_args__)
    return f"{kind.__qualname__}({values})"


def _reduce(self: object) -> tuple[type, tuple[Any, ...]]:
    """For copies and pickles, which would else set fields one by one."""
    kind = cast("Any", type(self))
    return kind, tuple(getattr(self, name) for name in kind.__record__)


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    raise AttributeError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise AttributeError(f"cannot delete field {name!r}")
