"""`holdfast settings`: what is in force for all processes, and changing it while everything runs."""

from __future__ import annotations

import click

from holdfast.cli.asking import asked
from holdfast.cli.operator import operator
from holdfast.cli.output import as_dict, echo, output_option, print_records

__all__ = ["settings"]

_COLUMNS = {
    "name": "SETTING", "value": "VALUE", "origin": "ORIGIN", "default_value": "DEFAULT", "updated_by": "CHANGED BY",
    "updated_at": "CHANGED", "description": "DESCRIPTION",
}  # fmt: skip

_note_option = click.option("--note", help="Why; stored in the audit log.")


@click.group()
def settings() -> None:
    """Look at settings of the installation, and change them while everything runs.

    They apply to all processes. `holdfast config` also lists the settings of this process.
    """


@settings.command("list")
@output_option
def list_(output: str) -> None:
    """List settings with the value in force and where it comes from: database, environment or default."""
    print_records([as_dict(setting) for setting in asked(lambda ops: ops.settings.list())], _COLUMNS, output)


@settings.command("set")
@click.argument("name")
@click.argument("value")
@_note_option
def set_(name: str, value: str, note: str | None) -> None:
    """Change a setting for all processes while they run: `settings set LEASE_SEC_DEFAULT 1m`."""
    found = asked(lambda ops: ops.settings.set(name, value, by=operator(), note=note))
    echo(f"{found.name} is {found.value} for all processes")


@settings.command()
@click.argument("name")
@_note_option
def reset(name: str, note: str | None) -> None:
    """Remove a setting's value from the database: each process uses its environment or the default again."""
    found = asked(lambda ops: ops.settings.reset(name, by=operator(), note=note))
    echo(f"{found.name} is {found.value} here ({found.origin})")
