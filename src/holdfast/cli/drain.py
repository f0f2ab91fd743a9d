"""`holdfast drain`: stop claims of a queue, type, lane or tenant, or everywhere, and wait until nothing runs there.

The stop is a pause, stored in the database: it holds whatever becomes of this command, of workers and of the server,
until somebody resumes work. On a terminal, a bar shows how many jobs have ended; elsewhere, a line says each time how
many still run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.cli.asking import asked, confirm, yes_option
from holdfast.cli.durations import Duration
from holdfast.cli.exits import Exit
from holdfast.cli.operator import operator
from holdfast.cli.output import age, echo
from holdfast.client.operations import Operations
from holdfast.errors import Conflict, DatabaseUnavailable, WaitTimeout
from holdfast.model.subject import Draining, Kind

__all__ = ["drain"]

_KINDS: tuple[Kind, ...] = ("queue", "type", "lane", "tenant")
_COLUMNS = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


def _subjects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an option for each kind."""
    for kind in reversed(_KINDS):
        command = click.option(f"--{kind}", metavar="NAME", help=f"Only this {kind}.")(command)
    return click.option("--all", "everything", is_flag=True, help="Everything; as without any name.")(command)


@click.command()
@_subjects
@click.option("--resume", is_flag=True, help="Resume claiming.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until no job runs.")
@click.option("--timeout", type=Duration(), metavar="10m", help="Wait no longer; the exit code is 1 then.")
@click.option("--reason", help="Reason; shown to operators of the installation.")
@click.option("--public", is_flag=True, help="Show the reason to tenants as well.")
@yes_option
def drain(
    reason: str | None,
    *,
    timeout: timedelta | None,
    public: bool,
    resume: bool,
    wait: bool,
    yes: bool,
    everything: bool,
    **names: str | None,
) -> int:
    """Stop claims everywhere, or of one queue, type, lane or tenant, and wait until nothing runs there.

    Running jobs finish; waiting jobs stay queued. Ctrl-C and --timeout end the wait, not the drain: work goes on with
    --resume.
    """
    subject = _Subject.chosen(names, everything=everything)
    if resume:
        changed = asked(lambda ops: ops.resume(*subject.key, by=operator(), reason=reason))
        echo(f"{subject.work} is resumed" if changed else f"{subject.nothing} was drained")
        return Exit.OK
    if subject.kind == "everything" and not yes:
        confirm("drain stops all work", "Stop all work of all tenants and queues?")
    seconds = None if timeout is None else timeout.total_seconds()
    draining = _Drain(subject, reason, public=public)
    try:
        return asked(lambda ops: draining.run(ops, wait=wait, timeout=seconds), subject.may_be_misspelt)
    except KeyboardInterrupt:
        told = (
            "no longer waiting, but still drained" if draining.stopped else "interrupted; the drain may not be recorded"
        )
        echo(f"{told}; {subject.end}", err=True)
        return Exit.INTERRUPTED


class _Subject:
    """What is drained, and how to speak of it."""

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind, self.key = kind, (kind, name)
        special = kind == "everything"
        self.may_be_misspelt = None if special else self.key
        self.work = "work" if special else f"work of {kind} {name}"
        self.nothing = "nothing" if special else f"nothing of {kind} {name}"
        quoted = f'"{name}"' if " " in name else name
        option = "" if special else f" --{kind} {quoted}"
        self.end = f"`holdfast drain{option} --resume` resumes work"
        self.filter = "state:running" if special or kind == "lane" else f"state:running {kind}:{quoted}"

    @classmethod
    def chosen(cls, names: dict[str, str | None], *, everything: bool) -> _Subject:
        """The subject that the options name."""
        given = [(cast("Kind", kind), name) for kind, name in names.items() if name is not None]
        if len(given) + everything > 1:
            raise click.UsageError(f"name one of --{', --'.join(_KINDS)} or --all")
        return cls(*given[0]) if given else cls("everything", "")


class _Drain:
    """One drain, and whether claims are known to be stopped."""

    def __init__(self, subject: _Subject, reason: str | None, *, public: bool) -> None:
        self._subject, self._reason, self._public = subject, reason, public
        self.stopped = False

    async def run(self, ops: Operations, *, wait: bool, timeout: float | None) -> int:
        """Stop claims, and wait until nothing runs. Answers the exit code."""
        subject = self._subject
        changed = await ops.pause(*subject.key, by=operator(), reason=self._reason, public=self._public)
        self.stopped = True
        state = await ops.draining(*subject.key)
        if not changed and state.paused_at is not None:
            why = f": {state.paused_note}" if state.paused_note else ""
            echo(f"already drained {age(state.paused_at)} ago by {state.paused_by}{why}")
        try:
            if wait:
                with _shown() as progress:
                    state = await ops.wait_drained(*subject.key, timeout=timeout, progress=progress)
        except WaitTimeout as late:
            echo(f"{late}; see `holdfast jobs list --filter '{subject.filter}'`; {subject.end}", err=True)
            return Exit.FAILED
        except Conflict as resumed:
            echo(str(resumed), err=True)
            return Exit.CONFLICT
        except DatabaseUnavailable:
            echo(f"no longer waiting, but still drained; {subject.end}", err=True)
            raise
        if not wait and not state.drained:
            _line(state)
            echo(subject.end)
        else:
            echo(f"drained: {subject.nothing} runs; {subject.end}")
        return Exit.OK


@contextmanager
def _shown() -> Any:
    """What tells of each look: a bar on a terminal, else a line for each change."""
    terminal, most, before = sys.stderr.isatty(), 0, -1
    with Progress(*_COLUMNS, console=Console(stderr=True), disable=not terminal, transient=True) as progress:
        bar = progress.add_task("draining", total=None)

        def show(state: Draining) -> None:
            nonlocal most, before
            most = max(most, state.running)
            if terminal:
                progress.update(bar, total=most or None, completed=most - state.running)
            elif state.running != before and not state.drained:
                _line(state)
            before = state.running

        yield show


def _line(state: Draining) -> None:
    if state.running:
        one = state.running == 1
        echo(f"claiming is stopped; {state.running} job{'' if one else 's'} still run{'s' if one else ''}")
    else:
        echo("claiming is stopped; a claim from before is still under way")
