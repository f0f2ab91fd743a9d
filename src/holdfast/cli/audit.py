"""`holdfast audit`: what operators and keys did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from holdfast.app import Holdfast
from holdfast.cli.numbers import Whole
from holdfast.cli.output import as_dict, output_option, print_records
from holdfast.model.key import AuditEntry

__all__ = ["audit"]

_COLUMNS = {
    "at": "AT", "actor": "WHO", "tenant": "TENANT", "action": "WHAT", "subject": "WHOM", "detail": "DETAIL",
    "address": "FROM",
}  # fmt: skip


@click.command()
@click.option("--tenant", help="Only this tenant's.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", type=int, metavar="ID", help="Start before this entry, for the next page.")
@output_option
def audit(tenant: str | None, limit: int, before: int | None, output: str) -> None:
    """Show what operators and keys did, newest first."""

    async def find() -> Sequence[AuditEntry]:
        async with Holdfast() as hf:
            return await (await hf.operations()).keys.audit(tenant, before=before, limit=limit)

    print_records([as_dict(entry) for entry in asyncio.run(find())], _COLUMNS, output)
