"""Passes ask an operation for its traits, so that one that is added is known everywhere.

A collection of names of operations is a rule that nobody finds who adds one. What such a set
means stands in the table (``ir/tile/ops.py``, ``ir/schedule/ops.py``), and the sets are in
``ir/definitions.py``. Arithmetic may be listed: what is known of ``add`` and ``mul`` is algebra.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tessera_lang.ir import definitions
from tessera_lang.ir.definitions import DEFINITIONS, ELEMENT_WISE
from tests.house.places import ROOT, nodes, short, source_files

# Where a set is a rule of that one module alone: (file, one of the names) and why.
RULES: Mapping[tuple[str, str], str] = MappingProxyType({
    ("backend/tessera_backend/cpu/emit_group.py", "tile.fence"):
        "the order in which lanes run shows in what these do",
    ("backend/tessera_backend/nvptx/tiles/elementwise_runs.py", "tile.coordinate"):
        "what this emitter makes register by register",
    ("tessera_lang/analysis/resources/register_pressure.py", "tile.coordinate"):
        "what the emitter makes register by register",
    ("tessera_lang/analysis/resources/register_pressure.py", "tile.constant"):
        "what takes no register of its own",
    ("tessera_lang/analysis/lanes/lane_loops.py", "tile.break"):
        "exits behind which the loop is over for a lane that goes on",
    ("tessera_lang/opt/schedule/cost/lane_sized_iterations.py", "tessera.schedule.broadcast"):
        "what one lane does element by element as well as a group does",
    ("tessera_lang/lower/schedule_to_lanes/materialization_choice.py", "tessera.schedule.extract"):
        "moves whose loops read no element twice",
    ("tessera_lang/opt/schedule/canonical/squeeze_axes.py", "tessera.schedule.broadcast"):
        "what each of them becomes without an axis stands in that module",
})  # fmt: skip

FRONT_END = tuple(f"tessera_lang/{n}/" for n in ("sema", "syntax", "evaluate"))
"""They know the words of the language, and no operation."""

SUFFIXES = {n.removeprefix("tessera.").removeprefix("schedule."): n for n in DEFINITIONS}


def modules() -> Iterator[Path]:
    for path in source_files():
        name = short(path)
        inside = name.startswith(("tessera_lang/", "backend/", "lsp/"))
        if inside and not name.startswith(("tessera_lang/ir/", *FRONT_END)):
            yield path


def names_at(path: Path) -> dict[str, object]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "tessera_lang" else parts[1:]
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    return vars(module)


def operations_in(node: ast.expr, known: Mapping[str, object]) -> list[str]:
    """The operations that the elements of a collection name; not those of sets that it takes in."""
    elements = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
    found = [text(e, known) for e in elements]
    return [_whole(f) for f in found if _whole(f) in DEFINITIONS]


def _whole(found: str) -> str:
    return SUFFIXES.get(found.removeprefix("schedule."), found)


def text(node: ast.expr, known: Mapping[str, object]) -> str:
    match node:
        case ast.Constant(value=str(said)):
            return said
        case ast.Name(id=name):
            said = known.get(name)
            return said if isinstance(said, str) else ""
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text(left, known) + text(right, known)
        case ast.JoinedStr(values=parts):
            return "".join(text(p, known) for p in parts)
        case ast.FormattedValue(value=value):
            return text(value, known)
        case _:
            return ""


def collections(tree: ast.Module, known: Mapping[str, object]) -> Iterator[tuple[int, list[str]]]:
    """The line and the operations of each set, list and tuple that asks for names."""
    every = list(nodes(tree))
    single = {id(a.value) for a in every if isinstance(a, ast.Assign)
              if any(isinstance(t, ast.Tuple) for t in a.targets)}  # fmt: skip
    tables = {id(n) for table in every if isinstance(table, ast.Dict | ast.DictComp)
              for n in nodes(table)}  # fmt: skip
    for node in every:
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[asked]):
                yield node.lineno, operations_in(asked, known)
            case ast.Assign(value=value) if id(node) not in single and id(value) not in single:
                yield from ((node.lineno, operations_in(n, known)) for n in nodes(value)
                            if isinstance(n, ast.Tuple | ast.List | ast.Set)
                            and id(n) not in tables)  # fmt: skip
                yield node.lineno, listed(value, known)
            case ast.Call(args=[asked, *_]) if id(node) not in tables:
                yield node.lineno, operations_in(asked, known)
            case _:
                pass


def listed(value: ast.expr, known: Mapping[str, object]) -> list[str]:
    """The operations of ``frozenset(PREFIX + n for n in ("load", "store"))``."""
    found: list[str] = []
    for node in nodes(value):
        if isinstance(node, ast.GeneratorExp | ast.SetComp | ast.ListComp):
            (loop, *_) = node.generators
            words = [text(e, known) for e in getattr(loop.iter, "elts", ())]
            name = loop.target.id if isinstance(loop.target, ast.Name) else ""
            made = [text(node.elt, {**known, name: word}) for word in words]
            found += [m for m in made if m in DEFINITIONS]
    return found


def flagged(path: Path) -> Iterator[tuple[int, list[str]]]:
    source = path.read_text(encoding="utf-8")
    if '"tile.' not in source and "chedule." not in source:
        return
    for line, found in collections(ast.parse(source), names_at(path)):
        if len(set(found) - ELEMENT_WISE) > 1:
            yield line, found


def closest(found: list[str]) -> str:
    """The set that a pass should ask: the one that has most of the names and fewest others."""
    sets = {n: s for n, s in vars(definitions).items() if n.isupper() and isinstance(s, frozenset)}
    wanted = set(found)
    return min(sets, key=lambda n: len(wanted ^ sets[n]))


def test_no_lists_of_names() -> None:
    wrong: list[str] = []
    used: set[tuple[str, str]] = set()
    for path in modules():
        for line, found in flagged(path):
            rules = {(short(path), name) for name in found} & RULES.keys()
            used |= rules
            if not rules:
                what = " ".join(sorted(found))
                wrong.append(f"{short(path)}:{line}: {what}: see definitions.{closest(found)}")
    assert not wrong, "\n".join(wrong)
    assert used == RULES.keys(), "take these out of the list"


@pytest.mark.parametrize(
    "source",
    [
        'x = o.name in ("tile.load", "tile.store")',
        '_READS = ("tile.load", LOAD)',
        '_READS = frozenset(PREFIX + n for n in ("load", "gather"))',
        'x = o.name.endswith(("schedule.transpose", "schedule.prefetch"))',
        '_E = {*OTHERS, "tile.break", "tile.leave"}',
        '_E = {"tile.barrier", "tile.load"} | OTHERS',
    ],
)
def test_a_list_is_found(source: str) -> None:
    known = {"PREFIX": "tessera.schedule.", "LOAD": "tessera.schedule.load"}
    assert any(len(found) == 2 for _, found in collections(ast.parse(source), known))


@pytest.mark.parametrize(
    "source",
    [
        'x = o.name in {"tile.while", *LEAVES}',
        'FOR, LOAD = (PREFIX + n for n in ("for", "load"))',
        'x = {"tile.load": 1, "tile.store": 2}',
        'b.emit("tile.load", ("view",))',
    ],
)
def test_what_is_no_list(source: str) -> None:
    known = {"PREFIX": "tessera.schedule."}
    assert all(len(found) < 2 for _, found in collections(ast.parse(source), known))
