"""`holdfast queues|types|lanes|tenants`: list, pause, resume and limit them; close and open job types."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from holdfast.cli.asking import asked
from holdfast.cli.numbers import Number, Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, output_option, print_records
from holdfast.cli.rates import RateType
from holdfast.client.operations import Operations
from holdfast.model.limits import Rate
from holdfast.model.subject import Kind, Lane, LimitChanges, Queue, Subject, Tenant, Type

__all__ = ["lanes", "queues", "tenants", "types"]

_PAGE = 500


def _group(kind: Kind, columns: dict[str, str]) -> click.Group:
    """The commands that every kind has."""

    @click.group(f"{kind}s", help=f"List, pause and resume {kind}s.")
    def group() -> None:
        pass

    @group.command("list", help=f"List {kind}s by name.")
    @output_option
    def list_(output: str) -> None:
        found = asked(lambda ops: _all(ops, kind))
        if output == "table":
            print_records([_row(subject) for subject in found], columns, output)
            if not found:
                echo(f"no {kind}s yet", err=True)
        else:
            print_records([_record(subject) for subject in found], {}, output)

    @group.command("pause", help=f"Stop claims of a {kind}. Running jobs finish; waiting jobs stay queued.")
    @click.argument("name")
    @click.option("--reason", help="Reason; shown to operators of the installation.")
    @click.option("--public", is_flag=True, help="Show the reason to tenants as well.")
    def pause(name: str, reason: str | None, *, public: bool) -> None:
        async def stop(ops: Operations) -> tuple[bool, Subject]:
            changed = await ops.pause(kind, name, by=operator(), reason=reason, public=public)
            return changed, await ops.subject(kind, name)

        changed, subject = asked(stop, (kind, name))
        did = "paused" if changed else f"was paused by {subject.paused_by}"
        echo(f"{kind} {name} {did}: {_counted(subject)} waiting, {subject.running} running")

    @group.command("resume", help=f"Resume claims of a {kind}.")
    @click.argument("name")
    @click.option("--reason", help="Reason; stored in the audit log.")
    def resume(name: str, reason: str | None) -> None:
        changed = asked(lambda ops: ops.resume(kind, name, by=operator(), reason=reason))
        echo(f"{kind} {name} {'resumed' if changed else 'was not paused'}")

    return group


def _limits(group: click.Group, kind: Kind, command_name: str, text: str) -> None:
    """Add the command that sets limits; what is not given stays as it is."""

    def command(name: str, limit: int | None, rate: Rate | None, *, clear: bool, weight: float | None = None) -> None:
        if clear == (limit is not None or rate is not None or weight is not None):
            raise click.UsageError("name a limit to set, or use --clear")

        changes: LimitChanges = {}
        if clear or limit is not None:
            changes["limit"] = limit
        if clear or rate is not None:
            changes["rate"] = rate
        if weight is not None or (clear and kind == "tenant"):
            changes["weight"] = weight

        async def change(ops: Operations) -> Subject:
            await ops.change_limits(kind, name, changes, by=operator())
            return await ops.subject(kind, name)

        subject = asked(change, (kind, name))
        shown = _row(subject)
        words = [f"{heading} {shown[key]}" for key, heading in _LIMITS.items() if shown.get(key) is not None]
        echo(f"{kind} {name}: {', '.join(words) or 'no limits'}")

    command = click.option("--clear", is_flag=True, help="Remove all limits.")(command)
    command = click.option("--rate", type=RateType(), metavar="100/min", help="Jobs that may start per time.")(command)
    if kind == "tenant":
        weights = Number(0.001, 1000)
        command = click.option("--weight", type=weights, help="Its share among tenants; 1 if not set.")(command)
    slots = "--slots" if kind == "tenant" else "--limit"
    command = click.option(slots, "limit", type=Whole(0, 10_000), help="Jobs that may run at once.")(command)
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


def _record(subject: Subject) -> dict[str, Any]:
    """What programs read: a rate is one text."""
    record = as_dict(subject)
    if isinstance(subject, Queue):
        record["rate"] = _written(subject.rate)
    if isinstance(subject, Type):
        record["declared_rate"] = _written(subject.declared_rate)
    return {name: value for name, value in record.items() if not name.endswith(("rate_count", "rate_seconds"))}


def _row(subject: Subject) -> dict[str, Any]:
    """What people read: limits as they hold, and where they come from."""
    row = _record(subject) | {"waiting": _counted(subject), "paused": _paused(subject)}
    if isinstance(subject, Type):
        row["limit_count"] = _holds(subject.limit_count, subject.declared_limit, subject.declared_limit_key)
        row["rate"] = _holds(row["rate"], row["declared_rate"], subject.declared_rate_key)
        if subject.closed_at is not None:
            row["closed"] = _decided(subject.closed_at, subject.closed_by, subject.closed_note)
    if isinstance(subject, Lane) and subject.utilisation is not None:
        row["utilisation"] = f"{subject.utilisation:.0%}"
    if isinstance(subject, Tenant) and subject.weight is not None:
        row["weight"] = f"{subject.weight:g}"
    return row


def _counted(subject: Subject) -> str:
    return f"{subject.waiting}{'+' if subject.waiting_more else ''}"


def _paused(subject: Subject) -> str:
    return "" if subject.paused_at is None else _decided(subject.paused_at, subject.paused_by, subject.paused_note)


def _decided(at: datetime, by: str | None, reason: str | None) -> str:
    return f"{age(at)} ago by {by}{f': {reason}' if reason else ''}"


def _written(rate: Rate | None) -> str | None:
    return None if rate is None else str(rate)


def _holds(chosen: int | str | None, declared: int | str | None, key: str | None) -> int | str | None:
    """An operator's number replaces the declared one, and keeps its key."""
    per = "" if key is None else f" per {key}"
    if declared is None:
        return chosen
    return f"{declared}{per} (declared)" if chosen is None else f"{chosen}{per} (declared: {declared})"


