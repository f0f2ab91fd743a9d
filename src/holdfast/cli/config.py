"""`holdfast config`: every setting with its value and where it comes from."""

from __future__ import annotations

import click

from holdfast.cli.output import output_option, print_records
from holdfast.cli.variables import tell_unknown_variables
from holdfast.config import Config

__all__ = ["config"]


@click.command()
@output_option
def config(output: str) -> None:
    """List every setting with its value and origin.

    Each is set through its environment variable. Passwords are hidden.
    """
    tell_unknown_variables()
    keys = ("variable", "value", "origin", "description")
    records = [dict(zip(keys, row, strict=True)) for row in Config.load().shown()]
    print_records(records, {key: key.upper() for key in keys}, output)
