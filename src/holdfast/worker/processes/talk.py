"""The conversation with a child about one attempt."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.errors import (
    Fatal,
    Hold,
    HoldfastError,
    Interrupted,
    InvalidInput,
    InvalidPayload,
    LeaseLost,
    ResultTooLarge,
    Retry,
    Snooze,
)
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.model.progress import Report
from holdfast.worker.context import LOST, SendReport
from holdfast.worker.endings import LeaseOver, Misfit, ProcessDied, RemoteFailure
from holdfast.worker.held import Held
from holdfast.worker.processes.addresses import address_of
from holdfast.worker.processes.child import Child
from holdfast.worker.processes.frames import Frame
from holdfast.worker.processes.guard import Watch

__all__ = ["Service", "Talk"]

_END_SECONDS = 2.0
#: What only a handler that has begun can lead to.
_OF_THE_HANDLER = ("ending", "completed", "returned")
_ON_THE_WAY = ("begin", "began", "log", "record", "report", "ending", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the worker does for a handler in a child, and who it is: it records its jobs, stores its
    reports and logs its lines.

    With `begin`, the handler has to wait for it; `began` hears that it runs.
    """

    begin: Callable[[], Awaitable[None]] | None
    began: Callable[[], Any] | None
    record: Callable[[list[Intent]], Awaitable[list[Enqueued]]]
    send: SendReport | None
    log: Callable[[int, str], None]
    worker: str
    config: Config
    result_limit: int


