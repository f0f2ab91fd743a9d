"""Homes of embedded servers with the engine in their database: made once per run and copied.

To make one takes a second of the processor, to copy it a tenth of that.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from holdfast.config import Config
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.migrate import migrate
from tests.conftest import COPIES, HOME

__all__ = ["copy_home", "copy_of", "new_folder", "run_apart"]


def new_folder(prefix: str) -> Path:
    """A folder for a server of the test's own, where the shared one has its files: copying takes a tenth in memory."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=HOME.parent))


def copy_home(to: Path) -> Path:
    """Make a home whose server is stopped, in a folder that is empty or not there."""
    home = copy_of("home", to, _make_home)
    (home / "postgres" / "server.log").unlink()
    return home


def copy_of(name: str, to: Path, make: Callable[[Path], None]) -> Path:
    """Copy a folder that whoever comes first has made."""
    COPIES.mkdir(exist_ok=True)
    original = COPIES / name
    with (COPIES / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            folder = COPIES / f"{name}.new"
            make(folder)
            folder.rename(original)
    to.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{original}/.", str(to)], check=True)
    return to


def run_apart(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine to its end, also while a loop runs in this thread."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def _make_home(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    server = EmbeddedPostgres(folder)
    run_apart(migrate(Config.load(environment={}, database_url=server.start())))
    server.stop()
