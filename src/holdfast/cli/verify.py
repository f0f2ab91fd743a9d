"""`holdfast verify`: check the invariants on the live database."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.numbers import Whole
from holdfast.cli.output import echo, output_option, print_records
from holdfast.store.database import Database
from holdfast.store.jobs import JobStore

__all__ = ["verify"]


@click.command()
@click.option("--limit", type=Whole(1), default=100, show_default=True, help="Most violations to list per invariant.")
@output_option
def verify(limit: int, output: str) -> int:
    """Check the invariants on the live database. Exits 1 and names the jobs that violate one."""
    offences = asyncio.run(_verify(limit))
    records = [{"invariant": rule, "job_id": job_id, "detail": detail} for rule, job_id, detail in offences]
    print_records(records, {"invariant": "INVARIANT", "job_id": "JOB", "detail": "DETAIL"}, output)
    if not records and output == "table":
        echo("all invariants hold")
    return Exit.FAILED if records else Exit.OK


async def _verify(limit: int) -> list[tuple[str, object, str | None]]:
    async with Holdfast() as hf:
        database = Database(hf.config, role="operator", size=1)
        await database.open()
        try:
            return list(await JobStore(database).verify(limit))
        finally:
            await database.close()
