"""Whatever is given too large, through SQL, Python, HTTP and the command line, is refused in clear words.

A real server stands by all the while: its memory stays bounded, and it answers at once. In the long form it is tried
with hundreds of megabytes, by many callers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast, InvalidInput, RetryPolicy
from tests.cli.conftest import invoke
from tests.conftest import CHAOS_SECONDS
from tests.harness import warm
from tests.harness.livez import Livez
from tests.harness.slowness import Slowness
from tests.harness.stalls import Stalls
from tests.harness.waiting import until
from tests.sql.factories import run_one
from tests.web.test_bounded import GET, send

ROOT = Path(__file__).parents[2]
LIMIT = 1_048_576
SERVER_MEMORY = 256 * 2**20
HUGE = 100_000_000
PORT = re.compile(r"http://127\.0\.0\.1:(\d+)")


def payload(size: int) -> dict[str, str]:
    """A payload that takes this many bytes as stored."""
    return {"a": "x" * (size - len('{"a": ""}'))}


def nested(levels: int) -> str:
    return '{"a": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


#: JSON that is far larger when it is read back, or that somebody cannot read at all: the text, and what is said of it.
AMPLIFYING = {
    "large numbers": (
        '{"a": [' + ",".join(["1e308"] * 3500) + "]}",
        r"takes 10\d+ bytes as JSON, more than PAYLOAD_MAX",
    ),
    "small numbers": ('{"a": [' + ",".join(["5e-324"] * 3500) + "]}", "more than PAYLOAD_MAX_BYTES"),
    "control characters": ('{"a": "' + "\\u0001" * 180_000 + '"}', "more than PAYLOAD_MAX_BYTES"),
    "spaces": ('{"a":[' + ",".join(["1"] * 500_000) + "]}", "takes 1500007 bytes as JSON"),
    "long key": ('{"' + "k" * LIMIT + '": 1}', "more than PAYLOAD_MAX_BYTES"),
    "nesting": (nested(191), r"more than 190 levels|recursion"),
    "endless nesting": (nested(100_000), r"levels|recursion|stack depth"),
    "NUL": ('{"a": "\\u0000"}', r"NUL|u0000"),
    "long number": ('{"a": ' + "9" * 4301 + "}", r"4300 digits|out of range|too large|Exceeds"),
}
#: What looks like one of these, and is fine.
HARMLESS = {
    "backslash": '{"a": "\\\\u0000"}',
    "nesting": nested(190),
    "long number": '{"a": ' + "9" * 4300 + "}",
    "digits in a text": '{"a": "' + "9" * 10_000 + '"}',
    "a number": '{"a": 1e308}',
    "escapes": '{"a": "' + "\\u0041" * 170_000 + '"}',
}


class Server:
    """A server process, and the most memory that it ever had."""

    def __init__(self, process: warm.Process, port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def memory(self) -> int:
        """The most that it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


@pytest.fixture
async def server(database_url: str, tmp_path: Path, slow: Slowness) -> AsyncIterator[Server]:
    """A server that must not grow, nor keep anybody waiting."""
    log = tmp_path / "server.log"
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_HOME": str(tmp_path)}
    with log.open("wb") as output:
        process = warm.Process(
            ["-m", "holdfast", "serve", "--port", "0", "--no-maintenance"], cwd=ROOT, env=environment, stdout=output
        )
    try:
        await until(lambda: PORT.search(log.read_text()), seconds=60, what="the server starts")
        found = PORT.search(log.read_text())
        assert found is not None
        server = Server(process, int(found[1]))
        with Stalls() as stalls, Livez(server.port) as livez:
            yield server
            slowest, allowed = livez.slowest, 0.1 * slow.factor + stalls.longest
        print(f"/livez at most {slowest * 1000:.0f} ms; the server at most {server.memory / 2**20:.0f} MiB")
        assert slowest < allowed, f"/livez took {slowest:.3f} s"
        assert server.memory < SERVER_MEMORY, f"the server had {server.memory / 2**20:.0f} MiB"
    finally:
        process.terminate()
        process.wait()
        print(*(line for line in log.read_text().splitlines() if '"error"' in line), sep="\n")


