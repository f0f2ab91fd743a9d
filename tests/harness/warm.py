"""Processes that need not import everything anew: forked from one that has done it, and otherwise like any other.

Most of what a short command costs is the import of what it uses. The first process that a test asks for starts a
server that has imported that; each process is a fork of it, with its own arguments, environment, folder and files. It
ends as an interpreter does: with its exit functions, its threads joined and its output flushed. Warnings that imports
give, and the command line's start, are for tests that start an interpreter with `subprocess`.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

__all__ = ["WARM_CHILDREN", "Process", "child", "ready", "run"]

#: What forks find imported. None of them starts a thread, opens a file or reads the environment for good.
PRELOADED = (
    "holdfast",
    "holdfast.cli.worker",
    "holdfast.maintenance.leader",
    "holdfast.testing",
    "holdfast.web.server",
    "holdfast.worker.processes.pool",
    "django.core.management",
    "flask.cli",
    "httpx",
    "pytest",
)

#: In the environment of a process: those that it starts for its handlers are forked, too.
WARM_CHILDREN = "WARM_CHILDREN"

#: What children of process executors are given of their worker's own flags: forks have that already, or need it not.
PASSED_ON = ("-B", "-P")

_PR_SET_CHILD_SUBREAPER = 36

_lock = threading.Lock()
_server: socket.socket | None = None


class Process:
    """A process with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes] | None = None,
        cwd: Path | str | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """`arguments` are those of python: `-m module …` or a file, after `-W error` if wanted."""
        self.returncode: int | None = None
        self._status, theirs = socket.socketpair()
        files = [theirs.fileno(), stdout.fileno(), (stderr or stdout).fileno(), *pass_fds]
        wish = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd or Path.cwd()), "files": list(pass_fds)}
        with theirs, _lock:
            _send(_connected(), json.dumps(wish).encode(), files)
        self.pid = int.from_bytes(self._receive(4), "big")

    def poll(self) -> int | None:
        """How it ended, if it has."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = int.from_bytes(self._receive(4), "big", signed=True)
            except (BlockingIOError, TimeoutError):
                return None
            self._status.close()
        return self.returncode

    def _receive(self, size: int) -> bytes:
        data = self._status.recv(size)
        if len(data) != size:
            raise RuntimeError("the server of warm processes has died")
        return data


def run(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run to the end; what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Process(arguments, env=env, stdout=out, stderr=err, cwd=cwd)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(list(arguments), code, *texts)


def ready() -> None:
    """Start the server now, for tests that count what this process has open."""
    with _lock:
        _connected()


def child(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    pass_fds: Sequence[int],
    stdin: int,
    start_new_session: bool,
) -> subprocess.Popen[bytes]:
    """Start a child of this very process, as `subprocess.Popen` does for process executors.

    Whoever forked it ends at once, so that the system gives it to its next ancestor that wants orphans: this process,
    for that moment.
    """
    assert stdin == subprocess.DEVNULL
    assert start_new_session
    status, theirs = socket.socketpair()
    wish = {
        "arguments": list(command[1:]),
        "env": dict(env),
        "cwd": cwd or os.getcwd(),  # noqa: PTH109 - it may be gone
        "files": list(pass_fds),
        "parent": os.getpid(),
    }
    with _lock, status, theirs:
        server = _connected()
        _want_orphans(1)
        try:
            _send(server, json.dumps(wish).encode(), [theirs.fileno(), 1, 2, *pass_fds])
            theirs.close()
            pid = int.from_bytes(status.recv(4), "big")
            assert status.recv(1), "it died before it began"
        finally:
            _want_orphans(0)
    process: subprocess.Popen[bytes] = subprocess.Popen.__new__(subprocess.Popen)
    process.__dict__.update(
        args=command, pid=pid, returncode=None, stdin=None, stdout=None, stderr=None, _child_created=True
    )
    process.__dict__["_waitpid_lock"] = threading.Lock()
    return process


def _want_orphans(wanted: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, wanted, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _connected() -> socket.socket:
    """The server, started when it is first needed; it ends with this process."""
    global _server
    if _server is None:
        _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.warm", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
            )
        atexit.register(_stop, _server, server)
    return _server


def _stop(requests: socket.socket, server: subprocess.Popen[bytes]) -> None:
    requests.close()
    server.wait()


def _send(to: socket.socket, data: bytes, files: Sequence[int]) -> None:
    to.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])


def _serve(requests: socket.socket) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the tests, and they end this process
    for name in PRELOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork has one thread"
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for the processes
    while True:
        data, files, _, _ = socket.recv_fds(requests, 1_000_000, 16)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            _keep(socket.socket(fileno=files[0]), json.loads(data), files[1:])
        for number in files:
            os.close(number)


def _keep(status: socket.socket, wish: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Between the server and the process: waits for its end and says how it was."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = wish.get("parent")
    pid = os.fork()
    if pid == 0:
        if parent is not None:
            _be_adopted(status, parent)
        status.close()
        _take(files, [1, 2, *wish["files"]])
        _become(wish)
    if parent is not None:
        status.sendall(pid.to_bytes(4, "big"))
        os._exit(0)
    for file in files:
        os.close(file)
    status.sendall(pid.to_bytes(4, "big"))
    _, code = os.waitpid(pid, 0)
    status.sendall(os.waitstatus_to_exitcode(code).to_bytes(4, "big", signed=True))
    os._exit(0)


def _be_adopted(status: socket.socket, parent: int) -> None:
    os.setsid()
    while os.getppid() != parent:
        time.sleep(0.0005)
    status.sendall(b".")


def _take(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the files that came the numbers that they are to have here."""
    # One of them may have come under the number of another.
    safe = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(*files, *numbers) + 1) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(safe, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _fork_children() -> None:
    """Have a server of this process's own: orphans are adopted by their ancestors alone."""
    global _server
    _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        _server.close()
        _serve(theirs)
    theirs.close()
    launch = importlib.import_module("holdfast.worker.processes.launch")
    launch.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": child})  # type: ignore[attr-defined]


def _become(wish: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(wish["env"])
    os.chdir(wish["cwd"])
    time.tzset()
    if os.environ.pop(WARM_CHILDREN, None):
        _fork_children()
    arguments: list[str] = wish["arguments"]
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        arguments = arguments[2:]
    while arguments[0] in PASSED_ON:
        arguments = arguments[1:]
    given = os.environ.get("PYTHONPATH", "")
    sys.path[1:1] = [folder for folder in given.split(os.pathsep) if folder and folder not in sys.path[1:]]
    code: int | None = 0
    try:
        if arguments[0] == "-m":
            sys.path[0] = wish["cwd"]
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(arguments[0]).resolve().parent)
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        code = 1
        if isinstance(end.code, int | None):
            code = end.code
        else:
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as the interpreter does at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
