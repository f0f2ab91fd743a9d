"""`holdfast targets`: targets with open jobs, and what blocks them."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.asking import asked
from holdfast.cli.numbers import Whole
from holdfast.cli.output import age, as_dict, echo, output_option, print_record, print_records, shortened
from holdfast.client.operations import Operations
from holdfast.model.subject import Target

__all__ = ["targets"]

_COLUMNS = {
    "tenant": "TENANT", "target": "TARGET", "state": "HEAD", "job_id": "JOB", "since": "SINCE", "waiting": "WAITING",
    "by": "BY", "why": "WHY",
}  # fmt: skip


@click.group()
def targets() -> None:
    """Show targets with open jobs, and what blocks them."""


@targets.command("list")
@click.option("--blocked", is_flag=True, help="Only targets whose head is paused or in error.")
@click.option("--tenant", help="Only this tenant's.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="TARGET", help="Start after this target, for the next page; needs --tenant.")
@output_option
def list_(tenant: str | None, limit: int, after: str | None, output: str, *, blocked: bool) -> None:
    """List targets with the job at their head."""
    if after is not None and tenant is None:
        raise click.UsageError("--after needs --tenant")

    async def find(ops: Operations) -> tuple[list[Target], bool]:
        found: list[Target] = []
        place = None if after is None or tenant is None else (tenant, after)
        while True:
            page = await ops.targets(tenant=tenant, blocked=blocked, after=place, limit=limit - len(found))
            found += page.targets
            place = page.reached
            if place is None or len(found) >= limit:
                return found, place is not None

    found, more = asked(find)
    if output != "table":
        print_records([_record(target) for target in found], {}, output)
        return
    print_records([_row(target) for target in found], _COLUMNS, output)
    if not found:
        echo("no blocked targets" if blocked else "no targets with open jobs", err=True)
    elif more:
        echo(f"more: --tenant {found[-1].tenant} --after {found[-1].target}", err=True)


@targets.command()
@click.argument("target")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the target.")
@output_option
def show(target: str, tenant: str, output: str) -> None:
    """Show a target, the job at its head, and the first jobs behind it."""
    found = asked(lambda ops: ops.target(target, tenant=tenant))
    print_record(as_dict(found), output)


def _record(target: Target) -> dict[str, Any]:
    """The line is shown for one target only."""
    record = as_dict(target)
    del record["line"]
    return record


def _row(target: Target) -> dict[str, Any]:
    said = target.last_error if target.state in ("error", "retry") else target.note
    return as_dict(target) | {
        "since": age(target.since),
        "waiting": f"{target.waiting}{'+' if target.waiting_more else ''}",
        "why": shortened(said),
    }
