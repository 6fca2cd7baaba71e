"""What an operator of a framework calls: a plain function as one graph, or a kernel.

Owns what a call of it gives before it runs (dtypes and shapes, which may be names), what it writes,
and its gradient. Must not know a framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.derivatives import fused, gradient
from tessera_backend.runtime.functions import Function
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.module_interface import FunctionInterface, ParameterInfo
from tessera_backend.runtime.nested_arguments import Form, filled, form_of
from tessera_lang.locks import COMPILER
from tessera_lang.record import dataclass, replace
from tessera_lang.target.runtime import runtime
from tessera_lang.types.dtype import DType, dtype_named
from tessera_lang.types.shape import Dim

if TYPE_CHECKING:
    from tessera_lang.evaluate.value import HostFunction, Scope


@dataclass(frozen=True, slots=True)
class Given:
    """An array among the arguments of a call that does not run."""

    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call gives: arrays in a value of a form. ``writes``: the arguments that it writes."""

    form: Form
    types: tuple[Given, ...]
    writes: tuple[int, ...] = ()


class _ByLeaves(Function):
    """A function or kernel with a parameter for each leaf of the arguments of a call, so that a
    gradient is asked for of these: ``def f(p_w, p_b, x): return f({"w": p_w, "b": p_b}, x=x)``."""

    in_place = False

    def __init__(
        self, of: Function | Launcher, forms: tuple[Form, ...], names: tuple[str, ...],
        leaves: tuple[str, ...],
    ) -> None:  # fmt: skip
        """``forms``: of the arguments, the last of them by ``names``; ``leaves``: parameters."""
        known = of.interface
        self._of = of
        self._forms = forms
        self._names = names
        self._leaves = leaves
        self._groups = of.origin[3] if isinstance(of, Launcher) else None
        module = of.origin[2]
        assert module is not None
        parameters = tuple(ParameterInfo(n, "any") for n in leaves)
        shown = FunctionInterface(known.name, parameters, alone=known.alone)
        super().__init__(shown, of.origin[0], of.origin[1], module)

    def in_program(self, scope: Scope) -> HostFunction:
        from tessera_lang.evaluate import value
        from tessera_lang.syntax import ast

        found: Any = scope.values[self.__name__]
        if isinstance(self._of, Function):
            found = self._of.in_program(scope)
        inner = found.innermost if isinstance(found, value.Derivative) else found
        own = cast("ast.FunctionDef", inner.declaration)
        at = own.name_span
        if isinstance(self._of, Function):
            found = self._of.of_program(found, at)
        elif self._groups is not None:
            found = replace(found, groups=self._groups)
        values: dict[str, object] = {"": found}
        leaves = iter(self._leaves)

        def fixed(item: object) -> ast.Expr:
            name = f" {len(values)}"  # no name that a program has
            values[name] = _with_dtype(item)
            return ast.Name(at, name)

        def expression(form: Form) -> ast.Expr:
            if form[0] == "leaf":
                return ast.Name(at, next(leaves))
            if form[0] == "fixed":
                return fixed(form[1])
            if form[0] == "dict":
                keys = tuple(map(fixed, form[1]))
                return ast.DictExpr(at, keys, tuple(map(expression, form[2:])))
            kind = ast.TupleExpr if form[0] == "tuple" else ast.ListExpr
            return kind(at, tuple(map(expression, form[1:])))

        given = tuple(map(expression, self._forms))
        count = len(given) - len(self._names)
        keywords = tuple(
            ast.Keyword(at, n, at, e) for n, e in zip(self._names, given[count:], strict=True)
        )
        body = ast.Return(at, ast.Call(at, ast.Name(at, ""), given[:count], keywords))
        parameters = tuple(ast.Parameter(at, n, at, None, None) for n in self._leaves)
        declaration = replace(
            own, decorators=(), brackets=(), parameters=parameters, returns=None, where=(),
            body=(body,),
        )  # fmt: skip
        return value.HostFunction(declaration, value.Scope(scope.path, values, scope))


