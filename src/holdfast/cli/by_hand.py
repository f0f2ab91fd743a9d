"""`holdfast jobs fail|kill|expire-lease|reprioritize`: what operators decide about jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from holdfast.bounds import BOUNDS
from holdfast.cli.asking import ask_for_each, confirm, counted, reason_option, yes_option
from holdfast.cli.numbers import Whole
from holdfast.client.operations import Operations

__all__ = ["BY_HAND"]

_ids = click.argument("job_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)


@click.command()
@_ids
@click.option("--message", "--reason", help="The error of the attempt; stored in the job's history, too.")
@click.option(
    "--retry/--no-retry", "will_retry", default=True, show_default=True, help="Retry, or end the job as dead."
)
@yes_option
def fail(job_ids: Sequence[UUID], message: str | None, will_retry: bool, yes: bool) -> int:
    """Fail running jobs, as if their handlers had raised an error.

    With --no-retry they become dead. This also works for jobs that wait for their retry or are held in error.
    """
    if not will_retry and not yes:
        _confirm("fail --no-retry", job_ids)

    async def ask(ops: Operations, job_id: UUID, **who: Any) -> None:
        await ops.fail(job_id, message, will_retry=will_retry, **who)

    return ask_for_each(ask, "fail", job_ids)


@click.command()
@_ids
@click.option("--reason", "--message", help="Reason; the error of the attempt and of the dead letter.")
@yes_option
def kill(job_ids: Sequence[UUID], reason: str | None, yes: bool) -> int:
    """End jobs as dead: running jobs, and jobs that wait for their retry or are held in error."""
    if not yes:
        _confirm("kill", job_ids)

    async def ask(ops: Operations, job_id: UUID, **who: Any) -> None:
        await ops.kill(job_id, reason=reason, **who)

    return ask_for_each(ask, "kill", job_ids)


@click.command("expire-lease")
@_ids
@reason_option
def expire_lease(job_ids: Sequence[UUID], reason: str | None) -> int:
    """Take running jobs from workers that are gone, without waiting for their leases to lapse."""

    async def ask(ops: Operations, job_id: UUID, **who: Any) -> None:
        await ops.expire_lease(job_id, reason=reason, **who)

    return ask_for_each(ask, "expire-lease", job_ids)


@click.command()
@_ids
@click.option("--priority", type=Whole(0, int(BOUNDS["priority"].high)), required=True, help="Lower goes first.")
@reason_option
def reprioritize(job_ids: Sequence[UUID], priority: int, reason: str | None) -> int:
    """Give jobs that have not ended another priority."""

    async def ask(ops: Operations, job_id: UUID, **who: Any) -> None:
        await ops.reprioritize(job_id, priority, reason=reason, **who)

    return ask_for_each(ask, "reprioritize", job_ids)


#: The commands, for the group `jobs`.
BY_HAND = (fail, kill, expire_lease, reprioritize)


def _confirm(name: str, job_ids: Sequence[UUID]) -> None:
    confirm(
        f"{name} cannot be undone", f"{name.capitalize()}: end {counted(len(job_ids))} as dead? This cannot be undone."
    )
