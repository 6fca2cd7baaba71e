"""Functions of JAX: ``tessera.jax.op``.

Each call is a foreign function call of XLA on the CPU; gradients are the compiler's. Imports jax
when a function is made. Must not know how a graph is made or differentiated.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tessera_backend.runtime.arrays import refuse
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import ends_at_the_caller
from tessera_backend.runtime.dtypes import TO_NUMPY, from_numpy
from tessera_backend.runtime.frameworks.callee import Callee, Given, Outcome, callee_of
from tessera_backend.runtime.frameworks.leaf_names import fixed_values, leaf_names
from tessera_backend.runtime.frameworks.xla_handler import HANDLER, RUNS
from tessera_backend.runtime.nested_arguments import LEAF, Form, filled, form_of, matched

__all__ = ["Function", "op"]

_TARGET = "tessera"
_LAYOUTS = 4096


@functools.cache
def _jax() -> Any:
    """The package, with the handler made known to it."""
    try:
        jax: Any = importlib.import_module("jax")
        ffi: Any = importlib.import_module("jax.ffi")
    except ImportError as fault:
        raise error(diagnostic(
            "T0858", "JAX is not installed here, or is older than 0.10",
            helps=("install it: `pip install tessera-lang[jax]`",),
        )) from fault  # fmt: skip
    ffi.register_ffi_target(_TARGET, ffi.pycapsule(HANDLER), platform="cpu", api_version=1)
    jax.tree_util.register_static(_Static)
    return jax


@ends_at_the_caller
def op(function: Any) -> Function:
    """A plain function or a kernel as a function of JAX, on the CPU.

    ``function`` is ``"file.tessera::name"``, or a function or kernel of a module (``m.attend``,
    ``m.fill[4]``). The result is called as the function is, with arrays of JAX: also within tuples,
    lists and dicts, and in ``jax.jit``, ``jax.grad`` and ``jax.vmap``. Arrays that a kernel writes
    are values of JAX: their new ones are returned, behind what the kernel returns. Raises
    TesseraError.
    """
    _jax()
    return Function(callee_of(function, "tessera.jax.op"))


class _Static:
    """What a gradient is of, kept beside arrays."""

    def __init__(self, wanted: tuple[bool, ...]) -> None:
        self.wanted = wanted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and other.wanted == self.wanted

    def __hash__(self) -> int:
        return hash(self.wanted)


class Function:
    """A function that JAX traces; one call of XLA each time it runs."""

    def __init__(self, callee: Callee) -> None:
        self._callee = callee
        self._known: dict[Any, _Call] = {}
        self.__name__ = self.__qualname__ = callee.name
        self.__doc__ = callee.of.__doc__

    def __repr__(self) -> str:
        return f"<function {self._callee.of.__qualname__} of JAX>"

    @ends_at_the_caller
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the function, or trace it."""
        leaves: list[Any] = []
        values = [*arguments, *named.values()]
        forms = tuple([form_of(v, leaves, _is_leaf) for v in values])
        names = tuple(named)
        arrays = [x for x in leaves if not _is_number(x)]
        numbers = tuple([x if _is_number(x) else None for x in leaves])
        spelt = [(x.__class__.__name__, repr(x)) for x in numbers]
        key: Any = forms, names, tuple(spelt)
        try:
            found = self._known.get(key)
        except TypeError:
            found = None
        if found is None:
            self._check(forms, names)
            found = self._known[key] = _Call(self._callee, forms, names, numbers)
        return found(*arrays)

    def _check(self, forms: Sequence[Form], names: tuple[str, ...]) -> None:
        for i, form in enumerate(forms):
            for value in fixed_values(form):
                if value is not None and not isinstance(value, str):
                    parameter = self._callee.named(i, names, len(forms))
                    raise refuse(
                        "T0831", parameter, f"holds a `{type(value).__name__}`, which is no array"
                        " of JAX", "pass an array: `jnp.asarray(x)`",
                    )  # fmt: skip


