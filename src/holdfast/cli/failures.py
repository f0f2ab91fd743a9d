"""`holdfast failures`: what fails, grouped by cause."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.asking import asked
from holdfast.cli.numbers import Whole
from holdfast.cli.output import age, as_dict, echo, output_option, print_records, shortened
from holdfast.client.operations import Operations
from holdfast.model.failure import FailureGroup

__all__ = ["failures"]

_COLUMNS = {
    "fingerprint": "FINGERPRINT", "type": "TYPE", "error_type": "ERROR", "message": "MESSAGE", "count": "COUNT",
    "open": "OPEN", "first": "FIRST", "last": "LAST", "sample_job_id": "SAMPLE",
}  # fmt: skip
_PAGE = 500


@click.command()
@click.option("--type", "job_type", metavar="TYPE", help="Only failures of this job type.")
@click.option("--tenant", help="Only this tenant's.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@output_option
def failures(job_type: str | None, tenant: str | None, limit: int, output: str) -> None:
    """Show failures grouped by cause, most recent first."""

    async def find(ops: Operations) -> tuple[list[FailureGroup], bool]:
        found: list[FailureGroup] = []
        place = None
        while True:
            page = await ops.failures(tenant=tenant, type=job_type, before=place, limit=min(_PAGE, limit - len(found)))
            found += page.groups
            place = page.reached
            if place is None or len(found) >= limit:
                return found, place is not None

    found, more = asked(find)
    if output != "table":
        print_records([as_dict(group) for group in found], {}, output)
        return
    print_records([_row(group) for group in found], _COLUMNS, output)
    if not found:
        echo("no failures", err=True)
    elif more:
        echo("there are more: raise --limit", err=True)


def _row(group: FailureGroup) -> dict[str, Any]:
    return as_dict(group) | {
        "message": shortened(group.message),
        "open": f"{group.open_count}{'+' if group.open_more else ''}",
        "first": age(group.first_seen),
        "last": age(group.last_seen),
    }
