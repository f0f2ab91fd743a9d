"""A Django project's settings, its database as a URL, and its command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import override_settings

from holdfast import Config, Holdfast
from holdfast.integrations.django import DjangoHoldfast
from holdfast.integrations.django.checks import check_settings
from holdfast.integrations.django.database import entry_of, url_of
from tests.harness import warm
from tests.integrations.conftest import SETTINGS, use
from tests.integrations.site.shop import jobs

ROOT = Path(__file__).parents[2]


def manage(url: str, *arguments: str, folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SITE_DATABASE_URL": url, "PYTHONPATH": str(ROOT), "HOLDFAST_POLL_INTERVAL": "0.1"}
    environment |= more
    command = ["-W", "error", str(ROOT / "tests/integrations/site/manage.py"), *arguments]
    return warm.run(command, cwd=folder, env=environment, timeout=90)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        (
            {"NAME": "shop", "USER": "ada", "PASSWORD": "a:b@c/d?é", "HOST": "db.example", "PORT": 6432},
            "postgresql://ada:a%3Ab%40c%2Fd%3F%C3%A9@db.example:6432/shop",
        ),
        ({"NAME": "a shop?", "USER": "a@b", "HOST": "::1", "PORT": ""}, "postgresql://a%40b@[::1]/a%20shop%3F"),
        (
            {"NAME": "shop", "USER": "ada", "HOST": "/run/my sockets", "PORT": "5433"},
            "postgresql://ada@/shop?host=%2Frun%2Fmy+sockets&port=5433",
        ),
        ({"NAME": "shop", "HOST": "one,two", "PORT": "1,2"}, "postgresql:///shop?host=one%2Ctwo&port=1%2C2"),
        (
            {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 3}},
            "postgresql://db/shop?sslmode=require",
        ),
        ({"NAME": None, "OPTIONS": {"service": "shop"}}, "postgresql:///?service=shop"),
    ],
)
def test_an_entry_of_databases_becomes_a_url(entry: dict[str, Any], url: str) -> None:
    assert url_of(entry) == url
    assert Config.load(environment={}, database_url=url).database_url == url
    told = {name: str(entry.get(name) or "") for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
    assert entry_of(url) == told


def test_the_database_is_looked_up_when_it_is_needed(site: Holdfast, empty_database_url: str) -> None:
    before = site.config.database_url
    use(empty_database_url)
    assert site.config.database_url != before
    assert str(site.config.database_url).partition("?")[0].endswith(empty_database_url.partition("?")[0][-20:])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"SCHEME": "x"}, "did you mean 'SCHEMA'?"),
        ({"COLOUR": "x"}, "known are DATABASE, SCHEMA"),
        ({"DATABASE": "jobs"}, "HOLDFAST['DATABASE'] is 'jobs', and DATABASES has default, lite"),
        ({"APP": "shop.jobs.hf"}, "must look like 'module:name'"),
        ({"MODULES": "jobs"}, "must be a list of module names"),
        ({"MIGRATE": "no"}, "must be True or False"),
        ("holdfast", "must be a dict"),
    ],
)
def test_wrong_settings_are_named_by_checks_and_by_the_app(setting: Any, words: str) -> None:
    with override_settings(HOLDFAST=setting):
        (fault,) = check_settings()
        assert words in fault.msg
        with pytest.raises(ImproperlyConfigured) as raised:
            DjangoHoldfast()
        assert words in str(raised.value)


def test_another_kind_of_database_is_refused() -> None:
    with override_settings(HOLDFAST={"DATABASE": "lite"}):
        (fault,) = check_settings()
        assert "is sqlite" in fault.msg
        with pytest.raises(ImproperlyConfigured, match="is sqlite"):
            DjangoHoldfast()


def test_schema_and_app_can_be_chosen(site: Holdfast) -> None:
    with override_settings(HOLDFAST={"SCHEMA": "work"}):
        assert DjangoHoldfast().config.schema == "work"
    with override_settings(HOLDFAST={"APP": "tests.integrations.site.shop.jobs:confirm"}):
        with pytest.raises(ImproperlyConfigured, match="not a DjangoHoldfast"):
            from holdfast.integrations.django import hf  # noqa: F401


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests.integrations.shop:hf", "knows nothing of Django"),
        ("tests.integrations.nowhere:hf", "there is no module 'tests.integrations.nowhere'"),
        ("tests.integrations.shop:nothing", "not a DjangoHoldfast but None"),
    ],
)
def test_the_app_must_be_one_of_django(site: Holdfast, name: str, words: str) -> None:
    with override_settings(HOLDFAST={"APP": name}):
        (fault,) = check_settings()
    assert words in fault.msg


@pytest.mark.parametrize(
    ("setting", "code"),
    [({"DATABASE": "lite"}, "E002"), ({"SCHEME": "x"}, "E001"), ({"APP": "tests.integrations.nowhere:hf"}, "E004")],
)
def test_wrong_settings_are_told_without_a_traceback(setting: dict[str, str], code: str) -> None:
    """Django starts, so that its checks can report what is wrong."""
    checked = manage("postgresql:///nowhere", "check", SITE_HOLDFAST=json.dumps(setting))
    assert (checked.returncode, f"holdfast.{code}" in checked.stderr) == (1, True), checked.stderr
    told = manage("postgresql:///nowhere", "holdfast", "jobs", "list", SITE_HOLDFAST=json.dumps(setting))
    assert told.returncode == 1
    assert told.stderr.startswith("CommandError: ")
    assert "Traceback" not in checked.stderr + told.stderr


def test_the_way_past_a_pooler_holds_for_the_database_that_it_names(
    site: Holdfast, database_url: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DIRECT_URL", database_url)
    app = DjangoHoldfast()
    assert app.config.direct_url == database_url
    use(empty_database_url)
    assert app.config.direct_url is None


def test_manage_migrate_brings_the_schema(empty_database_url: str) -> None:
    done = manage(empty_database_url, "migrate", "--run-syncdb")
    assert done.returncode == 0, done.stderr
    assert "Migrated the schema 'holdfast'" in done.stdout
    assert manage(empty_database_url, "holdfast", "migrate", "--check").stdout == "the schema is current\n"


def test_manage_holdfast_is_holdfasts_own_command_line(site: Holdfast, database_url: str, tmp_path: Path) -> None:
    done = manage(database_url, "holdfast", "enqueue", "order.greet", '{"customer": "ada"}', "--settings", SETTINGS)
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.strip()
    worked = manage(database_url, "holdfast", "worker", "--burst", folder=tmp_path)
    assert worked.returncode == 0, worked.stderr
    listed = manage(database_url, "holdfast", "jobs", "list", "-o", "json")
    (job,) = json.loads(listed.stdout)
    assert (job["id"], job["state"]) == (job_id, "success")
    shown = manage(database_url, "holdfast", "jobs", "show", job_id, "-o", "json")
    assert json.loads(shown.stdout)["result"] == "hello ada"
    assert manage(database_url, "holdfast", "jobs", "show", "nonsense").returncode == 2
    missing = manage(database_url, "holdfast", "jobs", "show", "018f0000-0000-7000-8000-000000000000")
    assert missing.returncode == 3
    assert "Traceback" not in missing.stderr


def test_several_worker_processes_find_the_project_wherever_they_start(
    site: Holdfast, database_url: str, tmp_path: Path
) -> None:
    refs = [jobs.confirm.sync.enqueue(customer=f"customer {n}") for n in range(20)]
    done = manage(database_url, "holdfast", "worker", "--processes", "2", "--burst", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {site.sync.get(ref).state for ref in refs} == {"success"}


def test_a_projects_own_tests_find_holdfast_in_their_database(empty_database_url: str) -> None:
    """And nothing of them in the real one, not even with a way to it past a pooler."""
    url = empty_database_url
    done = manage(url, "test", "tests.integrations.site.suite", "--noinput", HOLDFAST_DIRECT_URL=url)
    assert done.returncode == 0, done.stderr
    assert "Ran 7 tests" in done.stderr
    assert asyncio.run(namespaces(empty_database_url)) == ["public"]


async def namespaces(url: str) -> list[str]:
    conn = await asyncpg.connect(url)
    try:
        rows = await conn.fetch("select nspname from pg_namespace where nspname !~ '^(pg_|information_schema)'")
        return [row["nspname"] for row in rows]
    finally:
        await conn.close()


def test_call_command_leaves_the_process_as_it_was(site: Holdfast, capsys: pytest.CaptureFixture[str]) -> None:
    environment, arguments = dict(os.environ), list(sys.argv)
    jobs.greet.sync.enqueue("ada")
    call_command("holdfast", "jobs", "list", "-o", "ndjson")
    assert json.loads(capsys.readouterr().out)["type"] == "order.greet"
    with pytest.raises(SystemExit) as end:
        call_command("holdfast", "jobs", "show", "018f0000-0000-7000-8000-000000000000")
    assert end.value.code == 3
    assert (dict(os.environ), sys.argv) == (environment, arguments)


@pytest.mark.parametrize("time_zones", ["True", "False"])
def test_psycopg2_and_naive_times_work_as_well(database_url: str, tmp_path: Path, time_zones: str) -> None:
    """Django takes psycopg2 where psycopg 3 is not installed."""
    script = tmp_path / "older.py"
    script.write_text(
        f"""
