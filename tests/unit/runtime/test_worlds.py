"""Worlds answer what the evaluator asks of every one without a call."""

from __future__ import annotations

import pytest
from tessera_backend.runtime.host_environment import HostWorld
from tessera_backend.runtime.host_tapes import RecordingWorld
from tessera_backend.runtime.traced_world import TracedWorld

from tessera_lang.evaluate.abstract_world import SymbolicWorld
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import World
from tessera_lang.types.dtype import DType

PROPERTIES = [n for n, v in vars(World).items() if isinstance(v, property)]


@pytest.mark.parametrize("world", [HostWorld, RecordingWorld, TracedWorld, SymbolicWorld])
def test_every_world_has_the_properties(world: type) -> None:
    """A world that refuses what it does not know as a fault of the program refused
    `op.empty` of every function of device arrays."""
    assert PROPERTIES and all(hasattr(world, name) for name in PROPERTIES)


def test_a_graph_within_a_function_has_those_of_its_world() -> None:
    assert isinstance(GraphWorld().floats, DType)
