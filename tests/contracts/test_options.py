"""Every job option is known wherever jobs are recorded, read, run again or described; what lacks one is named.

An option begins in `DECLARED` (holdfast/model/options.py). These tests then say what else is to be done.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import click
import httpx

from holdfast import Context, HttpClient, ListedJob
from holdfast.app import Holdfast
from holdfast.bounds import BOUNDS
from holdfast.cli.enqueue import enqueue as enqueue_command
from holdfast.model.job import HandlerFacts
from holdfast.model.options import DECLARED, JobOption, Options
from holdfast.web.control.schemas import Submission
from holdfast.web.ops.schemas import JobSummary
from holdfast.web.server import create_app
from tests.cli.conftest import invoke

ROOT = Path(__file__).parents[2]
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
TRACE = f"00-{1:032x}-{2:016x}-01"

#: A value of each option that is not what a job has without it. `delay` and `run_at` exclude each other.
SAMPLES: dict[str, Any] = {
    "priority": 7, "run_at": SOON, "delay": 3600.0, "idempotency_key": "key", "dedup_key": "same", "parent": None,
    "correlation_id": "order-1", "max_attempts": 4, "target": "mailbox", "tenant": "acme", "queue": "slow",
    "hold": True, "target_count": 9, "created_by": "ada", "traceparent": TRACE,
}  # fmt: skip

#: Where an option cannot be given or read, and why that is right.
ELSEWHERE: dict[tuple[str, str], str] = {
    ("Submission", "tenant"): "it is the tenant of the caller's key",
    ("Submission", "created_by"): "it is the name of the caller's key",
    ("ListedJob", "delay"): "it is told as run_at",
    ("ListedJob", "hold"): "it is told as the state `created`",
    ("JobSummary", "delay"): "as for ListedJob",
    ("JobSummary", "hold"): "as for ListedJob",
    ("run again", "run_at"): "it runs now",
    ("run again", "delay"): "it runs now",
    ("run again", "hold"): "it runs now",
    ("run again", "idempotency_key"): "the key stays that of the first job",
    ("run again", "dedup_key"): "whoever asks for it wants another one",
}


def test_every_place_in_python_knows_every_option() -> None:
    engine = {name: option.engine_name or name for name, option in DECLARED.items()}
    flags = {parameter.name for parameter in enqueue_command.params if isinstance(parameter, click.Option)}
    described = re.findall(r"^\| (`.*?) \|", _section("docs/reference.md", "## Options of an enqueue"), re.MULTILINE)
    _assert_known({
        "Options (src/holdfast/model/options.py)": set(Options.__annotations__),
        "Submission (src/holdfast/web/control/schemas.py)": _named(Submission.model_fields, engine),
        "ListedJob (src/holdfast/model/job.py)": _named(ListedJob.__dataclass_fields__, engine),
        "JobSummary (src/holdfast/web/ops/schemas.py)": _named(JobSummary.model_fields, engine),
        "the flags of `holdfast enqueue` (src/holdfast/cli/enqueue.py)": flags,
        "the table of docs/reference.md": {name for cell in described for name in re.findall(r"`(\w+)`", cell)},
        "SAMPLES of this test": set(SAMPLES),
    })  # fmt: skip


def test_every_number_among_the_options_has_a_bound() -> None:
    numbers = {name for name, option in DECLARED.items() if option.kind in ("whole", "seconds")}
    assert numbers <= set(BOUNDS), "src/holdfast/bounds.py and src/holdfast/sql/functions/bounds.sql"


def test_http_has_the_bounds_of_the_declaration() -> None:
    fields = Submission.model_json_schema(by_alias=False)["properties"]
    for name, option in DECLARED.items():
        if ("Submission", name) in ELSEWHERE:
            continue
        (kind,) = (one for one in fields[option.engine_name or name]["anyOf"] if one["type"] != "null")
        if option.kind in ("text", "key"):
            assert (kind["minLength"], kind["maxLength"]) == (1, option.longest), name
        elif option.kind in ("whole", "seconds"):
            assert (kind["minimum"], kind["maximum"]) == (BOUNDS[name].low, BOUNDS[name].high), name


async def test_the_engine_knows_every_option(conn: asyncpg.Connection) -> None:
    own = {option.engine_name or name for name, option in DECLARED.items() if not option.of_the_call}
    try:
        await conn.execute("""select enqueue_many('{work}', '{"{}"}', array['{"nobody knows": 1}']::jsonb[])""")
    except asyncpg.PostgresError as refusal:
        told = str(refusal)
    named = set(re.split(r",\s*", told.partition("known are ")[2]))
    assert named == own, "the message of check_enqueue (src/holdfast/sql/functions/validation.sql)"


async def test_the_engine_refuses_what_the_declaration_does(conn: asyncpg.Connection) -> None:
    answers = {}
    for name, option in DECLARED.items():
        given = option.engine_name or name
        for value in [] if option.of_the_call else _unfit(name, option):
            asked = json.dumps({given: value})
            try:
                await conn.execute("select enqueue_many('{work}', '{\"{}\"}', array[$1::text::jsonb])", asked)
                answers[asked] = "accepted"
            except asyncpg.PostgresError as refusal:
                if refusal.sqlstate != "HF002" or not str(refusal).startswith(f"{given} must "):
                    answers[asked] = str(refusal)
    assert not answers, "the checks of check_enqueue (src/holdfast/sql/functions/validation.sql)"


def test_the_file_that_records_jobs_describes_every_option() -> None:
    head = (ROOT / "src/holdfast/sql/functions/enqueue.sql").read_text().partition("\ncreate ")[0]
    described = head.partition("as a JSON object: ")[2].partition(".\n")[0]
    unnamed = {one for name, option in DECLARED.items() if not option.of_the_call
               if (one := option.engine_name or name) not in re.findall(r"\w+", described)}  # fmt: skip
    assert not unnamed, "the comment at the top of src/holdfast/sql/functions/enqueue.sql"


async def test_what_is_asked_for_is_what_is_read_by_every_way_in(database_url: str) -> None:
    async with Holdfast(database_url) as app:
        parent = await app.enqueue("parent", tenant="acme")
        asked = {**SAMPLES, "parent": str(parent.id)}
        for held in (True, False):  # with a delay and held, then at a time and released
            given = {name: value for name, value in asked.items() if name not in _left_out(held=held)}
            expected = _expected(given)
            ways = {
                "hf.enqueue": await _by_python(app, given),
                "HTTP and HttpClient": await _by_http(app, given),
                "holdfast enqueue": await _by_command(database_url, given),
            }
            for way, job_id in ways.items():
                found = await app.get(job_id)
                assert _told(found, expected) == expected, way
                (listed,) = [job for job in await app.find(tenant="acme", limit=10) if job.id == job_id]
                assert _told(listed, expected) == expected, f"{way}, in a list"


async def test_a_job_that_is_run_again_keeps_its_options(database_url: str) -> None:
    async with Holdfast(database_url) as app:
        parent = await app.enqueue("parent", tenant="acme")
        kept = {name for name in DECLARED if ("run again", name) not in ELSEWHERE}
        given = {name: value for name, value in {**SAMPLES, "parent": str(parent.id)}.items() if name in kept}
        first = await app.enqueue("work", {}, **given)
        await app.cancel(first)
        await app.run_worker(burst=True)
        again = await app.retry(first)
        expected = _expected(given)
        assert _told(await app.get(again), expected) == expected, "run_again (src/holdfast/sql/functions/requests.sql)"


async def test_a_handler_is_told_what_its_job_was_given(database_url: str) -> None:
    async with Holdfast(database_url) as app:

        @app.job("tell")
        async def tell(ctx: Context) -> dict[str, Any]:
            return {name: getattr(ctx, name) for name in HandlerFacts._fields}

        given = {name: value for name, value in SAMPLES.items() if name in HandlerFacts._fields}
        job = await app.enqueue("tell", {}, **given)
        await app.run_worker(burst=True)
        told = (await app.get(job)).result
    assert {name: told[name] for name in given} == given, "it travels with the claim: see docs/extending.md"


def _unfit(name: str, option: JobOption) -> list[Any]:
    """What is not a value of this option, as JSON has it."""
    match option.kind:
        case "text":
            return ["", "x" * (option.longest + 1), 5, ["x"]]
        case "key":
            return ["", "x" * (option.longest + 1), "two words", 5]
        case "whole" | "seconds":
            odd = [1.5] if option.kind == "whole" else []
            return [BOUNDS[name].low - 1, BOUNDS[name].high + 1, "7", True, *odd]
        case "moment":
            return ["soon", 5]
        case "flag":
            return ["yes", 1]
        case "job" | "trace":
            return ["x", 5]


def _left_out(*, held: bool) -> set[str]:
    return {"run_at"} if held else {"delay", "hold"}


async def _by_python(app: Holdfast, given: Mapping[str, Any]) -> UUID:
    return (await app.enqueue("work", {}, **{**given, **_own_keys()})).id


async def _by_http(app: Holdfast, given: Mapping[str, Any]) -> UUID:
    keys = (await app.operations()).keys
    _, secret = await keys.create(given["created_by"], scopes=("submit",), tenant=given["tenant"], by="a test")
    client = HttpClient("http://127.0.0.1", secret, patience=0.1)
    client._transport._http = httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(app)),
        base_url="http://127.0.0.1",
        headers={"Authorization": f"Bearer {secret}"},
    )
    options = {name: value for name, value in given.items() if ("Submission", name) not in ELSEWHERE}
    try:
        return (await client.submit("work", {}, **{**options, **_own_keys()})).id
    finally:
        await client.close()


async def _by_command(url: str, given: Mapping[str, Any]) -> UUID:
    words: list[str] = []
    for name, value in {**given, **_own_keys()}.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, value.isoformat() if isinstance(value, datetime) else str(value)]
    answer = await asyncio.to_thread(invoke, "enqueue", "work", *words, environment={"HOLDFAST_DATABASE_URL": url})
    assert answer.exit_code == 0, answer.output
    return UUID(answer.stdout.split()[0])


def _own_keys() -> dict[str, str]:
    """A job of its own for each way in."""
    return {"idempotency_key": str(uuid4()), "dedup_key": str(uuid4())}


def _expected(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the job tells of these options."""
    told = {DECLARED[name].engine_name or name: value for name, value in given.items() if not name.endswith("_key")}
    if told.pop("hold", False):
        told["state"] = "created"
    if told.pop("delay", None) is not None:
        told["run_at"] = "later"
    return told


def _told(job: ListedJob, expected: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: getattr(job, name) for name in expected}
    if expected.get("run_at") == "later":
        told["run_at"] = "later" if job.run_at > job.created_at + timedelta(minutes=59) else job.run_at
    if "parent_id" in told:
        told["parent_id"] = str(told["parent_id"])
    if "state" in told:
        told["state"] = job.state.value
    return told


def _named(fields: Mapping[str, Any], engine: Mapping[str, str]) -> set[str]:
    """The options among fields, which have the engine's names."""
    return {name for name in DECLARED if engine[name] in fields or name in fields}


def _assert_known(places: Mapping[str, set[str]]) -> None:
    lacking = [
        f"{name!r} is missing in {place}"
        for place, known in places.items()
        for name in DECLARED
        if name not in known and (place.partition(" (")[0], name) not in ELSEWHERE
    ]
    assert not lacking, "\n".join(lacking)


def _section(page: str, heading: str) -> str:
    text = (ROOT / page).read_text()
    return text.partition(f"{heading}\n")[2].partition("\n## ")[0]
