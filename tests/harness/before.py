"""The release before this one, from the repository's history: its code, to be run beside this release's.

Its processes use this environment and the tests' own modules; only `holdfast` is theirs. A module that they run may
use what both releases have, and nothing of `tests.harness` that imports `holdfast`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.conftest import COPIES

__all__ = ["BEFORE", "environment_of", "interpreter_before", "queries_before", "release_before"]

#: The last commit before the schema's functions were renamed. It stands for the release before.
BEFORE = "5cf4b4e4bd7bc9666484d6ed6969338d925bdb38"

_ROOT = Path(__file__).parents[2]


def release_before() -> Path:
    """A folder with its sources; the test is skipped where the repository's history is not at hand."""
    COPIES.mkdir(exist_ok=True)
    folder = COPIES / "before"
    with (COPIES / "before.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(folder)
    return folder / "src"


def _unpack(folder: Path) -> None:
    found = subprocess.run(["git", "archive", BEFORE, "src"], cwd=_ROOT, capture_output=True)
    if found.returncode != 0:
        pytest.skip(f"the release before is not in this copy's history: {found.stderr.decode().strip()}")
    unpacked = folder.with_name("before.new")
    unpacked.mkdir()
    subprocess.run(["tar", "-x", "-C", str(unpacked)], input=found.stdout, check=True)
    unpacked.rename(folder)


def environment_of(sources: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The same environment, in which `holdfast` is the one in these sources."""
    return {**environment, "PYTHONPATH": os.pathsep.join([str(sources), str(_ROOT)])}


def interpreter_before(
    arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes], pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start python with the release before, for a fleet or by itself."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment_of(release_before(), environment),
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=pass_fds,
    )


def queries_before() -> dict[str, str]:
    """The SQL files of its named queries, by name."""
    folder = release_before() / "holdfast" / "sql" / "queries"
    return {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.sql"))}
