"""`holdfast bulk`: one action on all jobs that fit a filter, done by the leader of maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import click

from holdfast.cli.asking import asked, confirm, requeue_options, yes_option
from holdfast.cli.exits import Exit
from holdfast.cli.following import as_record, matching, run_confirmed, summary
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, echo, echo_json, output_option, print_record, print_records
from holdfast.client.bulk import Bulks
from holdfast.model.bulk import BULK_ACTIONS, BulkPreview

__all__ = ["bulk"]

_COLUMNS = {
    "id": "ID", "action": "ACTION", "q": "FILTER", "state": "STATE", "matched": "MATCHED", "done": "DONE",
    "skipped": "SKIPPED", "failed": "FAILED", "by": "BY", "age": "STARTED",
}  # fmt: skip
_TOLD = {
    "cancel": "Cancel jobs: waiting jobs at once, running jobs when their handlers stop.",
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
    """Apply one action to all jobs that match a filter.

    The leader of maintenance works through the jobs in portions. It continues even if this command is interrupted.
    """


def _command(action: str) -> click.Command:
    @click.option("--filter", "query", metavar="QUERY", required=True, help="Which jobs (see the filter language).")
    @click.option("--note", help="Why; stored with the operation and in the audit log.")
    @click.option("--dry-run", is_flag=True, help="Only count the matching jobs, and show some of them.")
    @click.option("--no-wait", is_flag=True, help="Start it and print its id, without waiting for the end.")
    @yes_option
    @output_option
    def command(
        query: str, output: str, *, note: str | None, dry_run: bool, no_wait: bool, yes: bool, **own: Any
    ) -> int:
        args = _arguments(own)
        return asked(
            lambda ops: _act(
                ops.bulk, action, query, args, output, note=note, dry_run=dry_run, wait=not no_wait, yes=yes
            )
        )

    if action == "requeue":
        command = requeue_options(command)
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
    found = asked(lambda ops: ops.bulk.list(limit=limit))
    rows = [as_record(each) | ({"age": f"{age(each.started_at)} ago"} if output == "table" else {}) for each in found]
    print_records(rows, _COLUMNS, output)
    if not found and output == "table":
        echo("no bulk operations", err=True)


@bulk.command()
@click.argument("bulk_id", metavar="ID", type=click.UUID)
@output_option
def show(bulk_id: UUID, output: str) -> None:
    """Show the progress of a bulk operation."""
    print_record(as_record(asked(lambda ops: ops.bulk.get(bulk_id))), output)


@bulk.command()
@click.argument("bulk_id", metavar="ID", type=click.UUID)
@click.option("--note", help="Why; stored in the audit log.")
def stop(bulk_id: UUID, note: str | None) -> None:
    """Stop a bulk operation. What it has already done is kept."""
    echo(summary(asked(lambda ops: ops.bulk.stop(bulk_id, by=operator(), note=note))))


def _arguments(own: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in own.items() if value is not None}
    if "to" in given:
        return {"priority": given["to"]}
    return {"options": given} if given else {}


async def _act(
    bulks: Bulks,
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
    if dry_run:
        _print_preview(action, await bulks.preview(action, query, args=args), output)
        return Exit.OK

    def agree(found: BulkPreview) -> None:
        them = "it" if found.exact and found.matches == 1 else "them"
        advice = f"add --yes to {action} {them}, or look with --dry-run"
        confirm(matching(found), f"{matching(found)}. {action.capitalize()} {them}?", advice)

    return await run_confirmed(
        bulks,
        action,
        query,
        args,
        output,
        none=f"there are no jobs to {action}: none match that it can change",
        agree=None if yes else agree,
        note=note,
        wait=wait,
    )


def _print_preview(action: str, found: BulkPreview, output: str) -> None:
    sample = [{"id": job.id, "type": job.type, "state": job.state.value} for job in found.sample]
    if output != "table":
        echo_json({"matches": found.matches, "exact": found.exact, "sample": sample})
        return
    echo(f"{matching(found)}: {action}")
    if sample:
        print_records(sample, {"id": "ID", "type": "TYPE", "state": "STATE"}, output)