class Callee:
    """A function or kernel, for an operator."""

    def __init__(self, of: Function | Launcher) -> None:
        self.of = of
        self.name = of.__name__
        self.kernel = of if isinstance(of, Launcher) else None
        self._provider: Any = of.origin[0]
        self.path: str = getattr(self._provider, "path", "")
        if not hasattr(self._provider, "session"):
            raise error(diagnostic(
                "T0858", f"`{self.name}` is a built kernel, of which nothing but code is there",
                helps=("load the file that it was built of: `tessera.load(path)`",),
            ))  # fmt: skip
        self.runs = of if isinstance(of, Launcher) else cast("Function", fused(of))
        """What is called with the arguments themselves."""

    @property
    def spelt(self) -> str:
        """What it is, with words of the functions that made it: ``grad_loss``."""
        return re.sub(r"\W+", "_", self.of.__qualname__).strip("_")

    @property
    def identity(self) -> object:
        """Equal of callees that do the same: of one text, for one target."""
        target, groups = self.of.origin[1], self.kernel.origin[3] if self.kernel else None
        return self.path, tuple(self._provider.closure().parts()), repr(self.of), target, groups

    @property
    def file(self) -> str:
        """The name of its file, without folder and ending."""
        return PurePath(self.path).stem

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters, in order."""
        return tuple(p.name for p in self.of.interface.parameters)

    def named(self, position: int, names: Sequence[str], count: int) -> str:
        """The parameter that an argument is, of ``count``, the last of them by ``names``."""
        if position >= count - len(names):
            return names[position - (count - len(names))]
        known = self.parameters
        return known[position] if position < len(known) else f"argument{position + 1}"

    # --- before a call runs -----------------------------------------------------------------

    def outcome(
        self, forms: tuple[Form, ...], names: tuple[str, ...], leaves: Sequence[object]
    ) -> Outcome:
        """What a call gives; ``Given`` stands for arrays among its leaves. Raises TesseraError
        where the call is wrong, or its sizes have to be numbers."""
        with COMPILER:
            if self.kernel is not None:
                return self._of_kernel(self.kernel, forms, names, leaves)
            return self._of_graph(forms, names, leaves)

    def _of_graph(
        self, forms: tuple[Form, ...], names: tuple[str, ...], leaves: Sequence[object]
    ) -> Outcome:
        from tessera_lang.ir.core import TensorType, Value
        from tessera_lang.lower.ast_to_graph.leaves import is_value
        from tessera_lang.lower.ast_to_graph.values import GraphArray
        from tessera_lang.lower.ast_to_graph.world import GraphWorld

        world = GraphWorld()
        given = [
            GraphArray(Value(TensorType(a.dtype, a.shape), f"a{i}"), is_given=True)
            if isinstance(a, Given) else a
            for i, a in enumerate(leaves)
        ]  # fmt: skip
        function = cast("Function", self.runs)
        arrays = [a.dtype for a in leaves if isinstance(a, Given)]
        world.floats = function.floats_beside(arrays)
        result = function.of_leaves(forms, names).evaluate(world, given, {})
        found: list[Any] = []
        form = form_of(result, found, lambda v: is_value(v) or isinstance(v, float))
        types = [world.lifted(v).tensor_type for v in found]
        return Outcome(form, tuple([Given(t.dtype, tuple(t.shape)) for t in types]))

    def _of_kernel(
        self, kernel: Launcher, forms: tuple[Form, ...], names: tuple[str, ...],
        leaves: Sequence[object],
    ) -> Outcome:  # fmt: skip
        from tessera_lang.ir.core import TensorType
        from tessera_lang.target.host_world import KernelReference

        parts = iter([TensorType(a.dtype, a.shape) if isinstance(a, Given) else a for a in leaves])
        values = [_with_dtype(filled(form, parts)) for form in forms]
        given, constants = self._placed(values, names)
        effects = self._provider.session().effects(
            KernelReference(self.path, self.name), given, constants, kernel.origin[3]
        )
        if effects is None:
            raise error(diagnostic(
                "T0858", f"nothing says which arrays the kernel `{self.name}` returns and writes"
                " in this call", helps=("declare its parameters with types: `x: f32[n]`",),
            ))  # fmt: skip
        found = tuple([Given(dtype, shape) for dtype, shape in effects.results])
        leaf: Form = ("leaf",)
        form: Form = ("fixed", None) if not found else ("tuple", *[leaf] * len(found))
        return Outcome(leaf if len(found) == 1 else form, found, effects.writes)

    def _placed(
        self, values: Sequence[object], names: tuple[str, ...]
    ) -> tuple[list[object], Mapping[str, object]]:
        """Arguments by parameter, and those in brackets."""
        count = len(values) - len(names)
        known = self.parameters
        by_name = dict(zip(names, values[count:], strict=True))
        given = list(values[:count])
        for p in self.of.interface.parameters[count:]:
            if p.name in by_name:
                given.append(by_name.pop(p.name))
            elif p.default is not None:
                given.append(p.default)
            else:
                break
        if len(given) != len(known):
            raise error(diagnostic(
                "T0830", f"`{self.name}` takes {len(known)} arguments, not {len(given)}",
                helps=(f"it has {', '.join(f'`{n}`' for n in known)}",),
            ))  # fmt: skip
        return given, by_name

    # --- gradients --------------------------------------------------------------------------

    def gradient(
        self, forms: tuple[Form, ...], names: tuple[str, ...], leaves: tuple[str, ...],
        wrt: tuple[str, ...],
    ) -> Function:  # fmt: skip
        """The gradient by some ``leaves`` of calls with arguments of these forms: it takes leaves,
        and ``cotangent=``, and gives a tuple. Raises TesseraError when called where there is
        none."""
        made = type("ByLeaves", (_ByLeaves,), {})(self.of, forms, names, leaves)
        return gradient(made, wrt, False)


def _with_dtype(value: object) -> object:
    return (dtype_named(value) or value) if isinstance(value, str) else value


def callee_of(function: object, word: str) -> Callee:
    """What ``"file.tessera::name"``, a function or a kernel of a module stands for. Raises
    TesseraError."""
    if isinstance(function, str):
        path, found, name = function.rpartition("::")
        if not found:
            raise error(diagnostic(
                "T0858", f"`{function}` names no function of a file",
                helps=(f'write the file and the name: `{word}("file.tessera::attend")`',),
            ))  # fmt: skip
        face: Any = runtime()  # it has this package, and is found by its entry point
        function = getattr(face.load(path), name)
    if isinstance(function, Launcher | Function):
        return Callee(function)
    raise error(diagnostic(
        "T0858", f"`{word}` takes a plain function or a kernel of a module, not {function!r}",
        helps=(f'write `{word}("file.tessera::attend")`, or `{word}(module.attend)`',),
    ))  # fmt: skip
