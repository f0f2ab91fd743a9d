"""Running one attempt: payload → handler → outcome, with its timeout and its interruptions.

Async handlers run in the event loop and are canceled. Handlers in threads cannot be canceled: they are told through
`ctx.canceled`, and keep their slot and lease until they return. A thread that does not return within the grace period
after its timeout is stuck, and the process must be replaced. Handlers in processes of their own are interrupted and
then killed (`holdfast.worker.processes`); they are never stuck.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from holdfast.client.client import Client
from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.definitions.json_text import encode_result
from holdfast.errors import HoldfastError
from holdfast.lifecycle.decimals import with_own_rounding
from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.outcome import Outcome
from holdfast.store.transactions import Transactions
from holdfast.worker.calls import Calls, StoppedBefore
from holdfast.worker.circuits import Circuits
from holdfast.worker.claimed import Claimed
from holdfast.worker.context import Context, SendReport, SyncContext
from holdfast.worker.copies import Original
from holdfast.worker.deadlines import Deadlines
from holdfast.worker.elsewhere import Elsewhere
from holdfast.worker.endings import LeaseOver, Misfit, NotBegun, fit
from holdfast.worker.fence import fenced
from holdfast.worker.garbage import forget_tracebacks
from holdfast.worker.middleware import Middleware
from holdfast.worker.payloads import Payloads
from holdfast.worker.processes.pool import ProcessPool
from holdfast.worker.processes.talk import ChildService
from holdfast.worker.protected import Protected
from holdfast.worker.silence import Silence
from holdfast.worker.starts import Starts
from holdfast.worker.surroundings import Surroundings
from holdfast.worker.threads import Threads, call_and_tell
from holdfast.worker.transaction import refuse_open
from holdfast.worker.verdicts import Verdicts, canceled, not_begun

__all__ = ["Execution"]

_log = logging.getLogger("holdfast")

#: The outcome of most attempts.
_DONE = Outcome.success(None)


class Execution:
    """Runs handlers and says how they ended."""

    def __init__(
        self,
        config: Config,
        worker: str,
        client: Client,
        resources: Any,
        *,
        threads: int,
        pauses_drained: Callable[[Claimed], bool],
        stuck_after_seconds: float,
        on_stuck: Callable[[Claimed], None],
        transactions: Transactions | None = None,
        send: SendReport | None = None,
        middleware: Sequence[Middleware] = (),
        result_limit: Callable[[], int] | None = None,
        starts: Starts | None = None,
        payloads: Payloads | None = None,
        elsewhere: Elsewhere | None = None,
        circuits: Circuits | None = None,
        silence: Silence | None = None,
    ) -> None:
        self._config, self._worker = config, worker
        self._starts, self._payloads, self._elsewhere = starts, payloads, elsewhere
        self._result_limit = result_limit or (lambda: config.result_max_bytes)
        self._client, self._resources, self._transactions = client, resources, transactions
        self._send, self._circuits = send, circuits
        self._middleware = middleware
        self._processes = ProcessPool()
        self._deadlines = Deadlines(stuck_after_seconds, silence)
        #: How attempts end whose handlers do not return.
        self.verdicts = Verdicts(pauses_drained)
        self._loop = asyncio.get_running_loop()
        original = Original()
        self._threads = Threads(threads, original, stuck_after_seconds=stuck_after_seconds, on_stuck=on_stuck)
        self._surroundings = Surroundings(original)

    async def run(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Outcome:
        """Run one attempt to its end."""
        outcome = await self._outcome(claimed, job_type, timeout)
        if self._circuits is not None:
            self._circuits.ended(claimed, timed_out=claimed.timed_out)
        if not claimed.completed:
            return outcome
        # The database decides, and it said success.
        if outcome.kind != "success":
            _log.warning("%s: after its transaction had completed the job: %s", job_type.name, outcome.message)
        elif claimed.returned:
            _log.warning("%s returned a result after its transaction had completed the job", job_type.name)
        return Outcome.success(None)

    async def _outcome(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Outcome:
        claimed.started = time.monotonic()
        try:
            if claimed.interrupt is not None or claimed.lost or claimed.lease_end < elapsed():
                return self.verdicts.interrupted(claimed) or Outcome.handed_back(
                    "the lease was over before the handler began"
                )
            if claimed.claim.payload is None:
                await self._fetch(claimed)
            self._deadlines.watch(claimed, timeout)
            if self._middleware or job_type.executor != "process":
                self._surroundings.begins(claimed, job_type.name)
            run = self._within_middleware if self._middleware else self.call
            value = await run(claimed, job_type, timeout)
            refuse_open(claimed)
            claimed.returned = value is not None
            result = claimed.result if value is None else value
            if result is None:
                return _DONE
            return Outcome.success(_written(claimed, result, partial(self._encode, job_type)))
        except Misfit as misfit:
            return await self._misfit(claimed, job_type, misfit)
        except NotBegun as fault:
            return self.verdicts.interrupted(claimed) or not_begun(fault)
        except LeaseOver:
            return self.verdicts.stopped(claimed, claimed.lapsed())
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            try:
                return self.verdicts.unfinished(claimed, error, timeout)
            finally:
                forget_tracebacks(error)
        finally:
            self._surroundings.mend(claimed)
            claimed.leave()
            claimed.written = claimed.described = None  # a traceback refers to frames that refer to `claimed`
            self._deadlines.forget(claimed)
            if claimed.claim.last_chance and self._starts is not None:
                self._starts.pass_on(claimed)
            claimed.duration = time.monotonic() - claimed.started
            self._surroundings.mend_loop(claimed.duration)

    async def call(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        """Run the handler by its executor. Returns its value; raises its exception, Misfit, Late or ProcessDied."""
        # A child enters the circuit by itself: only there are its exceptions more than text.
        if job_type.circuit is None or job_type.executor == "process":
            return await self._call(claimed, job_type, timeout)
        async with Protected(self._circuits, claimed, job_type.circuit):
            return await self._call(claimed, job_type, timeout)

    async def _call(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        if job_type.executor == "async":
            arguments = fit(job_type.payload.call_arguments, claimed.claim.payload, "hold")
            if claimed.claim.last_chance and self._starts is not None:
                self._deadlines.forget(claimed)
                await self._begin(claimed, self._starts)
                self._deadlines.watch(claimed, timeout)
                # Called when the handler first waits for something, or ends.
                asyncio.get_running_loop().call_soon(self._starts.pass_on, claimed)
            call = job_type.handler(self._context(claimed), **arguments)
            return await (call if claimed.claim.target is None else fenced(claimed, call))
        # Threads and processes are timed where they run; middleware around them is timed before and after.
        self._deadlines.forget(claimed)
        try:
            if job_type.executor == "process":
                return await self._in_process(claimed, job_type, timeout)
            arguments = fit(job_type.payload.call_arguments, claimed.claim.payload, "hold")
            return await self._in_thread(claimed, job_type, arguments, timeout)
        finally:
            self._deadlines.watch(claimed, timeout)

    async def _misfit(self, claimed: Claimed, job_type: JobType, misfit: Misfit) -> Outcome:
        if self._elsewhere is None:
            return Outcome.failed(misfit.fault, failure=misfit.failure)
        self._deadlines.forget(claimed)
        try:
            return await self._elsewhere.outcome(claimed, job_type, misfit)
        except asyncio.CancelledError as error:
            return self.verdicts.interrupted(claimed) or canceled(claimed, error, None)

    async def _fetch(self, claimed: Claimed) -> None:
        """Fetch a payload that did not come with the claim. This time does not count as the handler's."""
        if self._payloads is None:
            return
        asked_at = time.monotonic()
        try:
            await self._payloads.fetch(claimed)
        finally:
            claimed.waited = time.monotonic() - asked_at
        claimed.started = time.monotonic()

    async def _begin(self, claimed: Claimed, starts: Starts) -> None:
        """Record that the handler is about to run. This time does not count as the handler's."""
        await starts.begin(claimed)
        claimed.started = time.monotonic()

    async def _within_middleware(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        """Run the handler within all middleware, the first one outermost."""
        calls = Calls(self._loop, claimed)
        call = calls.within(partial(self._call_within_time, claimed, job_type, timeout))
        for middleware in reversed(self._middleware):
            call = calls.within(partial(middleware.run, self._context(claimed), call))
        try:
            value = await call()
        finally:
            fault = await calls.end()
        if fault is not None:
            raise HoldfastError(fault)
        return value

    async def _call_within_time(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        """Run the handler. If middleware calls it again, the time since its first call counts towards the timeout.

        An attempt that has timed out or was told to stop is canceled instead, so that no loop of middleware goes on.
        """
        now = time.monotonic()
        if claimed.first_called is None:
            claimed.first_called = now
        elif timeout is not None and (timeout := claimed.first_called + timeout - now) <= 0:
            claimed.time_out()
        if claimed.timed_out or claimed.interrupt is not None:
            raise StoppedBefore
        return await self.call(claimed, job_type, timeout)

    def _encode(self, job_type: JobType, value: Any) -> str | None:
        return encode_result(value, job_type.name, self._result_limit())

    def _context(self, claimed: Claimed) -> Context:
        return Context(
            claimed, self._client, self._resources, self._transactions, send=self._send, breaker=self._circuits
        )

    def _sync_context(self, claimed: Claimed, loop: asyncio.AbstractEventLoop) -> SyncContext:
        return SyncContext(
            claimed,
            self._client,
            self._resources,
            lambda: loop,
            self._transactions,
            send=self._send,
            breaker=self._circuits,
        )

    def ended_in_its_thread(self, claimed: Claimed) -> Outcome | None:
        """How a handler in a thread ended without its blocked event loop knowing it; None if middleware must see it."""
        if not claimed.ends or self._middleware or claimed.noticed or claimed.late:
            return None
        value, error = claimed.ends[0]
        if error is not None:
            return self.verdicts.raised(claimed, error)
        result = claimed.result if value is None else value
        if claimed.transacting or (result is not None and claimed.written is None):
            return None
        text = None if claimed.written is None else claimed.written[1]
        if isinstance(text, Misfit):
            return Outcome.failed(text.fault, failure=text.failure)
        return Outcome.success(text)

    def shutdown(self) -> None:
        """Stop threads and processes. Threads that still run are left alone; processes are ended."""
        self._surroundings.end()
        self._threads.shutdown()
        self._processes.shutdown()

    async def _in_process(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        # Recorded without middleware, which has seen these jobs in the process where the handler runs.
        starts = self._starts if claimed.claim.last_chance else None
        service = ChildService(
            begin=None if starts is None else partial(self._begin, claimed, starts),
            began=None if starts is None else partial(starts.pass_on_soon, claimed),
            record=self._client.record,
            send=self._send,
            breaker=self._circuits,
            log=self._context(claimed).logger.log,
            worker=self._worker,
            config=self._config,
            result_limit=self._result_limit(),
        )
        return await self._processes.run(claimed, job_type, timeout, service)

    async def _in_thread(
        self, claimed: Claimed, job_type: JobType, arguments: dict[str, Any], timeout: float | None
    ) -> Any:
        """Run a handler in a thread and wait until it returns, even past cancellation and timeout."""
        loop = asyncio.get_running_loop()
        handler = partial(job_type.handler, self._sync_context(claimed, loop), **arguments)
        call = partial(contextvars.copy_context().run, with_own_rounding, handler)
        encode = partial(self._encode, job_type)
        if claimed.claim.last_chance and self._starts is not None:
            await self._begin(claimed, self._starts)
            call = partial(call_and_tell, call, partial(loop.call_soon_threadsafe, self._starts.pass_on_soon, claimed))
        return await self._threads.run(claimed, call, encode, timeout)


def _written(claimed: Claimed, result: Any, encode: Callable[[Any], str | None]) -> str | None:
    """A result as text: as its own thread wrote it, unless middleware replaced the result."""
    if claimed.written is None or claimed.written[0] is not result:
        return fit(encode, result, "fatal")
    text = claimed.written[1]
    try:
        if isinstance(text, Misfit):
            raise text
        return cast("str | None", text)
    finally:
        del text  # an error's traceback refers to this frame
