"""Parameters of an instance: their variables, types and sizes.

Owns the match of an annotation with what a parameter is bound to. Must not know bodies.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.record import dataclass, field
from tessera_lang.sema.bound_names import written_names
from tessera_lang.sema.context import Binding, Known, Variable
from tessera_lang.sema.inference_types import Cell
from tessera_lang.sema.kernel_clauses import GRID_GROUPS
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import (
    Constant,
    ConstantArgument,
    Local,
    Multiple,
    ScalarArgument,
    Signature,
    TensorArgument,
)
from tessera_lang.sema.signature import (
    ParameterSpec,
    compile_time_kind,
    constant_size,
    constants_for_memory,
    dtype_lookup,
    fits_kind,
    is_compile_time,
    multiples_of,
    parameters_of,
    plain_sizes,
    spec_of,
)
from tessera_lang.sema.sizes import BadSize, read_size
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, INDEX, DType
from tessera_lang.types.shape import Dim, Sym, evaluate_dim, symbols_of
from tessera_lang.types.type import Buffer, Scalar, Tensor, Tile, TupleType, Type, Weak


@dataclass(slots=True, eq=False)
class Parameters:
    """What a function's head says for one binding of its parameters."""

    variables: dict[str, Variable] = field(default_factory=dict[str, Variable])
    order: list[Local] = field(default_factory=list[Local])
    compile_time: dict[str, Constant] = field(default_factory=dict[str, Constant])
    sizes: dict[Local, Dim] = field(default_factory=dict[Local, Dim])
    cells: list[Cell] = field(default_factory=list[Cell])
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    multiples: tuple[Multiple, ...] = ()
    returns: Type | None = None
    # What a tile kernel is declared to return; None where it does not say.
    results: tuple[tuple[DType, tuple[Dim, ...]], ...] | None = None

    @property
    def floats(self) -> DType:
        """What floats are that meet nothing typed: f64 where all arrays of floats are f64, or all
        numbers that are floats where there are no such arrays, or all that is returned where there
        are no floats at all; else f32."""
        types = [v.type for v in self.variables.values()]
        arrays = {t.dtype for t in types if isinstance(t, (Tensor, Buffer, Tile))}
        numbers = {t.dtype for t in types if isinstance(t, Scalar)}
        arrays, numbers = ({d for d in some if d.is_float} for some in (arrays, numbers))
        returned = {dtype for dtype, _ in self.results or () if dtype.is_float}
        return F64 if (arrays or numbers or returned) == {F64} else F32

    @property
    def has_floats(self) -> bool:
        """Whether some array or number, or what is returned, has a dtype of floats."""
        types = [*(v.type for v in self.variables.values()), self.returns]
        dtypes = [t.dtype for t in types if isinstance(t, (Tensor, Buffer, Tile, Scalar))]
        return any(d.is_float for d in (*dtypes, *(d for d, _ in self.results or ())))

    @property
    def binds_grid(self) -> bool:
        return any(local.name == GRID_GROUPS for local in self.sizes)


def bindings_of(
    declaration: ast.FunctionDef, signature: Signature
) -> tuple[dict[str, Binding] | None, tuple[Diagnostic, ...]]:
    """A signature as bindings by name; None where it does not belong to the function."""
    named = parameters_of(declaration)
    if len(named) != len(signature):
        return None, (
            Diagnostic(
                "T0105", f"`{declaration.name}` takes {len(named)} arguments and this signature"
                f" has {len(signature)}", declaration.name_span,
            ),
        )  # fmt: skip
    bindings: dict[str, Binding] = {}
    problems: list[Diagnostic] = []
    for (bracket, p), argument in zip(named, signature, strict=True):
        compile_time = is_compile_time(p, bracket)
        match argument:
            case ConstantArgument(value=value):
                good = compile_time and fits_kind(value, compile_time_kind(p))
                bindings[p.name] = Known(value)
                shown = f"the compile-time value {value!r}"
            case ScalarArgument(dtype=dtype):
                good = not compile_time
                bindings[p.name] = Scalar(dtype)
                shown = f"a run-time `{dtype}`"
            case TensorArgument(dtype=dtype, rank=rank):
                good = not compile_time
                bindings[p.name] = Tensor(dtype, tuple(
                    Sym(f"{p.name}.shape[{axis}]") for axis in range(rank)
                ))  # fmt: skip
                shown = f"an array of `{dtype}` with {rank} axes"
        if not good:
            problems.append(Diagnostic(
                "T0207", f"`{p.name}` of `{declaration.name}` does not take {shown}", p.span,
            ))  # fmt: skip
    return (None if problems else bindings), tuple(problems)