class Place:
    """One database through all of its faces. Each returns the error for a payload, or an empty text."""

    def __init__(self, hf: Holdfast, conn: asyncpg.Connection, server: Server, http: httpx.AsyncClient) -> None:
        self.hf, self.conn, self.server, self.http = hf, conn, server, http
        self.url = str(hf.config.database_url)

    async def enqueue(self, text: str) -> str:
        return await self._sql("select enqueue('work', $1::text::jsonb)", text)

    async def enqueue_many(self, text: str) -> str:
        return await self._sql("select enqueue_many(array['work', 'work'], array['{}', $1::text::jsonb])", text)

    async def enqueue_plain(self, text: str) -> str:
        ids = "array[uuid_v7(), uuid_v7()]"
        return await self._sql(
            f"select enqueue_plain('work', array['{{}}', $1::text::jsonb], {ids}, alone => true)", text
        )

    async def python(self, text: str) -> str:
        return await self._told(self.hf.enqueue("work", read(text)))

    async def python_many(self, text: str) -> str:
        return await self._told(self.hf.enqueue_many([("work", {}), ("work", read(text), {"priority": 5})]))

    async def python_conn(self, text: str) -> str:
        async with self.conn.transaction():
            return await self._told(self.hf.enqueue("work", read(text), conn=self.conn))

    async def post(self, text: str) -> str:
        answer = await self.http.post("/jobs", content=b'{"jobType":"work","payload":%b}' % text.encode(), headers=JSON)
        return "" if answer.status_code == 202 else f"{answer.status_code} {answer.text}"

    async def batch(self, text: str) -> str:
        body = b'{"jobs":[{"jobType":"work"},{"jobType":"work","payload":%b}]}' % text.encode()
        answer = await self.http.post("/jobs/batch", content=body, headers=JSON)
        if answer.status_code != 202:
            return f"{answer.status_code} {answer.text}"
        first, second = answer.json()["results"]
        assert "jobId" in first
        return json.dumps(second["problem"]) if "problem" in second else ""

    async def command(self, text: str) -> str:
        environment = {"HOLDFAST_DATABASE_URL": self.url}
        done = await asyncio.to_thread(invoke, "enqueue", "work", "-", environment=environment, stdin=text)
        assert done.exit_code in (0, 1, 2), done.output
        return done.output if done.exit_code else ""

    async def count(self) -> int:
        return int(await self.conn.fetchval("select count(*) from jobs where payload <> '{}'"))

    async def _sql(self, statement: str, text: str) -> str:
        try:
            await self.conn.fetch(statement, text)
        except asyncpg.PostgresError as fault:
            return f"{fault.sqlstate} {fault} {fault.detail}"
        return ""

    async def _told(self, call: Awaitable[Any]) -> str:
        try:
            await call
        except InvalidInput as fault:
            return str(fault)
        return ""


JSON = {"Content-Type": "application/json"}
SQL = ("enqueue", "enqueue_many", "enqueue_plain")
PYTHON = ("python", "python_many", "python_conn")
HTTP = ("post", "batch")
FACES = (*SQL, *PYTHON, *HTTP, "command")


def read(text: str) -> Any:
    """JSON as a program has it that did not read it from text: nested at will, with numbers of any length."""
    if text.startswith('{"a": [[[['):
        value: list[Any] = []
        for _ in range(text.count("[") - 1):
            value = [value]
        return {"a": value}
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4000 else 10 ** len(digits) - 1)


@pytest.fixture
async def place(database_url: str, conn: asyncpg.Connection, server: Server) -> AsyncIterator[Place]:
    await conn.execute("select enqueue('work')")  # its stream is known: the short way in is open
    async with Holdfast(database_url) as hf, httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        yield Place(hf, conn, server, http)


async def test_a_payload_is_as_large_as_it_may_be_through_every_face(place: Place) -> None:
    for face in FACES:
        give: Callable[[str], Awaitable[str]] = getattr(place, face)
        # Over HTTP the whole body may have as much; as it is stored, the payload then is a little smaller.
        room = LIMIT - (len(b'{"jobs":[{"jobType":"work"},{"jobType":"work","payload":}]}') if face in HTTP else 0)
        before = await place.count()
        for size in (len('{"a": ""}'), room - 1, room):
            assert await give(json.dumps(payload(size))) == "", (face, size)
        assert await place.count() == before + 3
        refused = await give(json.dumps(payload(LIMIT + 1)))
        if face in HTTP:
            assert refused.startswith("413 "), (face, refused)
        else:
            for part in ("payload of work", str(LIMIT + 1), f"PAYLOAD_MAX_BYTES ({LIMIT})", "raise the limit"):
                assert part in refused, (face, refused)
        assert await place.count() == before + 3


async def test_what_grows_or_cannot_be_read_back_is_refused_by_every_face(place: Place) -> None:
    before = await place.count()
    for what, (text, words) in AMPLIFYING.items():
        for face in FACES:
            told = await getattr(place, face)(text)
            assert told, f"{face} took {what}"
            assert not (face in HTTP and told.startswith("5")), (what, face, told)
            too_large = "too-large" if face in HTTP and len(text) > LIMIT - 100 else words
            assert re.search(too_large, told), (what, face, told[:300])
    assert await place.count() == before


