"""Bridges between blocking code and coroutines: an event loop in its own thread, and coroutines that never wait.

1. `Portal` runs coroutines for callers that block; many threads may use one portal.
2. `immediately` runs a coroutine in the calling thread, without any event loop, provided that it never waits.
   Coroutines on a blocking connection are of this kind, and must run in the thread that owns the connection.
3. `in_loop` runs a coroutine in the event loop of another thread. An exception that would end that loop is raised in
   this thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from holdfast.errors import HoldfastError
from holdfast.lifecycle.loops import run_on

__all__ = ["Portal", "immediately", "in_loop", "portal_threads"]

T = TypeVar("T")
#: What a coroutine has returned or raised.
_End = tuple[T | None, BaseException | None]


_portals: WeakSet[Portal] = WeakSet()


class Portal:
    """An event loop that runs in its own thread until it is stopped. It does not survive a fork."""

    def __init__(self, name: str = "holdfast-portal") -> None:
        self._stop = asyncio.Event()
        began: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(began,), name=name, daemon=True)
        self._thread.start()
        self.loop = began.result()
        _portals.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and wait for it. If the wait is interrupted, the coroutine is canceled."""
        self._refuse_own_thread(work)
        ends: list[_End[T]] = []
        future = _begun(work, self.loop, ends)
        try:
            future.result()
        except BaseException:
            future.cancel()
            raise
        return _end(ends)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine."""
        self._refuse_own_thread(work)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def soon(self, callback: Callable[[], object]) -> None:
        """Call a function in the loop's thread soon."""
        self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        """Cancel all running tasks, and wait for the end of the thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.end)
        self._thread.join(10)

    def end(self) -> None:
        """Let the thread end. Must be called in that thread."""
        self._stop.set()

    def _refuse_own_thread(self, work: Coroutine[Any, Any, Any]) -> None:
        if threading.current_thread() is self._thread:
            work.close()
            raise HoldfastError("a blocking call was made in the event loop that has to run it; use `await` instead")

    def _run(self, began: Future[asyncio.AbstractEventLoop]) -> None:
        async def serve() -> None:
            began.set_result(asyncio.get_running_loop())
            await self._stop.wait()

        try:
            run_on(serve())
        except BaseException as fault:
            if began.done():
                raise
            began.set_exception(fault)


def portal_threads() -> set[int]:
    """The idents of the threads of all portals, and of those in which their loops look up addresses."""
    pools = (getattr(portal.loop, "_default_executor", None) for portal in list(_portals))
    threads = {*(portal._thread for portal in _portals), *(t for pool in pools for t in getattr(pool, "_threads", ()))}
    return {thread.ident for thread in threads if thread.ident is not None}


def in_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in the loop of another thread, and return its result."""
    ends: list[_End[T]] = []
    _begun(work, loop, ends).result()
    return _end(ends)


def _begun(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, ends: list[_End[T]]) -> Future[None]:
    """Start a coroutine. Its value or error is put into `ends`.

    It does not go through the future: a finished future refers to itself (by its callbacks), and would keep an error
    with the variables of all callers until cycles are collected.
    """
    caught = _caught(work, ends)
    try:
        return asyncio.run_coroutine_threadsafe(caught, loop)
    except RuntimeError:  # that loop is closed
        caught.close()
        work.close()
        raise


async def _caught(work: Coroutine[Any, Any, T], ends: list[_End[T]]) -> None:
    try:
        ends.append((await work, None))
    except asyncio.CancelledError:
        raise
    except BaseException as fault:  # noqa: BLE001 - raised again in the thread that waits
        ends.append((None, fault))


def _end(ends: list[_End[T]]) -> T:
    result, fault = ends.pop()
    if fault is not None:
        try:
            raise fault
        finally:
            del fault  # its traceback refers to this frame
    return result  # type: ignore[return-value]


def immediately(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise HoldfastError("this call has to wait for an event loop: await it, or give it a blocking connection")
