"""`holdfast db`: the database in use."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.output import echo
from holdfast.config import Config
from holdfast.errors import SchemaError
from holdfast.store.embedded_error import refuse_where_it_cannot_run

__all__ = ["db"]

#: How long the server stays after its last use, once its URL was handed out.
_STAY_SECONDS = 3600.0


@click.group()
def db() -> None:
    """The database in use."""


@db.command()
def url() -> None:
    """Print the database's URL, including the password, for psql and other programs.

    This starts the embedded server if it does not run. It then stays up while a program is connected, and for an
    hour after that; `db stop` stops it.
    """
    config = Config.load()
    if config.database_url is not None:
        echo(config.database_url)
        return
    refuse_where_it_cannot_run()
    from holdfast.store.embedded import EmbeddedPostgres, status

    was_running = status(config.home).running
    with EmbeddedPostgres(config.home) as server:
        if not was_running:
            asyncio.run(_open_once())
        server.stay(_STAY_SECONDS)
        echo(server.url)
    if not was_running:
        echo("started; it stops an hour after its last use, or with `holdfast db stop`", err=True)


@db.command()
def stop() -> None:
    """Stop the embedded server, even if it is in use."""
    config = Config.load()
    refuse_where_it_cannot_run()
    from holdfast.store.embedded import EmbeddedPostgres, status

    found, home = status(config.home), config.home.resolve()
    if config.database_url not in (None, found.url):
        raise click.UsageError(
            f"HOLDFAST_DATABASE_URL is set, but Holdfast can only stop its embedded server (in {home}): "
            "unset HOLDFAST_DATABASE_URL to stop that one"
        )
    if not found.running:
        echo(f"no server runs in {home}")
        return
    EmbeddedPostgres(config.home).stop()
    echo(f"stopped the server in {home}")
    if config.database_url is not None:
        echo("HOLDFAST_DATABASE_URL still names it: unset it to use the embedded server again", err=True)


async def _open_once() -> None:
    """Opening a new embedded database gives it its schema; one that needs `migrate` can be looked at all the same."""
    try:
        async with Holdfast():
            pass
    except SchemaError as fault:
        echo(str(fault), err=True)
