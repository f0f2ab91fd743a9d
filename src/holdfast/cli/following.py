"""Starts a bulk operation for a command, and follows it until its end: with a bar on a terminal, and what it waits for.

The operation is the leader's: it goes on whatever becomes of the command, and the command says how to look at it later.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from holdfast.cli.exits import Exit
from holdfast.cli.operator import operator
from holdfast.cli.output import as_dict, echo, echo_json
from holdfast.client.bulk import Bulks
from holdfast.errors import DatabaseUnavailable
from holdfast.model.bulk import Bulk, BulkPreview

__all__ = ["as_record", "how_many", "matching", "no_wait_option", "run", "run_confirmed", "summary"]

_LOOK_SECONDS = 0.25
_COLUMNS = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
_NO_LEADER = (
    "no leader of maintenance is alive, so the operation waits. It begins when a worker runs:\n"
    "  holdfast worker --app MODULE:NAME      (without --no-maintenance)\n"
    "This command goes on waiting. The operation is stored and needs it no longer; look at it later with:\n"
    "  holdfast bulk show {bulk_id}"
)

no_wait_option = click.option(
    "--no-wait",
    is_flag=True,
    help="With a filter: start it and print the id of the bulk operation, without waiting for the end.",
)


async def run(
    bulks: Bulks, action: str, query: str, args: Mapping[str, Any], output: str, *, note: str | None, wait: bool
) -> int:
    """Start it, wait for its end unless nobody wants to, and tell how it ended. Answers the exit code."""
    bulk_id = await bulks.start(action, query, args=args, by=operator(), note=note)
    if not wait:
        echo(str(bulk_id))
        return Exit.OK
    try:
        ended = await _followed(bulks, bulk_id)
    except (KeyboardInterrupt, asyncio.CancelledError, DatabaseUnavailable):
        echo(f"it goes on; see: holdfast bulk show {bulk_id}", err=True)
        raise
    if output == "table":
        echo(summary(ended))
    else:
        echo_json(as_record(ended))
    return Exit.FAILED if ended.failed or ended.error else Exit.OK


async def run_confirmed(
    bulks: Bulks,
    action: str,
    query: str,
    args: Mapping[str, Any],
    output: str = "table",
    *,
    none: str,
    agree: Callable[[BulkPreview], None] | None,
    note: str | None,
    wait: bool,
) -> int:
    """The same after a look: `agree` asks about these jobs; if there are none, `none` is told, and nothing starts."""
    found = await bulks.preview(action, query, args=args)
    if found.exact and not found.matches:
        echo(none, err=True)
        if output != "table":
            echo_json({"matches": 0, "exact": True, "sample": []})
        return Exit.OK
    if agree is not None:
        agree(found)
    return await run(bulks, action, query, args, output, note=note, wait=wait)


def how_many(found: BulkPreview, noun: str = "job") -> str:
    """How many jobs there are, in words."""
    return f"{'' if found.exact else 'at least '}{found.matches} {noun}{'' if found.matches == 1 else 's'}"


def matching(found: BulkPreview, noun: str = "job") -> str:
    """How many jobs match, in words."""
    return f"{how_many(found, noun)} match{'es' if found.matches == 1 else ''}"


def as_record(found: Bulk) -> dict[str, Any]:
    """An operation with the names that it has over HTTP."""
    return {"q" if name == "query" else name: value for name, value in as_dict(found).items()}


def summary(found: Bulk) -> str:
    """An operation in one line."""
    told = f"{found.state}: {found.done} done, {found.skipped} skipped, {found.failed} failed of {found.matched}"
    return told if found.error is None else f"{told}; first error: {found.error}"


async def _followed(bulks: Bulks, bulk_id: UUID) -> Bulk:
    """Wait until it has ended, with a bar on a terminal."""
    terminal = sys.stderr.isatty()
    if not terminal:
        echo(f"bulk operation {bulk_id}", err=True)
    told_of_leader = False
    with Progress(*_COLUMNS, console=Console(stderr=True), disable=not terminal, transient=True) as progress:
        bar = progress.add_task("looking for jobs", total=None)
        while True:
            found = await bulks.get(bulk_id)
            if found.ended:
                return found
            _show(progress, bar, found)
            if not told_of_leader and not await bulks.is_maintained():
                told_of_leader = True
                echo(_NO_LEADER.format(bulk_id=bulk_id), err=True)
            await asyncio.sleep(_LOOK_SECONDS)


def _show(progress: Progress, bar: TaskID, found: Bulk) -> None:
    if found.state == "fixing":
        progress.update(bar, description="looking for jobs", completed=found.matched)
    else:
        worked = found.done + found.skipped + found.failed
        progress.update(bar, description=found.action, total=found.matched, completed=worked)
