"""``tesserac explain``."""

from __future__ import annotations

import difflib
import json
from typing import Literal

import click

from tessera_lang.driver.commands.flags import (
    arch_option,
    color_option,
    examples,
    memory_budget_option,
    path_option,
    signature_option,
)
from tessera_lang.driver.commands.inputs import session_for, source_path


@click.command(
    name="explain",
    epilog=examples(
        "tesserac explain T0834",
        "tesserac explain T0834 --format=json",
        "tesserac explain --fusion attention.tessera --signature 'q: bf16[512, 64]'",
    ),
)
@click.argument("code", metavar="CODE|FILE")
@click.option("--fusion", "about", flag_value="fusion",
              help="Of the plain functions of FILE: which operators become one kernel, which do "
              "not, and why.")  # fmt: skip
@click.option(
    "--memory",
    "about",
    flag_value="memory",
    help="Of the plain functions of FILE: what is in memory while their kernels run.",
)
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="Only this function.")
@memory_budget_option
@arch_option
@signature_option
@path_option
@color_option
@click.option("--format", "format_", type=click.Choice(["human", "json"]), default="human")
def command(
    code: str, about: str | None, names: tuple[str, ...], budget: float | None, arch: str,
    signatures: tuple[str, ...],
    search: tuple[str, ...], color: str, format_: Literal["human", "json"],
) -> int:  # fmt: skip
    """Explain a diagnostic CODE, with a wrong and a right example; or of a FILE, what becomes of
    its functions over whole arrays."""
    if budget is not None and about is None:
        raise click.UsageError("--memory-budget is for --memory and --fusion of a file.")
    if about is not None:
        from tessera_lang.driver.commands.emit import graph_texts

        session = session_for(search)
        session.memory_budget = int(budget or 0)
        path = source_path(session, code)
        text, failed = graph_texts(session, path, about, names, signatures, color, ("", arch))
        click.echo(text, nl=False)
        return failed
    return _code(code, format_)


def _code(code: str, format_: str) -> int:
    from tessera_lang.diagnostics.codes import all_codes, code_named
    from tessera_lang.diagnostics.page_lookup import page_of

    row = code_named(code)
    if row is None:
        close = difflib.get_close_matches(code.upper(), all_codes(), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise click.UsageError(f"There is no code {code}.{hint}")
    page = page_of(row.code) or f"# {row.code} {row.slug}\n\n{row.summary}\n"
    if format_ == "json":
        record = {"code": row.code, "slug": row.slug, "summary": row.summary, "page": page}
        click.echo(json.dumps(record))
    else:
        click.echo(page.rstrip())
    return 0
