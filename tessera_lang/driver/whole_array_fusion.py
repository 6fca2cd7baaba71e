"""Tile kernels that compute with whole arrays, as one loop.

The body of such a kernel is a graph. Where that becomes one loop over cascaded reductions, the
kernel is this loop, with its own head, directives and checks: `softmax(q @ k.T) @ v` then needs no
memory for scores. Owns how the loop becomes the body. Must not know which graphs are one loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.graph_verification import prepared
from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.signatures import without_facts
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.evaluate.host import Host
from tessera_lang.evaluate.modules import Library
from tessera_lang.evaluate.value import HostFunction
from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.lower.ast_to_graph.function_graph import function_graph
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.record import dataclass, field, field_names, replace
from tessera_lang.sema.instance import check_function
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import (
    Agreement,
    Directive,
    FunctionSymbol,
    ScalarArgument,
    Signature,
    TensorArgument,
    TypedFunction,
)
from tessera_lang.sema.signature import parameters_of
from tessera_lang.sema.tile.instance import Axes
from tessera_lang.sema.tile.whole_array_bodies import directive_of
from tessera_lang.sema.tree_transforms import nodes
from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax import ast, parse_module
from tessera_lang.types.shape import Sym

_OF_LOOPS = re.compile(r"`(r\d+_\d+|t\d+)n?`")
"""Names that a loop gives to its values."""
_LARGE_TILE, _SMALL_TILE = 64, 16
_SOME_SIZE = 97  # beside the stand-ins below
_FIRST_SIZES = (131, 171)
"""Two sets of stand-ins for sizes that nothing says. A loop that is the same for both is one for
all sizes; up to 256 elements are contracted at once."""


class Compiler(Library, Protocol):
    """What is needed of the session."""

    runner: PassRunner

    def scope(self, path: str) -> ModuleScope: ...


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a kernel as a loop, checked. ``left_out``: what the program says and the
    loop does not do, for want of room; ``taken``: what it does instead."""

    typed: TypedFunction
    left_out: tuple[Directive, ...] = ()
    taken: str = ""
    tile: Directive | None = None

    def notes(self, refused: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
        """What there is to say of directives that are not honoured. ``refused``: what was said of
        the form that honours them."""
        said = [d.message for d in refused if d.severity in ("error", "warning")]
        why = said[0] if said else "there is no room"
        for directive in self.left_out:
            more = f"; {self.taken}" if self.taken and directive.name == "tile" else ""
            yield _not_honoured(directive, why + more)
        if self.tile is not None and self.tile not in self.left_out:
            yield _not_honoured(self.tile, "a product in a loop over cascaded reductions contracts"
                                " all elements of an axis at once")  # fmt: skip

    def of_program(self, remarks: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
        """The remarks that speak of nothing that nobody wrote."""
        return tuple(d for d in remarks if not _OF_LOOPS.search(d.message))


def _not_honoured(directive: Directive, why: str) -> Diagnostic:
    value = directive.value
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    text = f"`schedule.{directive.name}({value})` is not honoured: {why}"
    return Diagnostic("T0742", text, directive.span, severity="note")


@dataclass(slots=True, eq=False)
class Forms:
    """A kernel of whole arrays as one loop, for a signature: as the program says it, then with
    less of what takes memory. ``typed``: the kernel as it is written."""

    session: Compiler
    symbol: FunctionSymbol
    signature: Signature
    typed: TypedFunction
    _made: dict[int, Form | None] = field(default_factory=dict["int", "Form | None"])

    def get(self, number: int) -> Form | None:
        """The forms in order; None behind the last one, and where there is none."""
        if number not in self._made:
            self._made[number] = self._form(number)
        return self._made[number]

    def _form(self, number: int) -> Form | None:
        said = {d.name: d for d in (self.typed.tile.directives if self.typed.tile else ())}
        stages = ("pipeline_stages",) if "pipeline_stages" in said else ()
        value = said["tile"].value if "tile" in said else ()
        parts = value if isinstance(value, tuple) else ()
        tile = (parts[0], parts[1]) if len(parts) > 1 else ()
        halved, without = divmod(number, 1 + len(stages))
        wide, high = tile or (2 * _LARGE_TILE, 2 * _LARGE_TILE)
        smaller = (wide >> halved, high >> halved) if halved else tile
        if halved and min(wide, high) >> halved < _SMALL_TILE:
            return None
        left_out = (*(("tile",) if halved and tile else ()), *(stages if without else ()))
        symbol = loop_symbol(self.session, self.symbol, self.signature, smaller, left_out)
        if symbol is None:
            return None
        typed = self._checked(symbol)
        taken = f"tiles of {wide >> halved} x {high >> halved} are taken" if halved else ""
        if typed is None:
            return None
        parted = said.get("tile") if self._contracts_more(typed, parts) else None
        return Form(typed, tuple(said[name] for name in left_out), taken, parted)

    def _contracts_more(self, loop: TypedFunction, tile: tuple[int, ...]) -> bool:
        """Whether a product contracts more elements at once than the program says."""
        if len(tile) < 3 or loop.tile is None:
            return False
        axes = (*loop.tile.whole, *loop.tile.needed)
        parameters = parameters_of(self.symbol.declaration)
        for (_, p), a in zip(parameters, self.signature, strict=True):
            if isinstance(a, TensorArgument):
                bounds = [
                    (a.sizes[i] if a.sizes else None) or (a.buckets[i] if a.buckets else None)
                    for name, i in axes if name == p.name and i == a.rank - 1
                ]  # fmt: skip
                if any(n is not None and n > tile[2] for n in bounds):
                    return True
        return False

    def _checked(self, symbol: FunctionSymbol) -> TypedFunction | None:
        typed = self.typed
        loop, _ = check_function(symbol, self.signature, self.session.scope)
        if loop is None or loop.tile is None or typed.tile is None:
            return None
        if [d for d, _ in loop.tile.results] != [d for d, _ in typed.tile.results]:
            return None
        agreements = dict.fromkeys((*typed.tile.agreements, *loop.tile.agreements))
        loop.tile = replace(loop.tile, agreements=tuple(agreements))
        return loop


def loop_symbol(
    session: Compiler, symbol: FunctionSymbol, signature: Signature, tile: tuple[int, ...] = (),
    left_out: tuple[str, ...] = (),
) -> FunctionSymbol | None:  # fmt: skip
    """The declaration of a kernel of whole arrays as one loop, not checked. ``tile``: rows and
    places of its tiles, where they are said; ``left_out``: directives that it does not have."""
    declaration = symbol.declaration
    bare, _ = check_function(symbol, without_facts(signature), session.scope)
    if bare is None or bare.tile is None:
        return None
    maker = _Maker(session, symbol, signature, bare.tile.agreements, tile)
    found = [maker.body(first) for first in _FIRST_SIZES]
    if found[0] is None or found[0] != found[1]:
        return None
    gone = ("", "tile", *left_out)
    directives = tuple(s for s in declaration.body if directive_of(s) not in gone)
    body = _at(found[0].body, maker.names(found[0]), declaration.body[-1].span)
    return replace(symbol, declaration=replace(declaration, body=(*directives, *body)))


def sized_for_loop(
    session: Compiler, symbol: FunctionSymbol, signature: Signature
) -> tuple[Signature, Axes] | None:
    """The signature with some number for each size that a kernel of whole arrays computes with, so
    that it is one loop for these sizes alone; and these axes. None where it is no loop."""
    bare, _ = check_function(symbol, without_facts(signature), session.scope)
    if bare is None or bare.tile is None:
        return None
    maker = _Maker(session, symbol, signature, bare.tile.agreements, ())
    unknown = maker.unknown()
    first = maker.body(_FIRST_SIZES[0])
    if first is None:
        return None
    if first != maker.body(_FIRST_SIZES[1]):
        maker.pinned = {s: _SOME_SIZE + i for i, s in enumerate(unknown)}
        for size in unknown:
            number = maker.pinned.pop(size)
            if maker.body(_FIRST_SIZES[0]) != maker.body(_FIRST_SIZES[1]):
                maker.pinned[size] = number
    return maker.sized(), maker.pinned_axes()


@dataclass(frozen=True, slots=True)
class _Loop:
    """The text of a loop; ``parameters``: its names for the kernel's parameters; ``sizes``: its
    names for sizes, as an axis of a parameter."""

    source: str
    parameters: tuple[tuple[str, str], ...]
    sizes: tuple[tuple[str, tuple[str, int]], ...]

    @property
    def body(self) -> tuple[ast.Stmt, ...]:
        (function,) = parse_module(SourceFile("<loop>", self.source)).module.functions
        return function.body


@dataclass(slots=True, eq=False)
class _Maker:
    session: Compiler
    symbol: FunctionSymbol
    signature: Signature
    agreements: tuple[Agreement, ...]
    tile: tuple[int, ...]
    pinned: dict[str, int] = field(default_factory=dict[str, int])

    def unknown(self) -> list[str]:
        """Sizes that nothing says; of equal ones the first."""
        leaders, names = self._leaders(), self._names_of_sizes()
        given = {_leader(leaders, s) for (n, i), s in names.items() if self._given(n, i)}
        found = dict.fromkeys(_leader(leaders, s) for s in names.values())
        return [s for s in found if s not in given]

    def pinned_axes(self) -> Axes:
        """The axes whose sizes are ``pinned``."""
        leaders = self._leaders()
        return tuple(
            a for a, s in self._names_of_sizes().items() if _leader(leaders, s) in self.pinned
        )

    def sized(self) -> Signature:
        """The signature with the sizes that are ``pinned``."""
        leaders, names, made = self._leaders(), self._names_of_sizes(), list(self.signature)
        for i, (_, p) in enumerate(parameters_of(self.symbol.declaration)):
            a = made[i]
            if isinstance(a, TensorArgument):
                sizes = a.sizes or (None,) * a.rank
                made[i] = replace(a, sizes=tuple(
                    self.pinned.get(_leader(leaders, names[p.name, axis])) if n is None else n
                    for axis, n in enumerate(sizes)
                ))  # fmt: skip
        return tuple(made)

    def body(self, first: int) -> _Loop | None:
        """The loop, where sizes that nothing says are numbers from ``first`` on."""
        declaration = self.symbol.declaration
        annotations = self._annotations(first)
        if annotations is None:
            return None
        plain = replace(
            declaration, decorators=(), returns=None,
            body=tuple(s for s in declaration.body if not directive_of(s)),
        )  # fmt: skip
        host = Host(GraphWorld(), self.session, self.symbol.module)
        try:
            function = HostFunction(plain, host.modules.scope(self.symbol.module))
            program = function_graph(host, function, annotations)
        except HostFault:
            return None
        (graph,) = prepared(self.session.runner, program).operations
        (graph,) = prepared(self.session.runner, Program("graph", (decompose(graph),))).operations
        kernels = plan_of(graph, (), self.tile).kernels
        if len(kernels) != 1 or "for j in" not in kernels[0].source:
            return None
        return self._loop(graph, kernels[0])

    def _loop(self, graph: Operation, kernel: GraphKernel) -> _Loop | None:
        names = {v: v.name for v in graph.regions[0].arguments}
        if kernel.results != graph.regions[0].terminator.operands:
            return None
        parameters = list[tuple[str, str]]()
        sizes = dict[str, tuple[str, int]]()
        (function,) = parse_module(SourceFile("<loop>", kernel.source)).module.functions
        for p, value in zip(function.parameters, kernel.arguments, strict=True):
            if not isinstance(value, Value) or value not in names or p.annotation is None:
                return None
            parameters.append((p.name, names[value]))
            for axis, e in enumerate(p.annotation.shape or ()):
                if isinstance(e, ast.Name):
                    sizes.setdefault(e.id, (names[value], axis))
            if any(n == 1 for n in sizes_of(value)):
                return None  # stretched where it is one: a kernel of all sizes does not know
        return _Loop(kernel.source, tuple(parameters), tuple(sizes.items()))

    def _annotations(self, first: int) -> dict[str, ast.TypeExpr] | None:
        """Types with numbers for all sizes; equal ones for those that the launch holds equal."""
        span = self.symbol.declaration.name_span
        known = dict(self.pinned)
        counts = iter(range(first, first + 64))
        leaders = self._leaders()
        names = self._names_of_sizes()
        for (name, axis), size in names.items():
            given = self._given(name, axis)
            if given is not None:
                known[_leader(leaders, size)] = given
        made = dict[str, ast.TypeExpr]()
        for (_, p), a in zip(parameters_of(self.symbol.declaration), self.signature, strict=True):
            shape: list[ast.Expr] = []
            if isinstance(a, TensorArgument):
                for axis in range(a.rank):
                    size = _leader(leaders, names.get((p.name, axis), ""))
                    n = known.get(size) if size else self._given(p.name, axis)
                    if n is None:
                        n = next(counts)
                        known.update({size: n} if size else {})
                    shape.append(ast.IntLit(span, n))
            elif not isinstance(a, ScalarArgument) or not a.dtype.is_float:
                return None
            dtype = ast.Name(span, a.dtype.name)
            is_array = isinstance(a, TensorArgument)
            made[p.name] = ast.TypeExpr(span, "", dtype, tuple(shape) if is_array else None)
        return made

    def _leaders(self) -> dict[str, str]:
        """Of sizes that the launch holds equal, each with another, down to the first."""
        leaders = dict[str, str]()
        for a in self.agreements:
            if a.operator == "==" and isinstance(a.left, Sym) and isinstance(a.right, Sym):
                one, other = (_leader(leaders, x.name) for x in (a.left, a.right))
                if one != other:
                    leaders[other] = one
        return leaders

    def _given(self, name: str, axis: int) -> int | None:
        """A size that the signature says."""
        for (_, p), a in zip(parameters_of(self.symbol.declaration), self.signature, strict=True):
            if p.name != name or not isinstance(a, TensorArgument):
                continue
            shape = p.annotation.shape if p.annotation is not None else None
            said = shape[axis] if shape and axis < len(shape) else None
            if isinstance(said, ast.IntLit):
                return said.value
            return a.sizes[axis] if a.sizes else None
        return None

    def _names_of_sizes(self) -> Mapping[tuple[str, int], str]:
        """What the sizes of axes are called in the checks of the launch."""
        found = dict[tuple[str, int], str]()
        for (_, p), a in zip(parameters_of(self.symbol.declaration), self.signature, strict=True):
            if isinstance(a, TensorArgument):
                shape = (p.annotation.shape if p.annotation is not None else None) or ()
                for i in range(a.rank):
                    e = shape[i] if i < len(shape) else None
                    own = f"{p.name}.shape[{i}]"
                    found[p.name, i] = e.id if isinstance(e, ast.Name) else own
        return found

    def names(self, loop: _Loop) -> Mapping[str, str | tuple[str, int]]:
        """What stands for the names of the loop: its own get others where the kernel has them."""
        own = {n.id for n in nodes(loop.body) if isinstance(n, ast.Name)}
        made: dict[str, str | tuple[str, int]] = {**dict(loop.parameters), **dict(loop.sizes)}
        taken = {p.name for p in self.symbol.declaration.parameters}
        for name in own & taken - made.keys():
            made[name] = next(f"{name}_{k}" for k in range(99) if f"{name}_{k}" not in own | taken)
        return made


def _leader(leaders: Mapping[str, str], name: str) -> str:
    while name in leaders:
        name = leaders[name]
    return name


def _at(node: Any, names: Mapping[str, str | tuple[str, int]], span: Span) -> Any:
    """A copy of a tree at one place of the text, with other names."""
    if isinstance(node, tuple):
        return tuple(_at(x, names, span) for x in cast("tuple[Any, ...]", node))
    if isinstance(node, Span):
        return span
    if isinstance(node, ast.Name) and node.id in names:
        found = names[node.id]
        if isinstance(found, str):
            return ast.Name(span, found)
        shape = ast.Attribute(span, ast.Name(span, found[0]), "shape", span)
        return ast.Subscript(span, shape, (ast.IntLit(span, found[1]),))
    if isinstance(node, ast.Subscript) and not node.items:
        return _at(node.value, names, span)  # a number, which a loop reads as an array of one
    fields = field_names(node)
    return type(node)(*(_at(getattr(node, n), names, span) for n in fields)) if fields else node
