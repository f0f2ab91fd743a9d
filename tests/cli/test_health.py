"""The port of a worker: probes, and metrics with the names, types, labels and buckets that dashboards know."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast, State
from holdfast.cli import health as module
from holdfast.cli.health import HealthPort
from holdfast.telemetry.events import AttemptEnded, Mended
from holdfast.telemetry.shared_metrics import SharedMetrics, collected
from holdfast.telemetry.worker_metrics import WorkerMetrics
from holdfast.worker.vitals import VitalSigns
from tests.cli.conftest import TASKS, Cli, Running, Start
from tests.harness.inprocess import reached
from tests.harness.waiting import until

SECONDS = ["0.1", "0.3", "0.5", "0.7", "1.0", "3.0", "5.0", "7.0", "10.0", "+Inf"]
MILLISECONDS = [
    10, 30, 50, 70, 100, 300, 500, 700, 1000, 1500, 2000, 2500, 3000, 3500,
    4000, 4500, 5000, 5500, 6000, 6500, 7000, 7500, 8000, 8500, 9000, 9500, 10000,
]  # fmt: skip
#: Type, labels and buckets of every platform figure of a worker.
FIGURES = {
    "job_processing_duration_seconds": ("histogram", {"job_type", "status"}, SECONDS),
    "job_queue_latency_milliseconds": ("histogram", {"job_type"}, [f"{n}.0" for n in MILLISECONDS] + ["+Inf"]),
    "job_processed": ("counter", {"job_type", "status"}, None),
    "db_query_duration_seconds": ("histogram", {"query_type"}, SECONDS),
    "db_query_errors": ("counter", {"query_type", "error_type"}, None),
    "job_active_count": ("gauge", {"job_type"}, None),
    "job_queue_depth": ("gauge", {"job_type"}, None),
}


class Port:
    """The port of a worker that was started."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, page: str) -> httpx.Response:
        return httpx.get(f"{self._url}/{page}", timeout=10)

    def metrics(self) -> dict[str, Metric]:
        return {family.name: family for family in text_string_to_metric_families(self.get("metrics").text)}

    def value(self, name: str, **labels: str) -> float:
        """The value of a sample; 0 if there is none."""
        found = [s.value for f in self.metrics().values() for s in f.samples if (s.name, s.labels) == (name, labels)]
        return found[0] if found else 0.0


async def port_of(worker: Running) -> Port:
    await worker.wrote("probes and metrics are on port")
    line = next(line for line in worker.text.splitlines() if "probes and metrics are on port" in line)
    return Port(int(line.split("on port ")[1].split('"')[0]))


async def test_a_live_scrape_has_the_figures_that_dashboards_know(start: Start, hf: Holdfast) -> None:
    worker = start("worker", "--app", TASKS, "--health-port", "0")
    port = await port_of(worker)
    done, failed = await hf.enqueue("add", {"a": 1, "b": 1}), await hf.enqueue("hopeless", {})
    napping, unknown = await hf.enqueue("nap", {"seconds": 60}), await hf.enqueue("nobody.knows", {})
    await reached(hf, done, "success")
    await reached(hf, failed, "dead")
    await until(lambda: port.value("job_active_count", job_type="nap") == 1, what="the running job is counted")
    await until(
        lambda: port.value("job_queue_depth", job_type="nobody.knows") == 1, what="the leader counts waiting jobs"
    )
    told = port.metrics()
    assert told.keys() - {name for name in told if name.startswith("holdfast_")} == FIGURES.keys() - {"db_query_errors"}
    for name in told.keys() & FIGURES.keys():
        kind, labels, buckets = FIGURES[name]
        assert told[name].type == kind
        assert {frozenset(sample.labels.keys() - {"le"}) for sample in told[name].samples} == {frozenset(labels)}
        if buckets is not None:
            assert list(dict.fromkeys(s.labels["le"] for s in told[name].samples if "le" in s.labels)) == buckets
    assert port.value("job_processed_total", job_type="add", status="completed") == 1
    assert port.value("job_processed_total", job_type="hopeless", status="failed") == 1
    assert port.value("job_processing_duration_seconds_count", job_type="add", status="completed") == 1
    assert port.value("holdfast_leader") == 1
    assert port.value("holdfast_worker_slots_used", lane="general") == 1
    assert port.value("db_query_duration_seconds_count", query_type="claim_jobs") > 0
    assert [port.get(page).status_code for page in ("livez", "readyz", "jobs")] == [200, 200, 404]

    worker.process.send_signal(signal.SIGTERM)
    await until(lambda: port.get("readyz").status_code == 503, what="a worker that drains is not ready")
    assert port.get("readyz").text == "worker 1: draining\n"
    assert port.get("livez").status_code == 200
    assert port.value("job_active_count", job_type="nap") == 1
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert (await hf.get(napping)).state is (await hf.get(unknown)).state is State.QUEUED


async def test_counters_outlive_the_process_that_counted(start: Start, hf: Holdfast) -> None:
    workers = start("worker", "--app", TASKS, "--processes", 2, "--health-port", "0")
    port = await port_of(workers)
    await until(lambda: port.get("readyz").status_code == 200, what="both processes are ready")
    slots = port.value("holdfast_worker_slots", lane="general")
    for number in range(20):
        await reached(hf, await hf.enqueue("add", {"a": number, "b": 1}), "success")
    await until(lambda: port.value("job_processed_total", job_type="add", status="completed") == 20)
    children = workers.children()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    assert port.value("job_processed_total", job_type="add", status="completed") == 20
    await until(lambda: port.get("readyz").status_code == 503, what="who was killed is not ready")
    await until(lambda: port.get("readyz").status_code == 200, what="their successors are ready")
    assert set(workers.children()).isdisjoint(children)
    await reached(hf, await hf.enqueue("add", {"a": 1, "b": 1}), "success")
    await until(lambda: port.value("job_processed_total", job_type="add", status="completed") == 21)
    assert port.value("holdfast_worker_slots", lane="general") == slots


