"""Steering from the command line: pause, resume, limits, targets, explain, drain."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sys

import asyncpg
import pytest

from holdfast import Conflict, Context, Holdfast, InvalidInput, Limit, Rate
from tests.cli.conftest import Cli, Start
from tests.conftest import ConnectAs
from tests.harness.waiting import WAITED_FOR, until
from tests.sql.factories import elect, portion, request, run_one, settle, state_of


async def test_queues_types_lanes_and_tenants_are_paused_and_resumed(cli: Cli, hf: Holdfast) -> None:
    await hf.enqueue("mail", {}, queue="post")
    names = {"queues": "post", "types": "mail", "lanes": "general", "tenants": "default"}
    for noun, name in names.items():
        assert "1 waiting, 0 running" in (await cli(noun, "pause", name, "--reason", "a leak")).stdout
        assert "was paused by cli:" in (await cli(noun, "pause", name)).stdout
        (listed,) = [s for s in json.loads((await cli(noun, "list", "-o", "json")).stdout) if s["name"] == name]
        assert (listed["paused_note"], listed["waiting"]) == ("a leak", 1)
        assert "a leak" in (await cli(noun, "list")).stdout
        assert "resumed" in (await cli(noun, "resume", name)).stdout
        assert "was not paused" in (await cli(noun, "resume", name)).stdout
    await cli("lanes", "pause", "slow", code=2)


async def test_a_misspelt_type_or_queue_is_told_and_taken(cli: Cli, hf: Holdfast) -> None:
    @hf.job("email.send", queue="post")
    async def send(ctx: Context) -> None: ...

    await hf.run_worker(burst=True)
    commands = (("limit", "--limit", 3), ("limit", "--clear"), ("pause",))
    for command, *options in (*commands, ("close",)):
        told = await cli("types", command, "emial.send", *options)
        assert told.stderr == "no worker has published the job type emial.send; did you mean email.send?\n"
        assert "emial.send" in told.stdout
        assert (await cli("types", command, "email.send", *options)).stderr == ""
    await hf.enqueue("other", {}, queue="busy")
    for command, *options in commands:
        told = await cli("queues", command, "psot", *options)
        unknown = "the queue psot has no jobs, and no job type or worker uses it"
        assert told.stderr == f"{unknown}; did you mean post?\n"
        for known in ("post", "busy"):
            assert (await cli("queues", command, known, *options)).stderr == ""


async def test_types_are_closed_and_opened(cli: Cli) -> None:
    assert "closed: 0 waiting, 0 running" in (await cli("types", "close", "mail", "--reason", "a leak")).stdout
    assert "was closed by cli:" in (await cli("types", "close", "mail")).stdout
    assert "a leak" in (await cli("types", "list")).stdout
    refused = await cli("enqueue", "mail", "{}", code=4)
    assert "closed by cli:" in refused.stderr
    assert '("a leak")' in refused.stderr
    assert "accepts new jobs again" in (await cli("types", "open", "mail")).stdout
    assert "was not closed" in (await cli("types", "open", "mail")).stdout
    await cli("enqueue", "mail", "{}")
    await cli("types", "close", "holdfast.cancel", code=2)


async def test_limits_are_set_kept_and_cleared(cli: Cli) -> None:
    verbs = {"queues": ("limit", "--limit"), "types": ("limit", "--limit"), "tenants": ("set", "--slots")}
    for noun, (command, option) in verbs.items():
        assert (await cli(noun, command, "x", option, 3)).stdout.endswith("x: limit 3\n")
        assert (await cli(noun, command, "x", "--rate", "100/min")).stdout.endswith("x: limit 3, rate 100/min\n")
        listed = [s for s in json.loads((await cli(noun, "list", "-o", "json")).stdout) if s["name"] == "x"]
        assert [s["rate"] for s in listed] in ([], ["100/min"])
        if noun == "tenants":
            assert (await cli(noun, command, "x", "--weight", 2)).stdout.endswith("rate 100/min, weight 2\n")
        assert (await cli(noun, command, "x", "--clear")).stdout.endswith("x: no limits\n")
        await cli(noun, command, "x", code=2)
        await cli(noun, command, "x", "--rate", "often", code=2)


async def test_types_are_listed_with_the_limits_that_their_code_declares(cli: Cli, hf: Holdfast) -> None:
    @hf.job("mail", limit=50, rate="100/min")
    async def mail(ctx: Context, customer: str) -> None: ...

    @hf.job("import", limit=Limit(2, key="customer"), rate=Rate(5, per=30, key="customer"))
    async def run(ctx: Context, customer: str) -> None: ...

    await mail.enqueue(customer="ada")
    await run.enqueue(customer="ada")
    await hf.run_worker(burst=True)
    await cli("types", "limit", "import", "--limit", 7)
    table = " ".join((await cli("types", "list")).stdout.split())
    assert "50 (declared) 100/min (declared)" in table
    assert "7 per customer (declared: 2) 5/30s per customer (declared)" in table
    listed = {one["name"]: one for one in json.loads((await cli("types", "list", "-o", "json")).stdout)}
    assert (listed["mail"]["declared_rate"], listed["import"]["declared_rate"]) == ("100/min", "5/30s")


async def test_targets_and_explain_name_the_culprit(cli: Cli, hf: Holdfast, conn: asyncpg.Connection) -> None:
    heads = {}
    for name in ("a", "b", "free"):
        heads[name] = (await hf.enqueue("mail", {}, target=name)).id
        await elect(conn)
        if name != "free":
            await request(conn, "pause", heads[name], by="ada", note="wrong address")
            await conn.execute("select execute_requests()")
    lease = await run_one(conn, target="lost")
    lost = lease.job_id
    await settle(conn, "stop", [lease], outcomes=["paused"], notes=["Job was interrupted by user"])
    behind = await hf.enqueue("mail", {}, target="a")
    await elect(conn)
    found = {f["check"]: f for f in json.loads((await cli("doctor", "-o", "json", code=None)).stdout)}["targets"]
    assert (found["level"], found["detail"].partition(":")[0]) == ("warn", "3 blocked")
    assert f"a of default by job {heads['a']}, paused since " in found["detail"]
    assert " by ada (wrong address)" in found["detail"]
    assert " by w1 (Job was interrupted by user)" in found["detail"]
    rows = (await cli("targets", "list", "--blocked")).stdout.splitlines()
    assert [row.rstrip().partition(" ada ")[2].strip() for row in rows[1:3]] == ["wrong address"] * 2
    assert "w1" in rows[3]
    assert rows[3].rstrip().endswith("Job was interrupted by user")
    drained = ["--filter", "state:paused reason:drained"]
    assert [job["id"] for job in json.loads((await cli("jobs", "list", "-o", "json", *drained)).stdout)] == [str(lost)]
    await cli("jobs", "list", "--type", "mail", *drained, code=2)
    await cli("jobs", "resume", lost, *drained, code=2)
    await cli("jobs", "resume", lost, "--no-wait", code=2)
    assert "1 job matches: add --yes to resume them" in (await cli("jobs", "resume", *drained, code=2)).stderr
    await cli("jobs", "resume", *drained, "--yes", "--no-wait", "--reason", "deployed")
    while await portion(conn):
        pass
    assert [await state_of(conn, job) for job in (lost, heads["a"], heads["b"])] == ["queued", "paused", "paused"]
    await conn.execute("select request('cancel', array[$1::uuid]), execute_requests()", lost)
    listed = json.loads((await cli("targets", "list", "--blocked", "-o", "json")).stdout)
    assert [(t["target"], t["job_id"]) for t in listed] == [(name, str(heads[name])) for name in ("a", "b")]
    assert [t["waiting"] for t in listed] == [1, 0]
    first = await cli("targets", "list", "--limit", 2)
    assert "more: --tenant default --after b" in first.stderr
    assert "free" in (await cli("targets", "list", "--tenant", "default", "--after", "b")).stdout
    assert str(behind.id) in (await cli("targets", "show", "a")).stdout
    await cli("targets", "show", "nothing", code=3)
    told = (await cli("jobs", "explain", behind.id)).stdout
    assert told.startswith(f'The job waits behind job {heads["a"]} of its target "a", which was paused')
    assert json.loads((await cli("jobs", "explain", behind.id, "-o", "json")).stdout)["code"] == "target"
    await cli("jobs", "explain", "00000000-0000-7000-8000-000000000000", code=3)
    assert "--yes" in (await cli("jobs", "resolve", heads["a"], code=2)).stderr
    await cli("jobs", "resolve", heads["a"], "--yes", "--reason", "by hand")
    await conn.execute("select execute_requests()")
    assert (await hf.get(heads["a"])).state == "canceled"
    await cli("jobs", "resolve", heads["a"], "--yes", code=4)


async def test_a_drain_waits_until_nothing_runs_and_ctrl_c_leaves_it_in_place(
    cli: Cli, start: Start, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    assert "--yes" in (await cli("drain", code=2)).stderr
    assert "nothing runs" in (await cli("drain", "--yes", "--reason", "upgrade")).stdout
    assert "work is resumed" in (await cli("drain", "--resume")).stdout
    job = await hf.enqueue("work", {})
    assert await conn.fetchval("select count(*) from claim('w1', array['work'])") == 1
    assert "1 job still runs" in (await cli("drain", "--yes", "--no-wait", "--reason", "a move")).stdout
    again = (await cli("drain", "--yes", "--no-wait")).stdout
    assert re.search(r"already drained .+ ago by cli:.+: a move", again)
    first, second = start("drain", "--yes"), start("drain", "--yes")
    for waiting in (first, second):
        await waiting.wrote("1 job still runs")
    first.process.send_signal(signal.SIGINT)
    assert await first.ended() == 130
    assert "still drained; `holdfast drain --resume`" in first.text
    await conn.execute("select complete('w1', array[$1::uuid], array[1])", job.id)
    assert await second.ended() == 0
    assert "nothing runs" in second.text
    assert (await (await hf.operations()).draining()).paused_at is not None


async def test_an_interrupted_drain_does_not_say_that_it_holds(start: Start, conn: asyncpg.Connection) -> None:
    waits = f"select count(*) from {WAITED_FOR} where relation = 'controls'::regclass"
    async with conn.transaction():
        await conn.execute("lock table controls")
        draining = start("drain", "--yes")
        await until(lambda: conn.fetchval(waits), what="it waits for its turn")
        draining.process.send_signal(signal.SIGINT)
        assert await draining.ended() == 130
    assert "interrupted; the drain may not be recorded" in draining.text
    assert "still drained" not in draining.text


@pytest.mark.parametrize("options", [["--yes"], ["--queue", "post"]])
async def test_a_drain_waits_for_a_claim_that_began_before_the_pause(
    start: Start, cli: Cli, hf: Holdfast, connect_as: ConnectAs, options: list[str]
) -> None:
    """It has seen no pause, and nobody sees what it takes until it commits."""
    job = await hf.enqueue("work", {}, queue="post")
    claiming = await connect_as("worker")
    async with claiming.transaction():
        assert await claiming.fetchval("select count(*) from claim('w1', array['work'])") == 1
        waiting = start("drain", *options)
        await waiting.wrote("a claim from before is still under way")
        told = await cli("drain", *options, "--no-wait")
        assert "a claim from before is still under way" in told.stdout
        late = await cli("drain", *options, "--timeout", "0", code=1)
        assert "claims that began before are still under way after 0 s" in late.stderr
    await waiting.wrote("1 job still runs")
    await claiming.execute("select complete('w1', array[$1::uuid], array[1])", job.id)
    assert await waiting.ended() == 0
    assert "runs; `holdfast drain" in waiting.text


@pytest.mark.parametrize("kind", ["queue", "type", "lane", "tenant"])
async def test_one_queue_type_lane_or_tenant_is_drained(
    cli: Cli, start: Start, hf: Holdfast, conn: asyncpg.Connection, kind: str
) -> None:
    name = {"queue": "post", "type": "mail", "lane": "general", "tenant": "acme"}[kind]
    options = [f"--{kind}", name]
    job = await hf.enqueue("mail", {}, queue="post", tenant="acme")
    assert await conn.fetchval("select count(*) from claim('w1', array['mail'])") == 1
    told = await cli("drain", *options, "--no-wait", "--reason", "a move")
    assert told.stdout.startswith("claiming is stopped; 1 job still runs\n")
    late = await cli("drain", *options, "--timeout", "0.1s", code=1)
    assert re.search(r"already drained .+ ago by cli:.+: a move", late.stdout)
    assert "1 job still runs after 0.1 s; claims stay stopped; see `holdfast jobs list" in late.stderr
    assert f"`holdfast drain --{kind} {name} --resume` resumes work" in late.stderr
    first, second = start("drain", *options), start("drain", *options)
    for waiting in (first, second):
        await waiting.wrote("1 job still runs")
    first.process.send_signal(signal.SIGINT)
    assert await first.ended() == 130
    assert f"still drained; `holdfast drain --{kind} {name} --resume`" in first.text
    await conn.execute("select complete('w1', array[$1::uuid], array[1])", job.id)
    assert await second.ended() == 0
    assert f"drained: nothing of {kind} {name} runs" in second.text
    ops = await hf.operations()
    assert (await ops.draining()).paused_at is None
    assert f"work of {kind} {name} is resumed" in (await cli("drain", *options, "--resume")).stdout
    assert f"nothing of {kind} {name} was drained" in (await cli("drain", *options, "--resume")).stdout
    audited = [row["action"] for row in json.loads((await cli("audit", "-o", "json")).stdout)]
    assert audited == [f"{kind}.resume", f"{kind}.pause"]


async def test_a_drain_that_somebody_ends_is_not_taken_for_an_empty_queue(
    start: Start, hf: Holdfast, conn: asyncpg.Connection, cli: Cli
) -> None:
    await hf.enqueue("mail", {}, queue="post")
    assert await conn.fetchval("select count(*) from claim('w1', array['mail'])") == 1
    waiting = start("drain", "--queue", "post")
    await waiting.wrote("1 job still runs")
    await cli("queues", "resume", "post")
    assert await waiting.ended() == 4
    assert "somebody resumed work meanwhile" in waiting.text


async def test_a_drain_is_of_one_subject(cli: Cli) -> None:
    for options in (["--queue", "a", "--type", "b"], ["--all", "--queue", "a"]):
        assert "name one of" in (await cli("drain", *options, "--yes", code=2)).stderr
    await cli("drain", "--lane", "nowhere", code=2)


async def test_a_terminal_shows_a_bar_and_the_output_only_the_end(
    database_url: str, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    jobs = [(await hf.enqueue("mail", {}, queue="post")).id for _ in range(2)]
    assert await conn.fetchval("select count(*) from claim('w1', array['mail'], 2)") == 2
    ours, theirs = pty.openpty()
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": database_url, "TERM": "xterm", "COLUMNS": "100"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "drain", "--queue", "post",
        stdout=asyncio.subprocess.PIPE, stderr=theirs, env=environment,
    )  # fmt: skip
    os.close(theirs)
    shown: list[str] = []
    reader = asyncio.create_task(asyncio.to_thread(_read_all, ours, shown))
    try:
        for number, job in enumerate(jobs):
            await until(lambda: f"{number}/2" in "".join(shown), what="the bar shows it")  # noqa: B023 - used at once
            await conn.execute("select complete('w1', array[$1::uuid], array[1])", job)
        written, _ = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
        await reader
        os.close(ours)
    assert process.returncode == 0
    told = "drained: nothing of queue post runs; `holdfast drain --queue post --resume` resumes work\n"
    assert written.decode() == told
    assert "draining" in "".join(shown)


def _read_all(terminal: int, into: list[str]) -> None:
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how a terminal says that nobody writes to it any more
            return
        if not part:
            return
        into.append(part.decode(errors="replace"))


async def test_a_wait_asks_for_a_pause_and_goes_on_when_another_one_takes_its_place(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    """A tenant waits for its own drain, and the installation's operators pause it as well."""
    ops = await hf.operations()
    with pytest.raises(Conflict, match="drain or pause it first"):
        await ops.wait_drained("tenant", "acme", timeout=1)
    with pytest.raises(InvalidInput, match="timeout"):
        await ops.wait_drained("tenant", "acme", timeout=float("nan"))
    job = await hf.enqueue("mail", {}, tenant="acme")
    assert await conn.fetchval("select count(*) from claim('w1', array['mail'])") == 1
    await ops.drain("tenant", "acme", by="acme/ada", tenant="acme")
    looks: list[int] = []
    wait = ops.wait_drained("tenant", "acme", tenant="acme", timeout=60, progress=lambda d: looks.append(d.running))
    waiting = asyncio.create_task(wait)
    await until(lambda: looks, what="it waits")
    assert await ops.pause("tenant", "acme", by="bob")
    seen = len(looks)
    await until(lambda: len(looks) > seen, what="it looks again")
    await conn.execute("select complete('w1', array[$1::uuid], array[1])", job.id)
    assert (await waiting).drained
