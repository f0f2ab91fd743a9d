"""The client of the HTTP API: `async with HttpClient(url, key) as client: await client.submit("email.send", {...})`.

Everything is safe to repeat, and is repeated while the server cannot be reached: a submission without an
idempotency key gets one first, so that the job is recorded once, whatever is lost on the way.
"""

from __future__ import annotations

import asyncio
import json as json_module
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

from holdfast.errors import HoldfastError, InvalidInput, InvalidPayload, ServerUnavailable, WaitTimeout
from holdfast.lifecycle.portal import Portal
from holdfast.model.equal_keys import repeated_key_of
from holdfast.model.states import Status
from holdfast.remote.transport import AGAIN, Transport, error_of

__all__ = ["HttpClient", "RemoteItem", "RemoteJob", "RemoteResult", "SyncClient"]

P = ParamSpec("P")
R = TypeVar("R")
JobId = UUID | str

_LONGEST_WAIT = 30.0
_PAGE = 1000
_BATCH, _BATCH_BYTES = 1000, 1_000_000
_REST_SECONDS = 0.2
#: The server says something at least every fifteen.
_QUIET_SECONDS = 45.0
_ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELED)
#: What can become of a job that was resumed or released.
_GOING_ON = (Status.PENDING, Status.RUNNING, Status.COMPLETED, Status.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteJob:
    """What the API tells of a job; just submitted, only its id and status."""

    id: UUID
    status: Status
    type: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    #: Why it is PAUSED, ERROR or CANCELED, where somebody said so.
    message: str | None = None
    #: What the job has reported; None where it has reported nothing.
    progress_count: int | None = None
    result_count: int | None = None
    target_count: int | None = None
    last_progress_at: datetime | None = None
    done_reason: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing can become of it any more."""
        return self.status in _ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteItem:
    """One thing that a job has stored."""

    key: str
    data: Any
    collection: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteResult:
    """How a job ended."""

    id: UUID
    status: Status
    result: Any
    error_type: str | None
    error_message: str | None


class HttpClient:
    """The client of the HTTP API. `client.sync` has the same verbs for synchronous code."""

    def __init__(self, url: str, key: str | None = None, *, timeout: float = 10.0, patience: float = 30.0) -> None:
        """`timeout` is for one try, `patience` for all of them."""
        self._arguments: dict[str, Any] = {"url": url, "key": key, "timeout": timeout, "patience": patience}
        self._transport = Transport(url, key, timeout=timeout, patience=patience)
        self._sync: SyncClient | None = None

    @property
    def sync(self) -> SyncClient:
        """The same verbs, blocking."""
        if self._sync is None:
            self._sync = SyncClient(**self._arguments)
        return self._sync

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connections back."""
        await self._transport.close()

    async def submit(self, /, job_type: str, payload: Mapping[str, Any] | None = None, **options: Any) -> RemoteJob:
        """Record a job: `idempotency_key`, `priority`, `run_at` or `delay`, `target`, and the other options."""
        body = _submission(job_type, payload, options)
        return _job((await self._transport.call("POST", "/jobs", json=body)).json())

    async def submit_many(self, jobs: Iterable[Sequence[Any]]) -> list[RemoteJob | HoldfastError]:
        """Record many: `("type", {payload})` or `("type", {payload}, {options})` each; a job or an error each."""
        bodies = [_submission(kind, payload, options or {}) for kind, payload, options in map(_asked, jobs)]
        answers: list[RemoteJob | HoldfastError] = []
        for part in _parts(bodies):
            answers += await self._submit_part(part)
        return answers

    async def _submit_part(self, bodies: list[dict[str, Any]]) -> list[RemoteJob | HoldfastError]:
        """One request, and those of its jobs that could not be recorded at the moment once more."""
        answer = await self._transport.call("POST", "/jobs/batch", json={"jobs": bodies})
        found: list[RemoteJob | HoldfastError] = []
        for body, entry in zip(bodies, answer.json()["results"], strict=True):
            problem = entry.get("problem")
            if problem is None:
                found.append(_job(entry))
            elif problem["status"] in AGAIN:
                try:
                    found.append(_job((await self._transport.call("POST", "/jobs", json=body)).json()))
                except HoldfastError as fault:
                    found.append(fault)
            else:
                found.append(error_of(problem["status"], problem))
        return found

    async def get(self, job_id: JobId) -> RemoteJob:
        """The status of a job; NotFound if there is none."""
        return _job((await self._transport.call("GET", _path(job_id))).json())

    async def wait(self, job_id: JobId, timeout: float | None = None) -> RemoteJob:
        """Wait until the job has ended; WaitTimeout if it has not within `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LONGEST_WAIT if end is None else min(_LONGEST_WAIT, max(0.0, end - time.monotonic()))
            wish = {"Prefer": f"wait={int(left + 0.999)}"}
            job = _job((await self._transport.call("GET", _path(job_id), headers=wish, wait=left)).json())
            if job.ended:
                return job
            if end is None or time.monotonic() < end:
                await asyncio.sleep(_REST_SECONDS)  # the server answered early: it is about to stop
            else:
                raise WaitTimeout(f"job {job.id} is still {job.status.value} after {timeout:g} s")

    async def result(self, job_id: JobId, timeout: float | None = None) -> RemoteResult:
        """The result of the job, once it has ended."""
        await self.wait(job_id, timeout)
        told = (await self._transport.call("GET", f"{_path(job_id)}/result")).json()
        error = told["error"] or {}
        return RemoteResult(
            id=UUID(told["jobId"]),
            status=Status(told["status"]),
            result=told["result"],
            error_type=error.get("type"),
            error_message=error.get("message"),
        )

    async def items(self, job_id: JobId, *, limit: int | None = None) -> list[RemoteItem]:
        """The items of a job, in the order in which they were stored; at most `limit` of them."""
        found: list[RemoteItem] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            asked = _PAGE if limit is None else min(_PAGE, limit - len(found))
            path = f"{_path(job_id)}/items?limit={asked}" + ("" if cursor is None else f"&cursor={cursor}")
            page = (await self._transport.call("GET", path)).json()
            found += [
                RemoteItem(
                    key=item["key"],
                    data=item["data"],
                    collection=item["collection"],
                    created_at=datetime.fromisoformat(item["createdAt"]),
                )
                for item in page["items"]
            ]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        return found

    async def events_url(self, job_id: JobId, *, seconds: float = 600) -> str:
        """An address at which a browser can follow this one job without a key, for some seconds (3600 at most)."""
        answer = await self._transport.call("POST", f"{_path(job_id)}/events/token", json={"seconds": seconds})
        # The server tells the path; what it is reached by from here, it does not know.
        _, _, query = answer.json()["url"].partition("?")
        return f"{self._arguments['url'].rstrip('/')}{_path(job_id)}/events" + (f"?{query}" if query else "")

    async def events(self, job_id: JobId) -> AsyncIterator[RemoteJob]:
        """The job whenever it changes, until it has ended. A stream that ends or breaks is resumed."""
        import httpx

        patience = self._arguments["patience"]
        known, end = "", time.monotonic() + patience
        timeout = httpx.Timeout(self._arguments["timeout"], read=_QUIET_SECONDS)
        while True:
            job = await self.get(job_id)  # waits for a server that is away, and tells of a job that is none
            headers = {"Last-Event-ID": known} if known else {}
            try:
                path = f"{_path(job_id)}/events"
                async with self._transport.http.stream("GET", path, headers=headers, timeout=timeout) as stream:
                    event = ""
                    async for line in stream.aiter_lines():
                        end = time.monotonic() + patience
                        if line.startswith("id: "):
                            event = line.removeprefix("id: ")
                        elif line.startswith("data: "):
                            job, known = _job(json_module.loads(line.removeprefix("data: "))), event
                            yield job
            except httpx.TransportError as fault:
                if time.monotonic() > end:
                    raise ServerUnavailable(f"the stream broke: {fault or type(fault).__name__}") from fault
            if job.ended:
                if not known:
                    yield job
                return
            await asyncio.sleep(_REST_SECONDS)

    async def cancel(self, job_id: JobId, *, reason: str | None = None) -> None:
        """Ask that a job be canceled, for good. AlreadyFinal if it has ended."""
        await self._ask("POST", job_id, "/cancel", reason, {Status.CANCELED})

    async def pause(self, job_id: JobId, *, reason: str | None = None) -> None:
        """Ask that a job be paused."""
        await self._ask("POST", job_id, "/pause", reason, {Status.PAUSED})

    async def resume(self, job_id: JobId, *, reason: str | None = None) -> None:
        """Ask that a paused or held job be resumed."""
        await self._ask("POST", job_id, "/resume", reason, _GOING_ON)

    async def release(self, job_id: JobId) -> None:
        """Release a job that was recorded with `hold`."""
        await self._ask("POST", job_id, "/release", None, _GOING_ON)

    async def delete(self, job_id: JobId, *, reason: str | None = None) -> None:
        """Ask that a job be canceled if it is open, and its payload, result, items and logs be erased."""
        await self._ask("DELETE", job_id, "", reason, _ENDED)

    async def _ask(self, method: str, job_id: JobId, verb: str, reason: str | None, goal: Collection[Status]) -> None:
        """Refused when repeated, it counts as done if the job stands as it would: the first try was not lost then."""

        async def reached() -> bool:
            return (await self.get(job_id)).status in goal

        body = None if reason is None else {"reason": reason}
        await self._transport.call(method, f"{_path(job_id)}{verb}", json=body, reached=reached)


def _blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncClient, P], R]:
    """The blocking counterpart of one of the client's coroutines."""

    def call(self: SyncClient, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        portal, client = self._opened()
        return portal.run(verb(client, *arguments, **keywords))

    update_wrapper(call, verb)
    return call


class SyncClient:
    """The client's verbs for code that is not asynchronous: each blocks on the client's own coroutine."""

    def __init__(self, url: str, key: str | None = None, *, timeout: float = 10.0, patience: float = 30.0) -> None:
        self._client = HttpClient(url, key, timeout=timeout, patience=patience)
        self._portal: Portal | None = None
        self._lock = threading.Lock()

    submit = _blocking(HttpClient.submit)
    submit_many = _blocking(HttpClient.submit_many)
    get = _blocking(HttpClient.get)
    wait = _blocking(HttpClient.wait)
    result = _blocking(HttpClient.result)
    items = _blocking(HttpClient.items)
    events_url = _blocking(HttpClient.events_url)
    cancel = _blocking(HttpClient.cancel)
    pause = _blocking(HttpClient.pause)
    resume = _blocking(HttpClient.resume)
    release = _blocking(HttpClient.release)
    delete = _blocking(HttpClient.delete)

    def close(self) -> None:
        """Give the connections back, and end the thread."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal.run(self._client.close())
            portal.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> tuple[Portal, HttpClient]:
        with self._lock:
            if self._portal is None:
                self._portal = Portal("holdfast-remote")
            return self._portal, self._client


def _submission(job_type: str, payload: Mapping[str, Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a submission, with a key that makes it safe to repeat."""
    body: dict[str, Any] = {"jobType": job_type, "payload": {} if payload is None else dict(payload)}
    if (key := repeated_key_of(body["payload"])) is not None:
        raise InvalidPayload(f"{job_type}: two keys of the payload are both {key!r} in JSON: one would be lost")
    for name, value in options.items():
        if value is not None:
            first, *rest = ("parent_id" if name == "parent" else name).split("_")
            body[first + "".join(part.capitalize() for part in rest)] = _as_json(value)
    body.setdefault("idempotencyKey", f"client-{uuid4()}")
    return body


def _parts(bodies: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many at a time as one request may carry."""
    part: list[dict[str, Any]] = []
    size = 0
    for body in bodies:
        own = len(json_module.dumps(body)) + 2
        if part and (len(part) == _BATCH or size + own > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(body)
        size += own
    if part:
        yield part


def _as_json(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID() | RemoteJob():
            return str(getattr(value, "id", value))
    return value


def _asked(job: Sequence[Any]) -> tuple[str, Any, Any]:
    if not isinstance(job, tuple | list) or not 1 <= len(job) <= 3:
        raise InvalidInput('a job is ("type", {payload}) or ("type", {payload}, {options})')
    kind, payload, options = (*job, None, None)[:3]
    return kind, payload, options


def _path(job_id: JobId) -> str:
    return f"/jobs/{quote(str(job_id), safe='')}"


def _job(told: Mapping[str, Any]) -> RemoteJob:
    return RemoteJob(
        id=UUID(told["jobId"]),
        status=Status(told["status"]),
        type=told.get("jobType"),
        created_at=_moment(told.get("createdAt")),
        updated_at=_moment(told.get("updatedAt")),
        message=told.get("message"),
        progress_count=told.get("progressCount"),
        result_count=told.get("resultCount"),
        target_count=told.get("targetCount"),
        last_progress_at=_moment(told.get("lastProgressAt")),
        done_reason=told.get("doneReason"),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
