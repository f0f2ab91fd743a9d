"""`holdfast cleanup`: delete ended jobs whose retention is over, without waiting for the leader to come to it."""

from __future__ import annotations

import asyncio
import sys

import click

from holdfast.app import Holdfast
from holdfast.cli.output import echo, echo_json, output_option
from holdfast.client.operations import Cleanup

__all__ = ["cleanup"]


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say how many jobs would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def cleanup(output: str, *, dry_run: bool, yes: bool) -> None:
    """Delete ended jobs whose retention is over (RETENTION_DAYS, RETENTION_DEAD_DAYS).

    The leader does this by itself, sooner or later. Dead jobs stay until somebody has acknowledged them.
    """
    if not dry_run and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("deleted jobs cannot be brought back: add --yes, or look with --dry-run")
        click.confirm("Delete all ended jobs whose retention is over?", abort=True)
    done = asyncio.run(_clean(dry_run=dry_run))
    if output == "table":
        verb = "would be deleted" if dry_run else "deleted"
        echo(f"{done.ended} ended and {done.dead} dead jobs {verb}")
    else:
        echo_json({"ended": done.ended, "dead": done.dead, "dry_run": dry_run})


async def _clean(*, dry_run: bool) -> Cleanup:
    async with Holdfast() as hf:
        return await (await hf.operations()).cleanup(dry_run=dry_run)
