"""Running one attempt: payload → handler → outcome, with its timeout and its interruptions.

Async handlers run in the event loop and are cancelled. Handlers in threads cannot be: they are told through
`ctx.cancelled`, and keep their slot and lease until they return. One that does not return within the grace
after its timeout is called stuck, and the process is to be replaced.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from holdfast.client.client import Client
from holdfast.definitions.job_type import JobType
from holdfast.definitions.payload import encode_result
from holdfast.errors import Fatal, Hold, InvalidInput, Retry, Snooze
from holdfast.model.outcome import Outcome
from holdfast.worker.context import Context, ThreadContext
from holdfast.worker.held import Held

__all__ = ["DRAINED", "Execution"]

T = TypeVar("T")

#: What seed systems and their users know this as.
DRAINED = "Job was interrupted by user"


class _LateThread(Exception):
    """A handler in a thread failed after its timeout, or returned because it saw that it should stop."""


class _Unfit(Exception):
    """The stored payload does not fit the handler, or its result cannot be stored: no retry would help."""

    def __init__(self, fault: InvalidInput) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Execution:
    """Runs handlers and says how they ended."""

    def __init__(
        self,
        client: Client,
        resources: Any,
        *,
        threads: int,
        requeue_drained: bool,
        stuck_after_seconds: float,
        on_stuck: Callable[[Held], None],
    ) -> None:
        self._client, self._resources = client, resources
        self._threads = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="holdfast-handler")
        self._requeue_drained = requeue_drained
        self._stuck_after = stuck_after_seconds
        self._on_stuck = on_stuck

    async def run(self, held: Held, job_type: JobType, timeout: float | None) -> Outcome:
        """Run one attempt to its end, whatever that is."""
        held.started = time.monotonic()
        limit = None
        try:
            if held.interrupt is not None or held.lost or held.lease_end < held.started:
                return self._interrupted(held) or Outcome.released("the lease was over before the handler began")
            arguments = _fit(job_type.payload.call_arguments, held.claim.payload)
            if job_type.executor == "async":
                async with asyncio.timeout(timeout) as limit:
                    value = await job_type.handler(Context(held, self._client, self._resources), **arguments)
            else:
                value = await self._in_thread(held, job_type, arguments, timeout)
                if held.noticed:
                    raise _LateThread
            return Outcome.success(_fit(encode_result, value))
        except _Unfit as unfit:
            return Outcome.failed(unfit.fault, failure="fatal")
        except _LateThread:
            return self._interrupted(held) or Outcome.timed_out(timeout or 0)
        except TimeoutError as error:
            if limit is not None and limit.expired():
                return self._interrupted(held) or Outcome.timed_out(timeout or 0)
            return self._interrupted(held) or Outcome.failed(error)
        except asyncio.CancelledError as error:
            return self._interrupted(held) or Outcome.failed(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - foreign code runs here, and may call sys.exit()
            return self._raised(held, error)
        finally:
            held.duration = time.monotonic() - held.started

    def given_up(self, held: Held) -> Outcome:
        """The outcome of a handler in a thread that does not return, once its process has been replaced."""
        wanted_away = held.interrupt in ("cancel", "pause")
        outcome = self._interrupted(held) if wanted_away or not held.stuck else None
        return outcome or Outcome.timed_out(held.running_ms / 1000)

    def shutdown(self) -> None:
        """No more threads; those still running are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _raised(self, held: Held, error: BaseException) -> Outcome:
        match error:
            case Hold():
                return Outcome.failed(error, failure="hold")
            case Snooze():
                return self._interrupted(held) or Outcome.snoozed(error.delay_seconds, str(error))
            case Fatal():
                return Outcome.failed(error, failure="fatal")
            case Retry():
                return self._interrupted(held) or Outcome.failed(
                    error, failure="retry", delay_seconds=error.delay_seconds
                )
            case _:
                return self._interrupted(held) or Outcome.failed(error)

    def _interrupted(self, held: Held) -> Outcome | None:
        """The outcome of a handler that was told to stop; None if it was not."""
        match held.interrupt:
            case "cancel":
                return Outcome.canceled("canceled while running")
            case "pause":
                return Outcome.paused(DRAINED)
            case "drain" if held.claim.target is not None and not self._requeue_drained:
                return Outcome.paused(DRAINED)
            case "drain":
                return Outcome.released("the worker drained")
            case "lease":
                return Outcome.released("the lease could not be renewed")
        return None

    async def _in_thread(self, held: Held, job_type: JobType, arguments: dict[str, Any], timeout: float | None) -> Any:
        """A handler in a thread is waited for to the very end, even past cancellation and timeout."""
        loop = asyncio.get_running_loop()
        context = ThreadContext(held, self._client, self._resources, loop)
        call = partial(contextvars.copy_context().run, partial(job_type.handler, context, **arguments))
        future = loop.run_in_executor(self._threads, _call, call)
        late = False
        deadline = None if timeout is None else time.monotonic() + timeout
        while not future.done():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                done, _ = await asyncio.wait({future}, timeout=left)
            except asyncio.CancelledError:
                held.stopped.set()
                continue
            if done:
                break
            if not late:
                late, deadline = True, time.monotonic() + self._stuck_after
                held.stopped.set()
            elif not held.stuck:
                held.stuck, deadline = True, None
                self._on_stuck(held)
        try:
            return future.result()
        except Exception as error:
            if late:
                raise _LateThread from error
            raise


def _fit(convert: Callable[[Any], T], value: Any) -> T:
    """Convert a payload or a result; what a handler itself raises is another matter."""
    try:
        return convert(value)
    except InvalidInput as fault:
        raise _Unfit(fault) from fault


def _call(function: Callable[[], Any]) -> Any:
    """Call a handler in its thread. No future can hold a StopIteration, so it is turned as coroutines turn it."""
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error
