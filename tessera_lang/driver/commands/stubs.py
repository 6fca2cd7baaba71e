"""``tesserac stubs``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tessera_lang.driver.commands.flags import examples, path_option


@click.command(
    name="stubs",
    epilog=examples("tesserac stubs kernels.tessera", "tesserac stubs std.reduce -o typings"),
)
@click.argument("file")
@click.option("-o", "--output", default="", metavar="FILE|DIR|-",
              help="Where the stub goes; beside FILE where not given, `-` prints it.")  # fmt: skip
@path_option
def command(file: str, output: str, search: tuple[str, ...]) -> int:
    """Write a type stub (.pyi) of FILE for Python programs that load it.

    FILE may be a module of the standard library, as `std.reduce`.
    """
    from tessera_lang.driver.source_rewrites import replace_file
    from tessera_lang.target.runtime import runtime

    text = runtime().stub_of(file, search)
    if output == "-":
        click.echo(text, nl=False)
        return 0
    target = _target(file, output)
    if target.is_file():
        replace_file(str(target), text)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")
    click.echo(str(target))
    return 0


def _target(file: str, output: str) -> Path:
    """The path of the stub: its name is one that Python can import."""
    library = not file.endswith(".tessera")
    stem = file.rpartition(".")[2] if library else Path(file).stem
    name = re.sub(r"\W", "_", stem) + ".pyi"
    if output.endswith(".pyi"):
        return Path(output)
    folder = Path(output) if output else Path() if library else Path(file).parent
    return folder / name