def bind_parameters(
    scope: ModuleScope, declaration: ast.FunctionDef, bindings: dict[str, Binding], *,
    is_kernel: bool, is_tile: bool = False,
) -> Parameters:  # fmt: skip
    """Match the head of a function with its bindings."""
    result = Parameters()
    for _, p in parameters_of(declaration):
        binding = bindings.get(p.name)
        if isinstance(binding, Known):
            result.compile_time[p.name] = Constant(p.name, binding.value, p.name_span)
    binder = _Binder(scope, declaration, result, is_kernel)
    if is_kernel and is_tile:
        binder.multiples()
    for p in declaration.parameters:
        binding = bindings.get(p.name)
        if p.name in result.variables:
            continue  # a second parameter of the name: the head check says so
        if binding is not None and not isinstance(binding, Known):
            binder.parameter(p, binding)
    binder.check_dims()
    if is_tile:
        binder.results()
    else:
        binder.returns()
    return result


class _Binder:
    """One head; dims that are no plain names wait until all sizes are bound."""

    def __init__(
        self, scope: ModuleScope, declaration: ast.FunctionDef, result: Parameters, is_kernel: bool
    ) -> None:
        self._scope = scope
        self._declaration = declaration
        self._result = result
        self._is_kernel = is_kernel
        self._lookup = dtype_lookup(scope, result.compile_time)
        self._written = written_names(declaration)
        self._sizes: dict[str, Local] = {}
        self._waiting: list[tuple[ast.Parameter, int, ast.Expr, Dim]] = []
        self._run_time = {p.name for p in declaration.parameters}
        fixed = constants_for_memory(declaration, scope) if is_kernel else frozenset[str]()
        self._fixed = fixed.difference(p.name for _, p in parameters_of(declaration))
        self._plain = plain_sizes(declaration) - self._fixed

    def _problem(self, code: str, message: str, at: ast.Expr | ast.Parameter) -> None:
        self._result.problems.append(Diagnostic(code, message, at.span))

    def multiples(self) -> None:
        """Sizes that an axis says as a multiple."""
        specs = [(p, spec_of(p, self._lookup)) for p in self._declaration.parameters]
        dims = [(p, s.dims) for p, s in specs if not isinstance(s, Diagnostic)]
        self._result.multiples = multiples_of(self._declaration, dims)
        for m in self._result.multiples:
            if m.name not in self._result.compile_time:
                self._bind(m.name, m.span, Sym(m.name))

    def _bind(self, name: str, span: Span, value: Dim) -> None:
        local = Local(name, "size", span)
        self._sizes[name] = local
        self._result.sizes[local] = value
        self._result.variables[name] = Variable(local, Scalar(INDEX), since=span)

    def parameter(self, p: ast.Parameter, binding: Binding) -> None:
        local = Local(p.name, "parameter", p.name_span)
        variable = Variable(local, since=p.span)
        self._result.variables[p.name] = variable
        self._result.order.append(local)
        spec = spec_of(p, self._lookup)
        if isinstance(spec, Diagnostic):
            return  # the head check says so
        match binding:
            case Weak():
                cell = Cell(binding.kind)
                variable.cell = cell
                self._result.cells.append(cell)
            case Scalar():
                self._scalar(p, variable, spec, binding)
            case Tensor() | Buffer():
                self._array(p, variable, spec, binding)
            case Tile():
                self._tile(p, variable, spec, binding)
            case Known():
                pass

    def _tile(
        self, p: ast.Parameter, variable: Variable, spec: ParameterSpec, binding: Tile
    ) -> None:
        variable.type = binding
        if spec.kind == "any":
            return
        if spec.kind != "tensor" or spec.dtype != binding.dtype:
            wanted = f"`{spec.dtype}`" + (" arrays" if spec.kind == "tensor" else "")
            self._problem("T0207", f"`{p.name}` takes {wanted}, not `{binding}`", p)
        elif len(spec.dims) != len(binding.axes):
            self._problem(
                "T0307", f"`{p.name}` has {axes_counted(len(spec.dims))}, and the argument has"
                f" {len(binding.axes)}", p,
            )  # fmt: skip
        else:
            for i, (e, axis) in enumerate(zip(spec.dims, binding.axes, strict=True)):
                if axis.extent is not None:
                    self._dim(p, i, e, axis.extent)

    def _scalar(
        self, p: ast.Parameter, variable: Variable, spec: ParameterSpec, binding: Scalar
    ) -> None:
        variable.type = binding
        if spec.kind == "tensor" or spec.dtype not in (None, binding.dtype):
            shape = "an array" if spec.kind == "tensor" else f"`{spec.dtype}`"
            self._problem("T0207", f"`{p.name}` takes {shape}, not `{binding}`", p)

    def _array(
        self, p: ast.Parameter, variable: Variable, spec: ParameterSpec, binding: Tensor | Buffer
    ) -> None:
        mut = spec.mut or (spec.kind == "any" and p.name in self._written)
        if isinstance(binding, Buffer):
            variable.type = binding
        else:
            space = spec.space if self._is_kernel else binding.space
            variable.type = Tensor(binding.dtype, binding.shape, mut, space)
        if spec.kind == "any":
            return
        if spec.kind == "scalar":
            self._problem("T0207", f"`{p.name}` takes `{spec.dtype}`, not an array", p)
            return
        if spec.dtype != binding.dtype:
            self._problem("T0207", f"`{p.name}` takes `{spec.dtype}`, not `{binding.dtype}`", p)
        if len(spec.dims) != len(binding.shape):
            self._problem(
                "T0307", f"`{p.name}` has {axes_counted(len(spec.dims))}, and the argument has"
                f" {len(binding.shape)}", p,
            )  # fmt: skip
            return
        dims = [self._dim(p, i, e, binding.shape[i]) for i, e in enumerate(spec.dims)]
        if isinstance(variable.type, Tensor) and self._is_kernel:
            variable.type = Tensor(binding.dtype, tuple(dims), mut, variable.type.space)

    def _dim(self, p: ast.Parameter, axis: int, e: ast.Expr, actual: Dim) -> Dim:
        """One axis: a new name binds; in a kernel it is its own symbol."""
        numbers = self._fixed.union(self._result.compile_time)
        if isinstance(e, ast.Name) and e.id not in numbers:
            if e.id in self._run_time:
                return actual  # the head check says so
            if e.id not in self._sizes:
                value: Dim = Sym(e.id) if self._is_kernel else actual
                self._bind(e.id, e.span, value)
                return value
            bound = self._result.sizes[self._sizes[e.id]]
            if not self._is_kernel and bound != actual:
                self._unequal(p, axis, e, bound, actual)
            return bound
        return self._expression(p, axis, e, actual)

    def _unequal(self, p: ast.Parameter, axis: int, e: ast.Expr, wanted: Dim, actual: Dim) -> None:
        certain = isinstance(wanted, int) and isinstance(actual, int)
        how = "is" if certain else "is not known to be equal to"
        text = f"{how} {actual}, not {wanted}" if certain else f"({actual}) {how} {wanted}"
        self._problem("T0306", f"axis {axis} of `{p.name}` {text}", e)

    def _expression(self, p: ast.Parameter, axis: int, e: ast.Expr, actual: Dim) -> Dim:
        try:
            dim = read_size(e, self._name_size)
        except BadSize:
            return actual  # the head check says so
        if isinstance(dim, int) and dim < 0:
            self._problem("T0303", f"a size cannot be {dim}", e)
            return actual
        self._waiting.append((p, axis, e, actual))
        return dim

    def _name_size(self, name: ast.Name) -> Dim | None:
        constant = self._result.compile_time.get(name.id)
        if constant is not None:
            value = constant.value
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        if name.id in self._run_time:
            return None
        own = name.id in self._plain or name.id in self._sizes
        value = None if own else constant_size(self._scope, name.id)
        return Sym(name.id) if value is None else value

    def check_dims(self) -> None:
        """Names in arithmetic are bound somewhere; in a called function the sizes agree."""
        for p, axis, e, actual in self._waiting:
            dim = read_size(e, self._name_size)
            free = sorted(symbols_of(dim) - set(self._sizes))
            if free:
                continue  # the head check says so
            if not self._is_kernel:
                self._check_dim(p, axis, e, dim, actual)

    def _check_dim(self, p: ast.Parameter, axis: int, e: ast.Expr, dim: Dim, actual: Dim) -> None:
        values = {n: self._result.sizes[local] for n, local in self._sizes.items()}
        known = {n: v for n, v in values.items() if isinstance(v, int)}
        if symbols_of(dim) <= set(known):
            try:
                dim = evaluate_dim(dim, known)
            except ZeroDivisionError:
                self._problem("T0303", "a size divided by 0", e)
                return
        if dim != actual:
            self._unequal(p, axis, e, dim, actual)

    def results(self) -> None:
        """The annotated results of a tile kernel."""
        a = self._declaration.returns
        if a is None or not self._is_kernel:
            return
        found: list[tuple[DType, tuple[Dim, ...]]] = []
        for one in a.items or (a,):
            made = self._declared_result(one)
            if made is None:
                return
            found.append(made)
        self._result.results = tuple(found)

    def _declared_result(self, a: ast.TypeExpr) -> tuple[DType, tuple[Dim, ...]] | None:
        dtype = self._lookup(a.base.id) if isinstance(a.base, ast.Name) else None
        if dtype is None:
            return None
        dims: list[Dim] = []
        for e in a.shape or ():
            try:
                dim = read_size(e, self._name_size)
            except BadSize as bad:
                self._result.problems.append(Diagnostic("T0303", bad.reason, bad.span))
                return None
            free = sorted(symbols_of(dim) - set(self._sizes))
            if free:
                self._result.problems.append(Diagnostic(
                    "T0312", f"the size `{free[0]}` is never bound", e.span,
                    helps=("the sizes of a result are made of those of the parameters, of numbers"
                           " and of whole numbers that the file gives a value once",),
                ))  # fmt: skip
                return None
            dims.append(dim)
        return dtype, tuple(dims)

    def returns(self) -> None:
        """The annotated result of a plain function: a number, or several."""
        a = self._declaration.returns
        if a is None:
            return
        found: list[Type] = []
        for one in a.items or (a,):
            dtype = self._lookup(one.base.id) if isinstance(one.base, ast.Name) else None
            if dtype is None:
                return
            if one.shape is not None:
                self._result.problems.append(Diagnostic(
                    "T0114", "not built yet: arrays returned from lanes", one.span,
                    helps=("write the result to a `mut` parameter",),
                ))  # fmt: skip
                return
            found.append(Scalar(dtype))
        self._result.returns = TupleType(tuple(found)) if a.items else found[0]


def axes_counted(count: int) -> str:
    """``1 axis``, ``2 axes``."""
    return f"{count} {'axis' if count == 1 else 'axes'}"
