"""Lists to which a loop appends, and does nothing else with: results of an element for each step.

Owns which lists these are. Must not know how a loop is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from tessera_lang.evaluate.value import HostFunction, Scope
from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_graph.leaves import is_value, leaves, rebuilt
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, is_double, not_here
from tessera_lang.record import dataclass, field_names
from tessera_lang.syntax import ast

if TYPE_CHECKING:
    from tessera_lang.lower.ast_to_graph.world import GraphWorld


@dataclass(slots=True)
class AppendedList:
    """A list that grows in each step by as many items."""

    items: list[object]
    length: int

    def new(self) -> list[object]:
        """The items of one step."""
        return self.items[self.length :]

    def new_leaves(self, world: GraphWorld) -> list[object]:
        """Arrays and numbers that the function computes in the items of one step. Raises
        WorldFault where something else is among them."""
        found: list[object] = []
        for item in self.new():
            own = leaves(item, lambda v: is_value(v) or not isinstance(v, tuple | list | dict))
            if not all(map(is_value, own)):
                raise not_here("a list of what is known")
            found += own
        return found

    def extend(
        self, world: GraphWorld, new: Sequence[object], stacks: Iterator[Value], steps: int
    ) -> None:
        """Appends the items of all steps. ``stacks``: the elements of each leaf, in order."""
        found = [leaf for item in new for leaf in leaves(item, is_value)]
        arrays = [GraphArray(next(stacks)) for _ in found]
        for step in range(steps):
            parts = iter([
                world.read(a, (step,)) if isinstance(leaf, GraphArray)
                else GraphNumber(world.lifted(world.read(a, (step,))), is_double(leaf))
                for a, leaf in zip(arrays, found, strict=True)
            ])  # fmt: skip
            for item in new:
                made = rebuilt(item, is_value, lambda _, parts=parts: next(parts))
                self.items.append(rebuilt(made, is_value, world.named))


def appended_lists(s: ast.For, scope: Scope) -> list[AppendedList]:
    """The lists of a function's own variables to which the body of a loop appends, where it does
    nothing else with them, and nothing else has them."""
    uses = Counter(node.id for node in _nodes(s) if isinstance(node, ast.Name))
    appends = Counter[str]()
    for node in _nodes(s):
        match node:
            case ast.ExprStmt(value=ast.Call(function=ast.Attribute(value=ast.Name(id=name),
                                                                    name="append"))):  # fmt: skip
                appends[name] += 1
            case _:
                pass
    if any(isinstance(v, HostFunction) and _sees(v.scope, scope) for v in scope.values.values()):
        return []
    found: list[AppendedList] = []
    for name, count in appends.items():
        value = scope.values.get(name)
        if not isinstance(value, list) or uses[name] != count:
            continue
        items = cast("list[object]", value)
        if _holders(items, scope) == 1:
            found.append(AppendedList(items, len(items)))
    return found


def _sees(inner: Scope | None, scope: Scope) -> bool:
    while inner is not None:
        if inner is scope:
            return True
        inner = inner.parent
    return False


def _holders(wanted: object, scope: Scope) -> int:
    """How often a value stands in the variables of a scope and those around it."""
    count, seen = 0, set[int]()
    left: list[object] = []
    around: Scope | None = scope
    while around is not None:
        left += [*around.values.values(), *around.given]
        around = around.parent
    while left:
        value = left.pop()
        if value is wanted:
            count += 1
        elif isinstance(value, tuple | list | dict) and id(cast("object", value)) not in seen:
            seen.add(id(cast("object", value)))
            items = cast("dict[object, object]", value)
            left += items.values() if isinstance(value, dict) else items
    return count


def _nodes(node: object) -> Iterator[object]:
    """A part of a program and all in it."""
    left: list[object] = [node]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left += cast("tuple[object, ...]", one)
        elif type(one).__module__ == ast.__name__:
            yield one
            left += [getattr(one, name) for name in field_names(one)]
