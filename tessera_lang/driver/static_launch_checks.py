"""Launches of a host program that is checked but not run.

Owns what can be said of a call of a kernel by dtypes, ranks and sizes alone; the same faults
the runtime reports of real arrays, with the same codes. Must not know the kernel's body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_lang.diagnostics import Diagnostic, Label, TesseraError
from tessera_lang.driver.signatures import BadSignature, complete_signature
from tessera_lang.driver.size_examples import whatever_sizes
from tessera_lang.evaluate.abstract_world import SymbolicArray
from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.evaluate.value import Unknown
from tessera_lang.ir.core import TensorType
from tessera_lang.record import replace
from tessera_lang.sema.float_dtypes import float_alone
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import (
    Argument,
    ConstantArgument,
    ScalarArgument,
    Signature,
    TensorArgument,
    TypedFunction,
)  # fmt: skip
from tessera_lang.sema.signature import is_compile_time
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import KernelEffects, KernelReference
from tessera_lang.target.launch_plan import Condition, LaunchPlan
from tessera_lang.target.size_origins import help_at_edges, where_sizes_are
from tessera_lang.types.dtype import INDEX, DType, float_beside
from tessera_lang.types.shape import Dim, Sym, evaluate_dim, substituted_dim
from tessera_lang.types.type import Tensor

GRID_GROUPS = "grid_groups"
Checked = tuple[TypedFunction | None, LaunchPlan | None, tuple[Diagnostic, ...]]
Check = Callable[[str, str, Signature, int], Checked]
"""The check of one instance: path, name and signature of a kernel, and the axes of the grid that a
call gives, 0 for none."""
Complete = Callable[[str, ast.FunctionDef, Signature], Signature | None]
"""A signature with the facts its kernel is compiled for; None where one is not known."""
SpanOf = Callable[[Condition], Span | None]
"""Where a condition stands in its file."""
_Given = tuple[ast.Parameter, SymbolicArray, Tensor]
"""A parameter, what is known of the array that it takes, and its type."""


class Launches:
    """Checks launches; warnings of the kernels they reach are kept in ``warnings``."""

    def __init__(
        self, scope_of: Callable[[str], ModuleScope], check: Check, complete: Complete,
        span_of: SpanOf,
    ) -> None:  # fmt: skip
        self._scope_of = scope_of
        self._span_of = span_of
        self._check = check
        self._complete = complete
        self.warnings: list[Diagnostic] = []

    def __call__(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[object, ...] | None,
    ) -> object:  # fmt: skip
        """What a kernel returns. Raises TesseraError with what is surely wrong with a launch."""
        function = self._function(kernel)
        sizes: dict[str, int] = {}
        typed = self._typed(kernel, function, arguments, constants, groups, sizes)
        if typed is None:
            return None if kernel_level(function) == "lane" else Unknown()
        return _results(typed, sizes)

    def effects(
        self, kernel: KernelReference, arguments: Sequence[object],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> KernelEffects | None:  # fmt: skip
        """What a call does to arrays, whose types stand for them among ``arguments``; None where
        too little is known. Raises TesseraError with what is surely wrong with it."""
        function = self._function(kernel)
        sizes: dict[str, int] = {}
        known = tuple([
            SymbolicArray(a.dtype, tuple([n if isinstance(n, int) else Unknown("int")
                                          for n in a.shape]))
            if isinstance(a, TensorType) else a
            for a in arguments
        ])  # fmt: skip
        typed = self._typed(kernel, function, known, constants, groups, sizes)
        if typed is None:
            return None
        places = [i for i, p in enumerate(function.parameters) if not is_compile_time(p)]
        tensors = [(i, t) for i, t in zip(places, typed.parameter_types, strict=True)
                   if isinstance(t, Tensor)]  # fmt: skip
        names: dict[str, Dim] = dict(sizes)
        for i, t in tensors:
            own = arguments[i]
            for axis, dim in enumerate(own.shape if isinstance(own, TensorType) else ()):
                declared = t.shape[axis]
                names.setdefault(f"{function.parameters[i].name}.shape[{axis}]", dim)
                if isinstance(declared, Sym):
                    names.setdefault(declared.name, dim)
        try:
            results = tuple([
                (dtype, tuple([substituted_dim(dim, names) for dim in dims]))
                for dtype, dims in (typed.tile.results if typed.tile is not None else ())
            ])  # fmt: skip
        except KeyError:
            return None
        return KernelEffects(tuple([i for i, t in tensors if t.mut]), results)

    def _function(self, kernel: KernelReference) -> ast.FunctionDef:
        functions = self._scope_of(kernel.path).module.functions
        return next(f for f in functions if f.name == kernel.name)

    def _typed(
        self, kernel: KernelReference, function: ast.FunctionDef, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[object, ...] | None, sizes: dict[str, int],
    ) -> TypedFunction | None:  # fmt: skip
        """The kernel checked for a launch; None where too little is known. ``sizes`` gets those
        that are known. Raises TesseraError with what is surely wrong."""
        scope = self._scope_of(kernel.path)
        given = self._given(function, arguments, constants)
        if given is None:
            return None
        try:
            said = complete_signature(function, scope, given)
            signature = self._complete(kernel.path, function, said)
        except BadSignature as error:
            raise TesseraError(error.diagnostics) from None
        if signature is None:
            always = whatever_sizes(kernel.path, function, said, self._complete, self._check)
            if any(d.severity == "error" for d in always):
                raise TesseraError(always)
            return None
        rank = len(groups) if groups is not None else 0
        typed, plan, diagnostics = self._check(kernel.path, kernel.name, signature, rank)
        if any(d.severity == "error" for d in diagnostics):
            raise TesseraError(diagnostics)
        self.warnings.extend(diagnostics)
        if typed is None:
            return None
        found = _shape_faults(function, typed, arguments, groups, plan, sizes, self._span_of)
        if found:
            raise TesseraError(tuple(found))
        return typed

    def _given(
        self, function: ast.FunctionDef, arguments: tuple[object, ...],
        constants: Mapping[str, object],
    ) -> dict[str, Argument] | None:  # fmt: skip
        """What is known of each argument; None where too little is to say anything."""
        given: dict[str, Argument] = {}
        faults: list[Diagnostic] = []
        named = {**constants}
        run_time: list[tuple[ast.Parameter, object]] = []
        for p, value in zip(function.parameters, arguments, strict=True):
            if is_compile_time(p):
                named[p.name] = value
            else:
                run_time.append((p, value))
        for b in function.brackets:
            size = _axis_named(b.name, run_time)
            if size is not None and b.name not in named:
                named[b.name] = size
        for name, value in named.items():
            if not isinstance(value, (int, float, bool, str, DType)):
                return None
            given[name] = ConstantArgument(value)
        dtypes = _bracket_dtypes(run_time, named)
        arrays = [v.dtype for _, v in run_time if isinstance(v, SymbolicArray) and v.dtype]
        for p, value in run_time:
            floats = float_beside(arrays, float_alone(function))
            made = _argument(p, value, function, dtypes, floats)
            if isinstance(made, Diagnostic):
                faults.append(made)
            elif made is None:
                return None
            else:
                given[p.name] = made
        if faults:
            raise TesseraError(tuple(faults))
        return given


def _argument(
    p: ast.Parameter, value: object, function: ast.FunctionDef, dtypes: Mapping[str, DType],
    float_dtype: DType,
) -> Argument | Diagnostic | None:  # fmt: skip
    """An argument by what is known of it; None for too little. ``dtypes`` are what the
    brackets that name one are, ``float_dtype`` what a float of Python's is in this call."""
    labels = (Label(p.span, "the parameter"),)
    where = f"argument `{p.name}` of `{function.name}`"
    a = p.annotation
    wants_array = a is not None and a.shape is not None
    if isinstance(value, SymbolicArray):
        if value.dtype is None or value.shape is None:
            return None
        if a is not None and a.shape is None:
            message = f"{where} is an array, and the parameter takes a number"
            return Diagnostic("T0831", message, labels=labels)
        if a is not None and a.shape is not None and len(a.shape) != len(value.shape):
            message = (
                f"{where} has rank {len(value.shape)}, and the parameter has rank {len(a.shape)}"
            )
            return Diagnostic("T0833", message, labels=labels)
        named = _annotated_dtype(a)
        if named is not None and named != value.dtype:
            message = f"{where} has {value.dtype} elements, and the parameter takes {named}"
            helps = (f"convert it before the call: `.to({named})`",)
            return Diagnostic("T0832", message, labels=labels, helps=helps)
        sizes = tuple([n if isinstance(n, int) else None for n in value.shape])
        return TensorArgument(value.dtype, len(value.shape), sizes=sizes)
    if isinstance(value, Unknown) and value.kind in ("any", "str"):
        return None
    known = isinstance(value, (int, float))
    if wants_array or not (known or isinstance(value, Unknown)):
        what = f"a known {value.kind}" if isinstance(value, Unknown) else kind_of(value)
        takes = "an array" if wants_array else "a number or an array"
        message = f"{where} is {what}, and the parameter takes {takes}"
        return Diagnostic("T0831", message, labels=labels)
    dtype = _annotated_dtype(a)
    if dtype is not None:
        return ScalarArgument(dtype)
    if a is not None and isinstance(a.base, ast.Name) and a.base.id in dtypes:
        return ScalarArgument(dtypes[a.base.id])
    is_float = isinstance(value, float) or (isinstance(value, Unknown) and value.kind == "float")
    return ScalarArgument(float_dtype if is_float else INDEX)


