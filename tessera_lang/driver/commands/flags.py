"""Options that several subcommands take, and the end of their help pages.

Owns their names, variables and words. Must not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tessera_lang.driver.options import LANE_ORDERS

_Function = TypeVar("_Function", bound=Callable[..., Any])

FORMATS = ("human", "short", "json", "sarif", "github")


def examples(*lines: str) -> str:
    """The end of a help page."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def color_option(function: _Function) -> _Function:
    return click.option(
        "--color", type=click.Choice(["auto", "always", "never"]), default="auto",
        envvar="TESSERA_COLOR", help="Colours in messages; NO_COLOR is honoured.",
    )(function)  # fmt: skip


def format_option(function: _Function) -> _Function:
    return click.option(
        "--format", "format_", type=click.Choice(FORMATS), default="human",
        envvar="TESSERA_FORMAT", help="How diagnostics are printed.",
    )(function)  # fmt: skip


def path_option(function: _Function) -> _Function:
    return click.option(
        "--path", "search", multiple=True, metavar="DIR", envvar="TESSERA_PATH",
        type=click.Path(path_type=str), help="A folder in which imports are looked for.",
    )(function)  # fmt: skip


def signature_option(function: _Function) -> _Function:
    return click.option(
        "--signature", "signatures", multiple=True, metavar="TEXT",
        help="What kernels are compiled for: 'x: f32[n], out: mut f32[m], BINS=64'.",
    )(function)  # fmt: skip


def memory_budget_option(function: _Function) -> _Function:
    return click.option(
        "--memory-budget", "budget", type=click.FloatRange(1.0), default=None, metavar="BYTES",
        help="The most that a fused function or gradient has in memory, with its arguments: values "
        "are computed again rather than kept. 8e9 is 8 GB.",
    )(function)  # fmt: skip


def arch_option(function: _Function) -> _Function:
    return click.option(
        "--arch", default="", envvar="TESSERA_ARCH", metavar="ARCH",
        help="sm_80 ..., H100 or H200 for cuda, native or an LLVM name for cpu.",
    )(function)  # fmt: skip


def as_option(function: _Function) -> _Function:
    return click.option(
        "--as", "arch_as", default="", envvar="TESSERA_ARCH_AS", metavar="ARCH",
        help="On the CPU, run the code of tile kernels for this GPU (sm_90a, sm_80), operation by "
        "operation, and look for what its asynchronous copies and products do wrong.",
    )(function)  # fmt: skip


def checked_option(function: _Function) -> _Function:
    """``--checked``, and in which orders it runs lanes."""
    function = click.option(
        "--lane-seed", type=click.IntRange(min=0), default=1, envvar="TESSERA_LANE_SEED",
        help="With --checked: the seed of the random order.",
    )(function)  # fmt: skip
    function = click.option(
        "--lane-order", type=click.Choice(LANE_ORDERS), default="all",
        envvar="TESSERA_LANE_ORDER", help="With --checked: how lanes and groups run.",
    )(function)  # fmt: skip
    return click.option(
        "--checked", is_flag=True, envvar="TESSERA_CHECKED",
        help="On the CPU, look at every access of lanes: races, memory that nobody wrote, "
        "barriers.",
    )(function)  # fmt: skip


def bounds_option(function: _Function) -> _Function:
    return click.option(
        "--bounds", type=click.Choice(["guard", "off"]), default="guard",
        envvar="TESSERA_BOUNDS", help="What becomes of accesses not proved in bounds.",
    )(function)  # fmt: skip


def pass_options(function: _Function) -> _Function:
    """What is shown of the passes, and looked at behind each: ``time_passes``, ``print_after``,
    ``verify_each``."""
    options = (
        click.option(
            "--time-passes", is_flag=True, envvar="TESSERA_TIME_PASSES",
            help="Print what each pass took.",
        ),
        click.option(
            "--print-after", multiple=True, metavar="PASS", envvar="TESSERA_PRINT_AFTER",
            help="Print the program behind this pass, or behind every one with `all`; more than "
            "once for several. A name that is none lists them.",
        ),
        click.option(
            "--verify-each", is_flag=True, envvar="TESSERA_VERIFY_EACH",
            help="Behind each pass verify the program even where nothing changed, and read its "
            "printed form again.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function
