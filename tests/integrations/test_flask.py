"""The Flask extension: settings, transactions, handlers in the application's context, commands."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import text

from holdfast import ConfigError, Holdfast, HoldfastError
from holdfast.integrations.flask import FlaskHoldfast, current_holdfast
from holdfast.testing.jobs import Jobs
from tests.harness import warm
from tests.integrations import shop

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def holdfast_server_url(server_url: str) -> str:
    return server_url


@pytest.fixture(scope="session")
def holdfast_app() -> Holdfast:
    return shop.hf


@pytest.fixture
def app(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flask]:
    monkeypatch.setenv("SHOP_DATABASE_URL", database_url)
    monkeypatch.setattr(shop.hf, "_place", None)  # every test has a database of its own
    app = shop.create_app()
    shop.session.execute(text("create table orders (number int primary key, confirmed boolean)"))
    shop.session.commit()
    shop.session.remove()
    yield app
    shop.hf.sync.close()
    engine = shop.session.get_bind()
    shop.session.remove()
    engine.dispose()  # type: ignore[union-attr]


def flask(url: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOP_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    command = ["-W", "error", "-m", "flask", "--app", "tests.integrations.shop", *arguments]
    return warm.run(command, cwd=folder, env=environment, timeout=90)


def test_a_view_enqueues_and_a_worker_runs_it_in_the_applications_context(app: Flask) -> None:
    client = app.test_client()
    job_id = client.post("/greet/ada").get_json()["job"]
    placed = client.post("/orders/7").get_json()["job"]
    before = len(shop.torn_down)
    shop.hf.sync.run_worker(burst=True)
    assert shop.hf.sync.get(job_id).result == "hello ada"
    assert shop.hf.sync.get(placed).result == "hello 7"
    assert len(shop.torn_down) == before + 2
    assert shop.session.execute(text("select confirmed from orders")).scalar_one() is True


def test_a_job_on_the_session_exists_if_and_only_if_it_commits(app: Flask) -> None:
    client = app.test_client()
    assert client.post("/orders/1").status_code == 202
    assert client.post("/orders/2?fail=1").status_code == 500
    assert client.post("/orders/1").status_code == 500
    assert [shop.hf.sync.get(job).payload for job in shop.hf.sync.find()] == [{"number": 1}]


def test_the_extension_is_found_through_the_application(app: Flask) -> None:
    assert app.extensions["holdfast"] is shop.hf
    with app.app_context():
        assert current_holdfast.config.database_url == app.config["HOLDFAST_DATABASE_URL"]
        assert current_holdfast.sync.find() == []
    with Flask("bare").app_context(), pytest.raises(ConfigError, match="init_app"):
        _ = current_holdfast.config


def test_settings_come_from_the_application_and_unknown_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SCHEMA", "from_environment")
    app = Flask("settings")
    assert FlaskHoldfast(app).config.schema == "from_environment"
    app.config.update(HOLDFAST_SCHEMA="from_config", HOLDFAST_BATCH_SIZE=7)
    config = FlaskHoldfast(app).config
    assert (config.schema, config.batch_size) == ("from_config", 7)
    app.config["HOLDFAST_DATABASE"] = "x"
    with pytest.raises(ConfigError, match="did you mean 'HOLDFAST_DATABASE_URL'"):
        FlaskHoldfast(app)


def test_an_application_of_another_database_is_refused(app: Flask, empty_database_url: str) -> None:
    for name, value in (("HOLDFAST_DATABASE_URL", empty_database_url), ("HOLDFAST_SCHEMA", "elsewhere")):
        other = Flask("other")
        other.config.update(HOLDFAST_DATABASE_URL=app.config["HOLDFAST_DATABASE_URL"])
        other.config[name] = value
        with pytest.raises(ConfigError, match="one extension object per database"):
            shop.hf.init_app(other)
        assert "holdfast" not in other.extensions
    assert shop.hf.flask is app
    job_id = app.test_client().post("/greet/ada").get_json()["job"]
    assert shop.hf.sync.get(job_id).state == "queued"


def test_applications_of_one_database_share_the_extension(app: Flask) -> None:
    again = Flask("again")
    again.config.update(HOLDFAST_DATABASE_URL=app.config["HOLDFAST_DATABASE_URL"], GREETING="good day")
    shop.hf.init_app(again)
    assert app.test_client().post("/greet/ada").status_code == 202
    with again.app_context():
        (job,) = current_holdfast.sync.find()
    shop.hf.sync.run_worker(burst=True)
    assert shop.hf.sync.get(job.id).result == "good day ada"


def test_an_application_made_in_a_test_records_in_the_tests_database(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DATABASE_URL", "postgresql://127.0.0.1:1/nothing")
    for _ in range(2):
        app = shop.create_app()
        assert app.test_client().post("/greet/ada").status_code == 202
    assert [run.result for run in jobs.sync.run_due(raise_errors=True)] == ["hello ada", "hello ada"]
    assert app.extensions["holdfast"] is shop.hf
    assert "holdfast" in app.cli.commands


def test_a_process_that_runs_handlers_stays_in_the_workers_database(app: Flask, database_url: str) -> None:
    hf = FlaskHoldfast()
    told = {**hf.config.origins, "database_url": "order"}
    hf.config = dataclasses.replace(hf.config, database_url=database_url, origins=told)
    other = Flask("other")
    other.config["HOLDFAST_DATABASE_URL"] = "postgresql://127.0.0.1:1/nothing"
    hf.init_app(other)
    assert hf.config.database_url == database_url
    assert other.extensions["holdfast"] is hf


async def test_an_open_extension_stays_where_it_is(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    hf, same, other = FlaskHoldfast(), Flask("same"), Flask("other")
    other.config["HOLDFAST_DATABASE_URL"] = "postgresql://127.0.0.1:1/nothing"
    async with hf:
        with pytest.raises(HoldfastError, match="open in another database"):
            hf.init_app(other)
        hf.init_app(same)
        assert await hf.find() == []
    assert hf.flask is same


def test_a_worker_loads_the_application_with_the_first_job(app: Flask, database_url: str) -> None:
    ref = shop.greet.sync.enqueue("ada")
    environment = {
        **os.environ,
        "SHOP_DATABASE_URL": database_url,
        "HOLDFAST_DATABASE_URL": database_url,
        "FLASK_APP": "tests.integrations.shop",
    }
    command = ["-m", "holdfast", "worker", "--app", "tests.integrations.shop:hf", "--burst"]
    done = warm.run(command, cwd=ROOT, env=environment, timeout=90)
    assert done.returncode == 0, done.stderr
    assert shop.hf.sync.get(ref).result == "hello ada"


def test_flask_holdfast_is_holdfasts_own_command_line(app: Flask, database_url: str, tmp_path: Path) -> None:
    done = flask(database_url, "holdfast", "enqueue", "greet", '{"name": "ada"}')
    assert done.returncode == 0, done.stderr
    computed = shop.square.sync.enqueue(3)
    worked = flask(database_url, "holdfast", "worker", "--processes", "2", "--burst", folder=tmp_path)
    assert worked.returncode == 0, worked.stderr
    listed = flask(database_url, "holdfast", "jobs", "list", "--type", "greet", "-o", "json")
    (job,) = json.loads(listed.stdout)
    assert (job["id"], job["state"]) == (done.stdout.strip(), "success")
    assert shop.hf.sync.get(job["id"]).result == "hello ada"
    assert shop.hf.sync.get(computed).result == {"greeting": "hello", "square": 9}
    assert flask(database_url, "holdfast", "jobs", "show", "nonsense").returncode == 2
    assert "Record a job and print its id" in flask(database_url, "holdfast", "enqueue", "--help").stdout


def test_a_plain_app_works_beside_it(app: Flask, database_url: str) -> None:
    with Holdfast(database_url).sync as sync:
        ref = sync.enqueue("greet", {"name": "bob"})
    assert shop.hf.sync.get(ref).state == "queued"
