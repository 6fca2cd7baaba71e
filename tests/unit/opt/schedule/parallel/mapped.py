"""Kernels behind the passes that give them a grid."""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver import pipeline
from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.ir.core import Program
from tessera_lang.opt.schedule.parallel.map_grid import map_grid


def mapped(program: Program, remarks: list[Diagnostic]) -> Program:
    """The program with its grid; what there is to say of other axes goes to ``remarks``."""
    return map_grid(run_passes(program, pipeline.parallel_loops()), remarks)
