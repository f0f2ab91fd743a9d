from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg

from holdfast import Context, Holdfast, RetryPolicy, State
from tests.cli.conftest import Cli, invoke
from tests.cli.tasks import hf as tasks


async def test_enqueue_prints_the_id_of_a_job_with_the_options_given(cli: Cli, hf: Holdfast) -> None:
    options = ["--idempotency-key", "k", "--priority", 7, "--target", "t", "--queue", "q", "--dedup-key", "d"]
    options += ["--correlation-id", "c", "--max-attempts", 2, "--run-at", "2099-01-01T00:00:00Z"]
    result = await cli("enqueue", "add", '{"a": 1, "b": 2}', *options)
    job = await hf.get(result.stdout.strip())
    assert (job.type, job.payload, job.state) == ("add", {"a": 1, "b": 2}, State.SCHEDULED)
    assert (job.idempotency_key, job.priority, job.target, job.queue) == ("k", 7, "t", "q")
    assert (job.dedup_key, job.correlation_id, job.max_attempts) == ("d", "c", 2)
    assert job.run_at == datetime(2099, 1, 1, tzinfo=UTC)


async def test_a_key_repeated_answers_alike_and_with_another_payload_conflicts(cli: Cli) -> None:
    first = await cli("enqueue", "add", '{"a": 1}', "--idempotency-key", "k")
    again = await cli("enqueue", "add", '{"a": 1}', "--idempotency-key", "k")
    assert first.stdout == again.stdout
    other = await cli("enqueue", "add", '{"a": 2}', "--idempotency-key", "k", code=4)
    assert other.stderr.startswith("error: ")


async def test_lines_of_standard_input_become_a_job_each(cli: Cli, hf: Holdfast) -> None:
    result = await cli("enqueue", "add", "-", stdin='{"a": 1}\n\n{"a": 2}\n')
    assert "2 jobs recorded" in result.stderr
    jobs = [await hf.get(line) for line in result.stdout.splitlines()]
    assert [job.payload for job in jobs] == [{"a": 1}, {"a": 2}]
    broken = await cli("enqueue", "add", "-", stdin='{"a": 1}\nnonsense\n', code=2)
    assert "line 2" in broken.stderr


async def test_wait_gives_up_after_its_timeout(cli: Cli) -> None:
    result = await cli("enqueue", "add", "--wait", "--timeout", "0.05", code=1)
    assert "still queued after 0.05 s" in result.stderr


async def test_a_list_has_filters_and_three_forms(cli: Cli, hf: Holdfast) -> None:
    for number in range(3):
        await hf.enqueue("add", {"a": number}, target="t" if number else None)
    last = await hf.enqueue("nap", {"seconds": 1}, hold=True)
    whole = json.loads((await cli("jobs", "list", "-o", "json")).stdout)
    assert [entry["type"] for entry in whole] == ["nap", "add", "add", "add"]
    assert whole[0] | {"id": str(last.id), "state": "created", "status": "PENDING"} == whole[0]
    lines = (await cli("jobs", "list", "--type", "add", "--target", "t", "-o", "ndjson")).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(await hf.get(entry["id"])).payload["a"] for entry in found] == [2, 1]
    assert "payload" not in found[0]
    page = await cli("jobs", "list", "--limit", 1, "--before", last.id)
    assert page.stdout.splitlines()[0].split()[:3] == ["ID", "TYPE", "STATE"]
    assert len(page.stdout.splitlines()) == 2
    assert "more: --before" in page.stderr
    assert "\x1b[" not in page.output
    none = await cli("jobs", "list", "--state", "dead", "-o", "json")
    assert json.loads(none.stdout) == []


async def test_show_tells_attempts_and_events(cli: Cli, hf: Holdfast, database_url: str) -> None:
    job = await hf.enqueue("hopeless", {})
    worker = Holdfast(database_url)
    worker.registry = tasks.registry
    await worker.run_worker(burst=True, poll_interval=0.05)
    found = json.loads((await cli("jobs", "show", job.id, "-o", "json")).stdout)
    assert found["state"] == "dead"
    assert found["attempts"][0]["error_message"] == "it cannot be done"
    table = await cli("jobs", "show", job.id)
    assert "traceback of attempt 1\n  Traceback" in table.stdout
    retried = await cli("jobs", "retry", job.id)
    assert "runs again as" in retried.stdout, "what failed is run again without a question"
    await cli("jobs", "cancel", "--yes", job.id, code=4)


