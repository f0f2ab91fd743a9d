"""Handlers in threads. They cannot be canceled, only told to stop: they keep their slot until they return.

A thread that does not return within the grace period after its timeout is stuck.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from holdfast.model.outcome import Outcome
from holdfast.worker.claimed import Claimed
from holdfast.worker.copies import Original
from holdfast.worker.endings import Late, Misfit, bare, fit, no_room

__all__ = ["Threads", "call_and_tell"]

#: What a handler has returned or raised.
_End = tuple[Any, BaseException | None]


class Threads:
    """The threads of a worker's handlers."""

    def __init__(
        self, size: int, original: Original, *, stuck_after_seconds: float, on_stuck: Callable[[Claimed], None]
    ) -> None:
        self._threads = ThreadPoolExecutor(max_workers=max(1, size), thread_name_prefix="holdfast-handler")
        self._loop = asyncio.get_running_loop()
        self._original, self._stuck_after, self._on_stuck = original, stuck_after_seconds, on_stuck

    def shutdown(self) -> None:
        """Begin nothing more. Handlers that still run are left alone."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self, claimed: Claimed, call: Callable[[], Any], encode: Callable[[Any], str | None], timeout: float | None
    ) -> Any:
        """Call a handler in a thread and wait until it returns, even past cancellation and timeout."""
        # Its value or error does not go through the future: a finished future refers to itself (by its callbacks), and
        # would keep the value, or the error with all the handler's variables, until cycles are collected.
        ends: list[_End] = []
        claimed.ends, claimed.call_canceled, claimed.noticed = ends, False, False
        claimed.thread = thread = self._submit(_call, claimed, call, encode, ends, self._original)
        canceled, late = await self._ended(claimed, thread, timeout)
        # There is none if the threads were shut down before it began.
        value, error = ends.pop() if ends else (None, asyncio.CancelledError())
        try:
            if error is not None:
                if late:
                    raise Late("the handler ran for too long") from error
                raise error
            if claimed.noticed:
                if late or canceled is None:
                    raise Late("the handler saw that it should stop")
                raise canceled
            return value
        finally:
            del error, canceled

    async def _ended(
        self, claimed: Claimed, thread: asyncio.Future[None], timeout: float | None
    ) -> tuple[asyncio.CancelledError | None, bool]:
        """Wait for a thread. Returns by what the call was first canceled, and whether it ran for too long.

        That very cancellation has to be raised again: whoever canceled the call knows its own by its message.
        """
        canceled: asyncio.CancelledError | None = None
        late = False
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not thread.done():
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    done, _ = await asyncio.wait({thread}, timeout=left)
                except asyncio.CancelledError as error:
                    claimed.call_canceled = True
                    canceled = canceled or error
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
            return canceled, late
        except BaseException:
            claimed.call_canceled = True  # the caller has given up the call by hand
            raise
        finally:
            del canceled

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


def call_and_tell(function: Callable[[], Any], tell: Callable[[], Any]) -> Any:
    """Call a handler, and announce it right before."""
    tell()
    return function()


def _call_admitted(
    admission: threading.Lock, admitted: list[bool], function: Callable[..., None], *arguments: Any
) -> None:
    """In a thread: call a function, unless the call was withdrawn."""
    with admission:
        if not admitted:
            return
    function(*arguments)


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
    claimed.in_thread = True
    try:
        value = function()
        result = claimed.result if value is None else value
        if result is not None:
            try:
                claimed.written = result, fit(encode, result, "fatal")
            except Misfit as misfit:
                claimed.written = result, misfit
    except (StopIteration, KeyboardInterrupt) as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    except BaseException as error:
        claimed.described = _described(error)
        raise
    finally:
        claimed.in_thread = False
    return value


def _described(error: BaseException) -> tuple[BaseException, Outcome]:
    """What a handler meant by an error, with its outcome. The frames of the error's traceback must not refer to it."""
    meant = bare(error)
    return meant, Outcome.failed(meant)
