"""`holdfast drain`: stop claiming everywhere, and tell how many jobs still run until none does."""

from __future__ import annotations

import asyncio
import sys

import click

from holdfast.app import Holdfast
from holdfast.cli.failures import Exit
from holdfast.cli.operator import operator
from holdfast.cli.scopes import asked
from holdfast.client.operations import Operations

__all__ = ["drain"]

_LOOK_SECONDS = 0.5
_END = "`holdfast drain --resume` lets work go on"


@click.command()
@click.option("--resume", is_flag=True, help="Let claiming go on again.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until nothing runs.")
@click.option("--reason", help="Why; told to whoever asks.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def drain(reason: str | None, *, resume: bool, wait: bool, yes: bool) -> int:
    """Stop claiming everywhere; what runs goes on to its end, what waits stays queued.

    Ctrl-C ends the waiting, not the drain.
    """
    if resume:
        changed = asked(lambda ops: ops.resume("everything", by=operator(), reason=reason))
        click.echo("work goes on" if changed else "nothing was drained")
        return Exit.OK
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("drain stops all work: add --yes")
        click.confirm("stop all work, of all tenants and queues?", abort=True)
    try:
        asyncio.run(_drain(reason, wait=wait))
    except KeyboardInterrupt:
        click.echo(f"no longer waiting, but still drained; {_END}", err=True)
        return Exit.INTERRUPTED
    return Exit.OK


async def _drain(reason: str | None, *, wait: bool) -> None:
    async with Holdfast() as hf:
        ops = await hf.operations()
        state = await ops.drain(by=operator(), reason=reason)
        running = await _told(ops, None)
        while wait and running:
            await asyncio.sleep(_LOOK_SECONDS)
            running = await _told(ops, running)
            if (await ops.draining()).paused_at != state.paused_at:
                click.echo("somebody let work go on meanwhile", err=True)
                return
    click.echo(f"drained: nothing runs; {_END}" if not running else _END)


async def _told(ops: Operations, before: int | None) -> int:
    """How many jobs still run; said where that has changed."""
    running = (await ops.draining()).running
    if running and running != before:
        click.echo(f"claiming is stopped; {running} job{'s' if running > 1 else ''} still run{'s' * (running == 1)}")
    return running
