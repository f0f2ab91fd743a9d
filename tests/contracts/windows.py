"""Takes from this process what Windows does not have, then imports Holdfast and records a job.

Run as a program, with a database's URL: a stand-in for a machine that tests do not have. What is not ours is imported
before, since it has its own ways on Windows.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import asyncpg  # noqa: F401 - imports what it needs of this system
import click  # noqa: F401 - the same
import httpx  # noqa: F401 - the same
import pydantic  # noqa: F401 - the same

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses", "crypt", "spwd")
OF_OS = (
    *("fork", "forkpty", "register_at_fork", "setsid", "killpg", "getpgid", "setpgid", "getuid", "geteuid", "getgid"),
    *("getegid", "fchdir", "fchown", "chown", "lchown", "pidfd_open", "memfd_create", "WNOHANG", "wait4", "waitid"),
    *("O_PATH", "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "uname", "getloadavg", "mkfifo", "setuid"),
)
SIGNALS = ("SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN")


def take_away() -> None:
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in OF_OS:
        if hasattr(os, name):
            delattr(os, name)
    for name in dir(signal):
        if (name.startswith("SIG") and name not in SIGNALS) or name.startswith(("pthread_", "sigwait", "setitimer")):
            delattr(signal, name)


def main(database_url: str) -> None:
    take_away()
    sockets = socket.AF_UNIX
    del socket.AF_UNIX

    from click.testing import CliRunner

    from holdfast import Holdfast, HoldfastError, HttpClient
    from holdfast.cli.root import holdfast

    assert HttpClient.__name__ == "HttpClient"
    told = CliRunner().invoke(holdfast, ["--help"])  # imports every command
    assert told.exit_code == 0, told.output
    socket.AF_UNIX = sockets  # type: ignore[misc]  # this system's event loop wakes itself through one
    refused = CliRunner().invoke(holdfast, ["worker", "--app", "holdfast.cli.demo:hf"])
    print(refused.stderr.strip())
    hf = Holdfast(database_url)
    print(hf.sync.get(hf.sync.enqueue("greet", {"name": "ada"})).state.value)
    hf.sync.close()
    try:
        Holdfast().sync.enqueue("greet")
    except HoldfastError as error:
        print(error)


if __name__ == "__main__":
    main(sys.argv[1])