def _axis_named(name: str, arguments: list[tuple[ast.Parameter, object]]) -> object | None:
    """The size of the first axis that is declared with the name of a bracket; None for none."""
    for p, value in arguments:
        axes = p.annotation.shape if p.annotation is not None else None
        if isinstance(value, SymbolicArray) and value.shape is not None and axes is not None:
            for axis, size in zip(axes, value.shape, strict=False):
                if isinstance(axis, ast.Name) and axis.id == name:
                    return size
    return None


def _bracket_dtypes(
    arguments: list[tuple[ast.Parameter, object]], constants: Mapping[str, object]
) -> dict[str, DType]:
    """Names of brackets and the dtypes that the call or its arrays give them."""
    found = {name: v for name, v in constants.items() if isinstance(v, DType)}
    for p, value in arguments:
        base = p.annotation.base if p.annotation is not None else None
        if isinstance(value, SymbolicArray) and value.dtype and isinstance(base, ast.Name):
            found.setdefault(base.id, value.dtype)
    return found


def _annotated_dtype(a: ast.TypeExpr | None) -> DType | None:
    from tessera_lang.types.dtype import DTYPES

    return DTYPES.get(a.base.id) if a is not None and isinstance(a.base, ast.Name) else None


def _shape_faults(
    function: ast.FunctionDef, typed: TypedFunction, arguments: tuple[object, ...],
    groups: tuple[object, ...] | None, plan: LaunchPlan | None, sizes: dict[str, int],
    span_of: SpanOf,
) -> list[Diagnostic]:  # fmt: skip
    """``sizes`` gets the names of sizes that are known."""
    given = zip(function.parameters, arguments, strict=True)
    at_run_time = [(p, value) for p, value in given if not is_compile_time(p)]
    tensors = [
        (p, value, t)
        for (p, value), t in zip(at_run_time, typed.parameter_types, strict=True)
        if isinstance(value, SymbolicArray) and isinstance(t, Tensor)
    ]
    found = _size_faults(function, tensors, sizes)
    if not found:
        found.extend(_conditions(function, plan, sizes, span_of))
    found.extend(_overlaps(function, tensors))
    found.extend(_grid_faults(function, typed, plan, groups))
    return found


