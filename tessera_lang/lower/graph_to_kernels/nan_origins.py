"""The first operator that gives NaN and takes none.

A kernel that does so is computed again operator by operator. Owns that search. Must not know who
asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel, computed_by, single_kernel

Launch = Callable[[GraphKernel, list[object]], object]


def nan_origin(
    function: Operation, kernel: GraphKernel, given: Sequence[object],
    has_nan: Callable[[object], bool], launch: Launch,
) -> Diagnostic:  # fmt: skip
    """What is said of a kernel that gives NaN and was ``given`` none."""
    values: dict[Value, object] = {
        v: g for v, g in zip(kernel.arguments, given, strict=True) if isinstance(v, Value)
    }
    numbers = {v for v, g in values.items() if isinstance(g, float)}
    if kernel.call is None and kernel.first is None:
        for o in computed_by(function, kernel):
            one = single_kernel({o.result: o}, Counter[Value](), numbers, o.result)
            made = launch(one, [values[v] if isinstance(v, Value) else v for v in one.arguments])
            if has_nan(made):
                return _found(o.name, o.result, o)
            values[o.result] = made
    name = f"kernel.{kernel.call.kernel}" if kernel.call is not None else kernel.operator
    return Diagnostic("T0763", f"`{name.split('.', 1)[-1]}` gives NaN, and takes none",
                      kernel.origin)  # fmt: skip


def _found(name: str, value: Value, o: Operation) -> Diagnostic:
    taken = ", ".join(f"{v.tensor_type}" for v in o.operands)
    message = f"`{name.removeprefix('graph.')}` gives NaN, and takes none"
    note = f"it gives {value.tensor_type}" + (f" of {taken}" if taken else "")
    return Diagnostic("T0763", message, o.span, notes=(note,))
