"""The port of a worker for probes and Prometheus: `/livez`, `/readyz`, `/metrics`.

A thread serves it, so that a busy event loop does not keep a probe waiting. The worker's processes write what they know
into a folder, each at its place. The process that has the port reads only that folder, whether it runs the worker
itself or watches over several that do.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from typing import Any

import click

from holdfast.errors import ConfigError
from holdfast.lifecycle.importing import forget_variable
from holdfast.worker.vitals import VitalSigns
from holdfast.worker.worker import Worker

__all__ = ["METRICS", "HealthAddress", "HealthPort", "Place", "measure", "place_given"]

#: The environment variable that tells a process its place: a number and the folder.
METRICS = "HOLDFAST_METRICS"
_PREFIX = "holdfast-metrics-"
#: How many callers are served at once, and how long one may take.
_CALLERS, _SECONDS = 16, 5.0

#: The number of a process and the folder into which it writes.
Place = tuple[int, Path]


class HealthAddress(click.ParamType[tuple[str, int]]):
    """A port, or an address and a port."""

    name = "address"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> tuple[str, int]:
        """Read `9464`, `0.0.0.0:9464` or `[::]:9464`; a port alone is one of this machine."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(?:(?P<host>[^:\[\]]+|\[[^\[\]]+\]):)?(?P<port>\d{1,5})", str(value).strip())
        if match is None or int(match["port"]) > 65535:
            self.fail(f"{value!r} is not a port from 0 to 65535, nor an address and a port such as 0.0.0.0:9464")
        return (match["host"] or "127.0.0.1").strip("[]"), int(match["port"])


def place_given() -> Place | None:
    """The place that the process before, or the parent, gave to this one. Handlers do not see it."""
    given = os.environ.pop(METRICS, None)
    if given is None:
        return None
    forget_variable(METRICS)
    number, _, folder = given.partition(":")
    # What the process before said is no sign of life of this one, which has the same number.
    _vitals(Path(folder), int(number)).unlink(missing_ok=True)
    return int(number), Path(folder)


def measure(worker: Worker, place: Place) -> None:
    """Write what a worker does and how it is into the folder, as long as it runs."""
    try:
        from holdfast.telemetry.shared_metrics import SharedMetrics
        from holdfast.telemetry.worker_metrics import WorkerMetrics
    except ModuleNotFoundError as missing:
        raise _lacking(missing) from None
    from holdfast.worker.measuring import Measuring

    number, folder = place
    Measuring(worker, WorkerMetrics(SharedMetrics(folder, number), worker.id), _vitals(folder, number)).begin()


class HealthPort:
    """Serves the three pages of the worker in this process, or of those that it watches over."""

    def __init__(self, address: tuple[str, int], folder: Path | None) -> None:
        try:
            from holdfast.telemetry.shared_metrics import collected
        except ModuleNotFoundError as missing:
            raise _lacking(missing) from None
        self._collected = collected
        self._processes: Mapping[int, Callable[[], int | None]] = {1: os.getpid}
        try:
            self._server = _Server(address, self)
        except OSError as fault:
            raise ConfigError(
                f"port {address[1]} of {address[0]} cannot be used ({fault.strerror}): --health-port"
            ) from None
        self.folder = folder if folder is not None and folder.is_dir() else _new_folder()
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def watch(self, processes: Mapping[int, Callable[[], int | None]]) -> None:
        """The workers are these processes, by place. Each says which process it is now; None if it has died."""
        self._processes = processes

    def variable(self, number: int) -> str:
        """What the environment tells the process at a place."""
        return f"{number}:{self.folder}"

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Serve until the end of the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def livez(self) -> tuple[int, str]:
        """Whether every process that says anything of itself is alive; one that is starting says nothing yet."""
        faults = [f"worker {n}: {f}" for n, signs in self._signs() if signs is not None and (f := signs.fault())]
        return (503, "; ".join(faults)) if faults else (200, "ok")

    def readyz(self) -> tuple[int, str]:
        """Whether every process claims jobs."""
        unready = [
            f"worker {n}: {why}"
            for n, signs in self._signs()
            if (why := "starting" if signs is None else signs.fault() or signs.unready)
        ]
        return (503, "; ".join(unready)) if unready else (200, "ok")

    def metrics(self) -> bytes:
        """The page for Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        living = [n for n, signs in self._signs() if signs is not None]
        registry.register(_Once(list(self._collected(self.folder, living))))
        return generate_latest(registry)

    def _signs(self) -> list[tuple[int, VitalSigns | None]]:
        """By place: the vital signs of the process that is there now; None if it has given none."""
        found = []
        for number, process_id in sorted(self._processes.items()):
            pid = process_id()
            signs = VitalSigns.read(_vitals(self.folder, number))
            found.append((number, signs if signs is not None and signs.pid == pid else None))
        return found


class _Once:
    """What a registry collects: metrics that are collected already."""

    def __init__(self, metrics: list[Any]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Any]:
        """Them."""
        return self._metrics


class _Server(ThreadingHTTPServer):
    """Serves a bounded number of callers at once. If there are more, the one that came first has to go."""

    daemon_threads = True
    request_queue_size = _CALLERS

    def __init__(self, address: tuple[str, int], health: HealthPort) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.health = health
        self._callers: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Caller)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a caller; one that sends nothing must not keep others out."""
        with self._lock:
            self._callers[request] = None
            first = next(iter(self._callers)) if len(self._callers) > _CALLERS else None
        if first is not None:
            with contextlib.suppress(OSError):
                first.shutdown(SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a caller in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._callers.pop(request, None)

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """A caller that has gone, or sends nonsense, is no news."""


class _Caller(BaseHTTPRequestHandler):
    """One caller."""

    timeout = _SECONDS
    server: _Server
    server_version, sys_version = "holdfast", ""

    def do_GET(self) -> None:
        """A page."""
        health, path = self.server.health, self.path.partition("?")[0]
        kind = "text/plain; charset=utf-8"
        if path == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST

            status, body, kind = 200, health.metrics(), CONTENT_TYPE_LATEST
        elif path in ("/livez", "/readyz"):
            status, text = health.livez() if path == "/livez" else health.readyz()
            body = f"{text}\n".encode()
        else:
            status, body = 404, b"pages: /livez /readyz /metrics\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Probes are no news."""


def _vitals(folder: Path, number: int) -> Path:
    return folder / f"vitals-{number}"


def _new_folder() -> Path:
    """A folder of this process; those of processes that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(ValueError, OSError):
            if not _lives(int(left.name.split("-")[2])) and left.stat().st_uid == os.getuid():
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _lacking(missing: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"--health-port needs {missing.name}, which is not installed: pip install 'holdfast[server]'")
