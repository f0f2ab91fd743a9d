"""`holdfast config`: every setting with its value and where it comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import click

from holdfast.app import Holdfast
from holdfast.cli.output import echo, output_option, print_records
from holdfast.cli.variables import tell_unknown_variables
from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.setting import Setting

__all__ = ["config"]

#: How long the database may take to answer.
_PATIENCE_SECONDS = 5.0


@click.command()
@output_option
def config(output: str) -> None:
    """List every setting with its value and origin.

    Each setting has an environment variable. Settings of the installation may also have a value in the database, which
    takes precedence and is shown if the database can be reached. Passwords are hidden.
    """
    tell_unknown_variables()
    own = Config.load()
    try:
        held = asyncio.run(_held(own))
    except HoldfastError as fault:
        held = {}
        echo(f"the database was not asked, so its own values of settings are not shown: {fault}", err=True)
    keys = ("variable", "value", "origin", "description")
    records = [dict(zip(keys, row, strict=True)) for row in own.shown()]
    for record in records:
        if (setting := held.get(record["variable"])) is not None:
            record |= {"value": setting.value, "origin": setting.origin}
    print_records(records, {key: key.upper() for key in keys}, output)


async def _held(own: Config) -> Mapping[str, Setting]:
    """The settings as the database lists them, by variable. Raises HoldfastError if no database runs."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), Holdfast(own.database_url or _embedded_url(own)) as hf:
            return {f"HOLDFAST_{s.name}": s for s in await (await hf.operations()).settings.list()}
    except TimeoutError:
        raise DatabaseUnavailable(f"it did not answer within {_PATIENCE_SECONDS:g} s") from None


def _embedded_url(own: Config) -> str:
    """The embedded server's; it is not started for this."""
    from holdfast.store.embedded_error import refuse_where_it_cannot_run

    refuse_where_it_cannot_run()
    from holdfast.store.embedded import status

    found = status(own.home)
    if found.url is None:
        raise DatabaseUnavailable(f"HOLDFAST_DATABASE_URL is not set, and no embedded server runs in {own.home}")
    return found.url
