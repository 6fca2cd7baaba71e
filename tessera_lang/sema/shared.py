"""Shared memory: ``tshared.alloc`` with and without arguments; ``tlocal.alloc``, of each lane.

Owns the type of a buffer and what the budget leaves for the bare one. Must not know how
much a target has.
"""

from __future__ import annotations

import math

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema.bound_names import expressions
from tessera_lang.sema.context import Context
from tessera_lang.sema.inference_types import BareBuffer, Open, OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.side_tables import Constant
from tessera_lang.sema.signature import constant_size
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType
from tessera_lang.types.type import ERROR, Buffer, Scalar

ALIGNMENT = 16
MOST_OWN_BYTES = 512 << 10
"""Of the arrays of a lane, on every target: what CUDA gives a thread beside its registers."""


def aligned(size: int) -> int:
    """Bytes that an allocation takes from the budget."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def bare_buffer(c: Context, bare: BareBuffer) -> Term:
    """The type of the bare buffer as far as it is known."""
    if bare.dtype is None:
        return OpenBuffer(bare)
    left = (c.budget or 0) - sum(c.allocations.values())
    if left < bare.dtype.bytes:
        return ERROR if c.final else Unknown()  # `check_bare` reports it
    return Buffer(bare.dtype, (left // bare.dtype.bytes,))


def check_bare(c: Context, bare: BareBuffer) -> None:
    """In the last walk: the bare buffer has a budget, room, and a store."""
    if c.budget is None:
        c.report(
            "T0310", "bare `tshared.alloc` needs a budget", bare.span,
            helps=("add the clause `shared(16_KiB)` to `@kernel`, or give a shape and a dtype",),
        )  # fmt: skip
    elif bare.dtype is None:
        c.report(
            "T0219", f"nothing is stored to `{bare.name}`, so its element type is not known",
            bare.span, helps=("write `tshared.alloc(shape, dtype)`",),
        )  # fmt: skip
    elif (c.budget - sum(c.allocations.values())) < bare.dtype.bytes:
        used = sum(c.allocations.values())
        c.report(
            "T0310", f"the other allocations take {used} of {c.budget} bytes:"
            f" nothing is left for `{bare.name}`", bare.span,
            labels=tuple(Label(e.span, f"{size} bytes") for e, size in c.allocations.items()),
            helps=("raise the budget in `shared(...)`",),
        )  # fmt: skip


def stored(c: Context, bare: BareBuffer, value: Term, span: Span) -> None:
    """A store or atomic to a bare buffer: the first typed one in source order decides."""
    if bare.dtype is not None and bare.seen:
        if c.final and isinstance(value, Scalar) and value.dtype != bare.dtype:
            c.report(
                "T0219", f"`{bare.name}` holds `{bare.dtype}` and this stores `{value.dtype}`",
                span, f"this is `{value.dtype}`",
                labels=(Label(bare.decided or bare.span, f"the first store is `{bare.dtype}`"),),
                helps=("write `tshared.alloc(shape, dtype)` for each of the two",),
            )  # fmt: skip
        return
    match value:
        case Scalar():
            if not bare.seen and bare.dtype is None:
                bare.dtype, bare.decided = value.dtype, span
                c.cells.changed = True
            bare.seen = True
        case Open():
            bare.seen = True
            bare.waits = (value.cell,)
            c.blocked.append(value.cell)
        case Unknown():
            bare.seen = True
            bare.waits = value.cells
            c.blocked.extend(value.cells)
        case _:
            pass


def infer_alloc(c: Context, e: ast.Call, name: str, shape: ast.Expr, dtype: ast.Expr) -> Term:
    """``tshared.alloc(shape, dtype)`` or ``tlocal.alloc``: both known at compile time."""
    term, kind = c.infer(shape), c.infer(dtype)
    if is_silent(term) or is_silent(kind):
        return ERROR if c.final else Unknown()
    sizes, element = c.try_value(shape), c.try_value(dtype)
    if isinstance(sizes, int) and not isinstance(sizes, bool):
        sizes = (sizes,)
    if not isinstance(element, DType):
        return c.report("T0218", f"the second argument of `{name}` is a dtype", dtype.span)
    if not _is_shape(sizes):
        what = "shared memory" if name == "tshared.alloc" else f"`{name}`"
        message = f"the shape of {what} must be known at compile time"
        help_text, labels = "use a compile-time parameter: `def k[N: int = 64](...)`", ()
        if sizes is not None:
            message = f"the shape of {what} is one or more positive integers"
            help_text = "a buffer that may be empty is one of one element: `max(N, 1)`"
        elif (hidden := _hidden_constant(c, shape)) is not None:
            name_of, value, labels = hidden
            help_text = (
                f"make it a compile-time parameter: `def {c.declaration.name}[{name_of}: int ="
                f" {value}](...)`; or write `{value}` in the shape of the parameter"
            )
        return c.report(
            "T0309", message, shape.span, "positive integers, as in `(64, 32)`", labels=labels,
            helps=(help_text,),
        )  # fmt: skip
    dims: tuple[int, ...] = sizes  # type: ignore[assignment]
    size = aligned(math.prod(dims) * element.bytes)
    if name != "tlocal.alloc":
        c.allocations[e] = size
        return Buffer(element, dims)
    c.own_arrays[e] = size
    if (total := sum(c.own_arrays.values())) > MOST_OWN_BYTES:
        return c.report(
            "T0315", "a lane has 512 KiB for arrays of its own", e.span,
            f"with this they take {total} bytes",
            helps=("keep large arrays in parameters",),
        )  # fmt: skip
    return Buffer(element, dims, "local")


def _hidden_constant(c: Context, shape: ast.Expr) -> tuple[str, int, tuple[Label, ...]] | None:
    """A name of a shape that is a size of a parameter, where the file has a constant of that name:
    the name, the constant's value, and labels that say so."""
    sizes = {local.name: local for local in c.typed.sizes}
    for e in expressions(shape):
        if not isinstance(e, ast.Name) or e.id not in sizes:
            continue
        constant, value = c.scope.lookup(e.id), constant_size(c.scope, e.id)
        if value is None or not isinstance(constant, Constant):
            continue
        text = f"`{e.id}` is here this size of the call, not the constant of the file"
        at = sizes[e.id].span
        labels = [] if at is None else [Label(at, text)]
        if constant.span is not None:
            labels.append(Label(constant.span, "the constant"))
        return e.id, value, tuple(labels)
    return None


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) > 0  # type: ignore[arg-type]
        and all(type(v) is int and v > 0 for v in value)  # type: ignore[misc]
    )
