"""The main loop of a child: orders come in, handlers run in the main thread, answers go out.

Only a thread of its own reads from the socket; at the end of the stream the worker is gone, and so is the child.
Writes happen in the thread that has something to say, at once, so that what a handler logged before it crashed
is known. The lifespan of the app is entered once per child, in an event loop in another thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import socket
import threading
import traceback
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from typing import Any, cast

import holdfast.errors
from holdfast.definitions.payload import encode_result
from holdfast.errors import Fatal, HandlerSignal, Hold, HoldfastError, Interrupted, InvalidInput, Retry, Snooze
from holdfast.lifecycle.portal import Portal
from holdfast.store.jobs import JobStore
from holdfast.store.transactions import Transactions
from holdfast.worker.processes.addresses import Address, find
from holdfast.worker.processes.context import ChildAttempt, ProcessContext, RemoteStore, forward_lines, set_level
from holdfast.worker.processes.frames import Frame, packed, receive
from holdfast.worker.processes.interruption import Interruption

__all__ = ["serve"]


def serve(sock: socket.socket, stop: int) -> None:
    """Run handlers until the worker says that this child may leave."""
    _Child(sock, Interruption(stop)).serve()


class _Child:
    def __init__(self, sock: socket.socket, interruption: Interruption) -> None:
        self._sock, self._interruption = sock, interruption
        self._sending = threading.Lock()
        self._orders: SimpleQueue[Frame] = SimpleQueue()
        self._asked: dict[int, SimpleQueue[Frame]] = {}
        self._numbers = itertools.count()
        self._portal: Portal | None = None
        self._lifespan: AbstractAsyncContextManager[Any] | None = None
        self._resources: Any = None
        self._transactions: Transactions | None = None

    def serve(self) -> None:
        forward_lines(self._send)
        threading.Thread(target=self._listen, name="holdfast-worker", daemon=True).start()
        self._send({"kind": "ready"})
        while (order := self._orders.get())["kind"] != "leave":
            self._send(self._run(order))
        if self._portal is not None:
            if self._lifespan is not None:
                self._portal.run(self._left(self._lifespan))
            if self._transactions is not None:
                self._portal.run(self._transactions.close())
            self._portal.stop()

    def _run(self, order: Frame) -> Frame:
        """Run one handler; the frame that says how it ended."""
        set_level(order["log_level"])
        try:
            with self._interruption.armed():
                handler = find(Address(**order["address"]))
                self._enter(handler)
                try:
                    arguments = handler.job_type.payload.call_arguments(order["payload"])
                except InvalidInput as fault:
                    return {"kind": "misfit", "of": "payload", "message": str(fault)}
                context = self._context(order, handler)
                self._send({"kind": "began"})
                value = handler.job_type.handler(context, **arguments)
                try:
                    return {"kind": "returned", "value": encode_result(context.result if value is None else value)}
                except InvalidInput as fault:
                    return {"kind": "misfit", "of": "result", "message": str(fault)}
        except BaseException as error:  # noqa: BLE001 - foreign code runs here, and may call sys.exit()
            return _raised(error)

    def _context(self, order: Frame, handler: Any) -> ProcessContext:
        store = cast("JobStore", RemoteStore(self._ask, order["schema"]))
        attempt = ChildAttempt(order, self._interruption, self._send)
        return ProcessContext(
            attempt, handler.client_over(store), self._resources, self._loop, self._transactions_of(order, handler)
        )

    def _transactions_of(self, order: Frame, handler: Any) -> Transactions:
        """Connections for `ctx.transaction()`, opened when a handler asks for one and kept for the next."""
        if self._transactions is None:
            config = dataclasses.replace(handler.config, **order["database"])
            self._transactions = Transactions(config, order["worker"], size=1)
        return self._transactions

    def _loop(self) -> asyncio.AbstractEventLoop:
        self._portal = self._portal or Portal("holdfast-lifespan")
        return self._portal.loop

    def _enter(self, handler: Any) -> None:
        """Set up what the app's handlers need, the first time."""
        if self._lifespan is None and handler.lifespan is not None:
            self._portal = self._portal or Portal("holdfast-lifespan")
            lifespan = handler.lifespan()
            self._resources = self._portal.run(self._entered(lifespan))
            self._lifespan = lifespan

    async def _entered(self, lifespan: AbstractAsyncContextManager[Any]) -> Any:
        return await lifespan.__aenter__()

    async def _left(self, lifespan: AbstractAsyncContextManager[Any]) -> None:
        await lifespan.__aexit__(None, None, None)

    def _send(self, frame: Frame) -> None:
        with self._interruption.shielded(), self._sending:
            self._sock.sendall(packed(frame))

    def _ask(self, frame: Frame) -> Frame:
        """Send a question and wait for its answer. A wait that is interrupted leaves the answer to nobody."""
        number = next(self._numbers)
        answers = self._asked[number] = SimpleQueue()
        self._send({**frame, "number": number})
        answer = answers.get()
        if "fault" in answer:
            kind = getattr(holdfast.errors, answer["fault"], HoldfastError)
            raise kind(answer["message"])
        return answer

    def _listen(self) -> None:
        try:
            while (frame := receive(self._sock)) is not None:
                if frame["kind"] == "recorded":
                    self._asked.pop(frame["number"]).put(frame)
                else:
                    self._orders.put(frame)
        finally:
            os._exit(1)


def _raised(error: BaseException) -> Frame:
    """What a handler raised, as text; what it means for the job is told apart from its name."""
    meaning = next((kind for kind in (Fatal, Hold, Retry, Snooze, Interrupted) if isinstance(error, kind)), None)
    return {
        "kind": "raised",
        "meaning": None if meaning is None else meaning.__name__,
        "type": type(error).__name__,
        "message": _message(error),
        "traceback": "".join(traceback.format_exception(error)),
        "delay_seconds": getattr(error, "delay_seconds", None) if isinstance(error, HandlerSignal) else None,
    }


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a foreign exception may fail to say what it is
        return ""
