"""Processes of tests begin with other modules each, so that not all of them compile all of them.

Where nothing has been compiled yet, as in a new clone, compiling is half of what it takes to collect.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

__all__ = ["import_share"]


def import_share(root: Path, arguments: Iterable[str], number: int, of: int) -> None:
    """Import one of so many parts of the tests in these folders. What cannot be imported is told when collected."""
    paths = sorted(path for argument in arguments for path in (root / argument).rglob("test_*.py"))
    for path in paths[number::of]:
        with warnings.catch_warnings(), suppress(Exception, pytest.skip.Exception):
            warnings.simplefilter("error")
            import_module(".".join(path.relative_to(root).with_suffix("").parts))
