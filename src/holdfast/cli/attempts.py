"""`holdfast jobs attempts|logs`: the ended attempts of a job, and what its handler logged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.numbers import Whole
from holdfast.cli.output import as_dict, echo, indented, output_option, print_records

__all__ = ["ATTEMPTS", "COLUMNS", "print_last"]

COLUMNS = {
    "attempt": "#", "outcome": "OUTCOME", "started_at": "STARTED", "queue_ms": "QUEUED MS",
    "duration_ms": "MS", "worker": "WORKER", "error_type": "ERROR", "error_message": "MESSAGE",
}  # fmt: skip


@click.command()
@click.argument("job_id", metavar="ID", type=click.UUID)
@output_option
def attempts(job_id: UUID, output: str) -> None:
    """Show the ended attempts of a job."""
    found = asyncio.run(_attempts(job_id))
    print_records(found, COLUMNS if output == "table" else {}, output)
    if not found and output == "table":
        echo("no attempt of this job has ended", err=True)


@click.command()
@click.argument("job_id", metavar="ID", type=click.UUID)
@click.option("--attempt", type=Whole(1, 2**31 - 1), help="Only this attempt.")
@output_option
def logs(job_id: UUID, attempt: int | None, output: str) -> None:
    """Show what the handler of a job logged, and the traceback of each failure, attempt by attempt."""
    found = [one for one in asyncio.run(_attempts(job_id)) if attempt in (None, one["attempt"])]
    if output != "table":
        names = ("attempt", "outcome", "finished_at", "log_excerpt", "traceback")
        print_records([{name: one[name] for name in names} for one in found], {}, output)
        return
    for one in found:
        error = ": ".join(one[name] for name in ("error_type", "error_message") if one[name])
        echo(f"attempt {one['attempt']}, {one['outcome']}{f' ({error})' if error else ''}")
        for text in (one["log_excerpt"], one["traceback"]):
            if text:
                echo(indented(text))
    if not any(one["log_excerpt"] for one in found):
        echo("nothing was logged", err=True)


#: The commands, for the group `jobs`.
ATTEMPTS = (attempts, logs)


def print_last(found: Sequence[dict[str, Any]], field: str, heading: str) -> None:
    """Print a text of the last attempt that has it: one that succeeded has no traceback, but an earlier one may."""
    last = next((attempt for attempt in reversed(found) if attempt[field]), None)
    if last is not None:
        echo(f"\n{heading} of attempt {last['attempt']}\n{indented(last[field])}")


async def _attempts(job_id: UUID) -> list[dict[str, Any]]:
    async with Holdfast() as hf:
        await hf.get(job_id)  # NotFound if there is none
        return [as_dict(attempt) for attempt in await hf.attempts(job_id)]
