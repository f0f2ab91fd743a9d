"""Every command of the runbook is run, section by section, on jobs that are in the trouble which it is about."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.config import Config
from tests.cli.conftest import TASKS, Cli, Start, cli, hf, start
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.sql.factories import job_in, publish

__all__ = ["cli", "hf", "start"]

PAGE = Path(__file__).parents[2] / "docs/how-to/runbook.md"
ID, FINGERPRINT, WORKER = "019a0000-0000-7000-8000-000000000000", "3f2a9c0d41b87e65", "web-1:4711:0f3a9c21"
#: Runs the commands of a section, one by one or all that are left; answers what the last one wrote.
Section = Callable[..., Awaitable[str]]


def sections() -> dict[str, list[str]]:
    """The commands of each section."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"^```console\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        commands = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
        if commands:
            found[part.partition("\n")[0]] = commands
    return found


TESTED = {
    "Is everything all right?", "Dead letters", "Close a circuit, or open it by hand",
    "Stop everything at once, and go on", "Drain before maintenance", "Jobs that run and do not end", "Many jobs fail",
    "The queue grows", "A worker takes much memory", "Follow one request through all its jobs",
}  # fmt: skip


@pytest.fixture
def section(cli: Cli) -> Callable[[str], Section]:
    """Chooses a section of the page."""

    def choose(title: str) -> Section:
        left = list(sections()[title])

        async def run(
            count: int | None = None, *, code: int | None = 0, told: Mapping[str, object] | None = None
        ) -> str:
            written = ""
            for _ in range(len(left) if count is None else count):
                line = left.pop(0)
                for placeholder, value in (told or {}).items():
                    assert placeholder in line or count is None or count > 1, line
                    line = line.replace(placeholder, str(value))
                program, *words = shlex.split(line)
                assert program == "holdfast"
                written = (await cli(*words, code=code)).stdout
            return written

        return run

    return choose


def test_every_section_with_commands_is_run_by_a_test() -> None:
    assert sections().keys() == TESTED


async def test_is_everything_all_right(section: Callable[[str], Section], conn: asyncpg.Connection, cli: Cli) -> None:
    long = await job_in(conn, "running", "import")
    await conn.execute("update jobs set started_at = now() - interval '2 hours' where id = $1", long)
    waiting = await job_in(conn, "queued", "import")
    await conn.execute(
        "update jobs set created_at = now() - interval '2 hours', run_at = now() - interval '2 hours' where id = $1",
        waiting,
    )
    await job_in(conn, "dead", "mail")
    run = section("Is everything all right?")
    assert "dead letters" in await run(1, code=None)
    assert "default" in await run(1)
    assert "import" in await run(1)
    assert "general" in await run(1)
    assert str(long) in await run(1)
    assert str(waiting) in await run(1)
    assert "boom" in await run(1)
    await run()


async def test_dead_letters(section: Callable[[str], Section], conn: asyncpg.Connection, cli: Cli) -> None:
    acknowledged, again = await job_in(conn, "dead", "mail"), await job_in(conn, "dead", "mail")
    run = section("Dead letters")
    assert str(again) in await run(1)
    assert "boom" in await run(1, told={ID: acknowledged})
    await run(1, told={ID: acknowledged})
    await run(1, told={ID: again})
    assert await conn.fetchval("select count(*) from dead_letters where acknowledged_at is null") == 0
    assert await conn.fetchval("select count(*) from jobs where retry_of = $1 and state = 'queued'", again) == 1


async def test_close_a_circuit_or_open_it_by_hand(section: Callable[[str], Section], conn: asyncpg.Connection) -> None:
    await conn.execute("select open_circuit('email-service', '', null, 'ada')")
    await section("Close a circuit, or open it by hand")()
    rows = await conn.fetch("select service_name, state from circuit_breakers")
    assert {row["service_name"]: row["state"] for row in rows} == {"email-service": "closed", "external-api": "open"}


async def test_stop_everything_at_once_and_go_on(
    section: Callable[[str], Section], conn: asyncpg.Connection, hf: Holdfast
) -> None:
    """Running handlers, too. Each job runs to its end afterwards, at no cost; what was paused before stays so."""
    interrupted: list[UUID] = []

    @hf.job("work")
    async def work(ctx: Context) -> None:
        if ctx.job_id not in interrupted:
            interrupted.append(ctx.job_id)
            await until(lambda: False, seconds=120)

    before = await job_in(conn, "paused", "other")
    jobs = await hf.enqueue_many([("work", {})] * 5)
    run = section("Stop everything at once, and go on")
    async with working(hf, lanes="general=3"):
        await until(lambda: len(interrupted) == 3)
        moment = datetime.now(UTC)
        assert "3 jobs still run" in await run(1)
        await run(1)
        for job_id in tuple(interrupted):
            await reached(hf, job_id, "paused")
        others = [job.id for job in jobs if job.id not in interrupted]
        assert {(await hf.get(job_id)).state for job_id in others} == {"queued"}
        await run(1)
        await until(lambda: len(interrupted) == 5, what="the others begin")
        await run(1, told={"2026-11-16T09:12:00": moment.isoformat()})
        done = [await reached(hf, job_id, "success") for job_id in interrupted[:3]]
        assert {job.failures for job in done} == {0}
        assert (await hf.get(before)).state == "paused"
        for job_id in others:
            await hf.cancel(job_id)
            await reached(hf, job_id, "canceled")


async def test_drain_before_maintenance(section: Callable[[str], Section], conn: asyncpg.Connection) -> None:
    await job_in(conn, "queued", "email.send")
    run = section("Drain before maintenance")
    assert await run(1) in PAGE.read_text()
    assert await conn.fetchval("select count(*) from claim('w1', array['email.send'])") == 0
    assert "resumed" in await run()
    assert await conn.fetchval("select count(*) from claim('w1', array['email.send'])") == 1


async def test_jobs_that_run_and_do_not_end(section: Callable[[str], Section], conn: asyncpg.Connection) -> None:
    hanging, lost = await job_in(conn, "running"), await job_in(conn, "running")
    await conn.execute("update jobs set started_at = now() - interval '2 hours'")
    run = section("Jobs that run and do not end")
    assert str(hanging) in await run(1)
    shown = await run(1, told={ID: hanging})
    assert re.search(r"lease_owner\s+w1", shown)
    await run(1)
    await run(1, told={ID: hanging})
    await run(1, told={ID: lost})
    assert await conn.fetchval("select verdict from leases where job_id = $1", hanging) == "retry"


async def test_many_jobs_fail(section: Callable[[str], Section], conn: asyncpg.Connection, hf: Holdfast) -> None:
    await publish(conn, "email.send")
    dead = await job_in(conn, "dead", "email.send")
    run = section("Many jobs fail")
    async with hf.maintaining():
        await run(1)
        assert "email.send" in await run(1)
        assert str(dead) in await run(1)
        await run(1, told={ID: dead})
        assert "paused" in await run(1)
        assert "resumed" in await run(1)
        (cause,) = await conn.fetch("select fingerprint from dead_letters")
        assert "1 done" in await run(1, told={FINGERPRINT: cause["fingerprint"]})


async def test_the_queue_grows(
    section: Callable[[str], Section], conn: asyncpg.Connection, hf: Holdfast, start: Start
) -> None:
    job = await hf.enqueue("add", {"a": 1, "b": 2})
    await conn.execute(
        "update jobs set created_at = now() - interval '1 hour', run_at = now() - interval '1 hour' where id = $1",
        job.id,
    )
    run = section("The queue grows")
    assert "add" in await run(1)
    await run(1)
    assert str(job.id) in await run(1)
    assert "no worker is alive" in await run(1, told={ID: job.id})
    (command,) = [line for line in sections()["The queue grows"] if line.startswith("holdfast worker")]
    words = shlex.split(command.replace("jobs:hf", TASKS))
    assert await start(*words[1:], "--burst").ended() == 0
    assert (await hf.get(job)).result == 3


async def test_a_worker_takes_much_memory(section: Callable[[str], Section], conn: asyncpg.Connection) -> None:
    await conn.execute("select enlist_worker($1, 'web-1', 4711, '0.3.0', '{}', array['work'], null, null)", WORKER)
    await section("A worker takes much memory")()
    assert await conn.fetchval("select setting('PAYLOAD_MAX_BYTES')") == "262144"
    assert await conn.fetchval("select is_quiet($1)", WORKER)


async def test_follow_one_request_through_all_its_jobs(
    section: Callable[[str], Section], conn: asyncpg.Connection, hf: Holdfast
) -> None:
    parent = await hf.enqueue("order", {}, correlation_id="user-action-123")
    child = await hf.enqueue("mail", {}, parent=parent.id, correlation_id="user-action-123")
    run = section("Follow one request through all its jobs")
    listed = await run(1)
    assert str(parent.id) in listed
    assert str(child.id) in listed
    assert str(child.id) in await run(1, told={ID: parent.id})
    await run(1, told={ID: parent.id})


def environments() -> list[dict[str, str]]:
    blocks = re.findall(r"^```text\n(HOLDFAST_.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]


async def test_the_settings_of_a_plain_job_table_are_those_that_the_page_says(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of production are the defaults, and those of development are in force where they are set."""
    production, development = environments()
    plain, said = Config.load({}), Config.load(production)
    for variable in production:
        name = variable.removeprefix("HOLDFAST_").lower()
        assert getattr(said, name) == getattr(plain, name), variable
    for variable, value in development.items():
        monkeypatch.setenv(variable, value)
    shown = {row["variable"]: row for row in json.loads((await cli("config", "-o", "json")).stdout)}
    assert {shown[variable]["origin"] for variable in development} == {"environment"}
