"""Members of ``op`` that the standard library has as functions of the host program.

Owns which they are and how their arguments are passed on. Must not know what they compute.
"""

from __future__ import annotations

from typing import cast

from tessera_grammar.array_function_names import LIBRARY_NAMES, NETWORK_NAMES

from tessera_lang.evaluate.arguments import Arguments
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.fault import HostFault, with_call
from tessera_lang.evaluate.lists_of_numbers import as_array
from tessera_lang.evaluate.one_call_kernels import ONE_CALL_KERNELS
from tessera_lang.evaluate.value import HostFunction, Unknown
from tessera_lang.source import Span
from tessera_lang.types.dtype import F64, I64, DType, common_dtype

_MODULE = "std.arrays"
_HAND_WRITTEN = {
    **{n: "std.conv" for n in NETWORK_NAMES if n.startswith("conv")},
    **{n: "std.pool" for n in NETWORK_NAMES if "_pool" in n},
    **dict.fromkeys(("batch_norm", "group_norm", "instance_norm"), "std.norm"),
    **dict.fromkeys(("layernorm", "rmsnorm", "log_softmax"), "std.nn"),
    **dict.fromkeys(("cross_entropy", "nll_loss", "mse_loss", "l1_loss"), "std.loss"),
}
"""Modules whose kernels compute a function outside of graphs."""
_TRANSFORMS = ("fft", "ifft", "rfft", "irfft")
_OF_ARRAYS = frozenset(
    """union1d intersect1d setdiff1d setxor1d append extract convolve correlate
solve bincount""".split()
)
"""Functions whose second argument is an array too."""
_OF_ONE_DTYPE = ("append", "convolve", "correlate")
"""Functions of two arrays that have one dtype: a list or a number takes that of the other."""
_PLACES_AND_COUNTS = frozenset("nonzero flatnonzero argwhere bincount unique histogram".split())
"""Functions that give places or counts, which are i64."""


def of_graphs(name: str) -> Function:
    """The plain function of ``NETWORK_NAMES`` that has a gradient."""
    return _of_library(name, "std.fft" if name in _TRANSFORMS else "std.functional")


def _of_network(name: str) -> Function:
    module = _HAND_WRITTEN.get(name)
    return of_graphs(name) if module is None else _of_library(name, module)


def _of_library(name: str, module: str = _MODULE) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        span = arguments.call.span
        count = 2 if name in _OF_ARRAYS else 1
        values = tuple([
            as_array(host, v, span) if i < count else v for i, v in enumerate(arguments.values)
        ])  # fmt: skip
        keywords = dict(arguments.keywords)
        if name in _OF_ONE_DTYPE:
            values = _of_one_dtype(host, values, span)
        if any(isinstance(v, Unknown) for v in values):
            return Unknown()
        own = name
        if name == "histogram":
            own, values, keywords = _histogram(host, span, values, keywords)
        called = host.modules.imported(module, path, span).values[own]
        try:
            found = host.call_value(
                cast("HostFunction", called), Arguments(arguments.call, values, keywords)
            )
            return _counted(host, name, found)
        except HostFault as inner:
            text = f"in this call of `op.{name}`"
            raise HostFault(
                tuple(with_call(d, span, text) for d in inner.diagnostics)
            ) from None  # fmt: skip

    return function


def _of_one_dtype(host: Host, values: tuple[object, ...], span: Span) -> tuple[object, ...]:
    """Both arrays with the dtype in which they meet, f64 of integers and numbers with a point."""
    world, pair = host.world, [*values[:2]]
    for i, value in enumerate(pair):
        if isinstance(value, (int, float)):
            pair[i] = as_array(host, [value], span)
    if len(pair) < 2 or not all(world.is_array(v) for v in pair):
        return values
    for i, other in ((0, 1), (1, 0)):
        dtype = world.dtype(pair[other])
        if isinstance(dtype, DType) and not world.is_of_numbers(pair[other]):
            pair[i] = world.beside(pair[i], dtype)
    first, second = (world.dtype(v) for v in pair)
    if isinstance(first, DType) and isinstance(second, DType) and first != second:
        weak = any(world.is_of_numbers(v) for v in pair)
        common = common_dtype(first, second) or (F64 if weak else None)
        if common is not None:
            pair = [world.convert(world.beside(v, common), common) for v in pair]
    return (*pair, *values[2:])


def _counted(host: Host, name: str, found: object) -> object:
    """What a function gives, its places and counts as such: beside floats they have their dtype.
    Of the values of ``op.unique``, which are first, and of sums of weights nothing is changed."""
    if name not in _PLACES_AND_COUNTS:
        return found
    if isinstance(found, tuple):
        parts = cast("tuple[object, ...]", found)
        first = 1 if name == "unique" else 0
        return (*parts[:first], *(_as_counts(host, part) for part in parts[first:]))
    return found if name == "unique" else _as_counts(host, found)


def _as_counts(host: Host, part: object) -> object:
    is_count = host.world.is_array(part) and host.world.dtype(part) == I64
    return host.world.of_numbers(part) if is_count else part


def _histogram(
    host: Host, span: Span, values: tuple[object, ...], keywords: dict[str, object]
) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Which function counts: ``bins`` is a number of intervals, or an array of their ends."""
    if len(values) > 1:
        first, bins, *rest = values
        values = (first, as_array(host, bins, span), *rest)
        ends = values[1]
    else:
        ends = as_array(host, keywords.get("bins"), span)
        keywords = {k: ends if k == "bins" else v for k, v in keywords.items()}
    own = "histogram_between" if host.world.is_array(ends) else "histogram"
    return own, values, keywords


def _where(host: Host, arguments: Arguments, path: str) -> object:
    """``op.where(c)`` is ``op.nonzero(c)``, as in NumPy."""
    alone = len(arguments.values) == 1 and not arguments.keywords
    function = LIBRARY_FUNCTIONS["op.nonzero"] if alone else ONE_CALL_KERNELS["op.where"]
    return function(host, arguments, path)


LIBRARY_FUNCTIONS: dict[str, Function] = {
    **{f"op.{name}": _of_library(name) for name in LIBRARY_NAMES}, "op.where": _where,
    **{f"op.{name}": _of_network(name) for name in NETWORK_NAMES},
}  # fmt: skip
"""Functions of ``op`` that only the host program has, by full name, and those that it has too."""