def signature_faults(
    function: ast.FunctionDef, typed: TypedFunction, plan: LaunchPlan, signature: Signature,
    span_of: SpanOf,
) -> tuple[Diagnostic, ...]:  # fmt: skip
    """What every launch of arrays with the sizes that ``signature`` gives would be refused for."""
    parameters = [p for p in function.parameters if not is_compile_time(p)]
    arguments = [a for a in signature if not isinstance(a, ConstantArgument)]
    tensors: list[_Given] = []
    for p, a, t in zip(parameters, arguments, typed.parameter_types, strict=True):
        if isinstance(a, TensorArgument) and isinstance(t, Tensor):
            said = a.sizes or (None,) * a.rank
            shape = tuple([Unknown("int") if n is None else n for n in said])
            tensors.append((p, SymbolicArray(a.dtype, shape), t))
    sizes: dict[str, int] = {}
    found = [
        replace(d, span=d.labels[0].span, label=d.labels[0].text, labels=())
        for d in _size_faults(function, tensors, sizes)
    ]
    return tuple(found or _conditions(function, plan, sizes, span_of))


def _size_faults(
    function: ast.FunctionDef, tensors: list[_Given], sizes: dict[str, int]
) -> list[Diagnostic]:
    """Arrays against the sizes that the annotations name. ``sizes`` gets what they name."""
    owners: dict[str, str] = {}
    found: list[Diagnostic] = []
    for p, value, t in tensors:
        for dim, size in zip(t.shape, value.shape or (), strict=True):
            if isinstance(dim, Sym) and isinstance(size, int) and dim.name not in sizes:
                sizes[dim.name] = size
                owners[dim.name] = p.name
    for p, value, _ in tensors:
        for axis, size in enumerate(value.shape or ()):
            if isinstance(size, int):
                sizes.setdefault(f"{p.name}.shape[{axis}]", size)
    for p, value, t in tensors:
        for axis, (dim, size) in enumerate(zip(t.shape, value.shape or (), strict=True)):
            try:
                wanted = evaluate_dim(dim, sizes)
            except (KeyError, ZeroDivisionError):
                continue
            if isinstance(size, int) and size != wanted:
                owner = owners.get(str(dim))
                why = f"`{dim}` is {wanted}" + (f" from `{owner}`" if owner else "")
                message = (
                    f"argument `{p.name}` of `{function.name}` has size {size} along axis {axis}, "
                    f"and {why}"
                )
                found.append(Diagnostic("T0834", message, labels=(Label(p.span, "declared here"),)))
    return found


