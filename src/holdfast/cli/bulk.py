"""`holdfast bulk`: one action on all jobs that fit a filter, done by the leader of maintenance."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.app import Holdfast
from holdfast.cli.durations import Duration
from holdfast.cli.failures import Exit
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, echo_json, output_option, print_record, print_records
from holdfast.client.bulk import Bulks
from holdfast.model.bulk import BULK_ACTIONS, Bulk, BulkPreview

__all__ = ["bulk"]

_COLUMNS = {
    "id": "ID", "action": "ACTION", "query": "FILTER", "state": "STATE", "matched": "MATCHED", "done": "DONE",
    "skipped": "SKIPPED", "failed": "FAILED", "by": "BY", "age": "STARTED",
}  # fmt: skip
_LOOK_SECONDS = 0.25
_TOLD = {
    "cancel": "Cancel jobs: those that wait at once, those that run as soon as their handlers heed it.",
    "pause": "Pause jobs that wait or run.",
    "resume": "Let paused and held jobs go on.",
    "retry": "Run waiting and held jobs now, and dead ones again as new jobs.",
    "requeue": "Run dead jobs again as new jobs, once each, and acknowledge their letters.",
    "ack": "Acknowledge dead letters: retention applies from now on.",
    "delete": "Erase the content of jobs; those that are open are canceled.",
    "reprioritize": "Give waiting jobs another priority.",
}


@click.group()
def bulk() -> None:
    """Do one thing to all jobs that match a filter.

    The leader of maintenance does it in portions, so it goes on whatever becomes of this command.
    """


def _command(action: str) -> click.Command:
    @click.option("--filter", "query", metavar="WORDS", required=True, help="Which jobs (the filter language).")
    @click.option("--note", help="Why; stored with the operation and in the audit log.")
    @click.option("--dry-run", is_flag=True, help="Only say how many jobs match, and show some.")
    @click.option("--no-wait", is_flag=True, help="Start it and print its id, without waiting for the end.")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @output_option
    def command(
        query: str, output: str, *, note: str | None, dry_run: bool, no_wait: bool, yes: bool, **own: Any
    ) -> int:
        return asyncio.run(
            _act(action, query, _arguments(own), output, note=note, dry_run=dry_run, wait=not no_wait, yes=yes)
        )

    if action == "requeue":
        command = click.option("--priority", type=Whole(0), help="Another priority for the new jobs.")(command)
        command = click.option("--queue", help="Another queue for the new jobs.")(command)
        command = click.option("--delay", type=Duration(), metavar="15m", help="Run them after this time.")(command)
    elif action == "reprioritize":
        command = click.option("--to", type=Whole(0), required=True, help="The priority; lower goes first.")(command)
    return click.command(action, help=_TOLD[action])(command)


for _action in BULK_ACTIONS:
    bulk.add_command(_command(_action))


@bulk.command("list")
@click.option("--limit", type=Whole(1, 500), default=50, show_default=True, help="How many at most.")
@output_option
def list_(limit: int, output: str) -> None:
    """List bulk operations, newest first."""
    found = asyncio.run(_listed(limit))
    rows = [as_dict(each) | ({"age": f"{age(each.started_at)} ago"} if output == "table" else {}) for each in found]
    print_records(rows, _COLUMNS, output)
    if not found and output == "table":
        echo("no bulk operations", err=True)


@bulk.command()
@click.argument("bulk_id", metavar="ID", type=click.UUID)
@output_option
def show(bulk_id: UUID, output: str) -> None:
    """Show how far a bulk operation is."""
    print_record(as_dict(asyncio.run(_one(bulk_id))), output)


@bulk.command()
@click.argument("bulk_id", metavar="ID", type=click.UUID)
@click.option("--note", help="Why; stored in the audit log.")
def stop(bulk_id: UUID, note: str | None) -> None:
    """Stop a bulk operation. What it has done stays done."""
    echo(_summary(asyncio.run(_stopped(bulk_id, note))))


def _arguments(own: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in own.items() if value is not None}
    if "to" in given:
        return {"priority": given["to"]}
    return {"options": given} if given else {}


async def _act(
    action: str,
    query: str,
    args: dict[str, Any],
    output: str,
    *,
    note: str | None,
    dry_run: bool,
    wait: bool,
    yes: bool,
) -> int:
    async with Holdfast() as hf:
        bulks = (await hf.operations()).bulk
        if dry_run or not yes:
            found = await bulks.preview(action, query, args=args)
            if dry_run:
                _print_preview(action, found, output)
                return Exit.OK
            _confirm(action, found)
        bulk_id = await bulks.start(action, query, args=args, by=operator(), note=note)
        if not wait:
            echo(str(bulk_id))
            return Exit.OK
        try:
            ended = await _followed(bulks, bulk_id)
        except (KeyboardInterrupt, asyncio.CancelledError):
            echo(f"it goes on; see: holdfast bulk show {bulk_id}", err=True)
            raise
    if output == "table":
        echo(_summary(ended))
    else:
        echo_json(as_dict(ended))
    return Exit.FAILED if ended.failed or ended.error else Exit.OK


async def _followed(bulks: Bulks, bulk_id: UUID) -> Bulk:
    """Wait until it has ended, with a bar on a terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    terminal = sys.stderr.isatty()
    if not terminal:
        echo(f"bulk operation {bulk_id}", err=True)
    with Progress(*columns, disable=not terminal, transient=True) as progress:
        bar = progress.add_task("looking for jobs", total=None)
        while True:
            found = await bulks.get(bulk_id)
            if found.ended:
                return found
            if found.state == "fixing":
                progress.update(bar, description="looking for jobs", completed=found.matched)
            else:
                worked = found.done + found.skipped + found.failed
                progress.update(bar, description=found.action, total=found.matched, completed=worked)
            await asyncio.sleep(_LOOK_SECONDS)


def _confirm(action: str, found: BulkPreview) -> None:
    count = f"{found.matches} jobs match" if found.exact else f"at least {found.matches} jobs match"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{count}: add --yes to {action} them, or look with --dry-run")
    click.confirm(f"{count}. {action.capitalize()} them?", abort=True)


def _print_preview(action: str, found: BulkPreview, output: str) -> None:
    sample = [{"id": job.id, "type": job.type, "state": job.state.value} for job in found.sample]
    if output != "table":
        echo_json({"matches": found.matches, "exact": found.exact, "sample": sample})
        return
    echo(f"{'' if found.exact else 'at least '}{found.matches} jobs match {action}")
    if sample:
        print_records(sample, {"id": "ID", "type": "TYPE", "state": "STATE"}, output)


def _summary(found: Bulk) -> str:
    told = f"{found.state}: {found.done} done, {found.skipped} skipped, {found.failed} failed of {found.matched}"
    return told if found.error is None else f"{told}; first error: {found.error}"


async def _listed(limit: int) -> list[Bulk]:
    async with Holdfast() as hf:
        return list(await (await hf.operations()).bulk.list(limit=limit))


async def _one(bulk_id: UUID) -> Bulk:
    async with Holdfast() as hf:
        return await (await hf.operations()).bulk.get(bulk_id)


async def _stopped(bulk_id: UUID, note: str | None) -> Bulk:
    async with Holdfast() as hf:
        return await (await hf.operations()).bulk.stop(bulk_id, by=operator(), note=note)
