"""Signatures from outside a program: from text, and from the arguments of a checked call.

Owns how what is known of arguments becomes a signature. Must not know bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.constant import NotConstant, evaluate_constant
from tessera_lang.record import replace
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import (
    Argument,
    Constant,
    ConstantArgument,
    ScalarArgument,
    Signature,
    TensorArgument,
)  # fmt: skip
from tessera_lang.sema.signature import (
    ParameterSpec,
    compile_time_kind,
    constant_in,
    dtype_lookup,
    fits_kind,
    is_compile_time,
    parameters_of,
    spec_of,
)  # fmt: skip
from tessera_lang.sema.signature_example import missing_arguments
from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax import ast
from tessera_lang.target.array_facts import all_small, array_facts, bucket, row_major
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import DType, dtype_named

SIGNATURE_FILE = "<signature>"
Axes = tuple[tuple[str, int], ...]
"""Axes of parameters: (parameter, axis)."""


class BadSignature(Exception):
    """A signature that does not fit a kernel, with the diagnostics that say why."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        super().__init__("; ".join(d.message for d in diagnostics))


def _bad(message: str, *helps: str, span: Span | None = None) -> BadSignature:
    return BadSignature((Diagnostic("T0815", message, span, helps=helps),))


def _open(
    function: ast.FunctionDef, p: ast.Parameter, what: str, given: Mapping[str, Argument]
) -> BadSignature:
    """Nothing says what a parameter is: the signature that says it, and all else that is open."""
    text = missing_arguments(function, given)
    return _bad(
        f"nothing says what {what} of `{function.name}` is",
        f"say it in the signature: `--signature '{text}'`", span=p.span,
    )  # fmt: skip


def read_signature(text: str) -> dict[str, Argument]:
    """``x: f32[n], out: mut f32[g], BINS=64`` as arguments by name. Raises BadSignature."""
    from tessera_lang.syntax import parse_module

    file = SourceFile(SIGNATURE_FILE, f"def signature({text}):\n    pass\n")
    parsed = parse_module(file)
    functions = parsed.module.functions
    if parsed.diagnostics or len(functions) != 1:
        raise _bad(
            f"the signature `{text}` cannot be read",
            "write it as the parameters of a kernel: `x: f32[n], out: mut f32[m]`",
        )
    return {p.name: _given(p) for p in functions[0].parameters}


def _given(p: ast.Parameter) -> Argument:
    if p.default is not None:
        try:
            value = evaluate_constant(p.default, _no_names)
        except NotConstant as error:
            raise _bad(f"the value of `{p.name}` in the signature: {error.reason}") from None
        if not isinstance(value, (int, float, bool, str, DType)):
            raise _bad(f"the value of `{p.name}` in the signature is no compile-time value")
        return ConstantArgument(value)
    a = p.annotation
    if a is None or not isinstance(a.base, ast.Name):
        raise _bad(f"`{p.name}` in the signature has no type", f"write `{p.name}: f32[n]`")
    dtype = dtype_named(a.base.id)
    if dtype is None:
        raise _bad(f"`{a.base.id}` in the signature is no dtype")
    if a.shape is None:
        return ScalarArgument(dtype)
    return TensorArgument(dtype, len(a.shape), sizes=tuple([_size(p.name, e) for e in a.shape]))


def _size(name: str, e: ast.Expr) -> int | None:
    """A size of a signature: a number, or a name of one that is not known."""
    try:
        value = evaluate_constant(e, _no_names)
    except NotConstant:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _bad(f"a size of `{name}` in the signature is {value!r}")
    return value


def _no_names(name: ast.Name) -> object:
    raise LookupError(name.id)


