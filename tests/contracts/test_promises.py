"""The page of promises names tests that exist, and says of every promise what shows it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/promises.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROW = re.compile(r"^\|(.+)\|(.+)\|$", re.MULTILINE)


def test_every_test_that_shows_a_promise_exists() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert named
    assert not [f"{file}::{name}" for file, name in named if name not in functions_of(file)]


def test_every_promise_has_a_test_or_says_that_it_is_not_kept_yet() -> None:
    rows = [row for row in ROW.findall(PAGE.read_text()) if row[0].strip() not in ("promise", "---")]
    assert len(rows) > 50
    shown = {promise: NAMED.search(tests) or tests.strip().startswith("not yet: ") for promise, tests in rows}
    assert not [promise for promise, is_shown in shown.items() if not is_shown]


@cache
def functions_of(file: str) -> frozenset[str]:
    """The functions at the top of a file; none where it does not exist."""
    path = ROOT / file
    body = ast.parse(path.read_text()).body if path.exists() else []
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
