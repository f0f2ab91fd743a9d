"""The app's verbs for code that is not asynchronous: Flask, Django, scripts, notebooks.

No verb has a second body: each blocks on the app's own coroutine, run in an event loop in a thread of its own
(the portal), with connections of its own. Rules:

1. Portal and connections are made on first use, by whichever thread comes first, and shared by all threads.
2. A forked child makes its own. What it inherited is left as it is, neither used nor closed: the sockets
   still belong to the parent.
3. Calls with `conn=` use no portal: they run on that connection, in the thread that calls. Where a framework
   keeps a connection per thread, the app's `ambient` names it, and calls without `conn=` join its transaction.
4. `enqueue` runs in the thread that calls, up to the statement, which it shares with the calls of other threads
   (holdfast.store.groups). Only middleware, which may wait for anything, needs the portal for all of it.
5. At exit, or with `close`, connections are given back in good order.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import update_wrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from holdfast.app.holdfast import Holdfast
from holdfast.app.verbs import Verbs
from holdfast.config import Config
from holdfast.errors import InvalidInput
from holdfast.lifecycle.importing import refuse_while_importing
from holdfast.lifecycle.portal import Portal, immediately
from holdfast.store.foreign import is_blocking

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

__all__ = ["Sync"]

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Sync, P], R]:
    """The blocking counterpart of one of the app's coroutines."""
    joins = "conn" in inspect.signature(verb).parameters
    enqueues = verb is Verbs.enqueue

    def call(self: Sync, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        conn = keywords.get("conn")
        if conn is None and joins:
            conn = keywords["conn"] = self._app.ambient()
        if conn is None:
            portal, app = self._opened()
            work = _of(app, verb)(*arguments, **keywords)
            if enqueues and _runs_here(app):
                return immediately(work)
            return portal.run(work)
        if not is_blocking(conn):
            raise InvalidInput(
                f"{type(conn).__module__}.{type(conn).__qualname__} belongs to asyncio: use `await hf.{verb.__name__}`"
            )
        return immediately(_of(self._app, verb)(*arguments, **keywords))

    update_wrapper(call, verb)
    return call


def _runs_here(app: Holdfast) -> bool:
    """Whether `enqueue` may run in this thread: nothing in it waits for a loop, and none runs here already."""
    as_it_is = type(app).enqueue is Verbs.enqueue  # an override may wait for anything
    return as_it_is and app.client.enqueues_from_threads and asyncio._get_running_loop() is None


def _of(
    app: Holdfast, verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]
) -> Callable[P, Coroutine[Any, Any, R]]:
    """An app's own version of a verb: integrations override some."""
    return getattr(app, verb.__name__)  # type: ignore[no-any-return]


def _working(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, Worker]],
) -> Callable[Concatenate[Sync, P], Worker]:
    """Run a worker until it is done. In the main thread Ctrl-C and SIGTERM drain it, unless `signals` is False; a
    second one interrupts it. Drained, the signal does what it does otherwise.
    """

    def call(self: Sync, /, *arguments: P.args, **keywords: P.kwargs) -> Worker:
        in_main_thread = threading.current_thread() is threading.main_thread()
        signals = keywords.pop("signals", in_main_thread)
        if signals and not in_main_thread:
            raise InvalidInput("signals arrive in the main thread only: run the worker there, or without `signals`")
        refuse_while_importing()
        from holdfast.lifecycle.stray_signals import StraySignals  # not needed to enqueue

        began: list[Worker] = []
        told = keywords.get("started")

        def started(worker: Worker) -> Any:
            began.append(worker)
            return told(worker) if callable(told) else None

        keywords["started"] = started
        portal = Portal("holdfast-worker")
        try:
            running = portal.start(_of(self._app, verb)(*arguments, **keywords))
            drain = _drained_by_signal(lambda: portal.soon(began[0].drain) if began else running.cancel())
            with drain if signals else nullcontext(), StraySignals(portal.soon) if signals else nullcontext():
                return running.result()
        finally:
            portal.stop()

    update_wrapper(call, verb)
    return call


