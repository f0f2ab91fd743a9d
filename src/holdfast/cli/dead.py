"""`holdfast dead`: list, show, acknowledge and requeue dead jobs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.durations import Duration
from holdfast.cli.enqueue import object_of
from holdfast.cli.failures import Exit, report
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, output_option, print_record, print_records
from holdfast.client.letters import DeadLetters
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.letter import DeadLetter, DeadLetterDetails

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
    help="Which letters; by default those that nobody has acknowledged, unless the query asks.",
)
@click.option("--tenant", help="Only this tenant.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@output_option
def list_(query: str | None, acknowledged: str | None, *, limit: int, output: str, **chosen: str | None) -> None:
    """List dead letters, newest first."""
    which = {"false": False, "true": True, "all": "all", None: None}[acknowledged]
    found = asyncio.run(_all(query or "", limit=limit + 1, acknowledged=which, **chosen))
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
    found = asyncio.run(_show(job_id))
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
            # Indented, so that no line of it looks like one of ours.
            lines = "\n".join(f"  {line}" for line in text.rstrip().splitlines())
            echo(f"\n{heading}\n{lines}")


def _decision(command: Command) -> Command:
    """Give a command letters to decide on, by id or by filter."""
    command = click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)
    command = click.option("--note", help="Why; stored with the letter and in the audit log.")(command)
    return click.argument("job_ids", metavar="[ID]...", type=click.UUID, nargs=-1)(_chosen(command))


@dead.command()
@_decision
def ack(job_ids: Sequence[UUID], query: str | None, fingerprint: str | None, note: str | None, *, yes: bool) -> int:
    """Acknowledge dead letters: somebody knows of them, and retention applies from now on."""

    async def decide(letters: DeadLetters, job_id: UUID) -> str:
        letter, changed = await letters.ack(job_id, by=operator(), note=note)
        if changed:
            return "acknowledged"
        return f"was acknowledged {age(letter.acknowledged_at)} ago by {letter.acknowledged_by or 'somebody'}"

    return asyncio.run(_decide_all("acknowledge", decide, job_ids, query, fingerprint, yes=yes))


@dead.command()
@_decision
@click.option("--payload", metavar="JSON", help="Another payload for the new job; for one ID.")
@click.option("--priority", type=Whole(0), help="Another priority for the new jobs.")
@click.option("--queue", help="Another queue for the new jobs.")
@click.option("--delay", type=Duration(), metavar="15m", help="Run them after this time.")
def requeue(
    job_ids: Sequence[UUID],
    query: str | None,
    fingerprint: str | None,
    note: str | None,
    payload: str | None,
    *,
    yes: bool,
    **options: Any,
) -> int:
    """Run dead jobs again as new jobs, once each, and acknowledge their letters."""
    if payload is not None and len(job_ids) != 1:
        raise click.UsageError("--payload needs exactly one ID")
    changed = None if payload is None else object_of(payload, "the payload")
    given = {name: value for name, value in options.items() if value is not None} or None

    async def decide(letters: DeadLetters, job_id: UUID) -> str:
        created = await letters.requeue(job_id, by=operator(), note=note, payload=changed, options=given)
        return f"runs again as {created}"

    return asyncio.run(_decide_all("requeue", decide, job_ids, query, fingerprint, yes=yes))


async def _decide_all(
    verb: str, decide: Decide, job_ids: Sequence[UUID], query: str | None, fingerprint: str | None, *, yes: bool
) -> int:
    """Decide on all, whatever becomes of the others; the first failure is the exit code."""
    by_filter = query is not None or fingerprint is not None
    if by_filter == bool(job_ids):
        raise click.UsageError("name dead jobs, or choose them with --filter or --fingerprint")
    code = Exit.OK
    async with Holdfast() as hf:
        letters = (await hf.operations()).dead
        if by_filter:
            found = [letter async for letter in _matching(letters, query or "", fingerprint=fingerprint)]
            job_ids = [letter.job_id for letter in found]
            if not job_ids:
                echo("no dead letters match", err=True)
        if len(job_ids) > 1 and not yes:
            _confirm(verb, len(job_ids))
        for job_id in job_ids:
            try:
                told = await decide(letters, job_id)
            except DatabaseUnavailable:
                raise
            except HoldfastError as error:
                code = max(code, report(error))
            else:
                echo(f"{job_id}  {told}")
    return code


def _confirm(verb: str, count: int) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{count} dead jobs match: add --yes to {verb} them")
    click.confirm(f"{verb.capitalize()} {count} dead jobs?", abort=True)


async def _all(query: str, *, limit: int, **chosen: Any) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    async with (
        Holdfast() as hf,
        contextlib.aclosing(_matching((await hf.operations()).dead, query, **chosen)) as letters,
    ):
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


async def _show(job_id: UUID) -> DeadLetterDetails:
    async with Holdfast() as hf:
        return await (await hf.operations()).dead.show(job_id)


def _row(letter: DeadLetter) -> dict[str, Any]:
    error = ": ".join(filter(None, (letter.error_type, (letter.error_message or "").partition("\n")[0])))
    acknowledged = f"{age(letter.acknowledged_at)} ago by {letter.acknowledged_by or 'somebody'}"
    if letter.note:
        acknowledged += f": {letter.note}"
    return as_dict(letter) | {
        "died": f"{age(letter.died_at)} ago",
        "error": error if len(error) <= 60 else f"{error[:59]}…",
        "acknowledged": acknowledged if letter.acknowledged else "",
    }
