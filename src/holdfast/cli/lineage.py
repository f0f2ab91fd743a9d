"""`holdfast correlation`, `holdfast jobs tree`: which jobs belong together."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import click

from holdfast.cli.asking import asked
from holdfast.cli.exits import Exit
from holdfast.cli.numbers import Whole
from holdfast.cli.output import age, as_dict, echo, output_option, print_records
from holdfast.client.operations import Operations
from holdfast.model.job import ListedJob

__all__ = ["correlation", "tree"]

_COLUMNS = {
    "id": "ID",
    "type": "TYPE",
    "state": "STATE",
    "parent_id": "PARENT",
    "age": "AGE",
    "last_error": "LAST ERROR",
}
_PAGE = 500


@click.command()
@click.argument("correlation_id", metavar="CORRELATION_ID")
@click.option("--tenant", help="Only this tenant's jobs.")
@click.option("--limit", type=Whole(1, 10_000), default=_PAGE, show_default=True, help="How many at most.")
@output_option
def correlation(correlation_id: str, tenant: str | None, limit: int, output: str) -> int:
    """Show all jobs of a correlation id, oldest first."""
    found = asked(lambda ops: _correlated(ops, correlation_id, tenant, limit))
    print_records(_rows(found, output), _COLUMNS, output)
    if not found and output == "table":
        echo(f"no job has the correlation id {correlation_id}", err=True)
    return Exit.OK if found else Exit.NOT_FOUND


@click.command()
@click.argument("job_id", metavar="ID", type=click.UUID)
@click.option("--limit", type=Whole(1, _PAGE), default=_PAGE, show_default=True, help="How many jobs at most.")
@output_option
def tree(job_id: UUID, limit: int, output: str) -> None:
    """Show a job with its ancestors and descendants."""
    family = asked(lambda ops: ops.tree(job_id, limit=limit))
    if output != "table":
        print_records([{**as_dict(job), "depth": depth} for job, depth in family.members], {}, output)
        return
    oldest = min(depth for _, depth in family.members)
    for job, depth in family.members:
        mark = " <" if job.id == job_id else ""
        echo(f"{'  ' * (depth - oldest)}{job.id}  {job.type}  {job.state.value}{mark}")
    if not family.complete:
        echo(f"and more: these are the first {len(family.members)}", err=True)


async def _correlated(ops: Operations, correlation_id: str, tenant: str | None, limit: int) -> Sequence[ListedJob]:
    found: list[ListedJob] = []
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        after = found[-1].id if found else None
        page = await ops.correlated(correlation_id, tenant=tenant, after=after, limit=size)
        found.extend(page)
        if len(page) < size:
            break
    return found


def _rows(found: Sequence[ListedJob], output: str) -> list[dict[str, object]]:
    return [{**as_dict(job), "age": age(job.created_at)} if output == "table" else as_dict(job) for job in found]
