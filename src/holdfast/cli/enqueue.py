"""`holdfast enqueue`: record one job, or one per line of standard input."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.durations import Duration
from holdfast.cli.exits import Exit
from holdfast.cli.names import tell_if_unknown
from holdfast.cli.numbers import Whole
from holdfast.cli.output import echo, echo_json
from holdfast.errors import InvalidInput, InvalidPayload
from holdfast.model.states import State

__all__ = ["enqueue", "object_of"]

_BATCH, _CHARACTERS = 1000, 4 * 2**20


@click.command()
@click.argument("job_type", metavar="TYPE")
@click.argument("payload", metavar="[JSON|-]", default="{}")
@click.option("--idempotency-key", metavar="K", help="One job per key; a repeat returns the same job.")
@click.option("--priority", type=Whole(0), help="Lower goes first; 100 if not given.")
@click.option("--delay", type=Duration(), metavar="15m", help="Run it after this time: 90s, 15m, 2h, 1d or seconds.")
@click.option("--run-at", metavar="TIME", help="Run it at this time: ISO 8601; local time unless it has a time zone.")
@click.option("--target", help="Jobs of one target run one at a time, in order.")
@click.option("--queue", help="Queue; that of the job type if not given.")
@click.option("--tenant", help="Tenant of the job; default if not given.")
@click.option("--dedup-key", metavar="K", help="At most one open job of this type per key.")
@click.option("--correlation-id", metavar="ID", help="Correlation id that related jobs share.")
@click.option("--max-attempts", type=Whole(1), help="How many failures and lost leases it may have.")
@click.option("--parent", type=click.UUID, metavar="ID", help="Id of the parent job.")
@click.option("--target-count", type=Whole(1), help="How many items it should collect.")
@click.option("--created-by", metavar="NAME", help="Who submits it.")
@click.option("--traceparent", metavar="TRACE", help="The trace that it belongs to (W3C Trace Context).")
@click.option("--hold", is_flag=True, help="Hold it until `holdfast jobs release`.")
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print the result; exit 1 unless it succeeded.")
@click.option("--timeout", type=Duration(), metavar="15m", help="How long to wait at most.")
def enqueue(
    job_type: str,
    payload: str,
    run_at: str | None,
    *,
    hold: bool,
    wait: bool,
    timeout: timedelta | None,
    **options: Any,
) -> int:
    """Record a job and print its id.

    The payload is a JSON object. With "-", each line of standard input is the payload of one job.
    """
    options["hold"] = True if hold else None
    options["run_at"] = None if run_at is None else _moment(run_at)
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if payload == "-":
        if wait or options["idempotency_key"] or options["dedup_key"]:
            raise click.UsageError("--wait, --idempotency-key and --dedup-key are for a single job")
        return asyncio.run(_enqueue_lines(job_type, options))
    patience = None if timeout is None else timeout.total_seconds()
    return asyncio.run(_enqueue_one(job_type, object_of(payload, "the payload"), options, wait=wait, timeout=patience))


async def _enqueue_one(
    job_type: str, payload: dict[str, Any], options: dict[str, Any], *, wait: bool, timeout: float | None
) -> int:
    async with Holdfast() as hf:
        ref = await hf.client.for_strangers().enqueue(job_type, payload, **options)
        echo(str(ref.id))
        await tell_if_unknown(hf, "type", job_type)
        return await _print_result(hf, ref.id, timeout) if wait else Exit.OK


async def _print_result(hf: Holdfast, job_id: UUID, timeout: float | None) -> int:
    job = await hf.wait(job_id, timeout)
    if job.state is State.SUCCESS:
        echo_json(job.result)
        return Exit.OK
    echo(f"error: the job is {job.state.value}{f': {job.last_error}' if job.last_error else ''}", err=True)
    return Exit.FAILED


async def _enqueue_lines(job_type: str, options: dict[str, Any]) -> int:
    recorded = 0
    async with Holdfast() as hf:
        client = hf.client.for_strangers()
        for lines in _batches(sys.stdin):
            try:
                refs = await client.enqueue_many([(job_type, payload, options) for _, payload in lines])
            except InvalidPayload as fault:
                raise InvalidInput(f"line {lines[fault.position][0]}: {fault}") from None
            for ref in refs:
                echo(str(ref.id))
            if not recorded:
                await tell_if_unknown(hf, "type", job_type)
            recorded += len(lines)
            if sys.stderr.isatty() and recorded % _BATCH == 0:
                click.echo(f"\r{recorded} jobs …", err=True, nl=False)
    click.echo(("\r" if sys.stderr.isatty() else "") + f"{recorded} jobs recorded", err=True)
    return Exit.OK


def _batches(lines: Iterable[str]) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """The payloads that are recorded at once, with their lines: parsed payloads take much more memory."""
    batch: list[tuple[int, dict[str, Any]]] = []
    weight = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            batch.append((number, object_of(line, f"line {number}")))
            weight += len(line)
        if len(batch) >= _BATCH or weight > _CHARACTERS:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def object_of(text: str, what: str) -> dict[str, Any]:
    """The JSON object that somebody wrote."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise InvalidInput(f"{what} is not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f'{what} must be a JSON object, such as {{"to": "ada"}}, not {text[:40]}')
    return value


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.UsageError(f"--run-at must look like 2030-01-31T08:00, not {text!r}") from None
