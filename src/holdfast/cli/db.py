"""`holdfast db`: the database in use."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.config import Config
from holdfast.store.embedded import EmbeddedPostgres, status

__all__ = ["db"]

#: How long a server that nobody but `db url` started waits for its users.
_STAY_SECONDS = 3600.0


@click.group()
def db() -> None:
    """The database in use."""


@db.command()
def url() -> None:
    """Print the database's URL, password included, for psql and the like.

    The embedded server is started if it does not run, and then stays for an hour or until `db stop`.
    """
    config = Config.load()
    if config.database_url is not None:
        click.echo(config.database_url)
        return
    running = status(config.home)
    if running.url is not None:
        click.echo(running.url)
        return
    with EmbeddedPostgres(config.home, stop_after_seconds=_STAY_SECONDS) as server:
        asyncio.run(_open_once())
        click.echo(server.url)
    click.echo("started; it stays for an hour, or until `holdfast db stop`", err=True)


@db.command()
def stop() -> None:
    """Stop the embedded server, whoever uses it."""
    config = Config.load()
    if config.database_url is not None:
        raise click.UsageError("HOLDFAST_DATABASE_URL is set: that server is not Holdfast's to stop")
    found = status(config.home)
    if not found.running:
        click.echo(f"no server runs in {config.home.resolve()}")
        return
    EmbeddedPostgres(config.home).stop()
    click.echo(f"stopped the server in {config.home.resolve()}")


async def _open_once() -> None:
    """Opening a new embedded database gives it its schema."""
    async with Holdfast():
        pass
