"""Graphs as kernels on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tessera_backend.runtime.host_environment import HostWorld

from tessera_lang.driver.session import Session
from tessera_lang.evaluate.host import Host
from tessera_lang.ir.core import Operation
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.run import NumberKind, run_kernels

_FILE = "graph.tessera"


def host() -> Host:
    """An evaluator of a program that has nothing in it."""
    session = Session(overlay={_FILE: "nothing = 0\n"})
    return Host(HostWorld(session, "cpu", print), session, _FILE)


def run(function: Operation, inputs: Sequence[Any], by: Host | None = None) -> list[Any]:
    """The results of a function of Graph IR."""
    count = len(function.regions[0].terminator.operands)
    given: list[Any] = [np.asarray(v, order="C") for v in inputs]
    kinds: list[NumberKind] = ["array" for _ in range(count)]
    return run_kernels(by or host(), function, given, kinds, plan_of(function, ()).kernels)
