"""`holdfast workers`: which workers there are, what they run, and telling one to claim no more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.asking import asked
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, echo, output_option, print_record, print_records
from holdfast.model.worker import ListedWorker

__all__ = ["workers"]

_COLUMNS = {
    "worker": "WORKER", "state": "STATE", "lanes": "LANES", "running": "RUNNING", "heartbeat": "HEARTBEAT",
    "started": "STARTED", "version": "VERSION", "kind": "KIND",
}  # fmt: skip


@click.group()
def workers() -> None:
    """Show workers and what they run, and tell one to claim no more."""


@workers.command("list")
@click.option("--tenant", help="Only those that serve this tenant, with its jobs.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="WORKER", help="Start after this worker, for the next page.")
@output_option
def list_(tenant: str | None, limit: int, after: str | None, output: str) -> None:
    """List workers with their slots in use, and how long ago each was heard of.

    A lost worker was not heard of for 15 seconds, or 90 if it is a remote one. It is forgotten after a day.
    """
    found = asked(lambda ops: ops.workers.list(tenant=tenant, after=after, limit=limit))
    print_records([_row(worker) if output == "table" else asdict(worker) for worker in found], _COLUMNS, output)
    if not found:
        echo("no workers", err=True)
    elif len(found) == limit:
        echo(f"more: --after {found[-1].worker}", err=True)


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
    """Tell a worker to claim no more. What it runs goes on, and it stays until it is stopped.

    It hears of this with its next heartbeat, and there is no way back: start another worker instead.
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
