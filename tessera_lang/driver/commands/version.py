"""``tesserac version``."""

from __future__ import annotations

import json
import platform

import click

from tessera_lang.driver.commands.flags import examples

PACKAGES = ("llvmlite", "numpy", "ml_dtypes", "click", "rich", "cuda-python")


def versions() -> dict[str, str]:
    """Versions of tessera, Python and the packages it uses; "" where one is absent."""
    from tessera_lang import __version__
    from tessera_lang.target.installed import version_of

    found = {"tesserac": __version__, "python": platform.python_version(),
             "platform": f"{platform.system()} {platform.machine()}"}  # fmt: skip
    return found | {name: version_of(name) for name in PACKAGES}


@click.command(name="version", epilog=examples("tesserac version", "tesserac version --json"))
@click.option("--json", "as_json", is_flag=True, help="All versions as JSON.")
def command(as_json: bool) -> None:
    """Print versions."""
    found = versions()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"tesserac {found['tesserac']} (Python {found['python']}, {found['platform']})")
