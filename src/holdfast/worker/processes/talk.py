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
    CircuitOpen,
    HoldfastError,
    Interrupted,
    InvalidInput,
    InvalidPayload,
    LeaseLost,
    ResultTooLarge,
)
from holdfast.model.circuit import Circuit
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.model.progress import Report
from holdfast.worker.circuits import Circuits, ServiceCall
from holdfast.worker.claimed import Claimed
from holdfast.worker.context import LOST, SendReport
from holdfast.worker.endings import SIGNALS, LeaseOver, Misfit, ProcessDied, RemoteFailure
from holdfast.worker.processes.addresses import address_of
from holdfast.worker.processes.child import Child
from holdfast.worker.processes.frames import Frame
from holdfast.worker.processes.guard import OrderWatch

__all__ = ["ChildService", "Talk"]

_END_SECONDS = 2.0
#: Frames that only a handler that has begun can cause.
_OF_THE_HANDLER = ("ending", "completed", "in doubt", "returned")
_ON_THE_WAY = (
    "begin", "began", "log", "record", "report", "enter circuit", "leave circuit", "ending", "completed", "in doubt",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildService:
    """What the worker does for a handler in a child: it records its jobs, stores its reports, asks circuit breakers and
    logs its lines.

    With `begin`, the handler has to wait for it; `began` is called when it runs.
    """

    begin: Callable[[], Awaitable[None]] | None
    began: Callable[[], Any] | None
    record: Callable[[list[Intent]], Awaitable[list[Enqueued]]]
    send: SendReport | None
    breaker: Circuits | None
    log: Callable[[int, str], None]
    worker: str
    config: Config
    result_limit: int


class Talk:
    """Gives a child its order, serves the handler's requests, and receives how it ended."""

    def __init__(self, child: Child, claimed: Claimed, job_type: JobType, service: ChildService) -> None:
        self._child, self._claimed, self._job_type, self._service = child, claimed, job_type, service
        self._number = next(child.numbers)
        self._strays = self._answered = self._reusable = False
        self._calls: list[ServiceCall] = []
        self._questions = {
            "record": self._recorded,
            "report": self._reported,
            "enter circuit": self._entered,
            "leave circuit": self._left,
        }
        #: Done when the handler could begin.
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done when it may begin.
        self.cleared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done when it has begun.
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def in_order(self) -> bool:
        """Whether the child has answered correctly, and may be given another order."""
        return self._reusable and not self._strays

    @property
    def answered(self) -> bool:
        """Whether the child has answered correctly."""
        return self._answered

    async def run(self) -> Any:
        """Run the handler. Returns its value; raises its exception, Misfit, ProcessDied, or LeaseOver."""
        watch = self._guarded()
        try:
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
            raise ProcessDied(f"the handler's process sent an invalid message: {fault}") from fault
        finally:
            if watch is not None:
                self._claimed.renewed = None
                watch.end()

    def _guarded(self) -> OrderWatch | None:
        """End the child with its lease, even if this process is frozen: of one target, only one job may run."""
        if self._claimed.claim.target is None:
            return None
        watch = self._child.guard.watch(self._claimed.lease_end)
        self._claimed.renewed = watch.move
        watch.move(self._claimed.lease_end)  # the lease may have been renewed in between
        return watch

    async def _next(self) -> Frame:
        """The next frame about this order. Frames about other orders, from threads left behind, are dropped."""
        while (frame := await self._child.read()).get("order") != self._number:
            self._strays = True
        if frame["kind"] in _OF_THE_HANDLER and not self.began.done():
            raise ValueError(f"{frame['kind']} before the handler began")
        return frame

    def _order(self) -> Frame:
        claim, config = self._claimed.claim, self._service.config
        return {
            "kind": "run",
            "order": self._number,
            "asks": self._service.begin is not None,
            "address": dataclasses.asdict(address_of(self._job_type)),
            "payload": claim.payload,
            "job_id": str(claim.job_id),
            "attempt": claim.attempt,
            "facts": claim.facts._asdict(),
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
                self._claimed.started = time.monotonic()
                self.began.set_result(None)
            case "ending":
                self._claimed.ending = bool(frame["value"])
            case "completed":
                self._claimed.completed = True
            case "in doubt":
                self._claimed.in_doubt = True
            case "log":
                self._service.log(frame["level"], frame["text"])
            case question:
                await self._answer(frame, self._questions[question])

    async def _answer(self, frame: Frame, serve: Callable[[Frame], Awaitable[Frame]]) -> None:
        try:
            answer = await serve(frame)
        except HoldfastError as fault:
            answer = {"fault": type(fault).__name__, "message": str(fault)}
        await self._child.send({"kind": "answer", "number": frame["number"], **answer})

    async def _recorded(self, frame: Frame) -> Frame:
        if self._claimed.lost:
            raise LeaseLost(LOST)
        answers = await self._service.record([Intent(**{**i, "id": UUID(i["id"])}) for i in frame["intents"]])
        return {"answers": [(str(a.job_id), a.state.value, a.outcome) for a in answers]}

    async def _reported(self, frame: Frame) -> Frame:
        if self._service.send is None:
            raise HoldfastError("this context has no worker, so there is no job that could report")
        report = Report(**frame["report"])
        reported = await self._service.send(self._claimed.job_id, self._claimed.attempt, int(frame["seq"]), report)
        return {"reported": dataclasses.asdict(reported)}

    async def _entered(self, frame: Frame) -> Frame:
        if self._service.breaker is None:
            return {"call": -1}
        circuit = Circuit(frame["name"], **frame["policy"], per_tenant=frame["per_tenant"])
        try:
            self._calls.append(await self._service.breaker.enter(self._claimed, circuit))
        except CircuitOpen as refusal:
            return {"delay_seconds": refusal.delay_seconds}
        return {"call": len(self._calls) - 1}

    async def _left(self, frame: Frame) -> Frame:
        if self._service.breaker is not None:
            ending = frame["ending"]
            if ending == "neither" and self._claimed.timed_out:
                ending = "failure"
            refusal = await self._service.breaker.leave(self._calls[frame["call"]], ending, frame["error"])
            if refusal is not None:
                return {"circuit": refusal.circuit, "delay_seconds": refusal.delay_seconds}
        return {}

    def _ended(self, answer: Frame) -> Any:
        """The value of an answer; raises the exception that it describes."""
        match answer["kind"]:
            case "returned":
                value = None if answer["value"] is None else json.loads(answer["value"])
                self._answered, self._reusable = True, bool(answer["reusable"])
                return value
            case "misfit":
                self._answered, self._reusable = True, bool(answer["reusable"])
                if answer["of"] == "payload":
                    raise Misfit(InvalidPayload(answer["message"]), "hold")
                raise Misfit(_misfit(answer), "fatal")
            case "raised":
                # A failure before the handler began, such as a failed import, is tried again in another child.
                self._answered = self.began.done() and answer["meaning"] != Interrupted.__name__
                self._reusable = self._answered and bool(answer["reusable"])
                raise _rebuilt(answer)
            case kind:
                raise ValueError(f"there is no answer {kind!r}")

    async def _died(self) -> ProcessDied:
        """How the child ended. If it only closed its socket, it is killed now."""
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
    """The handler's exception: itself if it is a signal about the job, otherwise as text."""
    remote = RemoteFailure(answer["type"], answer["message"], answer["traceback"])
    if answer["meaning"] not in SIGNALS:
        return remote
    error = SIGNALS[answer["meaning"]].passed_on(answer["message"], answer["delay_seconds"])
    error.__cause__ = remote
    if isinstance(error, CircuitOpen):
        error.circuit = str(answer["circuit"])
    return error


def _cause(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{', perhaps for want of memory' if name == 'SIGKILL' else ''}"
