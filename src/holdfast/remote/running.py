"""Runs handlers in a remote worker, as a worker at the database does; only their context is another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.app import Holdfast
from holdfast.remote.client import HttpClient
from holdfast.remote.context import RemoteContext, RemoteSyncContext
from holdfast.worker.claimed import Claimed
from holdfast.worker.context import SendReport
from holdfast.worker.execution import Execution

__all__ = ["RemoteExecution"]

#: Results are limited by the server, whose setting is not known here.
_ANY_SIZE = 2**31


class RemoteExecution(Execution):
    """`send` reports from the worker's event loop, `send_there` from the loop that talks to the server."""

    def __init__(
        self,
        app: Holdfast,
        worker: str,
        resources: Any,
        *,
        threads: int,
        stuck_after_seconds: float,
        on_stuck: Callable[[Claimed], None],
        send: SendReport,
        send_there: SendReport,
        there: asyncio.AbstractEventLoop,
        http: HttpClient,
        http_there: HttpClient,
    ) -> None:
        super().__init__(
            app.config,
            worker,
            app.client,
            resources,
            threads=threads,
            pauses_drained=lambda _: False,
            stuck_after_seconds=stuck_after_seconds,
            on_stuck=on_stuck,
            send=send,
            middleware=app.middleware,
            result_limit=lambda: _ANY_SIZE,
        )
        self._http, self._http_there = http, http_there
        self._send_there, self._there = send_there, there

    def _context(self, claimed: Claimed) -> RemoteContext:
        context = RemoteContext(claimed, self._client, self._resources, send=self._send)
        context.http = self._http
        return context

    def _sync_context(self, claimed: Claimed, loop: asyncio.AbstractEventLoop) -> RemoteSyncContext:  # noqa: ARG002
        # A thread does not depend on the worker's own loop, which another handler may block.
        context = RemoteSyncContext(claimed, self._client, self._resources, lambda: self._there, send=self._send_there)
        context.http = self._http_there
        return context
