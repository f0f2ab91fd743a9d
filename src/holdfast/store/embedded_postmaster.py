"""Finds, asks and ends the processes of an embedded server.

`server.lock`, which the postmaster and all of its children inherit, says whether a server lives: the process id in
`postmaster.pid` means nothing in another container or process namespace. There are three cases:

1. The process is visible, under its own id or (in a nested namespace) under another: it can be signalled.
2. It is not visible, but the lock is held and the socket answers: the server can be used, but not stopped.
3. It is not visible and does not answer: the lock is held by backends that a killed postmaster left.

The keeper imports this module too, outside its package and without site-packages: standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .embedded_locks import is_locked

SERVER_LOCK = "server.lock"
STOP_STEPS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
ORPHAN_STEPS = ((signal.SIGQUIT, 2.0), (signal.SIGKILL, 2.0))
KNOWS_PROCESSES = Path("/proc/self/cwd").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """A server, as its `postmaster.pid` describes it; `pid` is None if the process is not visible from here."""

    pid: int | None
    port: int
    data: str
    socket_folder: str
    status: str


def find_postmaster(data: Path) -> Postmaster | None:
    """The live server of a data folder. If its process is not visible, the caller checks whether it `answers`."""
    postmaster = read_postmaster(data)
    if postmaster is None or postmaster.pid is None:
        return None
    if _own_number(postmaster.pid) == postmaster.pid and works_in(postmaster.pid, data):
        return postmaster
    if not is_locked(data.parent / SERVER_LOCK):
        return None
    pid = next((pid for pid in server_processes(data) if _own_number(pid) == postmaster.pid), None)
    # In a copy of a folder, `postmaster.pid` leads to the original's socket.
    is_copied = os.path.realpath(postmaster.data) != os.path.realpath(data)
    return None if pid is None and is_copied else dataclasses.replace(postmaster, pid=pid)


def read_postmaster(data: Path) -> Postmaster | None:
    """The content of `postmaster.pid`, whether or not that server still lives."""
    try:
        lines = os.fsdecode((data / "postmaster.pid").read_bytes()).split("\n")
        lines += [""] * (8 - len(lines))
        return Postmaster(
            pid=int(lines[0]),
            data=lines[1],
            port=int(lines[3] or 0),
            socket_folder=lines[4],
            status=lines[7].strip(),
        )
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def works_in(pid: int, data: Path | os.stat_result) -> bool:
    """Whether a process lives and, if the system can tell, has the data folder as its working folder."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    if not KNOWS_PROCESSES:
        return True
    try:
        folder = data.stat() if isinstance(data, Path) else data
        return os.path.samestat(Path(f"/proc/{pid}/cwd").stat(), folder)
    except PermissionError:
        return True
    except OSError:
        return False


def holds_file(pid: int, path: Path) -> bool:
    """Whether a process has a file open; if the system cannot tell, whether it lives."""
    if not KNOWS_PROCESSES:
        return works_in(pid, path)
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.samefile(path):
                    return True
    return False


def find_holder(number: int, path: Path) -> int | None:
    """The process that has the id `number` in its own namespace and has a file open; returns its id here."""
    if holds_file(number, path) and _own_number(number) == number:
        return number
    return next((pid for pid in _processes() if _own_number(pid) == number and holds_file(pid, path)), None)


def server_processes(data: Path) -> Iterator[int]:
    """The processes of PostgreSQL that work in a data folder, as far as they are visible from here."""
    for pid in _processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/exe").readlink().name.startswith("postgres") and works_in(pid, data):
                yield pid


def end_process(pid: int, alive: Callable[[], bool], steps: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send increasingly forceful signals, each with its seconds to take effect, until the process is gone."""
    for step, seconds in steps:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, step)
        deadline = time.monotonic() + seconds
        while alive():
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        else:
            return


def answers(postmaster: Postmaster) -> bool:
    """Whether the server accepts connections: it asks for the password, or refuses for another reason."""
    parameters = b"user\0holdfast\0database\0holdfast\0\0"
    version_3 = (196608).to_bytes(4, "big")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            connection.connect(f"{postmaster.socket_folder}/.s.PGSQL.{postmaster.port}")
            connection.sendall((len(parameters) + 8).to_bytes(4, "big") + version_3 + parameters)
            reply = connection.recv(1024)
        except OSError:
            return False
    return reply[:1] == b"R" or (reply[:1] == b"E" and b"C57P03\0" not in reply)


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _own_number(pid: int) -> int | None:
    """The process id in the namespace in which the process runs."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None if KNOWS_PROCESSES else pid
    numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
    return int(numbers[-1]) if numbers else pid