async def test_values_that_only_look_invalid_are_accepted_and_read_back_by_every_face(place: Place) -> None:
    for what, text in HARMLESS.items():
        for face in FACES:
            assert await getattr(place, face)(text) == "", (what, face)
    for job in await place.hf.find(limit=1000):
        answer = await place.http.get(f"/ops/jobs/{job.id}")
        assert answer.status_code == 200
        assert (await place.hf.get(job)).payload == json.loads(answer.text)["payload"]


async def test_hundreds_of_megabytes_are_refused_before_they_are_read(place: Place) -> None:
    faces = FACES if CHAOS_SECONDS else ("python",)
    text = json.dumps(payload(HUGE))
    for face in faces:
        if face not in HTTP:
            assert str(LIMIT) in await getattr(place, face)(text), face
    port = place.server.port
    head = b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    chunk = b"%x\r\n%b\r\n" % (2**16, b" " * 2**16)
    sized = [head + b"Content-Length: %d\r\n\r\n" % HUGE, *[b" " * 2**16] * 1600]
    chunked = [head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 1600]
    for pieces in (sized, chunked):
        for _ in range(8 if CHAOS_SECONDS else 1):
            status, _answer = await send(port, pieces)
            assert status == 413
    for pieces in ([GET + b"X: ", *[b"a" * 2**16] * 1600], [b"GET /", *[b"a" * 2**16] * 1600]):
        assert (await send(port, pieces))[0] == 431