class Talk:
    """Gives a child its order, serves what the handler asks for, and hears how it ended."""

    def __init__(self, child: Child, held: Held, job_type: JobType, service: Service) -> None:
        self._child, self._held, self._job_type, self._service = child, held, job_type, service
        self._number = next(child.numbers)
        self._strays = self._answered = False
        #: Done when the handler could begin.
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done when it may.
        self.cleared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done when it has begun.
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def in_order(self) -> bool:
        """Whether the child has answered as it should, and may be given another order."""
        return self._answered and not self._strays

    async def run(self) -> Any:
        """What the handler returned; or raises what it raised, Misfit, ProcessDied, or LeaseOver."""
        watch = self._guarded()
        try:
            if not self._child.greeted:
                await self._child.greet()
            await self._child.send(self._order())
            while (answer := await self._next())["kind"] in _ON_THE_WAY:
                await self._serve(answer)
            return self._ended(answer)
        except (asyncio.IncompleteReadError, OSError):
            died = await self._died()
            if watch is not None and watch.over:
                raise LeaseOver("the lease was over") from died
            raise died from None
        except (ValueError, KeyError, TypeError) as fault:
            raise ProcessDied(f"the handler's process said something that makes no sense: {fault}") from fault
        finally:
            if watch is not None:
                self._held.renewed = None
                watch.end()

    def _guarded(self) -> Watch | None:
        """Of two jobs of one target only one may run: the child ends with its lease, even if this process is frozen."""
        if self._held.claim.target is None:
            return None
        watch = self._child.guard.watch(self._held.lease_end)
        self._held.renewed = watch.move
        watch.move(self._held.lease_end)  # it may have been renewed between the two
        return watch

    async def _next(self) -> Frame:
        """The next frame about this order; what a thread that was left behind says of another is dropped."""
        while (frame := await self._child.read()).get("order") != self._number:
            self._strays = True
        if frame["kind"] in _OF_THE_HANDLER and not self.began.done():
            raise ValueError(f"{frame['kind']} before the handler began")
        return frame

    def _order(self) -> Frame:
        claim, config = self._held.claim, self._service.config
        return {
            "kind": "run",
            "order": self._number,
            "asks": self._service.begin is not None,
            "address": dataclasses.asdict(address_of(self._job_type)),
            "payload": claim.payload,
            "job_id": str(claim.job_id),
            "attempt": claim.attempt,
            "tenant": claim.stream.tenant,
            "correlation_id": claim.correlation_id,
            "cursor": claim.cursor,
            "failures": claim.failures,
            "max_attempts": claim.max_attempts,
            "traceparent": claim.traceparent,
            "worker": self._service.worker,
            "result_limit": self._service.result_limit,
            "schema": config.schema,
            "database": {"database_url": config.database_url, "direct_url": config.direct_url, "schema": config.schema},
            "log_level": logging.getLogger("holdfast.job").getEffectiveLevel(),
        }

    async def _serve(self, frame: Frame) -> None:
        match frame["kind"]:
            case "began" if self.began.done():
                raise ValueError("the handler began twice")
            case "begin":
                _done(self.ready)
                if self._service.begin is not None:
                    await self._service.begin()
                _done(self.cleared)
                await self._child.send({"kind": "answer", "number": frame["number"]})
            case "began":
                _done(self.ready)
                _done(self.cleared)
                if self._service.began is not None:
                    self._service.began()
                self._held.started = time.monotonic()
                self.began.set_result(None)
            case "ending":
                self._held.ending = bool(frame["value"])
            case "completed":
                self._held.completed = True
            case "log":
                self._service.log(frame["level"], frame["text"])
            case "record":
                await self._answer(frame, self._recorded)
            case "report":
                await self._answer(frame, self._reported)

    async def _answer(self, frame: Frame, serve: Callable[[Frame], Awaitable[Frame]]) -> None:
        try:
            answer = await serve(frame)
        except HoldfastError as fault:
            answer = {"fault": type(fault).__name__, "message": str(fault)}
        await self._child.send({"kind": "answer", "number": frame["number"], **answer})

    async def _recorded(self, frame: Frame) -> Frame:
        if self._held.lost:
            raise LeaseLost(LOST)
        answers = await self._service.record([Intent(**{**i, "id": UUID(i["id"])}) for i in frame["intents"]])
        return {"answers": [(str(a.job_id), a.state.value, a.outcome) for a in answers]}

    async def _reported(self, frame: Frame) -> Frame:
        if self._service.send is None:
            raise HoldfastError("there is no worker behind this context, so no job that could report")
        report = Report(**frame["report"])
        reported = await self._service.send(self._held.job_id, self._held.attempt, int(frame["seq"]), report)
        return {"reported": dataclasses.asdict(reported)}

    def _ended(self, answer: Frame) -> Any:
        """The value of an answer; or raises what it says."""
        match answer["kind"]:
            case "returned":
                value = None if answer["value"] is None else json.loads(answer["value"])
                self._answered = bool(answer["reusable"])
                return value
            case "misfit":
                self._answered = bool(answer["reusable"])
                if answer["of"] == "payload":
                    raise Misfit(InvalidPayload(answer["message"]), "hold")
                raise Misfit(_misfit(answer), "fatal")
            case "raised":
                # Whatever failed before the handler began, an import perhaps, is tried anew in another child.
                known = self.began.done() and answer["meaning"] != Interrupted.__name__
                self._answered = known and bool(answer["reusable"])
                raise _rebuilt(answer)
            case kind:
                raise ValueError(f"there is no answer {kind!r}")

    async def _died(self) -> ProcessDied:
        """How the child ended; if it only closed its socket, it ends now."""
        done, _ = await asyncio.wait({self._child.ended}, timeout=_END_SECONDS)
        if not done:
            self._child.kill()
            return ProcessDied("the handler's process closed its connection to the worker")
        return ProcessDied(f"the handler's process {_cause(self._child.ended.result())}")


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _misfit(answer: Frame) -> InvalidInput:
    """Why a result cannot be stored."""
    kind = ResultTooLarge if answer["type"] == ResultTooLarge.__name__ else InvalidInput
    return kind(answer["message"])


def _rebuilt(answer: Frame) -> BaseException:
    """What the handler raised: itself where it says what is to become of the job, else as text."""
    message, delay = answer["message"], answer["delay_seconds"]
    remote = RemoteFailure(answer["type"], message, answer["traceback"])
    signals: dict[str, Callable[[], BaseException]] = {
        "Fatal": lambda: Fatal(message),
        "Hold": lambda: Hold(message),
        "Retry": lambda: Retry(message, delay=delay),
        "Snooze": lambda: Snooze(delay, message),
    }
    if answer["meaning"] not in signals:
        return remote
    error = signals[answer["meaning"]]()
    error.__cause__ = remote
    return error


def _cause(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{', perhaps for want of memory' if name == 'SIGKILL' else ''}"
