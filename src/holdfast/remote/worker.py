"""A worker that reaches the server over HTTP: `RemoteWorker(url, key)`, `@worker.job("type")`, `await worker.run()`.

1. It pulls as many jobs as it has free slots, runs their handlers as a worker at the database does, and reports
   (`holdfast.remote.shift`).
2. What talks to the server has a thread of its own (`holdfast.remote.link`): a handler that blocks the event loop
   keeps its lease.
3. A server that is away is waited for. A pull is then repeated under its `request_id`, so that no job is lost with an
   answer; an outcome is repeated for as long as there is `patience`, and dropped with a line in the log.
4. The first SIGTERM drains: no more pulls, running handlers may finish within the grace. The second one interrupts
   them; their jobs are handed back at no cost. The third ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from holdfast.app import Holdfast
from holdfast.definitions.job_type import declare
from holdfast.errors import ConfigError, Forbidden, HoldfastError, InvalidInput
from holdfast.lifecycle.loops import run as run_loop
from holdfast.remote.shift import MOST_JOBS, Shift, Terms
from holdfast.telemetry.narrator import set_up_logging
from holdfast.worker.context import Context
from holdfast.worker.lifespan import StoppedEarly, inside

__all__ = ["RemoteWorker"]

C = TypeVar("C", bound=Context)
P = ParamSpec("P")
R = TypeVar("R")

_MOST_TYPES = 100
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
_LAST_SIGNAL = 3


_log = logging.getLogger("holdfast")


class RemoteWorker:
    """Runs jobs over HTTP, for programs that do not reach the database.

    `lifespan` takes the worker and returns an asynchronous context manager; handlers find what it yields in
    `ctx.resources`. With `app`, the worker also runs the handlers that are declared on that app.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        worker_id: str | None = None,
        lifespan: Callable[[RemoteWorker], AbstractAsyncContextManager[Any]] | None = None,
        slots: int = 8,
        queues: Iterable[str] | None = None,
        lease_seconds: float | None = None,
        grace_seconds: float = 300.0,
        timeout: float = 10.0,
        patience: float = 120.0,
        app: Holdfast | None = None,
    ) -> None:
        """`timeout` is for one try of a request; an outcome is tried to be told for `patience` seconds.

        Without `url`, both come from the environment: HOLDFAST_URL and HOLDFAST_KEY.
        """
        if url is None:
            url, key = os.environ.get("HOLDFAST_URL", ""), key or os.environ.get("HOLDFAST_KEY")
        if not 1 <= slots <= MOST_JOBS:
            raise InvalidInput(f"slots must be from 1 to {MOST_JOBS}, not {slots}")
        self.worker_id = worker_id or _own_name()
        if not (1 <= len(self.worker_id) <= 100 and self.worker_id.isascii() and self.worker_id.isprintable()):
            raise InvalidInput(f"worker_id must have 1 to 100 visible ASCII characters, not {self.worker_id!r}")
        self._lifespan = lifespan
        self._terms = Terms(
            url=url.rstrip("/"),
            key=key,
            worker_id=self.worker_id,
            app=app or Holdfast(),
            types={} if app is None else {one.name: one for one in app.registry},
            slots=slots,
            queues=None if queues is None else list(queues),
            lease_seconds=lease_seconds,
            grace_seconds=grace_seconds,
            timeout=timeout,
            patience=patience,
        )
        self._shift: Shift | None = None

    def job(
        self, name: str, *, executor: Literal["async", "thread"] | None = None, timeout: float | None = None
    ) -> Callable[[Callable[Concatenate[C, P], R]], Callable[Concatenate[C, P], R]]:
        """Declare a handler: an `async def`, or a `def`, which runs in a thread.

        Queue, lane, retries and limits of a type are the server's to know; `timeout` shortens the server's.
        """

        def decorate(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
            job_type = declare(name, function, executor=executor, timeout=timeout)
            if name in self._terms.types:
                raise InvalidInput(f"job type {name!r} is declared twice")
            self._terms.types[name] = job_type
            return function

        return decorate

    async def run(self, *, burst: bool = False) -> None:
        """Run jobs until told to stop; with `burst`, until there are none. Raises Forbidden for an invalid key."""
        types = self._terms.types
        if not self._terms.url:
            raise ConfigError("HOLDFAST_URL is not set: the address of the server, such as http://localhost:8080")
        if not 1 <= len(types) <= _MOST_TYPES:
            raise InvalidInput(f"a worker has handlers for 1 to {_MOST_TYPES} job types; this one has {len(types)}")
        unfit = [one.name for one in types.values() if one.executor == "process"]
        if unfit:
            raise InvalidInput(f"a remote worker runs handlers in its event loop or in threads, not {', '.join(unfit)}")
        if self._shift is not None:
            raise HoldfastError("this worker is running already")
        self._shift = shift = Shift(self._terms)
        _log.info("worker %s pulls %s from %s", self.worker_id, ", ".join(types), self._terms.url)
        entering = None if self._lifespan is None else partial(self._lifespan, self)
        try:
            async with inside(entering, shift.draining, shift.hurried) as resources:
                await shift.work(resources, burst=burst)
        except StoppedEarly:
            pass
        finally:
            self._shift = None

    def drain(self) -> None:
        """Stop pulling, let handlers finish within the grace, and end; called again, interrupt them."""
        if self._shift is not None:
            self._shift.drain()

    def run_forever(self, *, burst: bool = False) -> None:
        """Run jobs until SIGTERM or Ctrl-C, which drains; a second signal interrupts handlers.

        A worker that cannot work as it is started, as with an invalid key, ends the process with the code 2. Where
        the program has not set up logging, Holdfast's log lines go to standard error.
        """
        if not _log.hasHandlers():
            config = self._terms.app.config
            set_up_logging(config.log_format, config.log_level)
        try:
            run_loop(self._run_until_told(burst=burst))
        except (ConfigError, Forbidden, InvalidInput) as fault:
            sys.stderr.write(f"error: {fault}\n")
            raise SystemExit(2) from None

    async def _run_until_told(self, *, burst: bool) -> None:
        loop, count = asyncio.get_running_loop(), 0

        def told(number: int, _frame: object) -> None:
            nonlocal count
            count += 1
            if count >= _LAST_SIGNAL:
                os._exit(128 + number)
            loop.call_soon_threadsafe(self.drain)

        before = {number: signal.signal(number, told) for number in _SIGNALS}
        try:
            await self.run(burst=burst)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _own_name() -> str:
    """A name that no other worker has, nor this one after a restart."""
    host = "".join(c for c in socket.gethostname() if c.isascii() and c.isprintable() and c != " ")
    return f"{host[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
