"""What is wrong with a kernel that nobody wrote is said of the program's own lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.ir.core import TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.run import run_kernels
from tessera_lang.source import Anchor, Span
from tessera_lang.types.dtype import F32
from tests.unit.graph import on_cpu

_LINE = Span(Anchor("mine.tessera"), 10, 20)


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [("`t3` has no form", "T0902", "made itself of `softmax` here (T0740)"),
     ("it takes 9 bytes, and there are 8", "T0740", "of `softmax` here is refused: it takes 9")],
)  # fmt: skip
def test_refusals_of_made_kernels(message: str, code: str, says: str) -> None:
    builder = GraphBuilder(OPERATORS)
    builder.span = _LINE
    x = Value(TensorType(F32, (4, 8)), "x")
    function = builder.function("f", [x], [builder.op("softmax", x, axis=1)])
    (kernel,) = plan_of(function, ()).kernels
    host: Any = on_cpu.host()

    def launch(*given: object) -> object:
        inside = Span(Anchor(kernel.path), 3, 4)
        raise TesseraError((Diagnostic("T0740", message, inside, notes=("`x0` is large",)),))

    host.world.launch = launch
    with pytest.raises(HostFault) as caught:
        run_kernels(host, function, [np.ones((4, 8), np.float32)], ["array"], [kernel])
    (d,) = caught.value.diagnostics
    assert (d.code, d.span) == (code, _LINE)
    assert says in d.message and "x0" not in f"{d.message} {d.notes} {d.helps}"
