"""What others rely on: names, settings, the reviewed schema."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import asyncpg
import pytest

import holdfast
from holdfast.config import ENTRIES
from holdfast.store.database import READS
from holdfast.store.statements import queries
from holdfast.testing.schema import dump

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "holdfast").rglob("*.py"))


def test_public_names_are_the_ones_listed() -> None:
    tree = ast.parse((ROOT / "src/holdfast/__init__.py").read_text())
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(holdfast.__all__)
    assert list(holdfast.__all__) == sorted(holdfast.__all__)


def test_the_contract_of_the_specification_can_be_imported() -> None:
    from holdfast import Context, Fatal, Hold, Holdfast, Retry, RetryPolicy, Snooze

    assert all((Context, Fatal, Hold, Holdfast, Retry, RetryPolicy, Snooze))


def test_every_module_exports_what_its_all_says() -> None:
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        missing = [name for name in getattr(loaded, "__all__", []) if not hasattr(loaded, name)]
        assert not missing, f"{module.name}: {missing}"
        assert loaded.__doc__, f"{module.name} says nothing of its purpose"


def test_no_sql_text_in_python() -> None:
    pattern = re.compile(r"\b(select .+ from|insert into|update \w+ set|delete from)\b", re.IGNORECASE)
    allowed = {"migrate.py"}  # prints the script that records its own steps
    for source in SOURCES:
        tree = ast.parse(source.read_text())
        nodes = list(ast.walk(tree))
        prose = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
        texts = [
            n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in prose
        ]
        found = [text for text in texts if pattern.search(text)]
        assert not found or source.name in allowed, f"{source.name}: {found[0][:80]}"


async def test_engine_settings_have_the_same_defaults_in_python_and_sql(conn: asyncpg.Connection) -> None:
    rows = {row["name"].lower(): row["default_value"] for row in await conn.fetch("select * from settings")}
    python = {entry.name: entry.default for entry in ENTRIES if entry.engine}
    assert rows.keys() == python.keys()
    assert all(_value(rows[name]) == _value(python[name]) for name in python)


def _value(default: object) -> float | str:
    """Settings are numbers, or words."""
    text = str(default)
    return text if text.isalpha() else float(text)


async def test_what_only_looks_is_asked_again_when_its_connection_was_cut(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch(
        "select proname, bool_and(provolatile <> 'v') as looks from pg_proc"
        " where pronamespace = 'holdfast'::regnamespace group by proname"
    )
    looks = {row["proname"]: row["looks"] for row in rows}
    found = set()
    for name, sql in queries("holdfast").items():
        called = re.findall(r"holdfast\.(\w+)\s*\(", sql)
        if called and sql.lstrip().startswith("select") and all(looks.get(function, False) for function in called):
            found.add(name)
    # Those of doctor have connections of their own, and those of the lease keeper are repeated by it.
    assert {name for name in found - READS if not name.startswith("doctor_")} == {"interrupted", "verify"}
    # These read tables, or write without leaving anything.
    assert READS - found == {"current_step", "get_jobs", "probe"}


async def test_the_reviewed_schema_is_the_one_in_use(database_url: str, conn: asyncpg.Connection) -> None:
    if conn.get_server_version().major != 18:
        pytest.skip("the dump is made with PostgreSQL 18, and this run uses another server")
    expected = (ROOT / "src/holdfast/sql/schema.dump.sql").read_text()
    assert await dump(database_url) == expected, "run `make schema` and review the diff"