import os, sys

sys.modules["psycopg"] = None
import django
from django.conf import settings
from tests.integrations.entries import database_entry

settings.configure(
    DATABASES={{"default": database_entry(os.environ["SITE_DATABASE_URL"])}},
    INSTALLED_APPS=["holdfast.integrations.django"],
    TASKS={{
        "default": {{
            "BACKEND": "holdfast.integrations.django.tasks.HoldfastBackend",
            "OPTIONS": {{"MODULES": ["__main__"]}},
        }}
    }},
    USE_TZ={time_zones},
    TIME_ZONE="America/Chicago",
)
django.setup()
from django.db import connection, transaction
from datetime import timedelta
from django.utils import timezone
from django_tasks import task
from holdfast.integrations.django import hf


@task()
def add(a, b):
    return a + b


with transaction.atomic():
    kept = add.enqueue(1, 2)
    later = add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(3, 4)
    kept.refresh()
    later.refresh()
    assert add.get_result(kept.id) == kept
    inside = hf.sync.get(kept.id)
    assert inside.created_at.tzinfo is not None
    assert abs(timezone.now() - kept.enqueued_at).total_seconds() < 60
assert connection.Database.__name__ == "psycopg2"
assert add.get_result(kept.id) == kept
assert add.get_result(later.id) == later
with transaction.atomic():
    undone = add.enqueue(5, 6)
    transaction.set_rollback(True)
hf.sync.run_worker(burst=True)
assert hf.sync.get(kept.id).created_at == inside.created_at
kept.refresh()
assert kept.return_value == 3
assert hf.sync.get(later.id).state == "scheduled"
assert 3500 < (hf.sync.get(later.id).run_at - hf.sync.get(later.id).created_at).total_seconds() < 3700
assert len(hf.sync.find()) == 2
"""
    )
    environment = {**os.environ, "SITE_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