async def test_show_has_traceback_and_log_of_the_last_attempts_that_have_any(cli: Cli, hf: Holdfast) -> None:
    @hf.job("shaky", retry=RetryPolicy(base=0))
    async def shaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.logger.warning("the first\nevents\x1b[2J")
        if ctx.attempt < 3:
            raise ValueError(f"no luck {ctx.attempt}")

    job = await shaky.enqueue()
    await hf.run_worker(burst=True, poll_interval=0.05)
    assert (await hf.get(job)).state is State.SUCCESS
    table = (await cli("jobs", "show", job.id)).stdout
    assert table.index("attempts\n") < table.index("\ntraceback of attempt 2\n  Traceback")
    assert "\n  ValueError: no luck 2\n" in table
    assert "\n  ValueError: no luck 1\n" not in table, "only the last one"
    assert "\nlog of attempt 1\n  WARNING the first\n  events\\x1b[2J\n" in table


async def test_a_misspelt_type_is_told_when_a_job_is_recorded(cli: Cli, hf: Holdfast) -> None:
    @hf.job("email.send")
    async def send(ctx: Context) -> None: ...

    await hf.run_worker(burst=True)
    for arguments, stdin in ((("emial.send", "{}"), None), (("emial.send", "-"), "{}\n{}\n")):
        told = await cli("enqueue", *arguments, stdin=stdin)
        said = "no worker has published the job type emial.send; did you mean email.send?"
        assert told.stderr.splitlines()[0] == said
        assert all(UUID(line) for line in told.stdout.splitlines())
    assert (await cli("enqueue", "email.send", "{}")).stderr == ""
    assert (await cli("enqueue", "x", "{}")).stderr == "no worker has published the job type x\n"


async def test_a_job_is_recorded_for_a_tenant(cli: Cli, hf: Holdfast) -> None:
    answer = await cli("enqueue", "add", '{"a": 1, "b": 2}', "--tenant", "acme")
    assert (await hf.get(answer.stdout.strip())).tenant == "acme"
    lines = await cli("enqueue", "add", "-", "--tenant", "acme", stdin='{"a": 1, "b": 2}\n')
    assert (await hf.get(lines.stdout.strip())).tenant == "acme"


def test_a_list_says_when_the_embedded_database_is_new(roomy_path: Path) -> None:
    home = {"HOLDFAST_HOME": str(roomy_path / "home")}
    try:
        first, second = (invoke("jobs", "list", environment=home) for _ in range(2))
        assert first.stderr == f"no jobs yet: the embedded database of {roomy_path}/home has just been set up\n"
        assert second.stderr == f"no jobs in the embedded database of {roomy_path}/home\n"
    finally:
        invoke("db", "stop", environment=home)


async def test_a_job_that_has_succeeded_is_run_again_only_if_that_is_meant(cli: Cli, hf: Holdfast) -> None:
    @hf.job("once")
    async def once(ctx: Context) -> None: ...

    done, waiting = await once.enqueue(), await once.options(delay=3600).enqueue()
    await hf.run_worker(burst=True, types=["once"])
    refused = await cli("jobs", "retry", waiting.id, done.id, code=2)
    assert "1 job has succeeded and would run again: add --yes" in " ".join(refused.stderr.split())
    assert await hf.find(types=["holdfast.retry"]) == [], "nothing was asked for, of the other neither"
    again = await cli("jobs", "retry", done.id, "--yes")
    assert "runs again as" in again.stdout


async def test_verbs_ask_for_what_they_say(cli: Cli, hf: Holdfast) -> None:
    job = await hf.enqueue("add", {})
    held = await hf.enqueue("add", {}, hold=True)
    await cli("jobs", "release", held.id)
    assert (await hf.get(held)).state is State.QUEUED
    for verb in ("pause", "retry"):
        await cli("jobs", verb, job.id, "--reason", "a test")
    await cli("jobs", "cancel", job.id, held.id, "--yes")
    requests = await hf.find(types=["holdfast.pause", "holdfast.retry", "holdfast.cancel"])
    assert len(requests) == 4
    asked = (await hf.get(requests[-1])).payload
    assert asked["note"] == "a test"
    assert asked["by"].startswith("cli:")