def _results(typed: TypedFunction, sizes: Mapping[str, int]) -> object:
    """The arrays that a tile kernel returns, as far as their sizes are known."""
    if typed.tile is None:
        return None
    results = tuple([
        SymbolicArray(dtype, tuple([_known(dim, sizes) for dim in dims]))
        for dtype, dims in typed.tile.results
    ])  # fmt: skip
    return results[0] if len(results) == 1 else results or None


def _known(dim: Dim, sizes: Mapping[str, int]) -> int | Unknown:
    try:
        return evaluate_dim(dim, sizes)
    except (KeyError, ZeroDivisionError):
        return Unknown("int")


def _overlaps(function: ast.FunctionDef, tensors: list[_Given]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for i, (p, value, t) in enumerate(tensors):
        for j, (q, other, _) in enumerate(tensors):
            if t.mut and value is other and i != j and not (tensors[j][2].mut and j < i):
                message = (
                    f"argument `{p.name}` of `{function.name}` is written, and `{q.name}` is the "
                    "same array"
                )
                found.append(Diagnostic("T0836", message))
    return found


def _grid_faults(
    function: ast.FunctionDef, typed: TypedFunction, plan: LaunchPlan | None,
    groups: tuple[object, ...] | None,
) -> list[Diagnostic]:  # fmt: skip
    if typed.kernel is None or typed.kernel.grid is not None:
        return []
    if groups is not None:
        if plan is None or len(groups) >= plan.grid_rank:
            return []
        given = "1 axis" if len(groups) == 1 else f"{len(groups)} axes"
        axes = ", ".join(("1",) * (plan.grid_rank - len(groups)) + ("groups",))
        return [Diagnostic(
            "T0839", f"`{function.name}` asks for axis {plan.grid_rank - 1} of its grid, and the "
            f"call gives a grid of {given}",
            helps=(f"say how many groups along each: `{function.name}[{axes}](...)`",),
        )]  # fmt: skip
    helps = (
        f"say it in the call, `{function.name}[groups](...)`, or give the kernel a `grid[...]`",
    )
    message = f"nothing says how many groups of `{function.name}` to launch"
    return [Diagnostic("T0839", message, helps=helps)]


def _conditions(
    function: ast.FunctionDef, plan: LaunchPlan | None, sizes: dict[str, int], span_of: SpanOf
) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for condition in plan.conditions if plan is not None else ():
        try:
            if not condition.holds(sizes):
                found.append(_broken(function, condition, sizes, span_of(condition)))
        except (KeyError, ZeroDivisionError):
            continue
    return found


def _dims(p: ast.Parameter) -> tuple[Dim, ...]:
    """The sizes that an annotation names; -1 for what is no name."""
    shape = p.annotation.shape if p.annotation is not None else None
    return tuple(Sym(e.id) if isinstance(e, ast.Name) else -1 for e in shape or ())


def _broken(
    function: ast.FunctionDef, condition: Condition, sizes: dict[str, int], span: Span | None
) -> Diagnostic:
    """What is wrong with sizes that a condition does not hold for."""
    if condition.others:
        message = f"`{function.name}` requires `{condition.text}`, and here it fails"
        values = ", ".join(f"{n} = {sizes[n]}" for n in sorted(condition.symbols))
        return Diagnostic("T0838", message, span, notes=(f"with {values}",))
    left, right = (evaluate_dim(d, sizes) for d in (condition.left, condition.right))
    if isinstance(condition.left, Sym) and isinstance(condition.right, Sym):
        message = (
            f"`{function.name}` needs `{condition.text}`, and here `{condition.left}` is {left} "
            f"and `{condition.right}` is {right}"
        )
        dims = [(p.name, _dims(p)) for p in function.parameters]
        notes = where_sizes_are((condition.left, condition.right), dims)
        return Diagnostic("T0838", message, span, notes=notes)
    message = f"`{function.name}` requires `{condition.text}`, and here it does not hold"
    notes = (f"it reads {left} {condition.comparison} {right}",)
    helps = help_at_edges(condition.left, condition.comparison, condition.right, condition.text)
    return Diagnostic("T0838", message, span, notes=notes, helps=helps)