def complete_signature(
    function: ast.FunctionDef, scope: ModuleScope, given: Mapping[str, Argument]
) -> Signature:
    """The signature of a call of which ``given`` is known; the rest comes from annotations,
    defaults and the dtypes of arguments. Raises BadSignature where something is left open."""
    names = [p.name for _, p in parameters_of(function)]
    for name in given:
        if name not in names:
            close = nearest(name, tuple(names))
            helps = (f"did you mean `{close}`?",) if close else ()
            raise _bad(f"`{function.name}` has no parameter `{name}`", *helps)
    constants = _compile_time(function, scope, given)
    lookup = dtype_lookup(scope, constants)
    arguments: list[Argument] = []
    for bracket, p in parameters_of(function):
        if is_compile_time(p, bracket):
            arguments.append(ConstantArgument(constants[p.name].value))  # type: ignore[arg-type]
            continue
        if p.name in given:
            arguments.append(given[p.name])
            continue
        spec = spec_of(p, lookup)
        if isinstance(spec, Diagnostic) or spec.dtype is None:
            raise _open(function, p, f"`{p.name}`", given)
        is_tensor = spec.kind == "tensor"
        made = TensorArgument(spec.dtype, len(spec.dims)) if is_tensor else None
        arguments.append(made or ScalarArgument(spec.dtype))
    shapes = [spec_of(p, lookup) for _, p in parameters_of(function)]
    dims = [s.dims if isinstance(s, ParameterSpec) else () for s in shapes]
    return _with_sizes_of_names(tuple(arguments), dims)


