"""Records mean what the standard library's dataclasses mean."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import pytest

from tessera_lang.record import dataclass, field, field_names, replace


@dataclass(frozen=True, slots=True)
class Point:
    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    value: object


@dataclass(slots=True)
class Bag:
    """Kept."""

    items: list[int] = field(default_factory=list[int])
    count: int = 0


@dataclass(slots=True)
class BigBag(Bag):
    size: int = 9


@dataclass
class Open:
    x: int
    items: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.total = self.x + len(self.items)


def test_equality_and_hash() -> None:
    assert Point(1) == Point(1, 2, "other") != Point(2)
    assert hash(Point(1)) == hash(Point(1, note="other"))
    assert Point(1) != (1, 2)
    assert Node(1) != Node(1)
    assert len({Node(1), Node(1)}) == 2
    assert Bag() == Bag()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Bag())


def test_construction() -> None:
    assert (Point(y=3, x=1).y, Point(1).note, Point.kind) == (3, "", "point")
    a, b = Bag(), Bag()
    a.items.append(1)
    assert b.items == []
    assert BigBag([1], 2) == BigBag([1], 2, 9)
    assert Open(1, [1, 2]).total == 3
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required .*'x'"):
        Point()  # type: ignore[call-arg]


def test_frozen() -> None:
    point: Any = Point(1)
    with pytest.raises(AttributeError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(AttributeError, match="cannot delete field 'x'"):
        del point.x
    bag: Any = Bag()
    with pytest.raises(AttributeError):
        bag.other = 1  # slots


def test_text_and_documentation() -> None:
    assert repr(Point(1)) == "Point(x=1, y=2, note='')"
    assert Bag.__doc__ == "Kept."


def test_matching_and_fields() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)
    assert field_names(Point) == field_names(Point(1)) == ("x", "y", "note")
    assert field_names(BigBag) == ("items", "count", "size")
    assert field_names(3) == field_names(int) == ()


def test_replace() -> None:
    assert replace(Point(1, 2, "n"), x=7) == Point(7, 2)
    assert replace(Point(1, 2, "n"), x=7).note == "n"


def test_the_standard_library_knows_them() -> None:
    assert dataclasses.is_dataclass(Point(1))
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "note": ""}
    assert [f.name for f in dataclasses.fields(Bag)] == ["items", "count"]
    assert dataclasses.replace(Point(1), y=4) == Point(1, 4)
