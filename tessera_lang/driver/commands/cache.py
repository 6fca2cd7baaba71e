"""``tesserac cache``."""

from __future__ import annotations

import json

import click

from tessera_lang.driver.commands.flags import examples


@click.group(name="cache", epilog=examples("tesserac cache stats", "tesserac cache clear"))
def command() -> None:
    """Show or empty the compile cache."""


@command.command("dir")
def directory() -> None:
    """Print the folder of the cache."""
    from tessera_lang.target.runtime import runtime

    click.echo(str(runtime().cache_directory()))


@command.command("stats")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def stats(as_json: bool) -> None:
    """Print what the cache holds."""
    from tessera_lang.target.runtime import runtime

    found = runtime().cache_stats()
    if as_json:
        click.echo(json.dumps(dict(found)))
        return
    for name, value in found.items():
        if value == "":
            continue
        click.echo(f"{name}: {value}")


@command.command("clear")
def clear() -> None:
    """Empty the cache."""
    from tessera_lang.target.runtime import runtime

    click.echo(f"freed {runtime().cache_clear()} bytes")
