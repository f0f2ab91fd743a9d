"""`holdfast workers`: which workers there are, what they run, and stopping one from claiming."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.asking import asked
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, echo, output_option, print_record, print_records
from holdfast.client.operations import Operations
from holdfast.model.subject import Draining
from holdfast.model.worker import ListedWorker

__all__ = ["workers"]

_COLUMNS = {
    "worker": "WORKER", "state": "STATE", "lanes": "LANES", "running": "RUNNING", "heartbeat": "HEARTBEAT",
    "started": "STARTED", "version": "VERSION", "kind": "KIND",
}  # fmt: skip


@click.group()
def workers() -> None:
    """Show workers and what they run, and stop one from claiming jobs."""


@workers.command("list")
@click.option("--tenant", help="Only those that serve this tenant, with its jobs.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="WORKER", help="Start after this worker, for the next page.")
@output_option
def list_(tenant: str | None, limit: int, after: str | None, output: str) -> None:
    """List workers with their slots in use and the time since their last heartbeat.

    A lost worker has sent no heartbeat for 15 seconds (a remote worker: 90). It is removed from the list after a day.
    """

    async def look(ops: Operations) -> tuple[list[ListedWorker], Draining]:
        return await ops.workers.list(tenant=tenant, after=after, limit=limit), await ops.draining()

    found, stop = asked(look)
    print_records([_row(worker) if output == "table" else asdict(worker) for worker in found], _COLUMNS, output)
    if not found:
        echo("no workers", err=True)
    elif len(found) == limit:
        echo(f"more: --after {found[-1].worker}", err=True)
    if stop.paused_at is not None:
        why = f": {stop.paused_note}" if stop.paused_note else ""
        told = f"none of them claims jobs: drained {age(stop.paused_at)} ago by {stop.paused_by}{why}"
        echo(f"{told}; `holdfast drain --resume` resumes work", err=True)


@workers.command()
@click.argument("worker")
@output_option
def show(worker: str, output: str) -> None:
    """Show a worker with the jobs that it runs."""
    print_record(asdict(asked(lambda ops: ops.workers.get(worker))), output)


@workers.command()
@click.argument("worker")
@click.option("--note", help="Why; stored in the audit log.")
def quiet(worker: str, note: str | None) -> None:
    """Tell a worker to stop claiming jobs. Its running jobs continue, and the process stays until it is stopped.

    The worker learns of this with its next heartbeat. This cannot be undone: start another worker instead.
    """
    found = asked(lambda ops: ops.workers.quiet(worker, by=operator(), note=note))
    echo(f"{found.worker} claims no more; it runs {found.running} job{'' if found.running == 1 else 's'}")


def _row(worker: ListedWorker) -> dict[str, Any]:
    lanes = (
        f"{lane} {use.slots}" if use.used is None else f"{lane} {use.used}/{use.slots}"
        for lane, use in worker.lanes.items()
    )
    return asdict(worker) | {
        "lanes": ", ".join(lanes),
        "state": "quiet" if worker.quiet is not None and worker.state == "draining" else worker.state,
        "heartbeat": age(worker.heartbeat_at),
        "started": age(worker.started_at),
    }
