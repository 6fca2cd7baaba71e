"""The subcommands of ``tesserac``: their names, and the modules that hold them.

Owns the group. Must not import a subcommand before it is called.
"""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS: dict[str, str] = {
    "build": "Compile kernels to code, a manifest and a C header.",
    "run": "Run a file's top-level statements.",
    "check": "Report everything that is wrong with files.",
    "test": "Run the tests of files.",
    "fmt": "Format files.",
    "fix": "Mend files where diagnostics say how.",
    "stubs": "Write a type stub of a file for Python programs.",
    "emit": "Print a file at one stage of the compiler.",
    "explain": "Explain a diagnostic code.",
    "devices": "List the devices that kernels can run on.",
    "doctor": "Look at the installation, and say what to mend.",
    "cache": "Show or empty the compile cache.",
    "version": "Print versions.",
}


class LazyGroup(click.Group):
    """Imports a subcommand's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"{__name__}.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            if name.endswith(".tessera"):
                hint = f" Did you mean `tesserac run {name}`?"
            raise click.UsageError(f"There is no command `{name}`.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from tessera_lang import __version__

        click.echo(f"tesserac {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`tesserac COMMAND --help` shows a command's options with examples.",
)
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
    help="Print the version and leave.",
)  # fmt: skip
def group() -> None:
    """Compile, check and run Tessera programs."""
