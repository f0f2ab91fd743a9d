"""Things declared in one place and needed in others: a missing place is named (see docs/extending.md)."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from inspect import isabstract
from pathlib import Path
from typing import Any, get_args

import asyncpg
import click

import holdfast as holdfast_module
from holdfast import cli, errors
from holdfast.cli.root import holdfast
from holdfast.config import Config
from holdfast.errors import HandlerSignal
from holdfast.maintenance import duties
from holdfast.maintenance.duty import Duty
from holdfast.model.hints import Hints
from holdfast.model.outcome import COSTS_ATTEMPT, Kind, Outcome
from holdfast.store.database import Database
from holdfast.store.leases import _VERBS, LeaseStore, Settlement
from holdfast.store.statements import kit_queries, queries
from holdfast.telemetry import events
from holdfast.telemetry.narrator import NARRATED
from holdfast.worker.endings import SIGNALS
from tests.sql.factories import enqueue_copies

ROOT = Path(__file__).parents[2]
#: Told without a log line: there are too many of them, and the end of an attempt tells it all.
SILENT = {"AttemptStarted", "JobEnqueued"}


async def test_every_outcome_is_made_settled_and_stored(conn: asyncpg.Connection) -> None:
    kinds = set(get_args(Kind))
    assert set(_VERBS) | {"success"} == kinds, "src/holdfast/store/leases.py settles each kind by a verb"
    made = set(re.findall(r'kind="(\w+)"', (ROOT / "src/holdfast/model/outcome.py").read_text()))
    assert made == kinds, "each kind has a named constructor in src/holdfast/model/outcome.py"
    assert all(Outcome(kind=kind) for kind in get_args(Kind))
    check = "select pg_get_constraintdef(oid) from pg_constraint where conname = 'job_attempts_outcome_check'"
    stored = set(re.findall(r"'(\w+)'", await conn.fetchval(check)))
    assert stored == kinds | {"lost"}, "the table of attempts takes it: a migration"
    costly = {kind for kind in stored if await conn.fetchval("select failures_after($1, 0) > 0", kind)}
    assert costly == COSTS_ATTEMPT, "src/holdfast/sql/functions and holdfast.model.outcome say the same"
    for kind in stored - costly:
        verdict = await conn.fetchval("select next_state($1, null, null, 'retry', 0, 3, null)", kind)
        assert verdict != "retry", f"{kind}: next_state (sql/functions/basics.sql) has no rule"
    (reasons,) = re.findall(r"^\| `reason:\w+` \|.*$", _page("docs/reference.md"), re.MULTILINE)
    untold = {kind for kind in stored - {"success"} if f"`{kind}`" not in reasons}
    assert not untold, "docs/reference.md, the filter language: what `reason:` can be"


async def test_every_outcome_that_a_worker_tells_is_taken(conn: asyncpg.Connection, database_url: str) -> None:
    kinds = get_args(Kind)
    await enqueue_copies(conn, len(kinds))
    database = Database(Config.load(database_url=database_url), role="worker", size=1)
    await database.open()
    try:
        store = LeaseStore(database, "w1")
        streams = await store.streams(["work"], None, None)
        claims = await store.claim(Hints.everything(list(streams)), streams, len(kinds), None)
        batch = [
            Settlement(claim.job_id, claim.attempt, Outcome(kind=kind, delay_seconds=0.0), 1, None)
            for kind, claim in zip(kinds, claims, strict=True)
        ]
        await store.settle(batch)
    finally:
        await database.close()
    rows = await conn.fetch("select job_id, outcome from job_attempts")
    stored = {row["job_id"]: row["outcome"] for row in rows}
    assert [stored[entry.job_id] for entry in batch] == list(kinds)


def test_every_signal_of_a_handler_is_public_obeyed_and_described() -> None:
    obeyed = set(re.findall(r"case (\w+)\(", _page("src/holdfast/worker/verdicts.py")))
    table = _page("docs/reference.md").partition("## What a handler may raise\n")[2].partition("\n## ")[0]
    for name, kind in SIGNALS.items():
        assert name in holdfast_module.__all__, "src/holdfast/__init__.py: users import it from there"
        assert name in obeyed, "src/holdfast/worker/verdicts.py makes an outcome of it"
        assert f"| `{name}(" in table, "docs/reference.md tells what becomes of the job"
        assert f"├── {name} " in str(errors.__doc__) or f"└── {name} " in str(errors.__doc__), "the tree in errors.py"
        assert kind.code != HandlerSignal.code


def test_every_duty_is_done() -> None:
    for module in pkgutil.iter_modules(duties.__path__, f"{duties.__name__}."):
        importlib.import_module(module.name)
    declared = {kind for kind in _subclasses(Duty) if kind.__module__.startswith(duties.__name__)}
    forgotten = {kind.__name__ for kind in declared if not isabstract(kind)} - {kind.__name__ for kind in duties.DUTIES}
    assert not forgotten, "src/holdfast/maintenance/duties/__init__.py lists what is done"


def test_every_router_is_included() -> None:
    made = {
        name
        for source in (ROOT / "src/holdfast/web").rglob("*.py")
        for name in re.findall(r"^def (\w+_router)\(", source.read_text(), re.MULTILINE)
    }
    included = set(re.findall(r"(\w+_router)\(", (ROOT / "src/holdfast/web/routes.py").read_text()))
    assert made <= included, "src/holdfast/web/routes.py includes every router"


def test_every_command_is_found_from_the_root() -> None:
    made = {
        f"{module.name}: {name}"
        for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}.")
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, click.Command) and value.callback is not None and value is not holdfast
        if value.callback.__module__ == module.name and value not in set(_commands(holdfast))
    }
    assert not made, "src/holdfast/cli/root.py, or the command's group, has it"


def test_every_statement_has_a_verb() -> None:
    named = {
        node.value
        for source in (ROOT / "src/holdfast/store").glob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    unused = {*queries("holdfast"), *kit_queries("holdfast")} - named
    assert not unused, "nobody in src/holdfast/store runs these"


def test_every_event_is_told_and_described() -> None:
    kinds = {name for name in events.__all__ if name != "Event"}
    assert kinds - {kind.__name__ for kind in NARRATED} == SILENT, "src/holdfast/telemetry/narrator.py gives it a line"
    page = (ROOT / "docs/how-to/middleware.md").read_text()
    unnamed = {name for name in kinds if f"`{name}`" not in page}
    assert not unnamed, "docs/how-to/middleware.md lists what can be observed"


def test_what_the_page_on_extending_names_exists() -> None:
    page = (ROOT / "docs/extending.md").read_text()
    files = set(re.findall(r"`((?:src|tests|docs|scripts)/[\w/.-]+\.\w+)`", page))
    assert not [name for name in files if not (ROOT / name).exists()]
    rooms = "|".join(path.name for path in (ROOT / "src/holdfast").iterdir() if path.is_dir())
    below = set(re.findall(rf"`((?:{rooms})/[\w/.]+\.\w+)`", page))
    assert len(below) > 30
    assert not [name for name in below if not (ROOT / "src/holdfast" / name).exists()]
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in re.findall(r"`(test_\w+)`", page) if f"def {name}(" not in written]


def _page(name: str) -> str:
    return (ROOT / name).read_text()


def _subclasses(kind: type[Any]) -> set[type[Any]]:
    return {kind, *(one for direct in kind.__subclasses__() for one in _subclasses(direct))}


def _commands(group: click.Group) -> Iterator[click.Command]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)