@contextmanager
def _drained_by_signal(drain: Callable[[], object]) -> Iterator[None]:
    """Have SIGINT and SIGTERM drain first, and only then do what they do otherwise."""
    heard: list[signal.Signals] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(signal.Signals(number))
        drain()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if heard and before[heard[0]] is signal.SIG_DFL:
        raise SystemExit(128 + heard[0])  # as the shell tells it, but with everything closed in good order
    if heard:
        signal.raise_signal(heard[0])


class Sync:
    """An app whose verbs block. Use it at once, as `hf.sync`, or as a context manager that closes it."""

    enqueue = _blocking(Verbs.enqueue)
    enqueue_many = _blocking(Verbs.enqueue_many)
    get = _blocking(Verbs.get)
    find = _blocking(Verbs.find)
    attempts = _blocking(Verbs.attempts)
    history = _blocking(Verbs.history)
    items = _blocking(Verbs.items)
    wait = _blocking(Verbs.wait)
    cancel = _blocking(Verbs.cancel)
    pause = _blocking(Verbs.pause)
    resume = _blocking(Verbs.resume)
    release = _blocking(Verbs.release)
    retry = _blocking(Verbs.retry)
    delete = _blocking(Verbs.delete)
    run_worker = _working(Holdfast.run_worker)
    check = _blocking(Holdfast.check)

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._open: tuple[Portal, Holdfast] | None = None
        self._opened_for: str | None = None
        self._lock = threading.Lock()
        self._inherited: list[object] = []
        self._finalizer: weakref.finalize[..., Sync] | None = None
        _faces.add(self)

    @property
    def config(self) -> Config:
        """The configuration in use. Once open, it has the URL of the embedded server."""
        return (self._open[1] if self._open else self._app).config

    def open(self) -> None:
        """Connect now, not at the first call."""
        self._opened()

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            opened, self._open = self._open, None
            if self._finalizer is not None:
                self._finalizer.detach()
        if opened is not None:
            portal, app = opened
            try:
                portal.run(app.close())
            finally:
                portal.stop()

    def __enter__(self) -> Sync:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> tuple[Portal, Holdfast]:
        refuse_while_importing()
        wanted = _wanted(self._app)
        opened = self._open
        if opened is not None:
            if self._opened_for == wanted:
                return opened
            self.close()  # a framework has chosen another database since, for its tests
        with self._lock:
            if self._open is None:
                portal, app = Portal(), self._app.twin()
                try:
                    portal.run(app.open())
                except BaseException:
                    portal.stop()
                    raise
                self._open, self._opened_for = (portal, app), wanted
                self._finalizer = weakref.finalize(self, _let_go, portal, app, os.getpid())
                self._finalizer.atexit = False
            return self._open

    def _forked(self) -> None:
        """In a forked child: the portal's thread is not here, and a lock may be held by a thread that is not either."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._inherited.append(self._open)
        self._open, self._lock = None, threading.Lock()


def _wanted(app: Holdfast) -> str | None:
    """The database that the app is told to use; None for the embedded one, running or not."""
    config = app.config
    return None if config.origins.get("database_url") == "embedded" else config.database_url


def _let_go(portal: Portal, app: Holdfast, pid: int) -> None:
    """Nobody has this face any more. It may be found out in any thread, so nothing is waited for."""

    async def close() -> None:
        await app.close()
        portal.end()

    if os.getpid() == pid and not portal.loop.is_closed():
        asyncio.run_coroutine_threadsafe(close(), portal.loop)


_faces: WeakSet[Sync] = WeakSet()


def _forget() -> None:
    for face in list(_faces):
        face._forked()


def _close_all() -> None:
    for face in list(_faces):
        face.close()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget)
atexit.register(_close_all)
