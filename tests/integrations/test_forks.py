"""The blocking face under gunicorn, with forks and threads, and after a plain fork."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from holdfast import Holdfast

ROOT = Path(__file__).parents[2]
REQUESTS, CALLERS = 400, 12


class Gunicorn:
    """Two processes of four threads each, forked from one that has used the app already."""

    def __init__(self, url: str, folder: Path) -> None:
        self._socket, self._log = folder / "web.sock", folder / "log"
        environment = {**os.environ, "HOLDFAST_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "tests.integrations.forked:app", "--preload"),
                    *("--workers", "2", "--threads", "4", "--worker-class", "gthread"),
                    *("--bind", f"unix:{self._socket}", "--graceful-timeout", "20", "--no-control-socket"),
                ],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        transport = httpx.HTTPTransport(uds=str(self._socket), retries=20)
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            yield client

    def reload(self) -> None:
        """Have new workers take over from the ones at work."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        """End the remaining processes; callers that still wait for an answer get none."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_gunicorn_with_preload_threads_and_a_reload_loses_nothing_that_was_answered(database_url: str) -> None:
    answered: dict[int, str] = {}
    pids: Counter[int] = Counter()
    failed: list[int] = []
    halfway = threading.Event()
    numbers = iter(range(REQUESTS))
    lock = threading.Lock()

    def call(server: Gunicorn) -> None:
        with server.client() as client:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                if number == REQUESTS // 2:
                    halfway.set()
                try:
                    answer = client.post(f"/notes/{number}")
                except httpx.TransportError:
                    failed.append(number)
                    continue
                assert answer.status_code == 202, answer.text
                with lock:
                    answered[number] = answer.json()["job"]
                    pids[answer.json()["pid"]] += 1

    with tempfile.TemporaryDirectory(prefix="hf-gunicorn-") as folder:
        server = Gunicorn(database_url, Path(folder))
        try:
            wait_for(server)
            callers = ThreadPoolExecutor(CALLERS)
            calls = [callers.submit(call, server) for _ in range(CALLERS)]
            assert halfway.wait(30), "the workers do not answer"
            server.reload()
            for done in calls:
                done.result(60)
            code = server.stop()
        finally:
            server.kill()
        assert (code, "Traceback" in server.log) == (0, False), server.log
    with Holdfast(database_url).sync as sync:
        found = sync.find(types=["note"], limit=10_000)
        by_number = {sync.get(job).payload["number"]: str(job.id) for job in found}
    assert len(by_number) == len(found), "a job was recorded twice"
    assert {number: by_number.get(number) for number in answered} == answered
    assert set(by_number) <= {-1, *answered, *failed}
    assert by_number[-1]
    assert len(answered) > REQUESTS - 2 * CALLERS
    assert len(pids) >= 3, "the old workers and the new ones have answered"


def test_parent_and_child_both_enqueue_after_a_fork(database_url: str, tmp_path: Path) -> None:
    """The child uses no connection of its parent, and leaves them whole when it ends."""
    script = tmp_path / "forks.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from holdfast import Holdfast

            signal.alarm(60)
            hf = Holdfast()

            def enqueue(who, count):
                for number in range(count):
                    hf.sync.enqueue("note", {"who": who, "number": number})

            enqueue("parent, before", 5)
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                enqueue("child", 20)
                grandchild = os.fork()
                enqueue("grandchild" if grandchild == 0 else "child, after", 5)
                if grandchild:
                    os.waitpid(grandchild, 0)
                sys.exit(0)
            enqueue("parent, beside", 20)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            enqueue("parent, after", 5)
            print(len(hf.sync.find(limit=1000)))
            """
        )
    )
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": database_url}
    done = subprocess.run(
        [sys.executable, "-W", "error", script], env=environment, capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "60\n")


def wait_for(server: Gunicorn) -> None:
    """Until it answers: the socket is there as soon as the log says so."""
    while "Listening at" not in server.log:
        assert server.process.poll() is None, server.log
        threading.Event().wait(0.05)