#: Bodies of a megabyte that take far more as values than as text, or that are refused late.
BODIES = [
    b'{"jobType":"work","payload":{"a":[%b]}}' % b",".join([unit] * (1_000_000 // (len(unit) + 1)))
    for unit in (b"[]", b"{}", b'""', b"1", b"1.5", b"1e308", b'{"a":1}', b"[[[[]]]]")
]


@pytest.mark.calm
async def test_many_large_callers_at_once_neither_fill_the_server_nor_stop_it(place: Place) -> None:
    lease = await run_one(place.conn, "large")
    for number in range(8):
        await place.conn.execute(
            "select report('w1', $1, $2, $3, jsonb_build_array(jsonb_build_object('data', repeat($4, 1000000))))",
            *lease, number + 1, str(number),
        )  # fmt: skip
    await place.conn.execute(
        "select complete('w1', array[$1::uuid], array[$2::integer], array[to_jsonb(repeat('r', 1000000))])", *lease
    )
    job = f"/jobs/{lease.job_id}"
    paths = [f"{job}/items?limit=1000", f"{job}/result", f"/ops{job}", "/ops/jobs"]
    end = time.monotonic() + CHAOS_SECONDS

    async def call(number: int) -> int:
        done = 0
        while not done or time.monotonic() < end:
            body = BODIES[(number + done) % len(BODIES)]
            answer = await place.http.post("/jobs", content=body, headers=JSON)
            assert answer.status_code in (202, 413, 503), answer.text
            answer = await place.http.get(paths[(number + done) % len(paths)])
            assert answer.status_code in (200, 503), answer.text
            done += 1
        return done

    calls = await asyncio.gather(*(call(number) for number in range(12 if CHAOS_SECONDS else 8)))
    print(f"{sum(calls)} calls")


#: How long an option may be.
LENGTHS = {"target": 255, "dedup_key": 255, "correlation_id": 255, "idempotency_key": 255, "queue": 200, "type": 200}


async def test_names_keys_and_reasons_are_as_long_as_they_may_be_through_every_face(place: Place) -> None:
    async def by_sql(job_type: str, option: str | None, text: str) -> str:
        named = f", {option} => $2" if option else ""
        return await _refusal(place.conn.fetch(f"select enqueue($1{named})", job_type, *([text] if option else [])))

    async def by_python(job_type: str, option: str | None, text: str) -> str:
        return await _refusal(place.hf.enqueue(job_type, {}, **({option: text} if option else {})))  # type: ignore[arg-type]

    async def by_http(job_type: str, option: str | None, text: str) -> str:
        first, *rest = (option or "").split("_")
        body = {"jobType": job_type} | ({first + "".join(map(str.title, rest)): text} if option else {})
        answer = await place.http.post("/jobs", json=body)
        return "" if answer.status_code == 202 else answer.text

    async def by_command(job_type: str, option: str | None, text: str) -> str:
        words = ["enqueue", job_type, *([f"--{option.replace('_', '-')}", text] if option else [])]
        done = await asyncio.to_thread(invoke, *words, environment={"HOLDFAST_DATABASE_URL": place.url})
        return done.output if done.exit_code else ""

    for option, longest in LENGTHS.items():
        for face in (by_sql, by_python, by_http, by_command):
            for size in (1, longest - 1, longest, longest + 1, 50_000):
                text = face.__name__[3] * size  # no face meets the jobs of another
                given = (text, None, "") if option == "type" else ("work", option, text)
                told = await face(*given)
                words = rf"at most {longest} characters|1 to {longest} (visible|characters)"
                assert re.search(words, told) if size > longest else not told, (option, face.__name__, size, told[:200])

    job = await place.hf.enqueue("work", {}, delay=3600)
    for size, fits in ((1, True), (1000, True), (1001, False), (1_000_000, False)):
        reason, words = "x" * size, "at most 1000 characters"
        by_face = [
            await _refusal(place.conn.fetch("select request('pause', array[$1::uuid], 'me', $2)", job.id, reason)),
            await _refusal(place.hf.pause(job, reason=reason)),
            await _refusal((await place.hf.operations()).request("pause", job.id, by="me", reason=reason)),
            _problem(await place.http.post(f"/jobs/{job.id}/pause", json={"reason": reason})),
        ]
        for told in by_face:
            assert (not told) if fits else (words in told or "too-large" in told), (size, told[:200])


async def test_filters_are_as_long_as_they_may_be_through_every_face(place: Place) -> None:
    operations = await place.hf.operations()
    for size, fits in ((0, True), (1999, True), (2000, True), (2001, False), (60_000, False)):
        query = ("x" * size)[:size]
        assert bool(await _refusal(operations.search(query))) is not fits
        assert bool(_problem(await place.http.get("/ops/jobs", params={"q": query}))) is not fits
    for size, fits in ((1, True), (255, True), (256, False), (HUGE, False)):
        assert bool(await _refusal(place.hf.find(target="x" * size))) is not fits
    for limit, fits in ((0, False), (1, True), (10_000, True), (10_001, False)):
        assert bool(await _refusal(place.hf.find(limit=limit))) is not fits


async def test_what_handlers_give_is_bounded_and_the_next_job_unharmed(place: Place) -> None:
    hf, deep = place.hf, read(nested(300))
    fatal: dict[str, Callable[[], Any]] = {
        "result + 1": lambda: "x" * (LIMIT - 1),
        "result of 100 MB": lambda: "x" * HUGE,
        "large numbers": lambda: [1e308] * 3500,
        "long number": lambda: 10**5000,
        "deep": lambda: deep,
        "NUL": lambda: "\x00",
    }
    fine: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "result - 1": lambda: "x" * (LIMIT - 3),
        "result": lambda: "x" * (LIMIT - 2),
    }

    @hf.job("give", retry=RetryPolicy(max_attempts=1))
    async def give(ctx: Context, what: str) -> Any:
        if what in fatal or what in fine:
            return (fatal | fine)[what]()
        if what == "error":
            raise RuntimeError("x" * HUGE)
        if what == "log":
            for _ in range(20):
                ctx.logger.info("y" * 10_000_000)
        elif what == "items":
            await ctx.items([{"data": "x" * LIMIT}])
        elif what == "many items":
            await ctx.items([{"data": "x" * (LIMIT - 2)} for _ in range(65)])
        elif what == "cursor":
            await ctx.items([], cursor="x" * LIMIT)
        return what

    refused = {**fatal, "error": None, "items": None, "many items": None, "cursor": None}
    refs = {what: await give.enqueue(what) for what in (*fine, *refused, "log", "fine after all")}
    await hf.run_worker(burst=True)
    for what, ref in refs.items():
        job = await hf.get(ref)
        assert job.state == ("dead" if what in refused else "success"), (what, job.last_error)
        assert len(job.last_error or "") < 10_000
        if what in refused and what != "error":
            assert re.search(r"RESULT_MAX_BYTES|4300 digits|levels|JSON|NUL|several", job.last_error or ""), (
                job.last_error
            )
        (attempt,) = await hf.attempts(ref)
        assert len(attempt.log_excerpt or "") < 10_000
        assert _problem(await place.http.get(f"/jobs/{ref.id}/result")) == ""


async def _refusal(call: Awaitable[Any]) -> str:
    """The error for a call, in words for callers; empty if it was served."""
    try:
        await call
    except InvalidInput as fault:
        return str(fault)
    except asyncpg.PostgresError as fault:
        if fault.sqlstate != "HF002":
            raise
        return str(fault)
    return ""


def _problem(answer: httpx.Response) -> str:
    assert answer.status_code < 500, answer.text
    return "" if answer.status_code < 400 else answer.text
