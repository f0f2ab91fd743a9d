"""Django's connections around handlers that run in a thread or a process of their own.

Django keeps a connection per thread and looks after it at the beginning and end of each request. A handler is
such a request: a connection that is broken, or older than CONN_MAX_AGE, is closed before and after it, and the
list of queries that DEBUG keeps begins anew. What CONN_MAX_AGE keeps open is closed when the worker ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.db import close_old_connections, connections, reset_queries

__all__ = ["HandlerConnections"]

P = ParamSpec("P")
R = TypeVar("R")


class HandlerConnections:
    """The connections of the threads that run an app's handlers."""

    def __init__(self) -> None:
        self._idle: set[Any] = set()
        self._lock = threading.Lock()

    def around(self, function: Callable[P, R]) -> Callable[P, R]:
        """The same function, with Django's connections looked after in the thread that calls it."""

        @wraps(function)
        def call(*arguments: P.args, **keywords: P.kwargs) -> R:
            with self._lock:
                self._idle.difference_update(_of_this_thread())
            reset_queries()
            close_old_connections()
            try:
                return function(*arguments, **keywords)
            finally:
                close_old_connections()
                with self._lock:
                    self._idle.update(c for c in _of_this_thread() if c.connection is not None)

        # What a process of its own must call before it can import the handler's module.
        call.prepared_by = "holdfast.integrations.django.project:set_up"  # type: ignore[attr-defined]
        return call

    def close(self) -> None:
        """Close those that no handler uses; a thread that runs another handler opens its own anew."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                connection.inc_thread_sharing()
                try:
                    connection.close()
                finally:
                    connection.dec_thread_sharing()


def _of_this_thread() -> list[Any]:
    return list(connections.all(initialized_only=True))