_LIMITS = {"limit_count": "limit", "rate": "rate", "weight": "weight"}
_COUNTS = {"name": "NAME", "waiting": "WAITING", "running": "RUNNING"}
_LIMITED = {"limit_count": "LIMIT", "rate": "RATE"}
_PAUSED = {"paused": "PAUSED"}
_CLOSED = {"closed": "CLOSED"}

queues = _group("queue", _COUNTS | _LIMITED | _PAUSED)
types = _group(
    "type", _COUNTS | {"queue": "QUEUE", "lane": "LANE", "workers": "WORKERS"} | _LIMITED | _PAUSED | _CLOSED
)
lanes = _group("lane", _COUNTS | {"slots": "SLOTS", "used": "USED", "utilisation": "UTILISATION"} | _PAUSED)
tenants = _group("tenant", _COUNTS | {"limit_count": "SLOTS", "weight": "WEIGHT", "rate": "RATE"} | _PAUSED)

_limits(queues, "queue", "limit", "Limit how many jobs of a queue run at once or start per time.")
_limits(types, "type", "limit", "Limit how many jobs of a type run at once or start per time.")
_limits(tenants, "tenant", "set", "Set how many slots a tenant may use, and its weight.")


@types.command("close")
@click.argument("name")
@click.option("--reason", help="Reason; shown to every caller who submits a job.")
def close(name: str, reason: str | None) -> None:
    """Refuse new jobs of a type from every caller. Accepted jobs still run."""

    async def change(ops: Operations) -> tuple[bool, Subject]:
        return await ops.close_type(name, by=operator(), reason=reason), await ops.subject("type", name)

    changed, subject = asked(change, ("type", name))
    did = "closed" if changed or not isinstance(subject, Type) else f"was closed by {subject.closed_by}"
    echo(f"type {name} {did}: {_counted(subject)} waiting, {subject.running} running")


@types.command("open")
@click.argument("name")
@click.option("--reason", help="Reason; stored in the audit log.")
def open_(name: str, reason: str | None) -> None:
    """Accept new jobs of a type again."""
    changed = asked(lambda ops: ops.open_type(name, by=operator(), reason=reason))
    echo(f"type {name} {'accepts new jobs again' if changed else 'was not closed'}")