async def test_a_public_reason_is_told_to_clients(cli: Cli, hf: Holdfast) -> None:
    internal, public = await hf.enqueue("add", {}), await hf.enqueue("add", {})
    await cli("jobs", "cancel", internal.id, "--reason", "a leak", "--yes")
    await cli("jobs", "resolve", public.id, "--reason", "done by hand", "--public", "--yes")
    asked = [(await hf.get(request)).payload for request in await hf.find(types=["holdfast.cancel"])]
    assert [(one["note"], one.get("message")) for one in asked] == [("done by hand", "done by hand"), ("a leak", None)]


async def test_what_cannot_be_done_has_its_exit_code_and_does_not_stop_the_rest(cli: Cli, hf: Holdfast) -> None:
    job = await hf.enqueue("add", {})
    await cli("jobs", "show", uuid4(), code=3)
    await cli("jobs", "resume", job.id, code=4)
    mixed = await cli("jobs", "pause", uuid4(), job.id, code=3)
    assert f"{job.id}  pause asked for" in mixed.stdout


async def test_cancel_needs_yes_where_nobody_can_be_asked(cli: Cli, hf: Holdfast) -> None:
    job = await hf.enqueue("add", {})
    result = await cli("jobs", "cancel", job.id, code=2)
    assert "--yes" in result.stderr
    assert (await hf.get(job)).state is State.QUEUED


async def test_what_is_asked_for_is_in_the_audit_log(cli: Cli, hf: Holdfast) -> None:
    held = await hf.enqueue("add", {"a": 1}, hold=True)
    job = await hf.enqueue("add", {"a": 1}, delay=3600)
    await cli("jobs", "release", held.id)
    for verb in ("pause", "retry", "cancel"):
        await cli("jobs", verb, job.id, "--reason", "why not", *(["--yes"] if verb == "cancel" else []))
    async with hf.maintaining():
        await hf.wait(job, timeout=10)
    again = (await cli("jobs", "retry", job.id)).stdout.split()[-1]
    await cli("jobs", "cancel", job.id, "--yes", code=4)
    log = json.loads((await cli("keys", "audit", "-o", "json")).stdout)
    assert [(entry["action"], entry["subject"], entry["detail"]) for entry in log] == [
        ("job.retry", str(job.id), {"runs_as": again}),
        ("job.cancel", str(job.id), {"note": "why not"}),
        ("job.retry", str(job.id), {"note": "why not"}),
        ("job.pause", str(job.id), {"note": "why not"}),
        ("job.release", str(held.id), {}),
    ]
    for entry in log:
        assert entry["actor"].startswith("cli")
        assert (entry["tenant"], entry["address"], entry["request_id"]) == ("default", socket.gethostname(), None)


async def test_too_many_queues_of_a_tenant_are_refused_with_advice(cli: Cli, conn: asyncpg.Connection) -> None:
    await conn.execute("update settings set value = '1' where name = 'STREAMS_PER_TENANT'")
    await cli("enqueue", "add", "{}", "--queue", "a")
    refused = await cli("enqueue", "add", "{}", "--queue", "b", code=4)
    assert refused.stderr.startswith("error: tenant default has 1 ")
    assert "raise the limit" in refused.stderr
    await cli("enqueue", "add", "{}", "--queue", "a")


async def test_enqueue_refuses_what_no_worker_takes(cli: Cli, hf: Holdfast, conn: asyncpg.Connection) -> None:
    @Holdfast().job("mail")
    async def mail(ctx: Context, to: str) -> None: ...

    definitions = json.dumps([mail.job_type.published()])
    await conn.execute("select publish_types($1::jsonb)", definitions)
    misfit = await cli("enqueue", "mail", '{"to": 1}', code=2)
    assert "mail: to: Input should be a valid string" in misfit.output
    lines = await cli("enqueue", "mail", "-", stdin='{"to": "ada"}\n\n{"from": "ada"}\n', code=2)
    assert "line 3: mail: to: Field required; from: Extra inputs are not permitted" in lines.output
    assert await hf.find() == []
    await conn.execute("update settings set value = 'warn' where name = 'VALIDATE_PAYLOADS'")
    await cli("enqueue", "mail", '{"to": 1}')
    assert len(await hf.find()) == 1


async def test_a_job_without_ended_attempts_says_so(cli: Cli, hf: Holdfast) -> None:
    job = await hf.enqueue("work")
    assert "no attempt of this job has ended" in (await cli("jobs", "attempts", job.id)).stderr
    assert (await cli("jobs", "attempts", job.id, "-o", "json")).stdout.strip() == "[]"
