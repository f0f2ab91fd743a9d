"""Running one attempt: payload → handler → outcome, with its timeout and its interruptions.

Async handlers run in the event loop and are canceled. Handlers in threads cannot be canceled: they are told through
`ctx.canceled`, and keep their slot and lease until they return. A thread that does not return within the grace period
after its timeout is stuck, and the process must be replaced. Handlers in processes of their own are interrupted and
then killed (`holdfast.worker.processes`); they are never stuck.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.client.client import Client
from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.definitions.payload import encode_result
from holdfast.errors import Fatal, Hold, HoldfastError, InvalidInput, Retry, Snooze
from holdfast.lifecycle.elapsed import elapsed
from holdfast.lifecycle.limits import SoftLimits
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.outcome import FailureKind, Outcome
from holdfast.store.transactions import Transactions
from holdfast.worker.calls import Calls
from holdfast.worker.claimed import Claimed, Interrupt
from holdfast.worker.context import Context, SendReport, SyncContext
from holdfast.worker.copies import Original
from holdfast.worker.deadlines import Deadlines
from holdfast.worker.elsewhere import Elsewhere
from holdfast.worker.endings import Late, LeaseOver, Misfit, NotBegun, RemoteFailure, bare, no_room, signal_of
from holdfast.worker.fence import fenced
from holdfast.worker.garbage import forget_tracebacks
from holdfast.worker.middleware import Middleware
from holdfast.worker.payloads import Payloads
from holdfast.worker.processes.pool import ProcessPool
from holdfast.worker.processes.talk import ChildService
from holdfast.worker.starts import Starts
from holdfast.worker.transaction import refuse_open

__all__ = ["DRAINED", "STRUCK", "Execution"]

T = TypeVar("T")
#: What a handler in a thread has returned or raised.
_End = tuple[Any, BaseException | None]

_log = logging.getLogger("holdfast")

#: The text that earlier systems and their users know.
DRAINED = "Job was interrupted by user"

#: For a task that was canceled, but not by us, after it had run other handlers.
STRUCK = Outcome.handed_back("its task was canceled, perhaps by what another job had left behind")
#: To run an event loop of its own, a handler needs longer than this. Asking for the running loop is a system call, and
#: would cost too much for shorter handlers.
_OWN_LOOP_SECONDS = 0.00005
#: How often the system's limits are looked at.
_LIMITS_SECONDS = 0.05
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
    ) -> None:
        self._config, self._worker = config, worker
        self._starts, self._payloads, self._elsewhere = starts, payloads, elsewhere
        self._result_limit = result_limit or (lambda: config.result_max_bytes)
        self._client, self._resources, self._transactions = client, resources, transactions
        self._send = send
        self._middleware = middleware
        self._threads = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="holdfast-handler")
        self._processes = ProcessPool()
        self._deadlines = Deadlines(stuck_after_seconds)
        self._pauses_drained = pauses_drained
        self._stuck_after = stuck_after_seconds
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        self._original = Original()
        self._limits, self._next_look = SoftLimits(), 0.0
        self._recursion_limit, self._task_factory = sys.getrecursionlimit(), self._loop.get_task_factory()

    async def run(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Outcome:
        """Run one attempt to its end."""
        outcome = await self._outcome(claimed, job_type, timeout)
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
                return self._interrupted(claimed) or Outcome.handed_back("the lease was over before the handler began")
            if claimed.claim.payload is None:
                await self._fetch(claimed)
            self._deadlines.watch(claimed, timeout)
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
            return self._interrupted(claimed) or _not_begun(fault)
        except LeaseOver:
            return self._stopped(claimed, claimed.lapsed())
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            try:
                return self._unfinished(claimed, error, timeout)
            finally:
                forget_tracebacks(error)
        finally:
            self._mend_surroundings()
            claimed.leave()
            claimed.written = None  # an error's traceback refers to frames that refer to `claimed`
            self._deadlines.forget(claimed)
            if claimed.claim.last_chance and self._starts is not None:
                self._starts.pass_on(claimed)
            claimed.duration = time.monotonic() - claimed.started
            self._mend_loop(claimed.duration)

    def _unfinished(self, claimed: Claimed, error: BaseException, timeout: float | None) -> Outcome:
        """The outcome of a handler that did not return."""
        if issubclass(type(error), Late):
            return self._interrupted(claimed) or Outcome.timed_out(timeout or 0)
        if issubclass(type(error), asyncio.CancelledError):
            return self._interrupted(claimed) or _canceled(claimed, error, timeout)
        # After its timeout, nothing that it raises can make the attempt free.
        return Outcome.timed_out(timeout or 0) if claimed.timed_out else self._raised(claimed, error)

    async def call(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        """Run the handler by its executor. Returns its value; raises its exception, Misfit, Late or ProcessDied."""
        if job_type.executor == "async":
            arguments = _fit(job_type.payload.call_arguments, claimed.claim.payload, "hold")
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
            arguments = _fit(job_type.payload.call_arguments, claimed.claim.payload, "hold")
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
            return self._interrupted(claimed) or _canceled(claimed, error, None)

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
        calls = Calls(self._loop)
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
        else:
            if timeout is not None and (timeout := claimed.first_called + timeout - now) <= 0:
                claimed.time_out()
            if claimed.timed_out or claimed.interrupt is not None:
                raise asyncio.CancelledError
        return await self.call(claimed, job_type, timeout)

    def _mend_surroundings(self) -> None:
        """Undo what a handler changed in shared state and the worker cannot work with."""
        self._original.or_end()
        if sys.getrecursionlimit() < self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
        if self._loop.get_task_factory() is not self._task_factory:
            self._loop.set_task_factory(self._task_factory)
        if (now := time.monotonic()) > self._next_look:
            self._next_look = now + _LIMITS_SECONDS
            self._limits.restore()

    def _mend_loop(self, seconds: float) -> None:
        """Restore the running loop, which a handler has to hide before it can call `asyncio.run`."""
        if seconds > _OWN_LOOP_SECONDS and asyncio._get_running_loop() is not self._loop:
            asyncio._set_running_loop(self._loop)

    def _encode(self, job_type: JobType, value: Any) -> str | None:
        return encode_result(value, job_type.name, self._result_limit())

    def _context(self, claimed: Claimed) -> Context:
        return Context(claimed, self._client, self._resources, self._transactions, send=self._send)

    def given_up(self, claimed: Claimed, timeout: float) -> Outcome:
        """The outcome of a handler in a thread that does not return, once its process has been replaced."""
        return self._interrupted(claimed) or Outcome.timed_out(timeout)

    def ended_in_its_thread(self, claimed: Claimed) -> Outcome | None:
        """How a handler in a thread ended without its blocked event loop knowing it; None if middleware must see it."""
        if not claimed.ends or self._middleware or claimed.noticed or claimed.late:
            return None
        value, error = claimed.ends[0]
        if error is not None:
            return self._raised(claimed, error)
        result = claimed.result if value is None else value
        if claimed.transacting or (result is not None and claimed.written is None):
            return None
        text = None if claimed.written is None else claimed.written[1]
        if isinstance(text, Misfit):
            return Outcome.failed(text.fault, failure=text.failure)
        return Outcome.success(text)

    def shutdown(self) -> None:
        """Stop threads and processes. Threads that still run are left alone; processes are ended."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.shutdown()

    def _raised(self, claimed: Claimed, error: BaseException) -> Outcome:
        error = bare(error)
        match signal_of(error):
            case Hold():
                return _failed(claimed, error, failure="hold")
            case Snooze(delay_seconds=float(delay)):
                reason = _failed(claimed, error).message
                return self._interrupted(claimed) or Outcome.snoozed(delay, reason or "")
            case Fatal():
                return _failed(claimed, error, failure="fatal")
            case Retry(delay_seconds=delay):
                return self._interrupted(claimed) or _failed(claimed, error, failure="retry", delay_seconds=delay)
            case _:
                return self._interrupted(claimed) or _failed(claimed, error)

    def _interrupted(self, claimed: Claimed) -> Outcome | None:
        """The outcome of a handler that was told to stop; None if it was not, or had timed out before.

        A worker that drains because of a stuck handler must not make its attempt free: it would run again without end.
        """
        return None if claimed.interrupt is None or claimed.timed_out else self._stopped(claimed, claimed.interrupt)

    def _stopped(self, claimed: Claimed, why: Interrupt) -> Outcome:
        match why:
            case "cancel":
                return Outcome.canceled("canceled while running")
            case "pause":
                return Outcome.paused(DRAINED)
            case "drain" if self._pauses_drained(claimed):
                return Outcome.paused(DRAINED)
            case "drain":
                return Outcome.handed_back("the worker drained")
            case "lease":
                return Outcome.handed_back("the lease could not be renewed")

    async def _in_process(self, claimed: Claimed, job_type: JobType, timeout: float | None) -> Any:
        # Recorded without middleware, which has seen these jobs in the process where the handler runs.
        starts = self._starts if claimed.claim.last_chance else None
        service = ChildService(
            begin=None if starts is None else partial(self._begin, claimed, starts),
            began=None if starts is None else partial(starts.pass_on_soon, claimed),
            record=self._client.record,
            send=self._send,
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
        context = SyncContext(claimed, self._client, self._resources, lambda: loop, self._transactions, send=self._send)
        call = partial(contextvars.copy_context().run, partial(job_type.handler, context, **arguments))
        encode = partial(self._encode, job_type)
        if claimed.claim.last_chance and self._starts is not None:
            await self._begin(claimed, self._starts)
            call = partial(_call_and_tell, call, partial(loop.call_soon_threadsafe, self._starts.pass_on_soon, claimed))
        # Its value or error does not go through the future: a finished future refers to itself (by its callbacks), and
        # would keep the value, or the error with all the handler's variables, until cycles are collected.
        ends: list[_End] = []
        claimed.ends = ends
        future = self._submit(_call, claimed, call, encode, ends, self._original)
        late = False
        deadline = None if timeout is None else time.monotonic() + timeout
        while not future.done():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                done, _ = await asyncio.wait({future}, timeout=left)
            except asyncio.CancelledError:
                claimed.stopped = True
                continue
            if done:
                break
            if not late:
                late, deadline = True, time.monotonic() + self._stuck_after
                claimed.time_out()
                claimed.stopped = True
            elif not claimed.stuck:
                claimed.stuck, deadline = True, None
                self._on_stuck(claimed)
        # There is none if the threads were shut down before it began.
        value, error = ends.pop() if ends else (None, asyncio.CancelledError())
        if error is not None:
            try:
                if late:
                    raise Late("the handler ran for too long") from error
                raise error
            finally:
                del error
        if claimed.noticed:
            raise Late("the handler saw that it should stop")
        return value

    def _submit(self, function: Callable[..., None], *arguments: Any) -> asyncio.Future[None]:
        """Call a function in a thread. Raises NotBegun, and never calls it, if there is no thread."""
        admission, admitted = threading.Lock(), list[bool]()
        with admission:
            try:
                call = partial(_call_admitted, admission, admitted, function, *arguments)
                future = self._loop.run_in_executor(self._threads, call)
            except (RuntimeError, MemoryError) as fault:
                # The executor keeps the call in its queue, and a thread may run it later.
                raise no_room(fault) from fault
            admitted.append(True)
        return future


def _call_admitted(
    admission: threading.Lock, admitted: list[bool], function: Callable[..., None], *arguments: Any
) -> None:
    """In a thread: call a function, unless the call was withdrawn."""
    with admission:
        if not admitted:
            return
    function(*arguments)


def _not_begun(fault: NotBegun) -> Outcome:
    if fault.delay_seconds is None:
        return Outcome.handed_back(str(fault))
    return Outcome.snoozed(fault.delay_seconds, str(fault))


def _canceled(claimed: Claimed, error: BaseException, timeout: float | None) -> Outcome:
    """The outcome of a handler whose task was canceled without a request."""
    if claimed.late:
        return Outcome.timed_out(timeout or 0)
    return STRUCK if claimed.shares_task else Outcome.failed(error)


def _failed(
    claimed: Claimed, error: BaseException, *, failure: FailureKind = "retryable", delay_seconds: float | None = None
) -> Outcome:
    """The outcome for an exception that the handler raised here, in a thread or in another process."""
    if claimed.written is not None and claimed.written[0] is error:
        outcome: Outcome = claimed.written[1]
        return dataclasses.replace(outcome, failure=failure, delay_seconds=delay_seconds)
    signal = signal_of(error)
    source = error if signal is None else signal.__cause__
    if not issubclass(type(source), RemoteFailure):
        return Outcome.failed(error, failure=failure, delay_seconds=delay_seconds)
    remote = cast("RemoteFailure", source)
    return Outcome.failed(
        error,
        failure=failure,
        delay_seconds=delay_seconds,
        error_type=remote.type_name,
        traceback=remote.traceback,
    )


def _fit(convert: Callable[[Any], T], value: Any, failure: FailureKind) -> T:
    """Convert a payload or a result. Exceptions of the handler itself do not pass through here."""
    try:
        return convert(value)
    except InvalidInput as fault:
        raise Misfit(fault, failure) from fault


def _call_and_tell(function: Callable[[], Any], tell: Callable[[], Any]) -> Any:
    """Call a handler, and announce it right before."""
    tell()
    return function()


def _written(claimed: Claimed, result: Any, encode: Callable[[Any], str | None]) -> str | None:
    """A result as text: as its own thread wrote it, unless middleware replaced the result."""
    if claimed.written is None or claimed.written[0] is not result:
        return _fit(encode, result, "fatal")
    text = claimed.written[1]
    try:
        if isinstance(text, Misfit):
            raise text
        return cast("str | None", text)
    finally:
        del text  # an error's traceback refers to this frame


def _call(
    claimed: Claimed,
    function: Callable[[], Any],
    encode: Callable[[Any], str | None],
    ends: list[_End],
    original: Original,
) -> None:
    """Call a handler in its thread, and convert what it returns or raises there.

    Results and errors may have code of their own, which may be slow or never return: it must not run in the event loop.
    No coroutine can raise a StopIteration, and Ctrl-C does not concern this thread.
    """
    claimed.called = True
    try:
        ends.append((_called(claimed, partial(_untraced, function), encode), None))
    except BaseException as error:  # noqa: BLE001 - raised again where the handler is waited for
        ends.append((None, error))
    finally:
        original.or_end()


def _untraced(function: Callable[[], Any]) -> Any:
    """Call a handler. Trace and profile functions that it leaves behind would meet the next one of this thread."""
    trace, profile = sys.gettrace(), sys.getprofile()
    try:
        return function()
    finally:
        try:
            sys.setprofile(profile)
        finally:
            sys.settrace(trace)


def _called(claimed: Claimed, function: Callable[[], Any], encode: Callable[[Any], str | None]) -> Any:
    try:
        value = function()
        result = claimed.result if value is None else value
        if result is not None:
            try:
                claimed.written = result, _fit(encode, result, "fatal")
            except Misfit as misfit:
                claimed.written = result, misfit
    except (StopIteration, KeyboardInterrupt) as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    except BaseException as error:
        claimed.written = _described(error)
        raise
    return value


def _described(error: BaseException) -> tuple[BaseException, Outcome]:
    """What a handler meant by an error, with its outcome. The frames of the error's traceback must not refer to it."""
    meant = bare(error)
    return meant, Outcome.failed(meant)
