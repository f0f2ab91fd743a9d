"""`holdfast dead`: list, show, acknowledge and requeue dead jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.cli.asking import asked, confirm, decide_each, requeue_options, yes_option
from holdfast.cli.enqueue import object_of
from holdfast.cli.following import how_many, matching, no_wait_option, run_confirmed
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, indented, output_option, print_record, print_records, shortened
from holdfast.client.letters import DeadLetters
from holdfast.client.operations import Operations
from holdfast.model.bulk import BulkPreview
from holdfast.model.letter import DeadLetter
from holdfast.model.query import parse_query

__all__ = ["dead"]

_COLUMNS = {
    "job_id": "JOB", "type": "TYPE", "queue": "QUEUE", "attempts": "ATTEMPTS", "died": "DIED", "error": "ERROR",
    "acknowledged": "ACKNOWLEDGED", "requeued_as": "REQUEUED AS",
}  # fmt: skip
_PAGE = 500

Command = Callable[..., Any]
Decide = Callable[[DeadLetters, UUID], Awaitable[str]]


@click.group()
def dead() -> None:
    """List, acknowledge and requeue dead jobs."""


def _chosen(command: Command) -> Command:
    """Give a command the ways to choose letters."""
    command = click.option("--fingerprint", metavar="F", help="Only failures with this fingerprint.")(command)
    words = "Only dead jobs that match this query (the filter language)."
    return click.option("--filter", "query", metavar="WORDS", help=words)(command)


@dead.command("list")
@_chosen
@click.option(
    "--acknowledged",
    type=click.Choice(["false", "true", "all"]),
    help="Which letters; only unacknowledged ones by default, unless the query has `acknowledged`.",
)
@click.option("--tenant", help="Only this tenant.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@output_option
def list_(query: str | None, acknowledged: str | None, *, limit: int, output: str, **chosen: str | None) -> None:
    """List dead letters, newest first."""
    which = {"false": False, "true": True, "all": "all", None: None}[acknowledged]
    found = asked(lambda ops: _all(ops, query or "", limit=limit + 1, acknowledged=which, **chosen))
    more, found = len(found) > limit, found[:limit]
    if output != "table":
        print_records([as_dict(letter) for letter in found], {}, output)
        return
    print_records([_row(letter) for letter in found], _COLUMNS, output)
    if more:
        echo("there are more: raise --limit, or use --filter", err=True)
    elif not found:
        echo("no dead letters" if acknowledged else "no dead letters that wait for somebody", err=True)


@dead.command()
@click.argument("job_id", metavar="ID", type=click.UUID)
@output_option
def show(job_id: UUID, output: str) -> None:
    """Show a dead letter, with the job and the end of its last attempt."""
    found = asked(lambda ops: ops.dead.show(job_id))
    record = as_dict(found.letter) | {
        "original_job": as_dict(found.original_job),
        "error_details": None if found.error_details is None else as_dict(found.error_details),
    }
    if output != "table":
        print_record(record, output)
        return
    job, details = record.pop("original_job"), record.pop("error_details") or {}
    traceback, log = details.pop("traceback", None), details.pop("log_excerpt", None)
    print_record(record, "table")
    for heading, part in (("original job", job), ("last attempt", details)):
        echo(f"\n{heading}")
        print_record(part, "table")
    for heading, text in (("traceback", traceback), ("log", log)):
        if text:
            echo(f"\n{heading}\n{indented(text)}")


def _decision(command: Command) -> Command:
    """Give a command letters to decide on, by id or by filter."""
    command = yes_option(command)
    command = no_wait_option(command)
    command = click.option("--note", help="Why; stored with the letter and in the audit log.")(command)
    return click.argument("job_ids", metavar="[ID]...", type=click.UUID, nargs=-1)(_chosen(command))


@dead.command()
@_decision
def ack(job_ids: Sequence[UUID], note: str | None, **chosen: Any) -> int:
    """Acknowledge dead letters: you know of them, and retention starts now.

    Those that match --filter or --fingerprint are acknowledged by a bulk operation (see `holdfast bulk`).
    """

    async def decide(letters: DeadLetters, job_id: UUID) -> str:
        letter, changed = await letters.ack(job_id, by=operator(), note=note)
        if changed:
            return "acknowledged"
        return f"was acknowledged {age(letter.acknowledged_at)} ago by {letter.acknowledged_by or 'somebody'}"

    return _decide("ack", decide, job_ids, note, **chosen)


@dead.command()
@_decision
@click.option("--payload", metavar="JSON", help="Another payload for the new job; for one ID.")
@requeue_options
def requeue(
    job_ids: Sequence[UUID],
    query: str | None,
    fingerprint: str | None,
    note: str | None,
    payload: str | None,
    *,
    yes: bool,
    no_wait: bool,
    **options: Any,
) -> int:
    """Run dead jobs again as new jobs, once each, and acknowledge their letters.

    Those that match --filter or --fingerprint are requeued by a bulk operation (see `holdfast bulk`).
    """
    if payload is not None and len(job_ids) != 1:
        raise click.UsageError("--payload needs exactly one ID")
    changed = None if payload is None else object_of(payload, "the payload")
    given = {name: value for name, value in options.items() if value is not None} or None

    async def decide(letters: DeadLetters, job_id: UUID) -> str:
        asked_for = await letters.requeued(job_id, by=operator(), note=note, payload=changed, options=given)
        if asked_for.is_new:
            return f"runs again as {asked_for.runs_as}"
        unused = " and the ".join(name for name, one in (("payload", changed), ("options", given)) if one is not None)
        told = f"already requeued as {asked_for.runs_as}"
        return f"{told}; the {unused} given now {'was' if unused == 'payload' else 'were'} not used" if unused else told

    return _decide(
        "requeue", decide, job_ids, note, given, query=query, fingerprint=fingerprint, yes=yes, no_wait=no_wait
    )


def _decide(
    action: str,
    decide: Decide,
    job_ids: Sequence[UUID],
    note: str | None,
    options: Mapping[str, Any] | None = None,
    *,
    query: str | None,
    fingerprint: str | None,
    yes: bool,
    no_wait: bool,
) -> int:
    """Decide on the letters that are named, or start a bulk operation on those that match."""
    by_filter = query is not None or fingerprint is not None
    if by_filter == bool(job_ids):
        raise click.UsageError("name dead jobs, or choose them with --filter or --fingerprint")
    if no_wait and not by_filter:
        raise click.UsageError("--no-wait needs --filter or --fingerprint")
    words, args = _words(query or "", fingerprint), {"options": options} if options else {}
    agree = None if yes else partial(_confirm, action)
    if by_filter:
        none, wait = "no dead letters match", not no_wait
        return asked(
            lambda ops: run_confirmed(ops.bulk, action, words, args, none=none, agree=agree, note=note, wait=wait)
        )
    if len(job_ids) > 1 and agree is not None:
        agree(BulkPreview(len(job_ids), True, []))
    return asked(lambda ops: decide_each(partial(decide, ops.dead), job_ids))


def _words(query: str, fingerprint: str | None) -> str:
    """A query that asks for a fingerprint, too."""
    if fingerprint is None:
        return query
    parse_query(query)  # by itself: its brackets must not meet ours
    escaped = fingerprint.replace("\\", r"\\").replace('"', r"\"")
    return f'({query}) fingerprint:"{escaped}"' if query.strip() else f'fingerprint:"{escaped}"'


def _confirm(action: str, found: BulkPreview) -> None:
    verb = "acknowledge" if action == "ack" else action
    question = f"{verb.capitalize()} {how_many(found, 'dead job')}?"
    confirm(matching(found, "dead job"), question, f"add --yes to {verb} them")


async def _all(ops: Operations, query: str, *, limit: int, **chosen: Any) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    async with contextlib.aclosing(_matching(ops.dead, query, **chosen)) as letters:
        async for letter in letters:
            found.append(letter)
            if len(found) == limit:
                break
    return found


async def _matching(letters: DeadLetters, query: str, **chosen: Any) -> AsyncGenerator[DeadLetter]:
    """Letters that match, newest first, page by page."""
    before = None
    while True:
        page = await letters.list(query, before=before, limit=_PAGE, **chosen)
        for letter in page.letters:
            yield letter
        before = page.reached
        if before is None:
            return


def _row(letter: DeadLetter) -> dict[str, Any]:
    error = ": ".join(filter(None, (letter.error_type, shortened(letter.error_message))))
    acknowledged = f"{age(letter.acknowledged_at)} ago by {letter.acknowledged_by or 'somebody'}"
    if letter.note:
        acknowledged += f": {letter.note}"
    return as_dict(letter) | {
        "died": f"{age(letter.died_at)} ago",
        "error": shortened(error),
        "acknowledged": acknowledged if letter.acknowledged else "",
    }
