"""The login's name is not the engine's schema's; where it was, in the first data folders, that is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.embedded import EmbeddedPostgres
from tests.store.embedded.kit import query, server_for

ENGINE = "create schema holdfast; create table holdfast.settings ()"
LANDED = "select relnamespace::regnamespace::text from pg_class where oid = '{}'::regclass"


@pytest.fixture
def first_home(home: Path) -> Path:
    """A home folder as the first releases made it: its login is named like the engine's schema."""
    data = home / "postgres" / "data"
    with server_for(home) as server:
        password = (home / "postgres" / "password").read_text()
        statements = (
            f"create role holdfast superuser login password '{password}'; create role holdfast_owner; {ENGINE};"
        )
        query_all(server.url, statements + "alter table holdfast.settings owner to holdfast_owner")
    server.stop()
    (data / "holdfast_login").unlink()
    return home


def query_all(url: str, statements: str) -> None:
    for statement in statements.split(";"):
        query(url, statement)


def test_tables_of_users_land_in_public(home: Path) -> None:
    with server_for(home) as server:
        query_all(server.url, ENGINE)
        assert query(server.url, "select to_regclass('settings')") is None
        query(server.url, "create table settings ()")
        assert query(server.url, LANDED.format("settings")) == "public"


def test_first_login_is_mended(first_home: Path) -> None:
    with server_for(first_home) as server:
        assert server.url.startswith("postgresql://holdfast:")
        assert query(server.url, "select to_regclass('settings')") is None
        query(server.url, "create table settings ()")
        assert query(server.url, LANDED.format("settings")) == "public"
        query(server.url, "create database later")
        later = server.url.replace("@/holdfast?", "@/later?")
        query(later, "create schema holdfast")
        assert query(later, "show search_path") == "public"
    assert (first_home / "postgres" / "data" / "holdfast_login").read_text() == "holdfast"


def test_tables_that_landed_in_the_schema_are_still_found(first_home: Path) -> None:
    (first_home / "postgres" / "data" / "holdfast_login").write_text("holdfast")
    with server_for(first_home) as server:
        query(server.url, "create table ledger as select 42 as amount")
        assert query(server.url, LANDED.format("ledger")) == "holdfast"
    server.stop()
    (first_home / "postgres" / "data" / "holdfast_login").unlink()
    with server_for(first_home) as server:
        assert query(server.url, "select amount from ledger") == 42
        query(server.url, "create table settings ()")
        assert query(server.url, LANDED.format("settings")) == "public"


def test_search_path_that_somebody_chose_stays(first_home: Path) -> None:
    (first_home / "postgres" / "data" / "holdfast_login").write_text("holdfast")
    with server_for(first_home) as server:
        query(server.url, "alter role holdfast set search_path = mine, public")
    server.stop()
    (first_home / "postgres" / "data" / "holdfast_login").unlink()
    with EmbeddedPostgres(first_home) as server:
        assert query(server.url, "show search_path") == "mine, public"
