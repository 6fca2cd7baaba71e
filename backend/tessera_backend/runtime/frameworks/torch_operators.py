"""Operators of PyTorch: ``tessera.torch.op``.

Each is a ``torch.library`` operator, whose fake tensors have the dtypes and shapes that the
compiler finds, and whose gradient is the compiler's. Imports torch when an operator is made. Must
not know how a graph is made or differentiated.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera_backend.runtime.arrays import refuse
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import ends_at_the_caller
from tessera_backend.runtime.frameworks.callee import Callee, Given, Outcome, callee_of
from tessera_backend.runtime.frameworks.leaf_names import fixed_values, leaf_names, word_of
from tessera_backend.runtime.frameworks.torch_tensors import (
    Symbols,
    arrays_of,
    check_devices,
    device_of,
    given_of,
    is_leaf,
    is_tensor,
    kind_of,
    layout_of,
    plain,
    tensors_of,
    torch_dtype,
    torch_module,
    zeros,
)
from tessera_backend.runtime.nested_arguments import LEAF, Form, filled, form_of, matched
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.locks import free_reentrant_lock

__all__ = ["Operator", "op"]

_KINDS = {"tensor": "Tensor", "float": "float", "int": "SymInt", "bool": "bool"}
_LAYOUTS = 4096


@ends_at_the_caller
def op(function: Any, *, name: str = "") -> Operator:
    """A plain function or a kernel as an operator of ``torch.library``.

    ``function`` is ``"file.tessera::name"``, or a function or kernel of a module (``m.attend``,
    ``m.fill[4]``). ``name`` is what torch calls it, ``namespace::name``; without it that is
    ``tessera_file::name``. The result is called as the function is, with tensors in the place of
    arrays: also within tuples, lists and dicts. Raises TesseraError.
    """
    torch_module()
    callee = callee_of(function, "tessera.torch.op")
    with _making:
        return _operator(callee, name)


_making = free_reentrant_lock()
_made: dict[str, Operator] = {}
"""The operators of the process: torch has one of each name."""


def _operator(callee: Callee, name: str) -> Operator:
    wanted = name or f"tessera_{word_of(callee.file)}::{word_of(callee.spelt)}"
    number = 1
    while True:
        full = wanted if number == 1 else f"{wanted}_{number}"
        known = _made.get(full)
        if known is None:
            made = _made[full] = Operator(callee, full, name)
            return made
        if known.callee.identity == callee.identity:
            return known
        if known.callee.path != callee.path:
            raise error(diagnostic(
                "T0858", f"`{full}` is the operator of another file, {known.callee.path}",
                helps=('give this one a name: `tessera.torch.op(..., name="mine::attend")`',),
            ))  # fmt: skip
        number += 1  # the file has changed since, and what was made of it is in use


class Operator:
    """A function as operators of ``torch.library``: one for each form of arguments. Calls with
    tensors, and numbers where the function takes them, have an operator of the same name; that of
    calls with other values is told by more letters behind the name."""

    def __init__(self, callee: Callee, name: str, given: str = "") -> None:
        """``given``: the name that the program says."""
        if not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", name):
            raise error(diagnostic(
                "T0858", f"`{name}` is no name of an operator of PyTorch",
                helps=('write a namespace and a name: `name="mine::attend"`',),
            ))  # fmt: skip
        self.callee = callee
        self._given = given
        self._known: dict[Any, _Overload] = {}
        # The operators of calls with tensors alone, by how many these are.
        self._direct: dict[int, Any] = {}
        self._tensor = torch_module().Tensor
        self._traced: Callable[..., Any] = _as_one_step(self._call)
        self.name = name
        self.__name__ = self.__qualname__ = callee.name
        self.__doc__ = callee.of.__doc__

    def __copy__(self) -> Operator:
        """Of an operator there is one, also in copies of a module that has it."""
        return self

    def __deepcopy__(self, memo: object) -> Operator:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.callee.of, self._given)

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the function; on a GPU in torch's current stream, before whose end this returns."""
        direct = self._direct.get(len(arguments))
        if direct is not None and not named:
            for value in arguments:
                if not isinstance(value, self._tensor):
                    break
            else:
                return direct(*arguments)
        found = self._traced(*arguments, **named)
        return found[0] if found else None

    @ends_at_the_caller
    def operator(self, *arguments: Any, **named: Any) -> Any:
        """The ``torch.library`` operator that calls with such arguments run, with what stands in
        their tuples and dicts as its arguments. Raises TesseraError."""
        return self._overload(arguments, named)[0].definition._opoverload

    @ends_at_the_caller
    def _call(self, *arguments: Any, **named: Any) -> Any:
        found, leaves = self._overload(arguments, named)
        given = found.definition(*leaves)
        if found.single:
            return (given,)
        outcome = found.outcome(leaves)
        value = filled(outcome.form, iter(given or ()))
        return () if value is None else (value,)

    def _overload(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[_Overload, list[Any]]:
        leaves: list[Any] = []
        values = [*arguments, *named.values()]
        forms = tuple([form_of(plain(v), leaves, is_leaf) for v in values])
        kinds = tuple([kind_of(leaf) for leaf in leaves])
        key = forms, tuple(named), kinds
        try:
            found = self._known.get(key)
        except TypeError:
            self._check(forms, tuple(named))
            raise error(diagnostic(
                "T0858", f"an argument of `{self.name}` is neither a tensor nor a number",
                helps=("arguments are tensors, numbers, and tuples, lists and dicts of these",),
            )) from None  # fmt: skip
        if found is None:
            with _making:
                found = self._new(key, leaves)
        return found, leaves

    def _new(self, key: Any, leaves: list[Any]) -> _Overload:
        found = self._known.get(key)
        if found is None:
            forms, names, kinds = key
            self._check(forms, names)
            found = _Overload(self.callee, self.name, forms, names, kinds, leaves)
            self._known[key] = found
            # Not while it is traced, with tensors of other types: a trace asks for what is known.
            torch = torch_module()
            plain_types = (torch.Tensor, torch.nn.Parameter)
            plainly = all(type(leaf) in plain_types for leaf in leaves)
            traced = not plainly or torch.compiler.is_compiling()
            if found.single and found.name == self.name and not traced:
                self._direct[len(leaves)] = found.definition._opoverload
        return found

    def _check(self, forms: Sequence[Form], names: tuple[str, ...]) -> None:
        """Refuse what no operator takes."""
        for i, form in enumerate(forms):
            for value in fixed_values(form):
                if value is not None and not isinstance(value, str):
                    parameter = self.callee.named(i, names, len(forms))
                    raise refuse(
                        "T0831", parameter, f"holds a `{type(value).__name__}`, which is no tensor",
                        "pass a tensor: `torch.from_numpy(x)`, `torch.as_tensor(x)`",
                    )  # fmt: skip


def _again(function: Any, name: str) -> Operator:
    """What ``pickle`` calls."""
    return op(function, name=name)


def _as_one_step(call: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.compile`` takes it as it is: what runs in it is traced, and not the Python of it."""
    dynamo = importlib.import_module("torch._dynamo")
    decorate = getattr(dynamo, "nonstrict_trace", None)
    if decorate is None:
        return call

    def step(*arguments: Any, **named: Any) -> Any:
        return call(*arguments, **named)

    return cast("Callable[..., Any]", decorate(step))


class _Overload:
    """The operator of one form of arguments. ``single``: it gives one tensor."""

    def __init__(
        self, callee: Callee, name: str, forms: tuple[Form, ...], names: tuple[str, ...],
        kinds: tuple[str, ...], leaves: Sequence[Any],
    ) -> None:  # fmt: skip
        self._callee = callee
        self._forms = forms
        self._names = names
        self._kinds = kinds
        self._outcomes: dict[Any, Outcome] = {}
        self._leaf_names: list[str] = leaf_names(callee, forms, names)
        outcome = self._outcome(leaves)
        self._writes = outcome.writes
        self.single = outcome.form == LEAF
        self._returns = len(outcome.types)
        self._owners = [
            callee.named(i, names, len(forms)) for i, form in enumerate(forms)
            for _ in matched(form, _counted(form))
        ]  # fmt: skip
        self.name = _free(name + _suffix(callee, forms, names, kinds))
        self.definition: Any = None
        self._backward: Any = None
        self._gradients: dict[Any, Any] = {}
        self._define()

    # --- the operator -----------------------------------------------------------------------

    def _define(self) -> None:
        library = torch_module().library
        given = self._schema()
        returns = "Tensor" if self.single else "Tensor[]" if self._returns else "()"
        custom = library.custom_op
        self.definition = custom(
            self.name, self._run, mutates_args=self._written_names(),
            schema=f"({', '.join(given)}) -> {returns}",
        )  # fmt: skip
        self.definition.register_fake(self._fake)
        if self._writes:
            return
        self._backward = custom(
            _free(f"{self.name}_backward"), self._run_backward, mutates_args=(),
            schema=f"({', '.join([*given, 'Tensor[] cotangents', 'str wrt'])}) -> Tensor[]",
        )  # fmt: skip
        self._backward.register_fake(self._fake_backward)
        self._backward.register_autograd(_no_second)
        self.definition.register_autograd(self._differentiate, setup_context=self._keep)

    def _written_names(self) -> tuple[str, ...]:
        return tuple(self._leaf_names[i] for i in self._written_leaves())

    def _written_leaves(self) -> list[int]:
        """The leaves that a call writes: arguments of kernels are leaves themselves."""
        if not self._writes:
            return []
        parameters = self._callee.parameters
        written = {parameters[i] for i in self._writes}
        return [i for i, owner in enumerate(self._owners) if owner in written]

    def _schema(self) -> list[str]:
        written = self._written_leaves()
        alias = {leaf: f"(a{n}!)" for n, leaf in enumerate(written)}
        pairs = zip(self._kinds, self._leaf_names, strict=True)
        return [f"{_KINDS[k]}{alias.get(i, '')} {name}" for i, (k, name) in enumerate(pairs)]

    # --- what a call gives ------------------------------------------------------------------

    def outcome(self, leaves: Sequence[Any]) -> Outcome:
        """What a call gives, with sizes as torch has them. Raises TesseraError."""
        key = layout_of(leaves)
        if key is not None and (found := self._outcomes.get(key)) is not None:
            return found
        found = self._outcome(leaves)
        if (found.form == LEAF) != self.single or bool(found.types) != bool(self._returns):
            raise error(diagnostic(
                "T0858", f"`{self._callee.name}` gives one array for some arguments and another"
                " number of them for others", helps=("give as many in every case",),
            ))  # fmt: skip
        if key is not None:
            if len(self._outcomes) >= _LAYOUTS:
                self._outcomes.clear()
            self._outcomes[key] = found
        return found

    def _outcome(self, leaves: Sequence[Any]) -> Outcome:
        if layout_of(leaves) is None:
            return self._symbolic(leaves)
        return self._found(self._numbers(leaves))

    def _numbers(self, leaves: Sequence[Any]) -> list[Any]:
        return [given_of(leaf, name) for leaf, name in zip(leaves, self._leaf_names, strict=True)]

    def _found(self, leaves: list[Any]) -> Outcome:
        return self._callee.outcome(self._forms, self._names, leaves)

    def _symbolic(self, leaves: Sequence[Any]) -> Outcome:
        """Of sizes that are names. Where the function has to know that two are equal, or what one
        is, it is taken as it is now, and torch traces again for others."""
        symbols = Symbols()
        while True:
            try:
                found = self._found([symbols.given(leaf) for leaf in leaves])
            except TesseraError as failure:
                said = failure.diagnostics[0].message
                if not symbols.joined(said.rpartition(": ")[2]) and not symbols.joined(said):
                    return self._found(self._numbers(leaves))
                continue
            symbols.hold()
            types = [Given(t.dtype, tuple(map(symbols.value, t.shape))) for t in found.types]
            return Outcome(found.form, tuple(types), found.writes)

    def _fake(self, *leaves: Any) -> Any:
        torch = torch_module()
        place = device_of(leaves)
        made = [
            torch.empty(t.shape, dtype=torch_dtype(t.dtype), device=place)
            for t in self.outcome(leaves).types
        ]
        return self._handed(made)

    def _handed(self, made: list[Any]) -> Any:
        return made[0] if self.single else made if self._returns else None

    # --- running ----------------------------------------------------------------------------

    def _run(self, *leaves: Any) -> Any:
        outcome = self.outcome(leaves)
        check_devices(leaves, self._leaf_names)
        if self._callee.kernel is not None:
            found = self._launch(leaves)
        else:
            function = cast("Any", self._callee.runs).of_leaves(self._forms, self._names)
            found = function(*arrays_of(leaves, self._leaf_names))
        parts = matched(outcome.form, found)
        return self._handed(tensors_of(parts, outcome.types, leaves))

    def _launch(self, leaves: Sequence[Any]) -> Any:
        parts = iter([x.detach() if is_tensor(x) else x for x in leaves])
        values = [filled(form, parts) for form in self._forms]
        count = len(values) - len(self._names)
        named = dict(zip(self._names, values[count:], strict=True))
        return cast("Any", self._callee.kernel)(*values[:count], **named)

    # --- gradients --------------------------------------------------------------------------

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*(x for x in inputs if is_tensor(x)))
        ctx.others = [None if is_tensor(x) else x for x in inputs]

    def _differentiate(self, ctx: Any, *cotangents: Any) -> Any:
        saved = iter(ctx.saved_tensors)
        leaves = [next(saved) if k == "tensor" else o
                  for k, o in zip(self._kinds, ctx.others, strict=True)]  # fmt: skip
        needs = ctx.needs_input_grad
        wrt = [n for n, leaf, need in zip(self._leaf_names, leaves, needs, strict=True)
               if need and is_tensor(leaf)]  # fmt: skip
        if not self.single:
            (cotangents,) = cotangents
        types = self.outcome(leaves).types
        seeds = [
            zeros(t, leaves) if c is None else c.to(torch_dtype(t.dtype))
            for c, t in zip(cotangents, types, strict=True)
        ]  # fmt: skip
        made = iter(self._backward(*leaves, seeds, ",".join(wrt)))
        return tuple([next(made) if name in wrt else None for name in self._leaf_names])

    def _fake_backward(self, *given: Any) -> list[Any]:
        torch = torch_module()
        *leaves, _, wrt = given
        return [
            torch.empty(x.shape, dtype=x.dtype, device=x.device)
            for x in self._differentiated(leaves, wrt)
        ]

    def _differentiated(self, leaves: Sequence[Any], wrt: str) -> list[Any]:
        """The leaves that gradients are of."""
        by_name = dict(zip(self._leaf_names, leaves, strict=True))
        return [by_name[name] for name in wrt.split(",")]

    def _run_backward(self, *given: Any) -> list[Any]:
        *leaves, cotangents, wrt = given
        form = self.outcome(leaves).form
        known = self._gradients.get((wrt, form))
        if known is None:
            of = self._callee.gradient(
                self._forms, self._names, tuple(self._leaf_names), tuple(wrt.split(","))
            )
            forms = (*[LEAF] * len(leaves), form)
            known = self._gradients[wrt, form] = of.of_leaves(forms, ("cotangent",))
        names = [*self._leaf_names, *(["the gradient"] * len(cotangents))]
        found = known(*arrays_of([*leaves, *cotangents], names))
        types = [given_of(leaf) for leaf in self._differentiated(leaves, wrt)]
        return tensors_of(found, types, [*leaves, *cotangents])


# --- names ----------------------------------------------------------------------------------


_taken: set[str] = set()
"""Names that torch has of us."""


def _free(name: str) -> str:
    """A name that torch does not have yet: another function may be called so."""
    while name in _taken:
        name += "_"
    _taken.add(name)
    return name


def _suffix(
    callee: Callee, forms: tuple[Form, ...], names: tuple[str, ...], kinds: tuple[str, ...]
) -> str:
    """What tells the operator from others of the function: nothing where all arguments are
    tensors, and the same in each process."""
    plain = not names and all(form == LEAF for form in forms)
    letters = "".join(kind[0] for kind in kinds)
    if plain:
        whole = len(letters) == len(callee.parameters) and set(letters) <= {"t"}
        return "" if whole else f"_{letters}"
    digest = hashlib.sha256(repr((forms, names, kinds)).encode()).hexdigest()[:8]
    return f"_{digest}"


def _counted(form: Form) -> Any:
    """A value of a form, of any leaves."""
    return filled(form, iter(lambda: 0, 1))


def _no_second(ctx: Any, *gradients: Any) -> Any:
    raise error(diagnostic(
        "T0761", "an operator of PyTorch has no gradient of its gradient",
        helps=("take the inner gradient in the program: `step = grad(loss)`, and make an operator"
               " of that",),
    ))  # fmt: skip