def test_gauges_of_processes_that_are_gone_do_not_count(tmp_path: Path) -> None:
    for number in (1, 2):
        shared = SharedMetrics(tmp_path, number)
        shared.counter("made_total", "Made", ("kind",)).add("a", amount=number)
        shared.gauge("now", "Now").set(number)
        shared.gauge("most", "Most", together="max").set(number)
        shared.close()

    def values(living: set[int]) -> dict[str, float]:
        return {s.name: s.value for metric in collected(tmp_path, living) for s in metric.samples}

    assert values({1, 2}) == {"made_total": 3, "now": 3, "most": 2}
    assert values({1}) == {"made_total": 3, "now": 1, "most": 1}
    again = SharedMetrics(tmp_path, 2)
    again.counter("made_total", "Made", ("kind",)).add("a")
    again.close()
    assert values({1, 2}) == {"made_total": 4, "now": 1, "most": 1}


def test_a_worker_counts_only_what_it_did_itself(tmp_path: Path) -> None:
    shared = SharedMetrics(tmp_path, 1)
    metrics = WorkerMetrics(shared, "w1")
    for worker in ("w1", "w2"):
        metrics.hear(
            AttemptEnded(
                job_id=uuid4(), type="t", tenant="default", queue="q", attempt=1, outcome="lost",
                state="retry", failures=1, duration_seconds=1, queue_seconds=1, correlation_id="c", worker=worker,
            )
        )  # fmt: skip
    metrics.hear(Mended(what="headless target"))
    shared.close()
    told = {(s.name, *s.labels.values()): s.value for m in collected(tmp_path, {1}) for s in m.samples}
    assert told["job_processed_total", "t", "failed_retryable"] == 1
    assert told["holdfast_repairs_total", "headless target"] == 1


@pytest.mark.parametrize(
    ("keeper", "loop", "fault"),
    [
        (1, 1, None),
        (1, 60, None),
        (14, 1, None),
        (16, 1, "the thread that keeps leases has been silent for 16 s"),
        (1, 91, "the event loop has been blocked for 91 s"),
    ],
)
def test_a_process_is_alive_while_its_thread_speaks_and_its_loop_is_not_blocked_for_too_long(
    keeper: float, loop: float, fault: str | None, tmp_path: Path
) -> None:
    now = time.monotonic()
    signs = VitalSigns(os.getpid(), now - keeper, now - loop, 60, "")
    signs.write(tmp_path / "vitals")
    read = VitalSigns.read(tmp_path / "vitals")
    assert read == signs
    assert read.fault() == fault


def test_probes_look_at_the_processes_that_are_there_now() -> None:
    port = HealthPort(("127.0.0.1", 0), None)
    now = time.monotonic()
    with port.open():
        port.watch({1: lambda: 11, 2: lambda: 22})
        VitalSigns(11, now, now, 60, "").write(port.folder / "vitals-1")
        VitalSigns(21, now - 100, now - 100, 60, "").write(port.folder / "vitals-2")  # the process before
        assert port.livez() == (200, "ok")
        assert port.readyz() == (503, "worker 2: starting")
        VitalSigns(22, now - 100, now, 60, "").write(port.folder / "vitals-2")
        assert port.livez() == (503, "worker 2: the thread that keeps leases has been silent for 100 s")
    assert not port.folder.exists()


def test_callers_who_say_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CALLERS", 3)
    health = HealthPort(("127.0.0.1", 0), None)
    with health.open():
        silent = [socket.create_connection(("127.0.0.1", health.port)) for _ in range(9)]
        began = time.monotonic()
        assert Port(health.port).get("livez").status_code == 200
        assert time.monotonic() - began < 4
        for connection in silent:
            connection.close()


async def test_folders_of_processes_that_were_killed_are_removed(start: Start) -> None:
    worker = start("worker", "--app", TASKS, "--health-port", "0")
    await port_of(worker)
    await until(lambda: (folder := _folder(worker.process.pid)) is not None and any(folder.glob("*.db")))
    left = _folder(worker.process.pid)
    assert left is not None
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    assert left.exists()
    health = HealthPort(("127.0.0.1", 0), None)
    with health.open():
        assert not left.exists()


@pytest.mark.parametrize("wrong", ["x", "70000", "1.2.3.4", "1.2.3.4:", ":1", "-1"])
async def test_an_address_that_is_none_is_refused(cli: Cli, wrong: str) -> None:
    refused = await cli("worker", "--app", TASKS, "--health-port", wrong, code=2)
    assert "is not a port from 0 to 65535, nor an address and a port such as 0.0.0.0:9464" in refused.stderr


async def test_a_port_that_is_taken_is_refused_before_the_worker_starts(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worker = start("worker", "--app", TASKS, "--health-port", taken.getsockname()[1])
        assert await worker.ended() == 2
    assert "cannot be used (Address already in use): --health-port" in worker.text
    assert not worker.lines("started")


def _folder(pid: int) -> Path | None:
    return next(iter(Path(tempfile.gettempdir()).glob(f"holdfast-metrics-{pid}-*")), None)