def _with_sizes_of_names(signature: Signature, dims: Sequence[Sequence[ast.Expr]]) -> Signature:
    """A size that one array gives is that of every axis of its name; of `2*n` half of it is."""
    known: dict[str, int] = {}
    for a, shape in zip(signature, dims, strict=True):
        for n, dim in zip(a.sizes if isinstance(a, TensorArgument) else (), shape, strict=False):
            if n is not None and (part := _multiple(dim)) is not None and n % part[1] == 0:
                known.setdefault(part[0], n // part[1])

    def with_sizes(a: Argument, shape: Sequence[ast.Expr]) -> Argument:
        if not isinstance(a, TensorArgument) or len(shape) != a.rank:
            return a
        given, found = a.sizes or (None,) * a.rank, map(_multiple, shape)
        sizes = tuple(
            known[part[0]] * part[1] if n is None and part is not None and part[0] in known else n
            for n, part in zip(given, found, strict=True)
        )
        return a if sizes == given else replace(a, sizes=sizes)

    return tuple(with_sizes(a, shape) for a, shape in zip(signature, dims, strict=True))


def _multiple(e: ast.Expr) -> tuple[str, int] | None:
    """The name of a size, and how many times it is taken."""
    match e:
        case ast.Name():
            return e.id, 1
        case ast.Binary(operator="*", left=ast.IntLit(value=n), right=ast.Name(id=name)) if n > 0:
            return name, n
        case ast.Binary(operator="*", left=ast.Name(id=name), right=ast.IntLit(value=n)) if n > 0:
            return name, n
        case _:
            return None


def _are_small(arrays: Sequence[TensorArgument], target: str) -> bool:
    """Whether the sizes that a signature gives say that its arrays are small."""
    known = [[n for n in a.sizes if n is not None] for a in arrays]
    if not all(len(sizes) == a.rank for a, sizes in zip(arrays, known, strict=True)):
        return False
    return all_small(
        [(n, row_major(n), a.dtype.bytes) for a, n in zip(arrays, known, strict=True)], target
    )


def without_facts(signature: Signature, target: str = "cpu") -> Signature:
    """The signature without what it says of sizes: that of a lane kernel."""
    arrays = [a for a in signature if isinstance(a, TensorArgument)]
    small = _are_small(arrays, target)
    return tuple(
        TensorArgument(a.dtype, a.rank, a.contiguous, a.aligned, small=a.small or small)
        if isinstance(a, TensorArgument) else a
        for a in signature
    )  # fmt: skip


def with_facts(
    function: ast.FunctionDef, signature: Signature, needed: Axes, whole: Axes
) -> Signature | None:
    """The signature of a tile kernel, of arrays with these sizes (None: not known)
    that have no gaps and begin at a multiple of 16 bytes. None where a size that it needs is not
    known."""
    arguments: list[Argument] = []
    for (_, p), a in zip(parameters_of(function), signature, strict=True):
        if isinstance(a, TensorArgument):
            sizes = a.sizes or _declared_sizes(p, a.rank)
            mine, bounds = ([x for n, x in axes if n == p.name] for axes in (needed, whole))
            if any(sizes[axis] is None for axis in mine):
                return None
            f = array_facts(sizes, None, a.dtype.bytes, mine, bounds)
            a = replace(
                a, aligned=True, sizes=f.sizes, hints=f.hints, divisors=f.divisors, unit=f.unit,
                pitches=f.pitches, buckets=f.buckets,
            )  # fmt: skip
        arguments.append(a)
    return tuple(arguments)


def with_rooms(function: ast.FunctionDef, signature: Signature, whole: Axes) -> Signature | None:
    """The signature of a tile kernel for arrays that are short along the axes that it takes
    whole and whose size nothing says; None where there is none of these."""
    arguments: list[Argument] = []
    for (_, p), a in zip(parameters_of(function), signature, strict=True):
        if isinstance(a, TensorArgument):
            buckets = a.buckets or (None,) * a.rank
            mine = [axis for n, axis in whole if n == p.name]
            short = bucket(1)
            a = replace(a, buckets=tuple(
                [short if b is None and i in mine else b for i, b in enumerate(buckets)]
            ))  # fmt: skip
        arguments.append(a)
    return tuple(arguments) if tuple(arguments) != signature else None


def with_sizes(function: ast.FunctionDef, signature: Signature, size: int) -> Signature:
    """The signature where every size that nothing says is ``size``."""
    arguments: list[Argument] = []
    for (_, p), a in zip(parameters_of(function), signature, strict=True):
        if isinstance(a, TensorArgument):
            known = a.sizes or _declared_sizes(p, a.rank)
            a = replace(a, sizes=tuple([size if n is None else n for n in known]))
        arguments.append(a)
    return tuple(arguments)


def knows_sizes(signature: Signature) -> bool:
    """Whether a signature is of arrays whose sizes are known, as far as it has any."""
    return not any(isinstance(a, TensorArgument) and 0 in a.hints for a in signature)


def _declared_sizes(p: ast.Parameter, rank: int) -> tuple[int | None, ...]:
    """The sizes that an annotation gives as numbers."""
    shape = p.annotation.shape if p.annotation is not None else None
    return (None,) * rank if shape is None else tuple([_size(p.name, e) for e in shape])


def plan_with_facts(plan: LaunchPlan, signature: Signature) -> LaunchPlan:
    """The plan of a tile kernel with what its code may rely on."""
    facts = signature[len(signature) - len(plan.parameters) :]
    parameters = [
        replace(p, sizes=a.sizes, divisors=a.divisors, unit=a.unit, pitches=a.pitches,
                buckets=a.buckets)
        if isinstance(a, TensorArgument) else p
        for p, a in zip(plan.parameters, facts, strict=True)
    ]  # fmt: skip
    return replace(plan, parameters=tuple(parameters))


def _compile_time(
    function: ast.FunctionDef, scope: ModuleScope, given: Mapping[str, Argument]
) -> dict[str, Constant]:
    """The values of all compile-time parameters."""
    constants: dict[str, Constant] = {}
    for bracket, p in parameters_of(function):
        if not is_compile_time(p, bracket):
            continue
        value = _value_of(p, function, scope, given)
        kind = compile_time_kind(p)
        if value is None:
            raise _open(function, p, f"the compile-time parameter `{p.name}`", given)
        if not fits_kind(value, kind):
            raise _bad(f"`{p.name}` of `{function.name}` takes a value of kind {kind}")
        constants[p.name] = Constant(p.name, value, p.span)
    return constants


def _value_of(
    p: ast.Parameter, function: ast.FunctionDef, scope: ModuleScope, given: Mapping[str, Argument]
) -> object | None:
    argument = given.get(p.name)
    if isinstance(argument, ConstantArgument):
        value = argument.value
        if compile_time_kind(p) == "dtype" and isinstance(value, str):
            return dtype_named(value)
        return value
    for other in function.parameters:
        a = other.annotation
        known = given.get(other.name)
        names_it = a is not None and isinstance(a.base, ast.Name) and a.base.id == p.name
        if names_it and isinstance(known, (TensorArgument, ScalarArgument)):
            return known.dtype
    if p.default is None:
        return None
    try:
        return constant_in(scope, p.default)
    except NotConstant:
        return None


def read_names(text: str) -> frozenset[str]:
    """The parameters that a signature speaks of. Raises TesseraError."""
    try:
        return frozenset(read_signature(text))
    except BadSignature as error:
        raise TesseraError(error.diagnostics) from None
