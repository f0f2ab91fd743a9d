"""`holdfast jobs`: show jobs, and make requests about them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.asking import Ask, ask_for_each, asked, confirm, counted, reason_option, yes_option
from holdfast.cli.attempts import ATTEMPTS, COLUMNS, print_last
from holdfast.cli.by_hand import BY_HAND
from holdfast.cli.exits import Exit
from holdfast.cli.following import how_many, matching, no_wait_option, run_confirmed
from holdfast.cli.items import items
from holdfast.cli.lineage import tree
from holdfast.cli.numbers import Whole
from holdfast.cli.output import age, as_dict, echo, output_option, print_record, print_records, shortened
from holdfast.client.operations import Operations
from holdfast.client.steering import Verb
from holdfast.config import Config
from holdfast.errors import NotFound
from holdfast.model.bulk import BulkPreview
from holdfast.model.job import ListedJob
from holdfast.model.states import State

__all__ = ["jobs"]

_COLUMNS = {
    "id": "ID", "type": "TYPE", "state": "STATE", "queue": "QUEUE", "target": "TARGET", "tries": "FAILURES",
    "age": "AGE", "last_error": "LAST ERROR",
}  # fmt: skip

_PAGE = 500

#: After these, clients can be told why.
_TOLD = ("cancel", "pause", "resolve")


@click.group()
def jobs() -> None:
    """Show jobs, and cancel, pause, resume, retry or release them; fail or kill them, or change their priority."""


for _command in (*BY_HAND, *ATTEMPTS, items, tree):
    jobs.add_command(_command)


@jobs.command("list")
@click.option(
    "--state", "states", type=click.Choice([s.value for s in State]), multiple=True, help="Only this; may be repeated."
)
@click.option("--type", "types", multiple=True, help="Only this type; may be repeated.")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option("--tenant", help="Only this tenant.")
@click.option("--target", help="Only this target.")
@click.option("--correlation-id", help="Only jobs with this correlation id.")
@click.option("--limit", type=Whole(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", type=click.UUID, metavar="ID", help="Start before this job, for the next page.")
@click.option("--filter", "query", metavar="WORDS", help="Only jobs that match this query (the filter language).")
@output_option
def list_(output: str, query: str | None, **filters: Any) -> None:
    """List jobs, newest first."""
    for name in ("states", "types", "queues"):
        filters[name] = list(filters[name]) or None
    if query is None:
        found, is_new = asyncio.run(_find(filters))
    elif any(value is not None for name, value in filters.items() if name not in ("limit", "before")):
        raise click.UsageError("--filter cannot be combined with other filters; put them into the query")
    else:
        found, is_new = asyncio.run(_search(query, filters["before"], filters["limit"]))
    if output == "table":
        print_records([_row(job) for job in found], _COLUMNS, output)
        if not found:
            echo(_no_jobs(Config.load(), is_new=is_new), err=True)
        elif len(found) == filters["limit"]:
            echo(f"more: --before {found[-1].id}", err=True)
    else:
        print_records([as_dict(job) for job in found], {}, output)


@jobs.command()
@click.argument("job_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)
@output_option
def show(job_ids: Sequence[UUID], output: str) -> int:
    """Show everything about jobs: fields, attempts, last traceback and log lines, events."""
    records = asyncio.run(_details(job_ids))
    if output == "table":
        for number, record in enumerate(records):
            if number:
                echo()
            _print_details(record)
    elif output == "json" and len(job_ids) == 1:
        print_record(records[0], output)
    else:
        print_records(records, {}, output)
    return Exit.OK


def _verb(name: str, text: str, ask: Ask, *, destructive: bool = False, repeats: bool = False) -> None:
    """Add a command that asks for something for each of the given jobs.

    One that cannot be undone, or that `repeats` what has succeeded, wants to be confirmed.
    """

    def command(job_ids: Sequence[UUID], reason: str | None = None, *, yes: bool = False, public: bool = False) -> int:
        if destructive and not yes:
            confirm(f"{name} cannot be undone", f"{name.capitalize()} {counted(len(job_ids))}? This cannot be undone.")
        if repeats and not yes and (done := asyncio.run(_succeeded(job_ids))):
            has = "has" if done == 1 else "have"
            confirm(
                f"{counted(done)} {has} succeeded and would run again",
                f"{counted(done)} {has} succeeded. Run again as a new job?",
            )
        return ask_for_each(partial(ask, reason=reason, public=public), name, job_ids)

    command = click.argument("job_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)(command)
    if name != "release":
        command = reason_option(command)
    if name in _TOLD:
        command = click.option("--public", is_flag=True, help="Show the reason to the job's clients as well.")(command)
    if destructive or repeats:
        command = yes_option(command)
    jobs.command(name, help=text)(command)


async def _succeeded(job_ids: Sequence[UUID]) -> int:
    """How many of the jobs have done their work."""
    done = 0
    async with Holdfast() as hf:
        for job_id in job_ids:
            with contextlib.suppress(NotFound):  # which is told when it is asked for
                done += (await hf.get(job_id)).state is State.SUCCESS
    return done


def _asking(verb: Verb) -> Ask:
    async def ask(ops: Operations, job_id: UUID, **details: Any) -> UUID:
        return await ops.request(verb, job_id, **details)

    return ask


_verb("cancel", "Cancel jobs for good; running handlers are interrupted.", _asking("cancel"), destructive=True)
_verb("pause", "Pause jobs; running handlers are interrupted, and targets are blocked.", _asking("pause"))
_verb(
    "retry",
    "Run jobs again: waiting jobs at once, held jobs by resuming them, ended jobs as new (asks if one succeeded).",
    _asking("retry"),
    repeats=True,
)
_verb("release", "Release jobs that were recorded with --hold.", _asking("release"))


async def _resolve(ops: Operations, job_id: UUID, **details: Any) -> None:
    await ops.resolve(job_id, **details)


_verb(
    "resolve",
    "Cancel jobs because somebody has dealt with them; their targets are no longer blocked.",
    _resolve,
    destructive=True,
)


@jobs.command()
@click.argument("job_ids", metavar="[ID]...", type=click.UUID, nargs=-1)
@click.option(
    "--filter",
    "query",
    metavar="WORDS",
    help="All jobs that match this query, such as 'state:paused reason:drained'.",
)
@reason_option
@no_wait_option
@yes_option
def resume(job_ids: Sequence[UUID], query: str | None, reason: str | None, *, no_wait: bool, yes: bool) -> int:
    """Resume paused jobs and jobs held in error, with all their attempts.

    Those that match --filter are resumed by a bulk operation (see `holdfast bulk`).
    """
    if (query is None) == (not job_ids):
        raise click.UsageError("name jobs, or select them with --filter")
    if query is None:
        if no_wait:
            raise click.UsageError("--no-wait needs --filter")
        return ask_for_each(partial(_asking("resume"), reason=reason), "resume", job_ids)

    def agree(found: BulkPreview) -> None:
        confirm(matching(found), f"Resume {how_many(found)}?", "add --yes to resume them")

    return asked(
        lambda ops: run_confirmed(
            ops.bulk,
            "resume",
            query,
            {},
            none="no paused or held jobs match",
            agree=None if yes else agree,
            note=reason,
            wait=not no_wait,
        )
    )


@jobs.command()
@click.argument("job_id", metavar="ID", type=click.UUID)
@output_option
def explain(job_id: UUID, output: str) -> None:
    """Explain in one sentence why a job does not run."""
    found = asked(lambda ops: ops.explain(job_id))
    if output == "table":
        echo(found.sentence)
    else:
        print_record(as_dict(found), output)


async def _find(filters: dict[str, Any]) -> tuple[list[ListedJob], bool]:
    """The jobs, and whether the database is new."""
    async with Holdfast() as hf:
        return await hf.find(**filters), hf.found_no_schema


async def _search(query: str, before: UUID | None, limit: int) -> tuple[list[ListedJob], bool]:
    async with Holdfast() as hf, contextlib.aclosing(_matching(hf, query, before, limit)) as jobs:
        return [job async for job in jobs], hf.found_no_schema


def _no_jobs(config: Config, *, is_new: bool) -> str:
    if config.database_url is not None:
        return "no jobs"
    where = f"the embedded database of {config.home.resolve()}"
    return f"no jobs yet: {where} has just been set up" if is_new else f"no jobs in {where}"


async def _matching(hf: Holdfast, query: str, before: UUID | None, limit: int) -> AsyncGenerator[ListedJob]:
    """Jobs that match, newest first, page by page; at most `limit` of them."""
    ops, left = await hf.operations(), limit
    while left > 0:
        page = await ops.search(query, before=before, limit=min(_PAGE, left))
        for job in page.jobs:
            yield job
        left -= len(page.jobs)
        before = page.reached
        if before is None:
            return


async def _details(job_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    async with Holdfast() as hf:
        return [
            as_dict(await hf.get(job_id))
            | {
                "attempts": [as_dict(attempt) for attempt in await hf.attempts(job_id)],
                "events": [as_dict(event) for event in await hf.history(job_id)],
            }
            for job_id in job_ids
        ]


def _row(job: ListedJob) -> dict[str, Any]:
    return as_dict(job) | {
        "tries": f"{job.failures}/{job.max_attempts}" if job.failures else "",
        "age": age(job.created_at),
        "last_error": shortened(job.last_error),
    }


def _print_details(record: dict[str, Any]) -> None:
    attempts, events = record.pop("attempts"), record.pop("events")
    print_record(record, "table")
    if attempts:
        echo("\nattempts")
        print_records(attempts, COLUMNS, "table")
        print_last(attempts, "traceback", "traceback")
        print_last(attempts, "log_excerpt", "log")
    if events:
        echo("\nevents")
        print_records(events, {"at": "AT", "event": "EVENT", "by": "BY", "note": "NOTE"}, "table")
