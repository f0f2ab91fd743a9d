"""Running one attempt: payload → handler → outcome, with its timeout and its interruptions.

Async handlers run in the event loop and are cancelled. Handlers in threads cannot be: they are told through
`ctx.cancelled`, and keep their slot and lease until they return. One that does not return within the grace
after its timeout is called stuck, and the process is to be replaced. Handlers in processes of their own are
interrupted and then killed (`holdfast.worker.processes`); they are never stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.client.client import Client
from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.definitions.payload import encode_result
from holdfast.errors import Fatal, Hold, HoldfastError, InvalidInput, Retry, Snooze
from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.outcome import FailureKind, Outcome
from holdfast.store.transactions import Transactions
from holdfast.worker.context import Context, SendReport, SyncContext
from holdfast.worker.copies import Original
from holdfast.worker.deadlines import Deadlines
from holdfast.worker.elsewhere import Elsewhere
from holdfast.worker.endings import Late, LeaseOver, Misfit, NotBegun, RemoteFailure, no_room, signal_of
from holdfast.worker.fence import fenced
from holdfast.worker.held import Held, Interrupt
from holdfast.worker.middleware import Middleware
from holdfast.worker.payloads import Payloads
from holdfast.worker.processes.pool import ProcessPool
from holdfast.worker.processes.talk import Service
from holdfast.worker.starts import Starts
from holdfast.worker.transaction import refuse_open

__all__ = ["DRAINED", "STRUCK", "Execution"]

T = TypeVar("T")
#: What a handler in a thread has returned, or raised.
_End = tuple[Any, BaseException | None]

_log = logging.getLogger("holdfast")

#: What seed systems and their users know this as.
DRAINED = "Job was interrupted by user"

#: Cancelled by nobody of ours, in a task that other handlers had before.
STRUCK = Outcome.released("its task was cancelled, perhaps by what another job had left behind")
#: What most attempts come to.
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
        pauses_drained: Callable[[Held], bool],
        stuck_after_seconds: float,
        on_stuck: Callable[[Held], None],
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
        self._recursion_limit, self._task_factory = sys.getrecursionlimit(), self._loop.get_task_factory()

    async def run(self, held: Held, job_type: JobType, timeout: float | None) -> Outcome:
        """Run one attempt to its end, whatever that is."""
        outcome = await self._outcome(held, job_type, timeout)
        if not held.completed:
            return outcome
        # The database has the last word, and it said success.
        if outcome.kind != "success":
            _log.warning("%s: after its transaction had completed the job: %s", job_type.name, outcome.message)
        elif held.returned:
            _log.warning("%s returned a result after its transaction had completed the job", job_type.name)
        return Outcome.success(None)

    async def _outcome(self, held: Held, job_type: JobType, timeout: float | None) -> Outcome:
        held.started = time.monotonic()
        try:
            if held.interrupt is not None or held.lost or held.lease_end < elapsed():
                return self._interrupted(held) or Outcome.released("the lease was over before the handler began")
            if held.claim.payload is None:
                await self._fetch(held)
            self._deadlines.watch(held, timeout)
            run = self._within_middleware if self._middleware else self.call
            value = await run(held, job_type, timeout)
            refuse_open(held)
            held.returned = value is not None
            result = held.result if value is None else value
            if result is None:
                return _DONE
            return Outcome.success(_written(held, result, partial(self._encode, job_type)))
        except Misfit as misfit:
            return await self._misfit(held, job_type, misfit)
        except NotBegun as fault:
            return self._interrupted(held) or _not_begun(fault)
        except Late:
            return self._interrupted(held) or Outcome.timed_out(timeout or 0)
        except LeaseOver:
            return self._stopped(held, held.lapsed())
        except asyncio.CancelledError as error:
            return self._interrupted(held) or _cancelled(held, error, timeout)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            return self._raised(held, error)
        finally:
            self._mend_surroundings()
            held.leave()
            held.written = None  # an error's traceback refers to frames that refer to `held`
            self._deadlines.forget(held)
            if held.claim.last_chance and self._starts is not None:
                self._starts.pass_on(held)
            held.duration = time.monotonic() - held.started

    async def call(self, held: Held, job_type: JobType, timeout: float | None) -> Any:
        """What the handler returns, run by its executor; or raises what it raised, Misfit, Late or ProcessDied."""
        if job_type.executor == "async":
            arguments = _fit(job_type.payload.call_arguments, held.claim.payload, "hold")
            if held.claim.last_chance and self._starts is not None:
                self._deadlines.forget(held)
                await self._begin(held, self._starts)
                self._deadlines.watch(held, timeout)
                # Called when the handler first waits for something, or ends.
                asyncio.get_running_loop().call_soon(self._starts.pass_on, held)
            call = job_type.handler(self._context(held), **arguments)
            return await (call if held.claim.target is None else fenced(held, call))
        # Threads and processes are timed where they run; middleware around them is timed before and after.
        self._deadlines.forget(held)
        try:
            if job_type.executor == "process":
                return await self._in_process(held, job_type, timeout)
            arguments = _fit(job_type.payload.call_arguments, held.claim.payload, "hold")
            return await self._in_thread(held, job_type, arguments, timeout)
        finally:
            self._deadlines.watch(held, timeout)

    async def _misfit(self, held: Held, job_type: JobType, misfit: Misfit) -> Outcome:
        if self._elsewhere is None:
            return Outcome.failed(misfit.fault, failure=misfit.failure)
        self._deadlines.forget(held)
        try:
            return await self._elsewhere.outcome(held, job_type, misfit)
        except asyncio.CancelledError as error:
            return self._interrupted(held) or _cancelled(held, error, None)

    async def _fetch(self, held: Held) -> None:
        """Get a payload that did not come with the claim. The time that this takes is not the handler's."""
        if self._payloads is None:
            return
        asked_at = time.monotonic()
        try:
            await self._payloads.fetch(held)
        finally:
            held.waited = time.monotonic() - asked_at
        held.started = time.monotonic()

    async def _begin(self, held: Held, starts: Starts) -> None:
        """Have it recorded that the handler is about to run. The time that this takes is not the handler's."""
        await starts.begin(held)
        held.started = time.monotonic()

    async def _within_middleware(self, held: Held, job_type: JobType, timeout: float | None) -> Any:
        """The handler within all middleware, the first one outermost."""
        running: set[asyncio.Task[Any]] = set()

        async def handler() -> Any:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - within a coroutine
            running.add(task)
            try:
                return await self.call(held, job_type, timeout)
            finally:
                running.discard(task)

        call: Callable[[], Awaitable[Any]] = handler
        for middleware in reversed(self._middleware):
            call = partial(middleware.run, self._context(held), call)
        try:
            value = await call()
        finally:
            left = set(running)
            await _ended(left)
        if left:
            raise HoldfastError("middleware ended while the handler was running; it was cancelled")
        return value

    def _mend_surroundings(self) -> None:
        """What a handler has changed in a place that it shares with the worker, and the worker cannot live with."""
        self._original.or_end()
        if sys.getrecursionlimit() < self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
        if self._loop.get_task_factory() is not self._task_factory:
            self._loop.set_task_factory(self._task_factory)

    def _encode(self, job_type: JobType, value: Any) -> str | None:
        return encode_result(value, job_type.name, self._result_limit())

    def _context(self, held: Held) -> Context:
        return Context(held, self._client, self._resources, self._transactions, send=self._send)

    def given_up(self, held: Held, timeout: float) -> Outcome:
        """The outcome of a handler in a thread that does not return, once its process has been replaced."""
        return self._interrupted(held) or Outcome.timed_out(timeout)

    def shutdown(self) -> None:
        """No more threads and processes. Threads still running are left to themselves, processes are ended."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.shutdown()

    def _raised(self, held: Held, error: BaseException) -> Outcome:
        match signal_of(error):
            case Hold():
                return _failed(held, error, failure="hold")
            case Snooze(delay_seconds=delay):
                note = _failed(held, error).message
                return self._interrupted(held) or Outcome.snoozed(delay, note or "")
            case Fatal():
                return _failed(held, error, failure="fatal")
            case Retry(delay_seconds=delay):
                return self._interrupted(held) or _failed(held, error, failure="retry", delay_seconds=delay)
            case _:
                return self._interrupted(held) or _failed(held, error)

    def _interrupted(self, held: Held) -> Outcome | None:
        """The outcome of a handler that was told to stop; None if it was not, or had timed out before.

        A worker that drains because of a stuck handler must not make it free: it would run again without bound.
        """
        return None if held.interrupt is None or held.timed_out else self._stopped(held, held.interrupt)

    def _stopped(self, held: Held, why: Interrupt) -> Outcome:
        match why:
            case "cancel":
                return Outcome.canceled("canceled while running")
            case "pause":
                return Outcome.paused(DRAINED)
            case "drain" if self._pauses_drained(held):
                return Outcome.paused(DRAINED)
            case "drain":
                return Outcome.released("the worker drained")
            case "lease":
                return Outcome.released("the lease could not be renewed")

    async def _in_process(self, held: Held, job_type: JobType, timeout: float | None) -> Any:
        # Recorded as it comes: middleware has seen it in the process where the handler runs.
        starts = self._starts if held.claim.last_chance else None
        service = Service(
            begin=None if starts is None else partial(self._begin, held, starts),
            began=None if starts is None else partial(starts.pass_on_soon, held),
            record=self._client.record,
            send=self._send,
            log=self._context(held).logger.log,
            worker=self._worker,
            config=self._config,
            result_limit=self._result_limit(),
        )
        return await self._processes.run(held, job_type, timeout, service)

    async def _in_thread(self, held: Held, job_type: JobType, arguments: dict[str, Any], timeout: float | None) -> Any:
        """A handler in a thread is waited for to the very end, even past cancellation and timeout."""
        loop = asyncio.get_running_loop()
        context = SyncContext(held, self._client, self._resources, lambda: loop, self._transactions, send=self._send)
        call = partial(contextvars.copy_context().run, partial(job_type.handler, context, **arguments))
        encode = partial(self._encode, job_type)
        if held.claim.last_chance and self._starts is not None:
            await self._begin(held, self._starts)
            call = partial(_call_and_tell, call, partial(loop.call_soon_threadsafe, self._starts.pass_on_soon, held))
        # What it returns or raises does not go through the future: a finished one refers to itself (its callbacks do),
        # and would keep the value, or the error with all the handler's variables, until cycles are collected.
        ends: list[_End] = []
        future = self._submit(_call, held, call, encode, ends, self._original)
        late = False
        deadline = None if timeout is None else time.monotonic() + timeout
        while not future.done():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                done, _ = await asyncio.wait({future}, timeout=left)
            except asyncio.CancelledError:
                held.stopped = True
                continue
            if done:
                break
            if not late:
                late, deadline = True, time.monotonic() + self._stuck_after
                held.time_out()
                held.stopped = True
            elif not held.stuck:
                held.stuck, deadline = True, None
                self._on_stuck(held)
        # It has none if the threads were shut down before it began.
        value, error = ends.pop() if ends else (None, asyncio.CancelledError())
        if error is not None:
            try:
                if late:
                    raise Late("the handler ran for too long") from error
                raise error
            finally:
                del error
        if held.noticed:
            raise Late("the handler saw that it should stop")
        return value

    def _submit(self, function: Callable[..., None], *arguments: Any) -> asyncio.Future[None]:
        """Have it called in a thread; NotBegun, and it never is, where no thread can be had."""
        admission, admitted = threading.Lock(), list[bool]()
        with admission:
            try:
                call = partial(_call_admitted, admission, admitted, function, *arguments)
                future = self._loop.run_in_executor(self._threads, call)
            except (RuntimeError, MemoryError) as fault:
                # The executor keeps the call in its queue, and a thread may come to it later.
                raise no_room(fault) from fault
            admitted.append(True)
        return future


def _call_admitted(
    admission: threading.Lock, admitted: list[bool], function: Callable[..., None], *arguments: Any
) -> None:
    """In a thread: call something, unless it was called off."""
    with admission:
        if not admitted:
            return
    function(*arguments)


def _not_begun(fault: NotBegun) -> Outcome:
    if fault.delay_seconds is None:
        return Outcome.released(str(fault))
    return Outcome.snoozed(fault.delay_seconds, str(fault))


def _cancelled(held: Held, error: asyncio.CancelledError, timeout: float | None) -> Outcome:
    """The outcome of a handler whose task was cancelled, though nobody had asked for that."""
    if held.late:
        return Outcome.timed_out(timeout or 0)
    return STRUCK if held.shares_task else Outcome.failed(error)


def _failed(
    held: Held, error: BaseException, *, failure: FailureKind = "retryable", delay_seconds: float | None = None
) -> Outcome:
    """What the handler raised, here, in a thread or in another process."""
    if held.written is not None and held.written[0] is error:
        outcome: Outcome = held.written[1]
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
    """Convert a payload or a result; what a handler itself raises is another matter."""
    try:
        return convert(value)
    except InvalidInput as fault:
        raise Misfit(fault, failure) from fault


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel these tasks and wait for their end, however often this one is cancelled: a handler runs there."""
    for task in tasks:
        task.cancel()
    while left := {task for task in tasks if not task.done()}:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(left)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def _call_and_tell(function: Callable[[], Any], tell: Callable[[], Any]) -> Any:
    """Call a handler, and say that this is about to happen."""
    tell()
    return function()


