"""Parses the generic form back to programs.

Owns the grammar of the printed form: what ``printer.py`` writes, and what MLIR tools write
of it (several results behind one name, locations, comments, a module around the whole).
Must not know what operations mean: ``verify.py`` says whether a program keeps the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from tessera_lang.ir.core import (
    Attribute,
    IRType,
    Level,
    Operation,
    Program,
    Region,
    Value,
)
from tessera_lang.ir.spelling import (
    SPELT_DTYPE,
    compound_type,
    float_of_bits,
    string_value,
    tensor_type,
)
from tessera_lang.types.dtype import DType

_T = TypeVar("_T")
_MAX_DEPTH = 200


class IRParseError(ValueError):
    """A text that is no program; ``line`` is 1-based."""

    def __init__(self, message: str, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}: {message}")


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


_TOKENS = re.compile(
    r"""(?P<skip>[ \t\r]+|//[^\n]*)|(?P<newline>\n)
    |(?P<value>%(?:\d+|[A-Za-z_$.][\w$.]*)(?:\#\d+)?)
    |(?P<block>\^[A-Za-z_]\w*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<compound>!(?:tile|graph)\.[a-z_]+<[^<>\n]*>)
    |(?P<hex>0x[0-9A-Fa-f]+)
    |(?P<float>-?\d+\.\d*(?:[eE][-+]?\d+)?)
    |(?P<int>-?\d+)
    |(?P<arrow>->)
    |(?P<word>[A-Za-z_][\w$.]*)
    |(?P<mark>[()\[\]{},:=])""",
    re.VERBOSE | re.ASCII,
)


def _tokens(text: str) -> list[_Token]:
    out: list[_Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise IRParseError(f"unexpected character {text[at]!r}", line)
        kind = str(match.lastgroup)
        if kind == "newline":
            line += 1
        elif kind != "skip":
            out.append(_Token(kind, match[0], line))
        at = match.end()
    out.append(_Token("end", "end of text", line))
    return out


def parse_program(text: str, level: Level | None = None) -> Program:
    """The program that was printed as ``text``.

    The level is read off the names of the operations unless it is given. Raises
    IRParseError, a ValueError.
    """
    parser = _Parser(_tokens(text))
    operations = parser.operations_until("end")
    if len(operations) == 1 and operations[0].name == "builtin.module":
        operations = operations[0].regions[0].operations if operations[0].regions else ()
    return Program(level or _level_of(operations), operations)


def _level_of(operations: Sequence[Operation]) -> Level:
    for operation in operations:
        words = operation.name.split(".")
        if "schedule" in words:
            return "schedule"
        if "graph" in words:
            return "graph"
    return "tile"


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._scopes: list[dict[str, Value]] = [{}]

    # --- tokens -----------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _fail(self, message: str, token: _Token | None = None) -> IRParseError:
        return IRParseError(message, (token or self._next).line)

    def _take(self, kind: str, what: str) -> _Token:
        token = self._next
        if token.kind != kind:
            raise self._fail(f"expected {what}, found '{token.text}'")
        self._at += 1
        return token

    def _mark(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._fail(f"expected '{mark}', found '{self._next.text}'")

    def _accept(self, mark: str) -> bool:
        if self._next.kind in ("mark", "arrow", "word") and self._next.text == mark:
            self._at += 1
            return True
        return False

    def _list(self, close: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Items up to ``close``, which is taken; the opening mark was."""
        items: list[_T] = []
        if self._accept(close):
            return ()
        while True:
            items.append(item())
            if self._accept(close):
                return tuple(items)
            self._mark(",")

    # --- operations -------------------------------------------------------------------------

    def operations_until(self, close: str) -> tuple[Operation, ...]:
        out: list[Operation] = []
        while not (self._next.kind == close or self._next.text == close):
            out.append(self._operation())
        return tuple(out)

    def _operation(self) -> Operation:
        names: list[_Token] = []
        if self._next.kind == "value" or (self._next.kind == "mark" and self._next.text == "("):
            names = self._result_names()
        head = self._take("string", "an operation")
        self._mark("(")
        operands = self._list(")", self._operand)
        regions = self._list(")", self._region) if self._accept("(") else ()
        attributes = self._attributes() if self._accept("{") else {}
        types = self._signature(head, operands, len(names))
        results = tuple(
            Value(t, _hint(n.text)) for t, n in zip(types, names, strict=False)
        ) + tuple(Value(t) for t in types[len(names) :])
        if names and len(names) != len(types):
            raise self._fail(f"{len(names)} names for {len(types)} results", head)
        for name, value in zip(names, results, strict=False):
            self._define(name, value)
        return Operation(string_value(head.text), operands, results, attributes, regions)

    def _result_names(self) -> list[_Token]:
        names: list[_Token] = []
        while True:
            token = self._take("value", "a name")
            if self._accept(":"):
                count = int(self._take("int", "a number of results").text)
                names += [_Token("value", f"{token.text}#{i}", token.line) for i in range(count)]
            else:
                names.append(token)
            if not self._accept(","):
                self._mark("=")
                return names

    def _signature(
        self, head: _Token, operands: tuple[Value, ...], results: int
    ) -> tuple[IRType, ...]:
        if not self._accept(":"):
            # A line written by hand: results take the types of the operands.
            if results > len(operands):
                raise self._fail("no type, and no operand to take it from", head)
            return tuple(v.type for v in operands[:results])
        self._mark("(")
        given = self._list(")", self._type)
        if given != tuple(v.type for v in operands):
            raise self._fail("the types are not those of the operands", head)
        self._mark("->")
        types = self._list(")", self._type) if self._accept("(") else (self._type(),)
        if self._accept("loc"):
            self._location()
        return types

    def _location(self) -> None:
        self._mark("(")
        if self._next.kind == "string":
            self._at += 1
            while self._accept(":"):
                self._take("int", "a position")
        else:
            self._take("word", "a location")
        self._mark(")")

    def _operand(self) -> Value:
        token = self._take("value", "an operand")
        for scope in reversed(self._scopes):
            value = scope.get(token.text) or scope.get(f"{token.text}#0")
            if value is not None:
                return value
        raise self._fail(f"{token.text} is not defined here", token)

    def _define(self, name: _Token, value: Value) -> None:
        if any(name.text in scope for scope in self._scopes):
            raise self._fail(f"{name.text} is defined twice", name)
        self._scopes[-1][name.text] = value

    def _region(self) -> Region:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._fail(f"regions nested more than {_MAX_DEPTH} deep")
        self._mark("{")
        self._scopes.append({})
        arguments: tuple[Value, ...] = ()
        if self._next.kind == "block":
            self._at += 1
            arguments = self._list(")", self._argument) if self._accept("(") else ()
            self._mark(":")
        operations = self.operations_until("}")
        self._mark("}")
        self._scopes.pop()
        self._depth -= 1
        return Region(arguments, operations)

    def _argument(self) -> Value:
        name = self._take("value", "an argument")
        self._mark(":")
        value = Value(self._type(), _hint(name.text))
        self._define(name, value)
        return value

    # --- types and attributes ---------------------------------------------------------------

    def _type(self) -> IRType:
        token = self._next
        self._at += 1
        if token.kind == "word" and token.text in SPELT_DTYPE:
            return SPELT_DTYPE[token.text]
        if token.kind == "compound":
            head, _, body = token.text[1:-1].partition("<")
            level, _, head = head.partition(".")
            try:
                if (level, head) == ("graph", "tensor"):
                    return tensor_type(body)
                if level != "tile":
                    raise ValueError(f"no type '{token.text}'")
                return compound_type(head, body)
            except ValueError as error:
                raise self._fail(str(error), token) from None
        raise self._fail(f"expected a type, found '{token.text}'", token)

    def _attributes(self) -> dict[str, Attribute]:
        out: dict[str, Attribute] = {}

        def item() -> None:
            key = self._next
            self._at += 1
            if key.kind not in ("word", "string"):
                raise self._fail(f"expected an attribute, found '{key.text}'", key)
            name = string_value(key.text) if key.kind == "string" else key.text
            if name in out:
                raise self._fail(f"attribute {name} stands twice", key)
            self._mark("=")
            out[name] = self._attribute()

        self._list("}", item)
        return out

    def _attribute(self) -> Attribute:
        token = self._next
        self._at += 1
        match token.kind, token.text:
            case "string", text:
                try:
                    return string_value(text)
                except ValueError:
                    raise self._fail("a string that is not UTF-8", token) from None
            case "word", ("true" | "false") as text:
                return text == "true"
            case "word", text if text in SPELT_DTYPE:
                return SPELT_DTYPE[text]
            case (("int" | "float" | "hex"), _):
                return self._number(token)
            case "mark", "[":
                return self._list("]", self._attribute)
            case _:
                raise self._fail(f"expected a value, found '{token.text}'", token)

    def _number(self, token: _Token) -> int | float:
        dtype: DType | None = None
        if self._accept(":"):
            t = self._type()
            if not isinstance(t, DType):
                raise self._fail("a number of no scalar type", token)
            dtype = t
        is_float = dtype is not None and dtype.is_float
        if token.kind == "float":
            return float(token.text)
        if token.kind == "int":
            return float(token.text) if is_float else int(token.text)
        bits = int(token.text, 16)
        if dtype is None or not is_float:
            return bits
        try:
            return float_of_bits(bits, dtype)
        except ValueError as error:
            raise self._fail(str(error), token) from None


def _hint(name: str) -> str:
    """The printing hint of ``%name``: none where it is a number."""
    text = name[1:].partition("#")[0]
    return "" if text.isdigit() else text
