"""`holdfast queues|types|lanes|tenants`: what waits and runs there; pause, resume, limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, output_option, print_records
from holdfast.client.operations import Operations
from holdfast.model.scope import Kind, Lane, LimitChanges, Queue, Scope, Tenant

__all__ = ["asked", "lanes", "queues", "tenants", "types"]

R = TypeVar("R")

_PAGE = 500


class _Rate(click.ParamType):  # type: ignore[type-arg]
    """So many starts in so many seconds: 100/60."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{1,5})/(\d{1,8}(?:\.\d+)?)", str(value))
        if found is None:
            self.fail(f"{value!r} is no rate such as 100/60, which is 100 starts in 60 seconds", param, ctx)
        return int(found.group(1)), float(found.group(2))


def asked(question: Callable[[Operations], Awaitable[R]]) -> R:
    """The answer to a question to the operators' side."""

    async def ask() -> R:
        async with Holdfast() as hf:
            return await question(await hf.operations())

    return asyncio.run(ask())


def _group(kind: Kind, columns: dict[str, str]) -> click.Group:
    """The commands that every kind has."""

    @click.group(f"{kind}s", help=f"What waits and runs per {kind}; pause, resume.")
    def group() -> None:
        pass

    @group.command("list", help=f"List {kind}s by name.")
    @output_option
    def list_(output: str) -> None:
        found = asked(lambda ops: _all(ops, kind))
        if output == "table":
            print_records([_row(scope) for scope in found], columns, output)
            if not found:
                echo(f"no {kind}s yet", err=True)
        else:
            print_records([as_dict(scope) for scope in found], {}, output)

    @group.command("pause", help=f"Stop claims of a {kind}; what runs goes on, what waits stays queued.")
    @click.argument("name")
    @click.option("--reason", help="Why; told to operators of the installation who ask.")
    @click.option("--public", is_flag=True, help="Tell tenants the reason, too.")
    def pause(name: str, reason: str | None, *, public: bool) -> None:
        async def stop(ops: Operations) -> tuple[bool, Scope]:
            changed = await ops.pause(kind, name, by=operator(), reason=reason, public=public)
            return changed, await ops.scope(kind, name)

        changed, scope = asked(stop)
        did = "paused" if changed else f"was paused by {scope.paused_by}"
        echo(f"{kind} {name} {did}: {_counted(scope)} waiting, {scope.running} running")

    @group.command("resume", help=f"Let claims of a {kind} go on.")
    @click.argument("name")
    @click.option("--reason", help="Why; kept in the audit log.")
    def resume(name: str, reason: str | None) -> None:
        changed = asked(lambda ops: ops.resume(kind, name, by=operator(), reason=reason))
        echo(f"{kind} {name} {'resumed' if changed else 'was not paused'}")

    return group


def _limits(group: click.Group, kind: Kind, command_name: str, text: str) -> None:
    """Add the command that sets limits; what is not given stays as it is."""

    def command(
        name: str, limit: int | None, rate: tuple[int, float] | None, *, clear: bool, weight: float | None = None
    ) -> None:
        if clear == (limit is not None or rate is not None or weight is not None):
            raise click.UsageError("say what to set, or --clear")

        changes: LimitChanges = {}
        if clear or limit is not None:
            changes["limit"] = limit
        if clear or rate is not None:
            changes["rate"] = rate
        if weight is not None or (clear and kind == "tenant"):
            changes["weight"] = weight

        async def change(ops: Operations) -> Scope:
            await ops.change_limits(kind, name, changes, by=operator())
            return await ops.scope(kind, name)

        scope = asked(change)
        shown = _row(scope)
        words = [f"{heading} {shown[key]}" for key, heading in _LIMITS.items() if shown.get(key) not in (None, "")]
        echo(f"{kind} {name}: {', '.join(words) or 'no limits'}")

    command = click.option("--clear", is_flag=True, help="No limits any more.")(command)
    command = click.option("--rate", type=_Rate(), metavar="N/SECONDS", help="So many starts per time.")(command)
    if kind == "tenant":
        weights = click.FloatRange(0.001, 1000)
        command = click.option("--weight", type=weights, help="Its share where tenants compete; 1 if not set.")(command)
    slots = "--slots" if kind == "tenant" else "--limit"
    command = click.option(slots, "limit", type=click.IntRange(0, 10_000), help="So many jobs at once.")(command)
    group.command(command_name, help=text)(click.argument("name")(command))


async def _all(ops: Operations, kind: Kind) -> list[Any]:
    if kind == "lane":
        return list(await ops.lanes())
    ask: dict[Kind, Any] = {"queue": ops.queues, "type": ops.types, "tenant": ops.tenants}
    found: list[Any] = []
    while True:
        page = await ask[kind](after=found[-1].name if found else None, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def _row(scope: Scope) -> dict[str, Any]:
    row = as_dict(scope) | {"waiting": _counted(scope), "paused": _paused(scope)}
    if isinstance(scope, Queue) and (rate := _rate(scope)) is not None:
        row["rate"] = f"{rate[0]}/{rate[1]:g}"
    if isinstance(scope, Lane) and scope.utilisation is not None:
        row["utilisation"] = f"{scope.utilisation:.0%}"
    if isinstance(scope, Tenant) and scope.weight is not None:
        row["weight"] = f"{scope.weight:g}"
    return row


def _counted(scope: Scope) -> str:
    return f"{scope.waiting}{'+' if scope.waiting_more else ''}"


def _paused(scope: Scope) -> str:
    if scope.paused_at is None:
        return ""
    why = f": {scope.paused_note}" if scope.paused_note else ""
    return f"{age(scope.paused_at)} ago by {scope.paused_by}{why}"


def _rate(scope: Queue) -> tuple[int, float] | None:
    return None if scope.rate_count is None or scope.rate_seconds is None else (scope.rate_count, scope.rate_seconds)


_LIMITS = {"limit_count": "limit", "rate": "rate", "weight": "weight"}
_COUNTS = {"name": "NAME", "waiting": "WAITING", "running": "RUNNING"}
_LIMITED = {"limit_count": "LIMIT", "rate": "RATE"}
_PAUSED = {"paused": "PAUSED"}

queues = _group("queue", _COUNTS | _LIMITED | _PAUSED)
types = _group("type", _COUNTS | {"queue": "QUEUE", "lane": "LANE", "workers": "WORKERS"} | _LIMITED | _PAUSED)
lanes = _group("lane", _COUNTS | {"slots": "SLOTS", "used": "USED", "utilisation": "UTILISATION"} | _PAUSED)
tenants = _group("tenant", _COUNTS | {"limit_count": "SLOTS", "weight": "WEIGHT", "rate": "RATE"} | _PAUSED)

_limits(queues, "queue", "limit", "Limit how many jobs of a queue run at once, and start per time.")
_limits(types, "type", "limit", "Limit how many jobs of a type run at once, and start per time.")
_limits(tenants, "tenant", "set", "Set how many slots a tenant may use, and its weight beside others.")
