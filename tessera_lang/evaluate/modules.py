"""Files as the evaluator sees them: their trees and what their imports mean.

Owns the protocol, and the making of a module's scope: definitions, imports and compile-time
constants. Must not know how a file is found or read (the driver's session does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.assigned_names import assigned, assignment_counts
from tessera_lang.evaluate.builtin_names import MATH_NUMBERS, NAMESPACES, builtin, member
from tessera_lang.evaluate.constant import (
    NotConstant,
    assigned_parts,
    evaluate_constant,
    math_function,
)
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.value import (
    Derivative,
    FileModule,
    HostFunction,
    Kernel,
    Namespace,
    Scope,
)
from tessera_lang.locks import COMPILER
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import KernelEffects, KernelReference


class Library(Protocol):
    """The driver's view of files for one program."""

    def module(self, path: str) -> ast.Module:
        """The tree of a file."""
        ...

    def imported(self, path: str, name: str) -> str | None:
        """The file that the dotted ``name`` means in the file ``path``; None if there is none."""
        ...

    origins: dict[str, Span]

    def set_text(self, path: str, text: str) -> None:
        """Give a file a text that is on no disk."""
        ...

    def differentiated(
        self, host: Any, derivative: Derivative, values: dict[str, object], call: ast.Call,
        cotangent: object,
    ) -> object:  # fmt: skip
        """What ``grad(f)`` gives, called by an evaluator with the parameters of ``f``.
        ``cotangent``: of what ``f`` gives; None where that is a number. Raises HostFault."""
        ...

    def effects(
        self, kernel: KernelReference, arguments: Sequence[object],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> KernelEffects | None:  # fmt: skip
        """What a call of a kernel does. ``arguments``: of arrays their ``TensorType``, of numbers
        that are not known ``Unknown``. None where too little is known. Raises TesseraError where
        the call is wrong."""
        ...

    def profiled(
        self, host: Any, derivative: Derivative, values: dict[str, object], call: ast.Call,
        trace: str,
    ) -> None:  # fmt: skip
        """Runs ``f`` and prints what its kernels take; ``trace``: a file for events. Raises
        HostFault."""
        ...


def decorator_name(decorator: ast.Decorator) -> str:
    """The dotted name of a decorator: ``kernel``, ``op.kernel``, ``op.autotunable``."""
    value = decorator.value
    if isinstance(value, ast.Call):
        value = value.function
    parts: list[str] = []
    while isinstance(value, ast.Attribute):
        parts.append(value.name)
        value = value.value
    if isinstance(value, ast.Name):
        parts.append(value.id)
    return ".".join(reversed(parts))


def is_test(declaration: ast.FunctionDef) -> bool:
    """Whether a function is marked ``@test``."""
    return any(decorator_name(d) == "test" for d in declaration.decorators)


def gradient_decorator(declaration: ast.FunctionDef) -> ast.Expr | None:
    """What a function that is marked ``@gradient(f)`` gives the gradient of."""
    for d in declaration.decorators:
        if decorator_name(d) == "gradient" and isinstance(d.value, ast.Call):
            return d.value.arguments[0] if d.value.arguments else None
    return None


def _named_by(e: ast.Expr, scope: Scope) -> object:
    """What a name, or a name of an imported file, stands for."""
    if isinstance(e, ast.Name):
        return scope.values.get(e.id)
    owner = _named_by(e.value, scope) if isinstance(e, ast.Attribute) else None
    if isinstance(e, ast.Attribute) and isinstance(owner, FileModule):
        return owner.scope.values.get(e.name)
    return None


def kernel_level(declaration: ast.FunctionDef) -> Literal["lane", "tile"] | None:
    """The level of a kernel; None for a plain function."""
    names = [decorator_name(d) for d in declaration.decorators]
    if "kernel" in names:
        return "lane"
    return "tile" if "op.kernel" in names else None


def definition(declaration: ast.FunctionDef, scope: Scope) -> HostFunction | Kernel:
    """The value of a ``def``: a plain function, or a kernel of some level."""
    level = kernel_level(declaration)
    if level is None:
        return HostFunction(declaration, scope)
    return Kernel(declaration, KernelReference(scope.path, declaration.name), level, scope)


class Modules:
    """Scopes of the files of one program, each made once, for several threads."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._scopes: dict[str, Scope] = {}
        # Files that import each other see one another's scopes before these are complete; other
        # threads do not.
        self._unfinished: dict[str, Scope] = {}
        self._nested = 0
        self._gradients: list[tuple[ast.Expr, HostFunction]] = []

    def gradient_of(self, declaration: object) -> HostFunction | None:
        """The function that the program marks as the gradient of a function or kernel."""
        for of, function in self._gradients:
            found = _named_by(of, function.scope)
            if isinstance(found, HostFunction | Kernel) and found.declaration is declaration:
                return function
        return None

    def add_text(self, path: str, text: str, origin: Span | None) -> None:
        """A file of the program that nobody wrote, to be launched from. ``origin``: the part of
        the program that it comes from, of which warnings are told."""
        with COMPILER:
            self.library.set_text(path, text)
            if origin is not None:
                self.library.origins[path] = origin

    def scope(self, path: str) -> Scope:
        """The scope of an imported file: definitions, imports, constants."""
        if path in self._scopes:
            return self._scopes[path]
        with COMPILER:
            self._nested += 1
            try:
                return self._scopes.get(path) or self._scope_now(path)
            finally:
                self._nested -= 1
                if not self._nested:
                    self._scopes.update(self._unfinished)
                    self._unfinished.clear()

    def _scope_now(self, path: str) -> Scope:
        if path in self._unfinished:
            return self._unfinished[path]
        scope = self._unfinished[path] = Scope(path)
        module = self.library.module(path)
        self.define(module, scope)
        counts = assignment_counts(module.body)
        for statement in module.body:
            match statement:
                case ast.Import() | ast.FromImport():
                    self.bind_import(statement, scope)
                case ast.Assign(target=target, value=value):
                    for name, part in assigned_parts(target, value):
                        _bind_constant(name.id, part, scope, counts)
                case ast.AnnotatedAssign(target=ast.Name(id=name), value=value) if value:
                    _bind_constant(name, value, scope, counts)
                case _:
                    pass
        scope.at_run = frozenset(assigned(module.body)) - scope.values.keys()
        return scope

    def define(self, module: ast.Module, scope: Scope) -> None:
        """Bind the functions and kernels of a file."""
        for function in module.functions:
            made = scope.values[function.name] = definition(function, scope)
            of = gradient_decorator(function)
            if of is not None and isinstance(made, HostFunction):
                self._gradients.append((of, made))

    def bind_import(self, statement: ast.Import | ast.FromImport, scope: Scope) -> None:
        """Bind what an import statement names. Raises HostFault."""
        if isinstance(statement, ast.FromImport):
            self._bind_from(statement, scope)
            return
        for item in statement.names:
            if item.name == "tessera" or item.name in NAMESPACES:
                scope.values[item.alias or item.name] = Namespace(item.name)
                continue
            module = FileModule(item.name, self.imported(item.name, scope.path, item.span))
            if item.alias is not None:
                scope.values[item.alias] = module
            else:
                _bind_dotted(scope, item.name, module)

    def _bind_from(self, statement: ast.FromImport, scope: Scope) -> None:
        for item in statement.names:
            name = item.alias or item.name
            if statement.module == "tessera":
                value = builtin(item.name)
                if value is not None:  # others can be used in kernels only
                    scope.values[name] = value
                continue
            if statement.module in NAMESPACES and statement.module != "std":
                scope.values[name] = member(statement.module, item.name)
                continue
            scope.values[name] = self._member_of_import(statement, item, scope)

    def _member_of_import(
        self, statement: ast.FromImport, item: ast.ImportedName, scope: Scope
    ) -> object:
        path = self.library.imported(scope.path, statement.module)
        if path is not None:
            values = self.scope(path).values
            if item.name in values:
                return values[item.name]
        inner = f"{statement.module}.{item.name}"
        if self.library.imported(scope.path, inner) is not None:
            return FileModule(inner, self.imported(inner, scope.path, item.span))
        if path is None:
            raise _missing(statement.module, statement.module_span)
        raise no_member(FileModule(statement.module, self.scope(path)), item.name, item.span)

    def imported(self, name: str, path: str, span: Span) -> Scope:
        """The scope of the module ``name`` as the file ``path`` imports it."""
        found = self.library.imported(path, name)
        if found is None:
            raise _missing(name, span)
        return self.scope(found)

    def find(self, name: str, path: str) -> FileModule | None:
        """The module ``name``, where there is one."""
        with COMPILER:
            found = self.library.imported(path, name)
        return None if found is None else FileModule(name, self.scope(found))


def no_member(module: FileModule, name: str, span: Span) -> Exception:
    """The fault of a name that an imported file does not give."""
    if name in module.scope.at_run:
        return fault("T0817", f"`{module.name}.{name}` {ONLY_AT_RUN}", span, helps=GIVE_A_CONSTANT)
    close = nearest(name, (n for n in module.scope.values if not n.startswith("_")))
    fixes = (Fix(f"write `{close}`", (Edit(span, close),), "unsafe"),) if close else ()
    helps = (f"did you mean `{close}`?",) if close else ()
    message = f"the module `{module.name}` defines no `{name}`"
    return fault("T0817", message, span, helps=helps, fixes=fixes)


ONLY_AT_RUN = "has a value only while that file is run"
GIVE_A_CONSTANT = (
    "importing takes definitions and compile-time constants: write a function that returns it",
)


def _missing(name: str, span: Span) -> Exception:
    return fault("T0817", f"there is no module `{name}`", span)


def _bind_constant(name: str, value: ast.Expr, scope: Scope, counts: dict[str, int]) -> None:
    """Bind a name that is assigned once in the file, to a value known at compile time."""

    def lookup(e: ast.Name) -> object:
        if e.id in counts and e.id not in scope.values:
            raise NotConstant(e, f"`{e.id}` is known at run time only")
        return scope.values[e.id]

    if counts[name] > 1:
        return
    derivative = _derivative(value, scope)
    if derivative is not None:
        scope.values[name] = derivative
        return
    with suppress(NotConstant):  # others get their value when the file itself is run
        scope.values[name] = evaluate_constant(value, lookup, lambda e: _constant_of(e, scope))


def _derivative(e: ast.Expr, scope: Scope) -> Derivative | None:
    """``grad(f, wrt="x")`` of a definition, which is one too; None for all else."""
    if not (isinstance(e, ast.Call) and isinstance(e.function, ast.Name) and e.arguments):
        return None
    word = e.function.id
    if word not in ("grad", "value_and_grad", "fused") or word in scope.values:
        return None
    first, *rest = e.arguments
    of: object = _derivative(first, scope)
    if isinstance(first, ast.Name):
        of = scope.values.get(first.id)
    elif isinstance(first, ast.Lambda):
        of = HostFunction(first, scope)
    budget, keywords = _budget_of(e)
    if budget is None:
        return None
    if word == "fused":
        if rest or keywords or not isinstance(of, HostFunction | Derivative):
            return None
        return Derivative(of, (), single=True, with_value=True, budget=budget)
    given = [*rest, *(k.value for k in keywords if k.name == "wrt")]
    if not isinstance(of, HostFunction | Derivative) or len(given) > 1:
        return None
    if len(rest) + len(keywords) != len(given):
        return None
    wrt = given[0] if given else None
    items = wrt.items if isinstance(wrt, ast.TupleExpr | ast.ListExpr) else (wrt,) if wrt else ()
    inner = of.innermost if isinstance(of, Derivative) else of
    known = tuple(p.name for p in inner.declaration.parameters)
    numbered = dict(enumerate(known))
    names = tuple(i.value if isinstance(i, ast.StringLit) else numbered.get(i.value, "")
                  for i in items if isinstance(i, ast.StringLit | ast.IntLit))  # fmt: skip
    if len(names) != len(items) or not set(names) <= set(known) or not known:
        return None  # what is wrong is said where the file itself is run
    single = not isinstance(wrt, ast.TupleExpr | ast.ListExpr)
    return Derivative(of, names or known[:1], single, word == "value_and_grad", budget=budget)


def _budget_of(e: ast.Call) -> tuple[int | None, list[ast.Keyword]]:
    """What ``memory_budget=`` says, 0 where it is left out, None where the file has to run to know
    it; and the other keywords."""
    rest = [k for k in e.keywords if k.name != "memory_budget"]
    if len(rest) == len(e.keywords):
        return 0, rest
    (word,) = (k for k in e.keywords if k.name == "memory_budget")
    with suppress(NotConstant):
        found = evaluate_constant(word.value, _no_name, _no_name)
        if isinstance(found, int | float) and not isinstance(found, bool):
            number = float(found)
            return (int(number) if number > 0 and number.is_integer() else None), rest
    return None, rest


def _no_name(e: ast.Expr) -> object:
    raise NotConstant(e, "it is known at run time only")


def _constant_of(e: ast.Attribute, scope: Scope) -> object:
    """``util.K`` of an imported file, ``math.pi``. Raises LookupError."""
    match e.value:
        case ast.Name(id=name):
            owner = scope.values.get(name) or builtin(name)
        case ast.Attribute():
            owner = _constant_of(e.value, scope)
        case _:
            owner = None
    if isinstance(owner, FileModule):
        return owner.scope.values[e.name]
    if owner in (Namespace("math"), Namespace("op")) and e.name in MATH_NUMBERS:
        return MATH_NUMBERS[e.name]
    if owner == Namespace("math") and (function := math_function(e.name)) is not None:
        return function
    raise LookupError(e.name)


def _bind_dotted(scope: Scope, name: str, module: FileModule) -> None:
    """``import a.b.c`` binds ``a`` to a module in which ``b.c`` can be found."""
    head, *rest = name.split(".")
    if not rest:
        scope.values[head] = module
    elif head == "std":
        scope.values[head] = Namespace("std")
    else:
        outer = scope.values.get(head)
        if not isinstance(outer, FileModule):
            outer = FileModule(head, Scope(scope.path))
            scope.values[head] = outer
        for part in rest[:-1]:
            inner = outer.scope.values.setdefault(part, FileModule(part, Scope(scope.path)))
            if not isinstance(inner, FileModule):
                return
            outer = inner
        outer.scope.values[rest[-1]] = module