class _Call:
    """The calls of one form of arguments, whose numbers are known. What it takes are arrays."""

    def __init__(
        self, callee: Callee, forms: tuple[Form, ...], names: tuple[str, ...],
        numbers: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self._callee = callee
        self._forms = forms
        self._names = names
        self._numbers = numbers
        self._leaf_names = tuple(leaf_names(callee, forms, names))
        self._outcomes: dict[Any, Outcome] = {}
        self._gradients: dict[Any, Any] = {}
        what = (callee.identity, forms, names, [(type(n).__name__, repr(n)) for n in numbers])
        digest = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
        # The same in each process, as XLA may keep compiled programs.
        self._key = f"{callee.path}::{callee.spelt} {digest}"
        RUNS[self._key] = self._run
        made = _jax().custom_vjp(self._called)
        made.defvjp(self._forward, self._backward, symbolic_zeros=True)
        self._differentiable = made

    def __call__(self, *arrays: Any) -> Any:
        jnp = _jax().numpy
        arrays = tuple(map(jnp.asarray, arrays))
        self._check_devices(arrays)
        outcome = self._outcome(arrays)
        parts = self._differentiable(*arrays)
        count = len(outcome.types)
        value = filled(outcome.form, iter(parts[:count]))
        written = parts[count:]
        if not written:
            return value
        first: tuple[Any, ...] = () if value is None else (value,)
        if isinstance(value, tuple):
            first = cast("tuple[Any, ...]", value)
        found = (*first, *written)
        return found[0] if len(found) == 1 else found

    def _check_devices(self, arrays: Sequence[Any]) -> None:
        """Refuse arrays of other devices; those that are traced come when the program runs."""
        tracer = _jax().core.Tracer
        for name, array in zip(self._array_names, arrays, strict=True):
            if isinstance(array, tracer):
                continue
            for device in array.devices():
                if device.platform != "cpu":
                    raise refuse(
                        "T0844", name, f"is on `{device}`, and functions of JAX run on the CPU",
                        "move it: `jax.device_put(x, jax.devices('cpu')[0])`",
                    )  # fmt: skip

    # --- what a call gives ------------------------------------------------------------------

    def _leaves(self, arrays: Sequence[Any]) -> list[Any]:
        """Arrays, and between them the numbers that are known."""
        rest = iter(arrays)
        return [next(rest) if n is None else n for n in self._numbers]

    def _outcome(self, arrays: Sequence[Any]) -> Outcome:
        key = tuple([(tuple(x.shape), str(x.dtype)) for x in arrays])
        found = self._outcomes.get(key)
        if found is None:
            given = iter([self._given(x, i) for i, x in enumerate(arrays)])
            leaves = [next(given) if n is None else n for n in self._numbers]
            found = self._callee.outcome(self._forms, self._names, leaves)
            if len(self._outcomes) >= _LAYOUTS:
                self._outcomes.clear()
            self._outcomes[key] = found
        return found

    def _given(self, array: Any, number: int) -> Given:
        dtype = from_numpy(np.dtype(array.dtype))
        if dtype is None:
            raise refuse(
                "T0832", self._array_names[number], f"has elements of type `{array.dtype}`, which"
                " the language does not have",
            )  # fmt: skip
        return Given(dtype, tuple([int(n) for n in array.shape]))

    @property
    def _array_names(self) -> list[str]:
        pairs = zip(self._leaf_names, self._numbers, strict=True)
        return [name for name, number in pairs if number is None]

    def _written(self, outcome: Outcome) -> list[int]:
        """The arrays that a call writes, by number: arguments of kernels are leaves."""
        if not outcome.writes:
            return []
        names = {self._callee.parameters[i] for i in outcome.writes}
        return [i for i, name in enumerate(self._array_names) if name in names]

    # --- calls of XLA -----------------------------------------------------------------------

    def _called(self, *arrays: Any) -> tuple[Any, ...]:
        outcome = self._outcome(arrays)
        shapes = [_result(t) for t in outcome.types]
        written = self._written(outcome)
        aliases = {place: len(shapes) + i for i, place in enumerate(written)}
        shapes += [_jax().ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in written]
        return self._ffi(self._key, shapes, arrays, aliases)

    def _ffi(
        self, key: str, shapes: list[Any], arrays: Sequence[Any],
        aliases: dict[int, int] | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        call = _jax().ffi.ffi_call(
            _TARGET, tuple(shapes), vmap_method="sequential", input_output_aliases=aliases or None,
        )  # fmt: skip
        return tuple(call(*arrays, call=key))

    def _run(self, given: Sequence[Any], made: Sequence[Any]) -> None:
        outcome = self._outcome(given)
        count = len(outcome.types)
        arrays = list(given)
        for place, target in zip(self._written(outcome), made[count:], strict=True):
            if target.ctypes.data != arrays[place].ctypes.data:
                target[...] = arrays[place]
            arrays[place] = target
        leaves = self._leaves(arrays)
        if self._callee.kernel is not None:
            parts = iter(leaves)
            values = [filled(form, parts) for form in self._forms]
            first = len(values) - len(self._names)
            named = dict(zip(self._names, values[first:], strict=True))
            found = cast("Any", self._callee.kernel)(*values[:first], **named)
        else:
            of = cast("Any", self._callee.runs).of_leaves(self._forms, self._names)
            found = of(*leaves)
        _store(matched(outcome.form, found), made[:count])

    # --- gradients --------------------------------------------------------------------------

    def _forward(self, *primals: Any) -> tuple[Any, Any]:
        arrays = tuple(p.value for p in primals)
        outcome = self._outcome(arrays)
        if outcome.writes:
            raise error(diagnostic(
                "T0761", f"there is no gradient of `{self._callee.name}`, which writes into its"
                " arguments", helps=("write a plain function that makes the array, calls the kernel"
                                     " and returns it",),
            ))  # fmt: skip
        wanted = tuple([bool(p.perturbed) and _is_float(p.value) for p in primals])
        return self._called(*arrays), (arrays, _Static(wanted))

    def _backward(self, kept: Any, cotangents: Any) -> tuple[Any, ...]:
        arrays, static = kept
        outcome = self._outcome(arrays)
        wrt = [n for n, has in zip(self._array_names, static.wanted, strict=True) if has]
        if not wrt:
            return (None,) * len(arrays)
        seeds = [_seed(t, c) for t, c in zip(outcome.types, cotangents, strict=True)]
        names = tuple(wrt)
        key = f"{self._key} gradient {','.join(names)} {outcome.form!r}"
        RUNS[key] = functools.partial(self._run_backward, names, outcome.form)
        wanted = [x for x, has in zip(arrays, static.wanted, strict=True) if has]
        shapes = [_jax().ShapeDtypeStruct(x.shape, x.dtype) for x in wanted]
        made = iter(self._ffi(key, shapes, [*arrays, *seeds]))
        return tuple([next(made) if has else None for has in static.wanted])

    def _run_backward(
        self, wrt: tuple[str, ...], form: Form, given: Sequence[Any], made: Sequence[Any]
    ) -> None:
        count = len(self._array_names)
        arrays, seeds = given[:count], given[count:]
        outcome = self._outcome(arrays)
        # Numbers of the language have 64 bits, and those of JAX may have 32.
        seeds = [np.asarray(s, TO_NUMPY[t.dtype.name])
                 for s, t in zip(seeds, outcome.types, strict=True)]  # fmt: skip
        known = self._gradients.get((wrt, form))
        if known is None:
            of = self._callee.gradient(self._forms, self._names, self._leaf_names, wrt)
            forms = (*[LEAF] * len(self._numbers), form)
            known = self._gradients[wrt, form] = of.of_leaves(forms, ("cotangent",))
        _store(known(*self._leaves(arrays), *seeds), made)


def _store(parts: Sequence[Any], made: Sequence[Any]) -> None:
    for part, target in zip(parts, made, strict=True):
        np.copyto(target, part, casting="unsafe")


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float) and not isinstance(value, np.generic)


def _is_leaf(value: object) -> bool:
    return _is_number(value) or isinstance(value, _jax().Array | np.ndarray | np.generic)


def _is_float(array: Any) -> bool:
    return bool(_jax().numpy.issubdtype(array.dtype, _jax().numpy.floating))


def _result(of: Given) -> Any:
    """The shape and dtype of a result as JAX has it: without ``jax_enable_x64`` of 32 bits."""
    jax = _jax()
    dtype = jax.dtypes.canonicalize_dtype(TO_NUMPY[of.dtype.name])
    return jax.ShapeDtypeStruct(of.shape, dtype)


def _seed(of: Given, cotangent: Any) -> Any:
    """The gradient of a result as an array; 0 of what has none."""
    jax = _jax()
    wanted = _result(of)
    none = isinstance(cotangent, jax.custom_derivatives.SymbolicZero)
    if none or cotangent.dtype == jax.dtypes.float0:
        return jax.numpy.zeros(wanted.shape, wanted.dtype)
    return cotangent
