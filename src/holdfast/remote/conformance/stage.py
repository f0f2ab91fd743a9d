"""The server's side of the worker protocol, in memory: jobs, leases, reports, and what a worker must not do with them.

Trials put jobs on stage (`offer`), ask for trouble (`trouble`), and wait for what comes of it (`until`). What is
wrong whatever the trial is noted in `wrong` as soon as it is seen.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from holdfast.remote.conformance.bodies import faults_of
from holdfast.remote.conformance.jobs import TrialJob
from holdfast.remote.conformance.listening import Incoming, Reply

__all__ = ["Refused", "Stage", "Trouble", "WorkerCall"]

#: Beyond these, a worker that is told nothing pulls too often.
_MOST_PULLS, _WINDOW_SECONDS = 30, 3.0
_PATH = re.compile(r"/worker/(pull|report|extend|release)")


class Refused(Exception):
    """The answer is a problem."""

    def __init__(self, status: int, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = {"type": f"/problems/{code}", "code": code, "title": detail, "status": status, "detail": detail}
        self.problem |= more


@dataclass(slots=True, kw_only=True)
class Trouble:
    """What happens to requests of one kind: an answer instead, a lost request or answer, or a slow one."""

    verb: str
    #: To which requests. The answer of a pull is lost only if it has jobs.
    about: Callable[[WorkerCall], bool] = lambda _: True
    times: int = 1
    reply: Reply | None = None
    lose_request: bool = False
    lose_answer: bool = False
    delay: float = 0.0
    #: The request that met it last.
    met: WorkerCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCall:
    """One request, understood."""

    verb: str
    body: dict[str, Any]
    at: float

    @property
    def jobs(self) -> set[str]:
        """The jobs that it names."""
        return {
            one["job_id"]
            for one in [self.body, *self.body.get("reports", ()), *self.body.get("leases", ())]
            if "job_id" in one
        }

    @property
    def message(self) -> str:
        """What its repeats have in common: a repeated pull may wait for another time."""
        return f"{self.verb} {json.dumps({**self.body, 'wait_sec': None}, sort_keys=True)}"


class Stage:
    """One server, for one worker at a time."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.jobs: dict[str, TrialJob] = {}
        self.calls: list[WorkerCall] = []
        self.wrong: list[str] = []
        self.trouble: list[Trouble] = []
        #: Since when the worker is told to drain.
        self.draining: float | None = None
        self.types: set[str] = set()
        self._worker_id: str | None = None
        self._requests: dict[str, list[tuple[TrialJob, int]]] = {}
        self._waiting: dict[str, asyncio.Event] = {}
        self._not_before: dict[str, tuple[float, str]] = {}
        self._idle: deque[float] = deque()
        self._changed = asyncio.Event()

    @property
    def listeners(self) -> int:
        """How many pulls wait."""
        return len(self._waiting)

    def note(self, fault: str) -> None:
        """Something is wrong; said once."""
        if fault not in self.wrong:
            self.wrong.append(fault)
            self.stir()

    def offer(self, job_type: str, payload: dict[str, Any], *, lease: float = 10.0, **more: Any) -> TrialJob:
        """Put a job on stage."""
        job = TrialJob(type=job_type, payload=payload, lease=lease, **more)
        self.jobs[job.id] = job
        self.stir()
        return job

    def clear(self) -> None:
        """Another trial, and perhaps another process."""
        self.jobs.clear()
        self.trouble.clear()
        self.wrong = []
        self.draining = self._worker_id = None
        self._requests.clear()
        self._not_before.clear()
        self._idle.clear()

    def stir(self) -> None:
        """Something has changed: everybody who waits looks again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, holds: Callable[[], Any], seconds: float) -> bool:
        """Wait until something holds. Returns whether it does."""
        end = time.monotonic() + seconds
        while not holds():
            left = end - time.monotonic()
            if left <= 0:
                return False
            await self._change(min(left, 0.1))
        return True

    async def _change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def answer(self, asked: Incoming) -> Reply:
        """Answer a request."""
        try:
            call = self._understood(asked)
        except Refused as refused:
            return Reply(status=refused.status, body=refused.problem)
        self.calls.append(call)
        self._judge_patience(call)
        trouble = self._meets(call, answered=False)
        if trouble is not None and (trouble.lose_request or trouble.reply is not None):
            self.stir()
            reply = trouble.reply or Reply(lost=True)
            if (seconds := reply.headers.get("Retry-After")) is not None:
                self._not_before[call.message] = (time.monotonic() + float(seconds), seconds)
            return reply
        try:
            body = await getattr(self, f"_{call.verb}")(call.body)
            reply = Reply(body={**body, "x_conform": "a member that a later server may add"})
        except Refused as refused:
            reply = Reply(status=refused.status, body=refused.problem)
        self.stir()
        if trouble is not None and trouble.delay:
            await asyncio.sleep(trouble.delay)
        if call.verb == "pull" and not (reply.body or {}).get("jobs"):
            return reply
        return Reply(lost=True) if self._meets(call, answered=True) else reply

    def _meets(self, call: WorkerCall, *, answered: bool) -> Trouble | None:
        """The trouble that a request runs into, before or after it was answered. Jobs of an earlier trial meet none."""
        if call.jobs and not call.jobs & self.jobs.keys():
            return None
        for one in self.trouble:
            if one.verb == call.verb and one.times and one.lose_answer == answered and one.about(call):
                one.times -= 1
                one.met = call
                return one
        return None

    def _understood(self, asked: Incoming) -> WorkerCall:
        match = _PATH.fullmatch(asked.path)
        if match is None or asked.method != "POST":
            self.note(f"asked for {asked.method} {asked.path}, which is not one of the four routes of workers")
            raise Refused(404, "not-found", "there is no such route")
        verb = match[1]
        if asked.headers.get("authorization") != f"Bearer {self._key}":
            self.note("did not send the key, as in `Authorization: Bearer KEY`")
            raise Refused(401, "unauthorized", "the key is missing or wrong")
        if not asked.headers.get("content-type", "").startswith("application/json"):
            self.note("did not send `Content-Type: application/json`")
            raise Refused(415, "media-type", "the body must be application/json")
        try:
            body = json.loads(asked.body.decode())
            if not isinstance(body, dict):
                raise TypeError
        except (ValueError, TypeError):
            self.note(f"sent a {verb} that is not a JSON object: {asked.body[:80].decode(errors='replace')!r}")
            raise Refused(400, "malformed", "the body is not a JSON object") from None
        faults = faults_of(verb, body)
        if faults:
            pointer, fault = faults[0]
            self.note(f"sent a {verb} with a fault at {pointer or 'its top'}: {fault}")
            errors = [{"pointer": pointer, "detail": fault} for pointer, fault in faults]
            raise Refused(422, "invalid", "the body is not valid", errors=errors)
        self._judge_name(body["worker_id"])
        return WorkerCall(verb=verb, body=body, at=time.monotonic())

    def _judge_name(self, worker_id: str) -> None:
        if self._worker_id not in (None, worker_id):
            self.note(f"called itself {worker_id!r} after {self._worker_id!r}: the name stays while the process lives")
        self._worker_id = worker_id

    def _judge_patience(self, call: WorkerCall) -> None:
        not_before, told = self._not_before.pop(call.message, (0.0, ""))
        if call.at < not_before - 0.1:
            early = not_before - call.at
            self.note(f"came back {early:.1f} s too early: the {call.verb} was answered with `Retry-After: {told}`")

    async def _pull(self, body: dict[str, Any]) -> dict[str, Any]:
        self.types = set(body["types"])
        request = body.get("request_id") or uuid4().hex
        if (earlier := self._waiting.pop(request, None)) is not None:
            earlier.set()
        replaced = self._waiting[request] = asyncio.Event()
        began, end = time.monotonic(), time.monotonic() + body.get("wait_sec", 0)
        known = request in self._requests
        if self.draining is not None and began > self.draining + 0.3 and not known:
            self.note("pulled again after it had been told to drain")
        try:
            while True:
                jobs = [(job, attempt) for job, attempt in self._requests.get(request, ()) if job.owned_in(attempt)]
                if not jobs and self.draining is None:
                    free = [job for job in self.jobs.values() if job.claimable and job.type in self.types]
                    jobs = [(job, job.claim()) for job in free[: body.get("max", 1)]]
                    self._requests[request] = jobs
                news = [job for job in self.jobs.values() if job.interrupt and not job.told and job.owned]
                if jobs or news or self.draining is not None or time.monotonic() >= end or replaced.is_set():
                    break
                self._requests.setdefault(request, [])
                await self._change(min(0.1, max(0.0, end - time.monotonic())))
        finally:  # a worker that hangs up waits no longer
            if self._waiting.get(request) is replaced:
                del self._waiting[request]
        self._judge_pace(began, busy=bool(jobs or news))
        for job in news:
            job.tell()
        return {
            "jobs": [] if replaced.is_set() else [job.handed_out() for job, _ in jobs],
            "directive": self._directive(),
            "interrupts": [{"job_id": job.id, "attempt": job.attempt, "directive": job.interrupt} for job in news],
        }

    def _judge_pace(self, began: float, *, busy: bool) -> None:
        if busy:
            self._idle.clear()
            return
        self._idle.append(began)
        while self._idle[0] < began - _WINDOW_SECONDS:
            self._idle.popleft()
        if len(self._idle) > _MOST_PULLS:
            pulls = f"{len(self._idle)} times within {_WINDOW_SECONDS:g} s"
            self.note(f"pulled {pulls} while there was nothing: use `wait_sec`, or rest")

    async def _report(self, body: dict[str, Any]) -> dict[str, Any]:
        if "reports" in body:
            return {"results": [self._reported_or_problem(one) for one in body["reports"]]}
        return self._reported(body)

    def _reported_or_problem(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._reported(body)
        except Refused as refused:
            return {"problem": refused.problem}

    def _reported(self, body: dict[str, Any]) -> dict[str, Any]:
        job = self.jobs.get(body["job_id"])
        if job is None:
            raise Refused(409, "lease-lost", "the job is somebody else's by now")
        try:
            duplicate = job.report(body, self.note)
        except LookupError as lost:
            raise Refused(409, str(lost.args[0]), str(lost.args[1])) from None
        except ValueError as bad:
            raise Refused(422, "invalid", "the report is not valid", errors=[bad.args[0]]) from None
        if job.interrupt:
            job.tell()
        return {
            "state": job.state,
            "owned": job.owned,
            "directive": (job.interrupt or self._directive()) if job.owned else "continue",
            **job.lease_left(),
            "progress_count": job.progress,
            "result_count": len(job.items),
            "duplicate": duplicate,
        }

    async def _extend(self, body: dict[str, Any]) -> dict[str, Any]:
        end = time.monotonic() + body.get("wait_sec", 0)
        known = [(self.jobs.get(lease["job_id"]), lease) for lease in body["leases"]]
        while True:
            for job, lease in known:
                if job is not None and job.owned_in(lease["attempt"]):
                    job.prolong(lease.get("lease_sec"))
            answers = [self._lease(job, lease) for job, lease in known]
            news = any(not one["owned"] or one["directive"] != "continue" for one in answers)
            if news or self.draining is not None or time.monotonic() >= end:
                break
            await self._change(min(0.1, max(0.0, end - time.monotonic())))
        for (job, lease), told in zip(known, answers, strict=True):
            if job is not None and not told["owned"]:
                job.lost_to.add(lease["attempt"])
            elif job is not None and job.interrupt:
                job.tell()
        return {"leases": answers, "directive": self._directive()}

    async def _release(self, body: dict[str, Any]) -> dict[str, Any]:
        answers = []
        for lease in body["leases"]:
            job = self.jobs.get(lease["job_id"])
            owned = job is not None and job.owned_in(lease["attempt"])
            if job is not None and owned:
                job.hand_back()
            state = job.state if job is not None and owned else None
            answers.append({"job_id": lease["job_id"], "attempt": lease["attempt"], "owned": owned, "state": state})
        return {"leases": answers}

    def _directive(self) -> str:
        return "continue" if self.draining is None else "drain"

    def _lease(self, job: TrialJob | None, lease: dict[str, Any]) -> dict[str, Any]:
        owned = job is not None and job.owned_in(lease["attempt"])
        answer: dict[str, Any] = {"job_id": lease["job_id"], "attempt": lease["attempt"], "owned": owned}
        if job is None or not owned:
            return {**answer, "directive": None, "lease_expires_at": None, "lease_remaining_ms": None}
        return {**answer, "directive": job.interrupt or self._directive(), **job.lease_left()}
