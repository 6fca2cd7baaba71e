"""Typed readers of values and of attributes, and what they say where something else is there."""

from __future__ import annotations

import pytest

from tessera_lang.ir.core import (
    Attribute,
    BarrierType,
    BufferType,
    IRType,
    Operation,
    PointerType,
    Region,
    TileType,
    Value,
    ViewType,
)
from tessera_lang.types.dtype import F32, INDEX

TYPES: dict[str, IRType] = {
    "tile_type": TileType(F32, (8, 8)),
    "view_type": ViewType(F32, (None, 8)),
    "buffer_type": BufferType(F32, (8,)),
    "pointer_type": PointerType(F32, "global"),
    "barrier_type": BarrierType(2),
    "dtype": INDEX,
}


@pytest.mark.parametrize("reader", TYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_types(reader: str, kind: str) -> None:
    value = Value(TYPES[kind], "x")
    if reader == kind:
        assert getattr(value, reader) is TYPES[kind]
    else:
        with pytest.raises(TypeError, match="%x is no"):
            getattr(value, reader)


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_several_kinds(kind: str) -> None:
    value, t = Value(TYPES[kind], "x"), TYPES[kind]
    if isinstance(t, ViewType | BufferType):
        assert value.array_type is t
    else:
        with pytest.raises(TypeError, match="%x is no array"):
            _ = value.array_type
    if kind in ("tile_type", "dtype"):
        assert value.element_dtype is (t.dtype if isinstance(t, TileType) else t)
    else:
        with pytest.raises(TypeError):
            _ = value.element_dtype


@pytest.mark.parametrize(
    ("reader", "held", "wrong"),
    [("integer", 3, "3"), ("integers", (1, 2), (1, "2")), ("strings", ("a",), ("a", 1))],
)
def test_attributes(reader: str, held: Attribute, wrong: Attribute) -> None:
    assert getattr(Operation("tile.x", attributes={"a": held}), reader)("a") == held
    with pytest.raises(TypeError, match=r"`a` of tile\.x"):
        getattr(Operation("tile.x", attributes={"a": wrong}), reader)("a")


def test_attributes_that_are_not_there() -> None:
    bare = Operation("tile.x")
    assert bare.integers("a") == bare.strings("a") == ()
    assert bare.integer("a", 4) == 4
    with pytest.raises(TypeError, match=r"`a` of tile\.x is no integer"):
        bare.integer("a")


def test_what_is_nested() -> None:
    number = Value(INDEX)
    inner = Operation("tile.load", (number, number))
    outer = Operation("tile.if", (number,), regions=(Region((), (inner, inner)), Region()))
    assert outer.holds("tile.load") and outer.holds({"tile.if"}) and not outer.holds("tile.lo")
    assert outer.nested(("tile.load", "tile.store")) == [inner, inner]
    assert list(outer.uses()) == [number] * 5
    assert list(outer.regions[0].walk()) == [inner, inner]
