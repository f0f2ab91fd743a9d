"""`holdfast cleanup`: delete ended jobs whose retention is over, without waiting for the leader to come to it."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from holdfast.cli.asking import asked, confirm, yes_option
from holdfast.cli.operator import operator
from holdfast.cli.output import echo, echo_json, output_option
from holdfast.client.operations import Cleanup

__all__ = ["cleanup"]


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count the jobs that would be deleted.")
@yes_option
@output_option
def cleanup(output: str, *, dry_run: bool, yes: bool) -> None:
    """Delete ended jobs whose retention is over (RETENTION_DAYS, RETENTION_DEAD_DAYS).

    The leader of maintenance does this regularly. Dead jobs stay until somebody has acknowledged them.
    """
    if not dry_run and not yes:
        confirm(
            "deleted jobs cannot be brought back",
            "Delete all ended jobs whose retention is over?",
            "add --yes, or look with --dry-run",
        )
    verb = "would be deleted" if dry_run else "deleted"
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    # How many jobs there are is not known before all were looked at.
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as shown:
        task = shown.add_task("looking for jobs", total=None)

        def progress(so_far: Cleanup) -> None:
            shown.update(task, description=f"{sum(so_far)} jobs {verb}")

        done = asked(lambda ops: ops.cleanup(by=operator(), dry_run=dry_run, progress=progress))
    if output == "table":
        echo(f"{done.success} succeeded, {done.canceled} canceled and {done.dead} dead jobs {verb}")
    else:
        echo_json(done._asdict() | {"dry_run": dry_run})
