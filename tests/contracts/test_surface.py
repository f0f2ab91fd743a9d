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
from tests.harness.schema import dump

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "holdfast").rglob("*.py"))


def test_public_names_are_the_ones_listed() -> None:
    tree = ast.parse((ROOT / "src/holdfast/__init__.py").read_text())
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(holdfast.__all__), "src/holdfast/__init__.py: a name is imported, and stands in __all__"
    assert list(holdfast.__all__) == sorted(holdfast.__all__), "src/holdfast/__init__.py: __all__ is sorted"


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


def test_no_two_classes_share_a_name() -> None:
    """But for the event and the error of a lost lease: observers and handlers know the same thing by the same name."""
    places: dict[str, list[str]] = {}
    for source in SOURCES:
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(source.relative_to(ROOT / "src/holdfast")))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared == {"LeaseLost": ["errors.py", "telemetry/events.py"]}


def test_only_the_store_runs_statements() -> None:
    """Code above the store calls its methods, with typed arguments and answers."""
    found = [
        f"{source.relative_to(ROOT)}:{node.lineno}"
        for source in SOURCES
        if "store" not in source.relative_to(ROOT / "src/holdfast").parts
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("rows", "row", "value")
    ]
    assert found == [], "name the statement in a verb of src/holdfast/store"


def test_no_tuple_has_five_places_without_names() -> None:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "tuple":
                places = len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
                assert places < 5, f"{source.name}:{node.lineno}: make it a NamedTuple or a dataclass"


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
    return text if text.isalpha() or not text else float(text)


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
    # These read tables, wait for others between two looks, or write without leaving anything.
    assert READS - found == {"claims_ended", "current_step", "drain_progress", "get_jobs", "probe"}


async def test_the_engine_refuses_nonsense_for_every_setting(conn: asyncpg.Connection) -> None:
    names = [entry.name.upper() for entry in ENTRIES if entry.engine]
    unchecked = [name for name in names if not await conn.fetchval("select setting_fault($1, 'nonsense')", name)]
    assert not unchecked, "setting_fault (src/holdfast/sql/functions/settings.sql) names their bounds"


def test_functions_of_the_release_before_are_called_and_answer_as_they_did() -> None:
    """Its workers, servers and producers run on this schema. The file has what its roles may call.

    A release replaces the file: the lines of the dumped schema for the functions that `rights.sql` grants.
    """
    (released,) = (ROOT / "tests/contracts").glob("released-*.txt")
    schema = (ROOT / "src/holdfast/sql/schema.dump.sql").read_text()
    have = {line.strip() for line in re.findall(r"^CREATE FUNCTION holdfast\.(.*)$", schema, re.MULTILINE)}
    assert have, "the reviewed schema has functions"
    changed = [line for line in released.read_text().splitlines() if line.strip() not in have]
    assert not changed, "give the new one another name, and keep the old one in src/holdfast/sql/functions/older.sql"


async def test_the_reviewed_schema_is_the_one_in_use(database_url: str, conn: asyncpg.Connection) -> None:
    if conn.get_server_version().major != 18:
        pytest.skip("the dump is made with PostgreSQL 18, and this run uses another server")
    expected = (ROOT / "src/holdfast/sql/schema.dump.sql").read_text()
    assert await dump(database_url) == expected, "run `make schema` and review the diff"
