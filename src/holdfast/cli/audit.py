"""`holdfast audit`: what operators and keys did."""

from __future__ import annotations

import click

from holdfast.cli.asking import asked
from holdfast.cli.numbers import Whole
from holdfast.cli.output import as_dict, output_option, print_records

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
    found = asked(lambda ops: ops.keys.audit(tenant, before=before, limit=limit))
    print_records([as_dict(entry) for entry in found], _COLUMNS, output)
