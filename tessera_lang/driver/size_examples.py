"""Kernels that are compiled for sizes which nothing says: judged for examples of such sizes.

Owns which sizes are tried, and which faults depend on them. Must not know how a kernel is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.evaluate.constant import NotConstant, evaluate_constant
from tessera_lang.record import replace
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.side_tables import Argument, Signature, TensorArgument
from tessera_lang.sema.signature import parameters_of
from tessera_lang.syntax import ast

_EQUAL = (128, 16, 1024)
"""Numbers of which one is taken for every name of a size."""
_DIFFERENT = 96, 16
"""The first of different numbers, and how far they lie apart."""

Complete = Callable[[str, ast.FunctionDef, Signature], Signature | None]
"""A signature with the facts its kernel is compiled for; None where one is not known."""
Check = Callable[[str, str, Signature, int], tuple[object, object, tuple[Diagnostic, ...]]]
"""The check of one instance, of which the diagnostics count."""
Judge = Callable[[Signature], tuple[Diagnostic, ...] | None]
"""What a call with these sizes is told; None where too little is known."""


def whatever_sizes(
    path: str, function: ast.FunctionDef, signature: Signature, complete: Complete, check: Check
) -> tuple[Diagnostic, ...]:
    """What calls of a tile kernel are told whatever the sizes are that ``signature`` leaves
    open."""

    def judge(sized: Signature) -> tuple[Diagnostic, ...] | None:
        known = complete(path, function, sized)
        return None if known is None else check(path, function.name, known, 0)[2]

    return _judged_by_examples(function, signature, judge)


def _judged_by_examples(
    function: ast.FunctionDef, signature: Signature, judge: Judge
) -> tuple[Diagnostic, ...]:
    """What calls are told whatever the sizes are. Where some of the examples are right and others
    are not, what is wrong with these is a note.

    A fault is one of all sizes if each example has it, in the same words: those of a fault that
    depends on sizes have their numbers.
    """
    said: list[tuple[Signature, tuple[Diagnostic, ...]]] = []
    for sized in examples(function, signature):
        found = judge(sized)
        if found is None:
            return ()
        found = tuple(d for d in found if d.severity in ("error", "warning"))
        said.append((sized, found))
        if not found:
            break
    always = [d for d in said[0][1] if all(_same_in(found, d) for _, found in said)]
    always = [d if all(d in found for _, found in said) else _without_sizes(d) for d in always]
    if any(d.severity == "error" for d in always) or not any(map(_is_right, said)):
        return tuple(always)
    return (*always, *_of_some(said))


def _same_in(found: tuple[Diagnostic, ...], d: Diagnostic) -> bool:
    return any((x.code, x.span, x.message) == (d.code, d.span, d.message) for x in found)


def _without_sizes(d: Diagnostic) -> Diagnostic:
    """A fault of all sizes whose explanation has those of an example."""
    return replace(d, label="", labels=())


def _is_right(one: tuple[Signature, tuple[Diagnostic, ...]]) -> bool:
    return not any(d.severity == "error" for d in one[1])


def _of_some(said: list[tuple[Signature, tuple[Diagnostic, ...]]]) -> Iterator[Diagnostic]:
    """The faults of the first example that has some, as notes."""
    wrong = next((one for one in said if not _is_right(one)), None)
    if wrong is None:
        return
    right = next(one for one in said if _is_right(one))
    note = f"so it is for {_shapes(wrong[0])}; for {_shapes(right[0])} it is right"
    for d in wrong[1]:
        if d.severity == "error":
            yield replace(d, severity="note", notes=(*d.notes, note))


def _shapes(signature: Signature) -> str:
    shapes = [a.sizes for a in signature if isinstance(a, TensorArgument)]
    return "arrays of " + ", ".join(f"[{', '.join(map(str, s))}]" for s in shapes)


def examples(function: ast.FunctionDef, signature: Signature) -> Iterator[Signature]:
    """The signature with a number for each size that it leaves open."""
    yield _sized(function, signature, lambda _: _EQUAL[0])
    first, step = _DIFFERENT
    names: dict[str, int] = {}
    yield _sized(function, signature, lambda n: names.setdefault(n, first + step * len(names)))
    for number in _EQUAL[1:]:
        yield _sized(function, signature, lambda _, n=number: n)


def _sized(
    function: ast.FunctionDef, signature: Signature, number_of: Callable[[str], int]
) -> Signature:
    made: list[Argument] = []
    for (_, p), a in zip(parameters_of(function), signature, strict=True):
        if isinstance(a, TensorArgument):
            shape = None if p.annotation is None else p.annotation.shape
            given = a.sizes or (None,) * a.rank
            dims = shape if shape is not None and len(shape) == a.rank else (None,) * a.rank
            a = replace(a, sizes=tuple(
                _size(e, f"{p.name}[{i}]", number_of) if n is None else n
                for i, (n, e) in enumerate(zip(given, dims, strict=True))
            ))  # fmt: skip
        made.append(a)
    return tuple(made)


def _size(e: ast.Expr | None, name: str, number_of: Callable[[str], int]) -> int:
    """What an axis has, by the names that its annotation is made of."""
    if e is None:
        return number_of(name)
    try:
        value = evaluate_constant(e, lambda n: number_of(n.id))
    except NotConstant:
        return number_of(source_of(e))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return number_of(source_of(e))
