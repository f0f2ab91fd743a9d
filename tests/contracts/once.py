"""What takes a while to build is built once per run, whichever xdist worker comes first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["once"]


def once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder that `build` made; a build that raises leaves none, and the next one tries again."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / name).exists():
            folder = root / f"{name}-{os.getpid()}"
            build(folder)
            folder.rename(root / name)
    return root / name
