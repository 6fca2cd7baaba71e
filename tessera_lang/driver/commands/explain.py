"""``tesserac explain``."""

from __future__ import annotations

import difflib
import json
from typing import Literal

import click

from tessera_lang.driver.commands.flags import examples


@click.command(
    name="explain",
    epilog=examples("tesserac explain T0834", "tesserac explain T0834 --format=json"),
)
@click.argument("code")
@click.option("--format", "format_", type=click.Choice(["human", "json"]), default="human")
def command(code: str, format_: Literal["human", "json"]) -> None:
    """Explain a diagnostic CODE, with a wrong and a right example."""
    from tessera_lang.diagnostics.codes import all_codes, code_named
    from tessera_lang.diagnostics.pages import page_of

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
