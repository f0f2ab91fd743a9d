"""`holdfast schedules`: jobs that run regularly: list, show, make, change, pause, resume, run and delete them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from holdfast.cli.asking import asked, confirm, yes_option
from holdfast.cli.durations import Duration
from holdfast.cli.enqueue import object_of
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, output_option, print_record, print_records, shortened
from holdfast.client.operations import Operations
from holdfast.model.schedule import CATCH_UP_SECONDS, OVERLAPS, Fire, Schedule

__all__ = ["schedules"]

_COLUMNS = {
    "tenant": "TENANT", "name": "NAME", "state": "STATE", "job": "JOB", "words": "FIRES", "next_fire_at": "NEXT",
    "last_fire_at": "LAST", "owner": "OWNER", "trouble": "TROUBLE",
}  # fmt: skip
_FIRE_COLUMNS = {"fire_at": "FIRE TIME", "outcome": "OUTCOME", "job_id": "JOB", "state": "STATE", "by": "BY"}
_PAGE = 500

tenant_option = click.option("--tenant", default="default", show_default=True, help="Tenant of the schedule.")
note_option = click.option("--note", help="Why; stored in the audit log.")


@click.group()
def schedules() -> None:
    """Run jobs regularly: show, create, pause, resume and run schedules."""


@schedules.command("list")
@click.option("--tenant", help="Only this tenant's.")
@output_option
def list_(tenant: str | None, output: str) -> None:
    """List schedules by name, and say in words when they fire."""

    async def find(ops: Operations) -> list[Schedule]:
        found: list[Schedule] = []
        while True:
            after = (found[-1].tenant, found[-1].name) if found else None
            page = await ops.schedules.list(tenant=tenant, after=after, limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                return found

    found = asked(find)
    if output != "table":
        print_records([_listed(schedule) for schedule in found], {}, output)
        return
    print_records([_row(schedule) for schedule in found], _COLUMNS, output)
    if not found:
        echo("no schedules: declare them with hf.schedule(...), or see `holdfast schedules create --help`", err=True)


@schedules.command()
@click.argument("name")
@tenant_option
@click.option("--limit", type=Whole(1, 1000), default=10, show_default=True, help="How many fire times to show.")
@output_option
def show(name: str, tenant: str, limit: int, output: str) -> None:
    """Show a schedule, what became of its last fire times, and their jobs."""

    async def find(ops: Operations) -> tuple[Schedule, list[Fire]]:
        found = await ops.schedules.get(name, tenant=tenant)
        return found, list(await ops.schedules.fires(name, tenant=tenant, limit=limit))

    schedule, fires = asked(find)
    past = [fire._asdict() for fire in fires]
    if output != "table":
        print_record(_record(schedule) | {"fires": past}, output)
        return
    print_record(_record(schedule), output)
    print_records(past, _FIRE_COLUMNS, output)


@schedules.command("next")
@click.argument("name")
@tenant_option
@click.option("--count", type=Whole(1, 1000), default=5, show_default=True, help="How many.")
@output_option
def next_(name: str, tenant: str, count: int, output: str) -> None:
    """Show the next fire times of a schedule; none while it is paused."""
    found = asked(lambda ops: ops.schedules.next(name, tenant=tenant, count=count))
    print_records([{"fire_at": moment} for moment in found], {"fire_at": "FIRE TIME"}, output)


def _definition_options(command: Any) -> Any:
    for option in reversed((
        click.option("--cron", metavar="EXPRESSION", help='When: "0 2 * * *", six fields with seconds, @daily.'),
        click.option("--every", type=Duration(), metavar="15m", help="Or every so often: 30s, 15m, 2h, 1d."),
        click.option("--job", required=True, metavar="TYPE", help="The type of its jobs."),
        click.option("--payload", default="{}", metavar="JSON", help="The payload of its jobs."),
        click.option("--tz", default="UTC", show_default=True, help="The time zone of --cron, such as Europe/Berlin."),
        click.option(
            "--overlap", type=click.Choice(OVERLAPS), default="skip", show_default=True,
            help="While an earlier job is open: skip the fire time, queue behind that job, or allow both.",
        ),
        click.option(
            "--catch-up", type=Duration(), metavar="1h", default=timedelta(seconds=CATCH_UP_SECONDS),
            show_default="1d", help="Make up for fire times that are at most this late.",
        ),
        click.option("--jitter", type=Duration(), metavar="5m", default=timedelta(0), help="Delay jobs by up to this."),
        click.option("--priority", type=Whole(0), help="Priority of its jobs; lower goes first."),
        click.option("--queue", help="Queue of its jobs."),
        click.option("--target", help="Target of its jobs."),
        click.option("--max-attempts", type=Whole(1), help="How many failures and lost leases a job may have."),
        click.argument("name"),
        tenant_option,
        note_option,
    )):  # fmt: skip
        command = option(command)
    return command


@schedules.command()
@_definition_options
def create(**given: Any) -> None:
    """Create a schedule. Fails if there is one with this name."""
    _put(replace=False, **given)


@schedules.command("set")
@_definition_options
def set_(**given: Any) -> None:
    """Replace the definition of a schedule, or create it. Its last fire time is kept."""
    _put(replace=True, **given)


def _put(*, name: str, payload: str, replace: bool, **given: Any) -> None:
    options = {option: given.pop(option) for option in ("priority", "queue", "target", "max_attempts")}
    made = asked(
        lambda ops: ops.schedules.put(
            name,
            by=operator(),
            payload=object_of(payload, "the payload"),
            options={option: value for option, value in options.items() if value is not None},
            replace=replace,
            **given,
        ),
        ("type", given["job"]),
    )
    echo(f"schedule {made.name}: {made.words}")


@schedules.command()
@click.argument("name")
@tenant_option
@note_option
def pause(name: str, tenant: str, note: str | None) -> None:
    """Stop a schedule from firing. Jobs that are already recorded still run."""
    changed = asked(lambda ops: ops.schedules.pause(name, by=operator(), note=note, tenant=tenant))
    echo(f"schedule {name} {'paused' if changed else 'was paused already'}")


@schedules.command()
@click.argument("name")
@tenant_option
@note_option
def resume(name: str, tenant: str, note: str | None) -> None:
    """Let a schedule fire again. Fire times during the pause are skipped."""
    changed = asked(lambda ops: ops.schedules.resume(name, by=operator(), note=note, tenant=tenant))
    echo(f"schedule {name} {'resumed' if changed else 'was not paused'}")


@schedules.command()
@click.argument("name")
@tenant_option
@note_option
def run(name: str, tenant: str, note: str | None) -> None:
    """Record a job of a schedule now, and print its id."""
    echo(str(asked(lambda ops: ops.schedules.run(name, by=operator(), note=note, tenant=tenant))))


@schedules.command()
@click.argument("name")
@tenant_option
@note_option
@yes_option
def delete(name: str, tenant: str, note: str | None, *, yes: bool) -> None:
    """Remove a schedule that was made by an operator. Its jobs stay."""
    if not yes:
        found = asked(lambda ops: ops.schedules.get(name, tenant=tenant))
        confirm(f"{found.words}: {found.job}", f"Delete the schedule {name} ({found.words}: {found.job})?")
    asked(lambda ops: ops.schedules.delete(name, by=operator(), note=note, tenant=tenant))
    echo(f"schedule {name} deleted")


def _record(schedule: Schedule) -> dict[str, Any]:
    record = as_dict(schedule)
    for inner in ("id", "anchor", "reckoned_from"):
        del record[inner]
    return record


def _listed(schedule: Schedule) -> dict[str, Any]:
    record = _record(schedule)
    del record["payload"]
    return record


def _row(schedule: Schedule) -> dict[str, Any]:
    trouble = f"failed {schedule.failures} times: {schedule.last_error}" if schedule.failures else None
    if trouble is None and schedule.missed_at is not None:
        trouble = f"missed fire times, noticed {age(schedule.missed_at)} ago"
    return as_dict(schedule) | {
        "owner": "code" if schedule.declared else schedule.created_by,
        "next_fire_at": _ahead(schedule.next_fire_at),
        "last_fire_at": f"{age(schedule.last_fire_at)} ago" if schedule.last_fire_at else "",
        "trouble": shortened(trouble),
    }


def _ahead(moment: datetime | None) -> str:
    if moment is None:
        return ""
    left = moment - datetime.now(UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if left > timedelta(days=1) else f"{moment:%H:%M:%S} UTC"
