"""The worker's four calls: pull, report, extend, release (`docs/protocol.md`).

1. Every call may be repeated: a pull has a `request_id`, and what else is repeated changes nothing twice.
2. Reports of different jobs that wait at the same time share a request; each has its own answer, or its own problem.
3. A request is repeated while the server cannot be reached, for as long as there is patience.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.remote.transport import AGAIN, Transport, error_of

__all__ = ["WorkerCalls"]

#: How many reports one request carries, and how many characters of them.
_TOGETHER, _CHARACTERS = 100, 900_000
#: How many requests with reports are under way at most.
_LINES = 4
_LEASES = 100
_AGAIN_SECONDS = 0.5

Answer = dict[str, Any]


class _Waiting(NamedTuple):
    text: str
    answer: asyncio.Future[Answer]
    since: float


class WorkerCalls:
    """The calls of one worker, in one event loop."""

    def __init__(self, transport: Transport, worker_id: str, *, patience: float) -> None:
        self._transport, self._patience = transport, patience
        self._worker = {"worker_id": worker_id}
        self._waiting: list[_Waiting] = []
        self._lines = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def pull(self, wait_sec: float = 0, **asked: Any) -> Answer:
        """Jobs, a directive for the worker, and interrupts of jobs that it runs."""
        body = {**self._worker, **{name: value for name, value in asked.items() if value is not None}}
        if wait_sec:
            body["wait_sec"] = wait_sec
        return await self._call("pull", json=body, wait=wait_sec)

    async def extend(self, leases: Sequence[Answer], wait_sec: float = 0) -> Answer:
        """What is left of these leases; with `wait_sec` it answers when one of their jobs is to stop."""
        body: Answer = {**self._worker, "leases": list(leases)[:_LEASES]}
        if wait_sec:
            body["wait_sec"] = wait_sec
        return await self._call("extend", json=body, wait=wait_sec)

    async def release(self, leases: Sequence[Answer], reason: str) -> Answer:
        """Hand jobs back, free of charge."""
        return await self._call("release", json={**self._worker, "leases": list(leases), "reason": reason})

    async def report(self, text: str) -> Answer:
        """Send one report, the members of a JSON object as text, perhaps together with others. Returns its answer."""
        waiting = _Waiting(text, asyncio.get_running_loop().create_future(), time.monotonic())
        self._put(waiting)
        return await waiting.answer

    def _put(self, *waiting: _Waiting) -> None:
        self._waiting.extend(waiting)
        if self._waiting and self._lines < _LINES:
            self._lines += 1
            task = asyncio.get_running_loop().create_task(self._send())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self) -> None:
        try:
            while self._waiting:
                await self._send_part(self._part())
        finally:
            self._lines -= 1

    def _part(self) -> list[_Waiting]:
        part, size = list[_Waiting](), 0
        for one in self._waiting[:_TOGETHER]:
            if part and size + len(one.text) > _CHARACTERS:
                break
            part.append(one)
            size += len(one.text)
        del self._waiting[: len(part)]
        return part

    async def _send_part(self, part: list[_Waiting]) -> None:
        head = json.dumps(self._worker)[:-1]
        if len(part) == 1:
            try:
                _answered(part[0], await self._call("report", text=f"{head},{part[0].text}}}"))
            except HoldfastError as fault:
                _failed(part[0], fault)
            return
        bodies = ",".join(f"{{{one.text}}}" for one in part)
        try:
            answers = (await self._call("report", text=f'{head},"reports":[{bodies}]}}'))["results"]
        except InvalidInput:
            for one in part:  # the fault of one of them must not be that of all
                await self._send_part([one])
            return
        except HoldfastError as fault:
            for one in part:
                _failed(one, fault)
            return
        self._take(part, answers)

    def _take(self, part: list[_Waiting], answers: list[Answer]) -> None:
        again = []
        for one, answer in zip(part, answers, strict=True):
            problem = answer.get("problem")
            if problem is None:
                _answered(one, answer)
            elif problem.get("status") in AGAIN and time.monotonic() - one.since < self._patience:
                again.append(one)
            else:
                _failed(one, error_of(problem.get("status", 500), problem))
        if again:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._put, *again)

    async def _call(self, verb: str, **request: Any) -> Answer:
        answer: Answer = (await self._transport.call("POST", f"/worker/{verb}", **request)).json()
        return answer


def _answered(one: _Waiting, answer: Answer) -> None:
    if not one.answer.done():
        one.answer.set_result(answer)


def _failed(one: _Waiting, fault: HoldfastError) -> None:
    if not one.answer.done():
        one.answer.set_exception(fault)
