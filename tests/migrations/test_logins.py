"""Who may migrate: a superuser, a login that may create roles, or one for whom an administrator made them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.errors import SchemaError
from holdfast.store.database import Database
from holdfast.store.jobs import JobStore
from holdfast.store.leases import LeaseStore
from holdfast.store.migrate import ROLES, migrate, migration_sql
from tests.migrations.catalog import listing


class Stage(NamedTuple):
    """An empty database, a schema name that is nobody else's, and a login without power."""

    admin: asyncpg.Connection
    schema: str
    login: str
    url: str
    admin_url: str

    def config(self, *, as_admin: bool = False) -> Config:
        url = self.admin_url if as_admin else self.url
        return Config.load(environment={}, database_url=url, schema=self.schema)


@pytest.fixture
async def stage(empty_database_url: str) -> AsyncIterator[Stage]:
    admin = await asyncpg.connect(empty_database_url)
    name = f"hf_{uuid4().hex[:12]}"
    login = f"{name}_login"
    await admin.execute(f"create role {login} login password 'secret'")
    parts = urlsplit(empty_database_url)
    host = parts.netloc.rpartition("@")[2]
    url = urlunsplit(parts._replace(netloc=f"{login}:secret@{host}"))
    yield Stage(admin, name, login, url, empty_database_url)
    await admin.execute(f"drop schema if exists {name} cascade")
    for role in (login, *(f"{name}_{role}" for role in ROLES)):
        if await admin.fetchval("select to_regrole($1)", role):
            await admin.execute(f"drop owned by {role}")
    for role in (login, *(f"{name}_{role}" for role in ROLES)):
        await admin.execute(f"drop role if exists {role}")
    await admin.close()


async def works(config: Config) -> None:
    """Jobs run, each face in its own role."""
    api, worker = Database(config, role="api"), Database(config, role="worker")
    await api.open()
    await worker.open()
    try:
        await api.rows("enqueue_many", ["work", "work"], ["{}", "{}"], None, "default", None, None)
        leases = LeaseStore(worker, "w1")
        streams = await leases.streams(["work"], None, None)
        claims = await leases.claim((list(streams), [-1], [0], [1000]), streams, 5, None)
        assert len(claims) == 2
        await api.rows("request", "cancel", [claims[1].job_id], None, None, None)
        assert await worker.value("execute_requests", 10) == 1
        assert await worker.rows("complete_many", "w1", [claims[0].job_id], [1], None, None, None) == []
        (ended,) = await JobStore(worker).get([claims[0].job_id])
        assert ended.state == "success"
        assert await JobStore(worker).verify() == []
        with pytest.raises(SchemaError, match="lacks a right"):
            await api.rows("complete_many", "w1", [claims[1].job_id], [1], None, None, None)
    finally:
        await api.close()
        await worker.close()


async def test_a_login_that_may_not_create_roles_gets_the_statements_and_they_suffice(stage: Stage) -> None:
    with pytest.raises(SchemaError, match="may not create roles") as refusal:
        await migrate(stage.config())
    statements = [line.strip() for line in str(refusal.value).splitlines() if line.startswith("  ")]
    assert len(statements) == 8
    for statement in statements:
        await stage.admin.execute(statement)
    await migrate(stage.config())
    await works(stage.config())


async def test_a_login_that_may_create_roles_needs_nobody(stage: Stage) -> None:
    database = await stage.admin.fetchval("select current_database()")
    await stage.admin.execute(f"alter role {stage.login} createrole")
    await stage.admin.execute(f"grant create on database {database} to {stage.login}")
    await migrate(stage.config())
    await works(stage.config())


async def test_another_schema_name_works_fully(stage: Stage) -> None:
    await migrate(stage.config(as_admin=True))
    await works(stage.config(as_admin=True))


async def test_another_schema_has_nothing_of_the_default_name_in_it(stage: Stage, database_url: str) -> None:
    await stage.admin.execute(migration_sql(stage.config(as_admin=True)))
    await works(stage.config(as_admin=True))
    ours = await listing(stage.admin_url, stage.schema)
    theirs = await listing(database_url)
    for kind in ("columns", "indexes", "constraints", "triggers", "views", "relations"):
        assert [text.replace(stage.schema, "holdfast") for text in ours[kind]] == theirs[kind], kind


async def test_another_schema_has_views_of_its_own(stage: Stage) -> None:
    await migrate(stage.config(as_admin=True))
    await stage.admin.execute(f"set role {stage.schema}_operator")
    assert await stage.admin.fetch(f"select * from {stage.schema}_views.dead_letter_jobs") == []
    await stage.admin.execute("reset role")
    assert await stage.admin.fetchval("select to_regnamespace('holdfast_views')") is None


async def test_two_schemas_live_side_by_side_in_one_database(stage: Stage) -> None:
    await migrate(stage.config(as_admin=True))
    await migrate(Config.load(environment={}, database_url=stage.admin_url))
    await works(stage.config(as_admin=True))
    await works(Config.load(environment={}, database_url=stage.admin_url))
