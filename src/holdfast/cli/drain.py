"""`holdfast drain`: stop claiming everywhere, and tell how many jobs still run until none does.

A claim that began before the stop may commit after the first look: that nothing runs is believed at the second one.
"""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.asking import asked, confirm, yes_option
from holdfast.cli.exits import Exit
from holdfast.cli.operator import operator
from holdfast.cli.output import age, echo
from holdfast.client.operations import Operations

__all__ = ["drain"]

_LOOK_SECONDS = 0.5
_END = "`holdfast drain --resume` resumes work"


@click.command()
@click.option("--resume", is_flag=True, help="Resume claiming.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until no job runs.")
@click.option("--reason", help="Reason; shown to operators of the installation.")
@click.option("--public", is_flag=True, help="Show the reason to tenants as well.")
@yes_option
def drain(reason: str | None, *, public: bool, resume: bool, wait: bool, yes: bool) -> int:
    """Stop claiming everywhere. Running jobs finish; waiting jobs stay queued.

    Ctrl-C ends the wait, not the drain.
    """
    if resume:
        changed = asked(lambda ops: ops.resume("everything", by=operator(), reason=reason))
        echo("work is resumed" if changed else "nothing was drained")
        return Exit.OK
    if not yes:
        confirm("drain stops all work", "Stop all work of all tenants and queues?")
    draining = _Draining(reason, public=public)
    try:
        asked(lambda ops: draining.run(ops, wait=wait))
    except KeyboardInterrupt:
        told = (
            "no longer waiting, but still drained" if draining.stopped else "interrupted; the drain may not be recorded"
        )
        echo(f"{told}; {_END}", err=True)
        return Exit.INTERRUPTED
    return Exit.OK


class _Draining:
    """One drain, and whether claiming is known to be stopped."""

    def __init__(self, reason: str | None, *, public: bool) -> None:
        self._reason, self._public = reason, public
        self.stopped = False

    async def run(self, ops: Operations, *, wait: bool) -> None:
        """Stop claiming, and look until nothing runs."""
        changed = await ops.pause("everything", by=operator(), reason=self._reason, public=self._public)
        self.stopped = True
        since = (state := await ops.draining()).paused_at
        if not changed and since is not None:
            why = f": {state.paused_note}" if state.paused_note else ""
            echo(f"already drained {age(since)} ago by {state.paused_by}{why}")
        before: int | None = None
        while since is not None and state.paused_at == since:
            if state.running and state.running != before:
                _tell(state.running)
            if state.running == before == 0:
                echo(f"drained: nothing runs; {_END}")
                return
            if state.running and not wait:
                echo(_END)
                return
            before = state.running
            await asyncio.sleep(_LOOK_SECONDS)
            state = await ops.draining()
        echo("somebody resumed work meanwhile", err=True)


def _tell(running: int) -> None:
    echo(f"claiming is stopped; {running} job{'s' if running > 1 else ''} still run{'s' * (running == 1)}")
