"""The benchmark's parts do what they say, on a small scale: enqueue, drain, tally, verdicts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench import tally
from bench.field import FIELD, chosen, wants_pgboss
from bench.options import Options
from bench.results import Result, Sample
from bench.verdicts import verdicts

from holdfast import Holdfast, State
from holdfast.web.server import listen
from tests.faults.test_intake import servers
from tests.harness import warm
from tests.harness.waiting import until

ROOT = Path(__file__).parents[2]


def drive(environment: Mapping[str, str], *arguments: object) -> dict[str, Any]:
    """One call of the driver; what it answered."""
    command = ["-m", "bench.drive", "holdfast", *map(str, arguments)]
    done = warm.run(command, cwd=ROOT, env={**os.environ, **environment}, timeout=100)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def test_jobs_are_enqueued_drained_and_counted(empty_database_url: str, tmp_path: Path) -> None:
    environment = {"BENCH_URL": empty_database_url, "BENCH_TALLY": str(tmp_path), "BENCH_WAITS": "1"}
    drive(environment, "prepare")
    assert drive(environment, "one", 5, 100)["count"] == 5
    assert drive(environment, "bulk", 30, 100, 20)["count"] == 30
    assert drive(environment, "tasks", 12, 100, 4)["count"] == 12
    assert drive(environment, "threads", 7, 100, 3)["count"] == 7  # and one before, which opens the connection
    assert drive(environment, "unfinished") == {"unfinished": 55}
    with (tmp_path / "worker").open("wb") as output:
        command = ["-m", "bench.drive", "holdfast", "work", "10"]
        worker = warm.Process(command, cwd=ROOT, env={**os.environ, **environment}, stdout=output)
    try:
        await until(lambda: tally.read(tmp_path).count == 55, what="all jobs are tallied")
        await asyncio.to_thread(drive, environment, "paced", 10, 100, 100)
        await until(lambda: tally.read(tmp_path).count == 65, what="those at a pace, too")
        await until(lambda: drive(environment, "unfinished") == {"unfinished": 0}, what="all are settled")
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    reading = tally.read(tmp_path, waits=True)
    assert len(reading.waits) == 65
    assert all(wait > 0 for wait in reading.waits)


def test_payloads_have_their_size_and_hardly_repeat() -> None:
    texts = {tally.stamped(size) for size in (100, 4000) for _ in range(50)}
    assert {len(text) for text in texts} == {100, 4000}
    assert len({text[20:] for text in texts}) > 90


@pytest.mark.parametrize(("ours", "holds"), [(700.0, True), (600.0, False)])
def test_a_verdict_compares_medians(ours: float, holds: bool) -> None:
    systems = {"holdfast": {"title": "Holdfast", "kind": "ours", "store": "postgres"}}
    systems |= {"loop": {"title": "bare loop", "kind": "limit"}, "pgbench": {"title": "pgbench", "kind": "limit"}}
    systems |= {"pgbench-batch": {"title": "pgbench", "kind": "limit"}, "insert": {"title": "INSERT", "kind": "limit"}}
    result = Result(about={"machine": {"cores": 2}}, systems=systems)
    for number, factor in enumerate((0.5, 1.0, 3.0)):
        for system, rate in (("holdfast", ours), ("loop", 1000.0)):
            figures = {"per_second": rate * factor}
            result.samples.append(Sample(cell="drain-1x100", system=system, round=number, figures=figures))
    (found,) = [verdict for verdict in verdicts(result) if "bare loop" in verdict.claim]
    assert found.holds is holds


def test_what_was_not_measured_is_not_judged() -> None:
    systems = {"holdfast": {"title": "Holdfast", "kind": "ours", "store": "postgres"}}
    systems |= {name: {"title": name, "kind": "limit"} for name in ("loop", "pgbench", "pgbench-batch", "insert")}
    result = Result(about={"machine": {"cores": 2}}, systems=systems)
    assert {verdict.holds for verdict in verdicts(result)} == {None}


def test_a_variant_takes_part_where_it_differs_and_nowhere_else() -> None:
    assert {peer.name: peer.only for peer in FIELD if peer.only} == {"pgqueuer_1000": "drain"}


def test_the_environment_is_read() -> None:
    options = Options.load({"PEERS": "all", "FULL": "1"})
    assert (options.rounds, options.backlog, options.history) == (5, 1_000_000, 5_000_000)
    assert Options.load({}).rounds == 3


def test_the_peer_over_http_is_chosen_by_its_own_name() -> None:
    assert chosen("pgboss") == ()
    assert wants_pgboss("pgboss,rq")
    assert wants_pgboss("all")
    assert not wants_pgboss("none")
    with pytest.raises(SystemExit, match="unknown nobody"):
        chosen("nobody,pgboss")


async def test_a_fleet_over_http_does_every_job_once(database_url: str) -> None:
    async with Holdfast(database_url) as hf:
        for _ in range(25):
            await hf.enqueue("bench.noop", {})
        with listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            async with servers(listener, database_url, [0]):
                arguments = ["holdfast", "127.0.0.1", str(port), "2", "10"]
                done = await asyncio.to_thread(
                    warm.run, ["-m", "bench.fleet", *arguments], cwd=ROOT, env=dict(os.environ), timeout=60
                )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["count"] == 25
        assert {job.state for job in await hf.find(types=["bench.noop"])} == {State.SUCCESS}
