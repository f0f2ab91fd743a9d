"""The app's verbs for code that is not asynchronous: Flask, Django, scripts, notebooks.

No verb has a second body: each blocks on the app's own coroutine, run in an event loop in a thread of its own
(the portal), with connections of its own. Rules:

1. Portal and connections are made on first use, by whichever thread comes first, and shared by all threads.
2. A forked child makes its own. What it inherited is left as it is, neither used nor closed: the sockets
   still belong to the parent.
3. Calls with `conn=` use no portal: they run on that connection, in the thread that calls. Where a framework
   keeps a connection per thread, the app's `ambient` names it, and calls without `conn=` join its transaction.
4. At exit, or with `close`, connections are given back in good order.
"""

from __future__ import annotations

import atexit
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from holdfast.app.holdfast import Holdfast
from holdfast.app.verbs import Verbs
from holdfast.config import Config
from holdfast.errors import InvalidInput
from holdfast.lifecycle.portal import Portal, immediately
from holdfast.store.foreign import is_blocking
from holdfast.worker.worker import Worker

__all__ = ["Sync"]

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Sync, P], R]:
    """The blocking counterpart of one of the app's coroutines."""
    joins = "conn" in inspect.signature(verb).parameters

    def call(self: Sync, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        conn = keywords.get("conn")
        if conn is None and joins:
            conn = keywords["conn"] = self._app.ambient()
        if conn is None:
            portal, app = self._opened()
            return portal.run(verb(app, *arguments, **keywords))
        if not is_blocking(conn):
            raise InvalidInput(
                f"{type(conn).__module__}.{type(conn).__qualname__} belongs to asyncio: use `await hf.{verb.__name__}`"
            )
        return immediately(verb(self._app, *arguments, **keywords))

    update_wrapper(call, verb)
    return call


class Sync:
    """An app whose verbs block. May be used at once, as `hf.sync`, or as a context manager that closes it."""

    enqueue = _blocking(Verbs.enqueue)
    enqueue_many = _blocking(Verbs.enqueue_many)
    get = _blocking(Verbs.get)
    find = _blocking(Verbs.find)
    attempts = _blocking(Verbs.attempts)
    history = _blocking(Verbs.history)
    wait = _blocking(Verbs.wait)
    cancel = _blocking(Verbs.cancel)
    pause = _blocking(Verbs.pause)
    resume = _blocking(Verbs.resume)
    release = _blocking(Verbs.release)
    retry = _blocking(Verbs.retry)
    delete = _blocking(Verbs.delete)
    check = _blocking(Holdfast.check)

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._open: tuple[Portal, Holdfast] | None = None
        self._lock = threading.Lock()
        self._inherited: list[object] = []
        _faces.add(self)

    @property
    def config(self) -> Config:
        """The configuration in use; once open, with the URL of the embedded server, too."""
        return (self._open[1] if self._open else self._app).config

    def open(self) -> None:
        """Connect now, not at the first call."""
        self._opened()

    def close(self) -> None:
        """Give the connections back; the next call opens new ones."""
        with self._lock:
            opened, self._open = self._open, None
        if opened is not None:
            portal, app = opened
            try:
                portal.run(app.close())
            finally:
                portal.stop()

    def run_worker(self, **options: Any) -> Worker:
        """Run a worker, as `Holdfast.run_worker` does, until it is done; Ctrl-C drains it, twice interrupts it."""
        workers: list[Worker] = []
        portal = Portal("holdfast-worker")
        try:
            running = portal.start(self._app.run_worker(started=workers.append, **options))
            while True:
                try:
                    return running.result()
                except KeyboardInterrupt:
                    if not workers:
                        running.cancel()
                        raise
                    portal.soon(workers[0].drain)
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
        opened = self._open
        if opened is not None:
            return opened
        with self._lock:
            if self._open is None:
                portal, app = Portal(), self._app.twin()
                try:
                    portal.run(app.open())
                except BaseException:
                    portal.stop()
                    raise
                self._open = portal, app
            return self._open

    def _forked(self) -> None:
        """In a forked child: the portal's thread is not here, and a lock may be held by a thread that is not either."""
        self._inherited.append(self._open)
        self._open, self._lock = None, threading.Lock()


_faces: WeakSet[Sync] = WeakSet()


def _forget() -> None:
    for face in list(_faces):
        face._forked()


def _close_all() -> None:
    for face in list(_faces):
        face.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close_all)
