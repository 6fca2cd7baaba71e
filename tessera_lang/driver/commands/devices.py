"""``tesserac devices``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import examples

if TYPE_CHECKING:
    from tessera_lang.target.backend import DeviceInfo


@click.command(
    name="devices", epilog=examples("tesserac devices", "tesserac devices --format=json")
)
@click.option("--format", "format_", type=click.Choice(["human", "json"]), default="human")
def command(format_: str) -> None:
    """List the devices that kernels can run on."""
    from tessera_lang.target.backend import DeviceInfo, backend_named, backend_names

    found: list[DeviceInfo] = []
    reasons: list[str] = []
    for name in backend_names():
        try:
            backend = backend_named(name)
            reason = backend.available()
        except Exception as error:  # noqa: BLE001  # a broken backend must not hide the others
            reasons.append(f"{name}: {type(error).__name__}: {error}")
            continue
        survey = getattr(backend, "devices", None)
        if reason:
            reasons.append(f"{name}: {reason}")
        elif survey is None:
            found.append(DeviceInfo(name, 0, "this machine", backend.default_arch()))
        found.extend(survey() if survey is not None else ())
    if format_ == "json":
        click.echo(json.dumps([asdict(d) for d in found]))
        return
    for device in found:
        click.echo(_line(device))
    for reason in reasons:
        click.echo(reason, err=True)


def _line(device: DeviceInfo) -> str:
    text = f"{device.target}:{device.ordinal}  {device.arch}  {device.name}"
    if device.units >= 0:
        text += f"  {device.units} {'cores' if device.target == 'cpu' else 'multiprocessors'}"
    if device.memory_bytes >= 0:
        text += f"  {device.memory_bytes / 2**30:.1f} GiB"
    return text