def _written(held: Held, result: Any, encode: Callable[[Any], str | None]) -> str | None:
    """A result as text; as its own thread has written it, unless middleware has put another one in its place."""
    if held.written is None or held.written[0] is not result:
        return _fit(encode, result, "fatal")
    text = held.written[1]
    try:
        if isinstance(text, Misfit):
            raise text
        return cast("str | None", text)
    finally:
        del text  # an error's traceback refers to this frame


def _call(
    held: Held,
    function: Callable[[], Any],
    encode: Callable[[Any], str | None],
    ends: list[_End],
    original: Original,
) -> None:
    """Call a handler in its thread, and write down there what it returns or raises.

    Results and errors may come with code of their own, which takes its time or never returns: it must not do so in the
    event loop. No coroutine can raise a StopIteration; and nobody pressed Ctrl-C in this thread.
    """
    try:
        ends.append((_called(held, function, encode), None))
    except BaseException as error:  # noqa: BLE001 - raised again where the handler is waited for
        ends.append((None, error))
    finally:
        original.or_end()


def _called(held: Held, function: Callable[[], Any], encode: Callable[[Any], str | None]) -> Any:
    try:
        value = function()
        result = held.result if value is None else value
        if result is not None:
            try:
                held.written = result, _fit(encode, result, "fatal")
            except Misfit as misfit:
                held.written = result, misfit
    except (StopIteration, KeyboardInterrupt) as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    except BaseException as error:
        held.written = error, Outcome.failed(error)
        raise
    return value
