"""The child's end of its connection to the worker.

1. Only a separate thread reads. The end of the stream means that the worker is gone, and then the child ends.
2. The thread that sends a frame writes it at once, so that lines which a handler logged before it crashed are known.
3. Every frame names the order that it belongs to. A thread that a handler left behind keeps the number of its own
   order: the worker drops its frames, and its questions are refused here, because no answer could come.
4. A copy of the process (`os.fork`) has no line: the connection is closed in it before any code of a handler runs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import holdfast.errors
from holdfast.errors import HoldfastError
from holdfast.worker.own_attempt import ENDED
from holdfast.worker.processes.frames import Frame, packed, receive
from holdfast.worker.processes.interruption import Interruption

__all__ = ["Line"]


class Line:
    """Sends frames to the worker, and receives them."""

    def __init__(self, sock: socket.socket, interruption: Interruption) -> None:
        self._sock, self._interruption = sock, interruption
        self._sending = threading.Lock()
        self._orders: SimpleQueue[Frame] = SimpleQueue()
        self._asked: dict[int, Future[Frame]] = {}
        self._numbers = itertools.count()
        #: The current order.
        self.current: int | None = None
        #: Whether this process is a copy of the child.
        self.copied = False

    def open(self) -> None:
        """Start to listen, and say so."""
        os.register_at_fork(after_in_child=self._forked)
        self._interruption.mind_forks()
        threading.Thread(target=self._listen, name="holdfast-worker", daemon=True).start()
        self._send({"kind": "ready"})

    def next_order(self) -> Frame:
        """Wait for the next order."""
        order = self._orders.get()
        self.current = order.get("order")
        return order

    def say(self, order: int, frame: Frame) -> None:
        """Send the worker a frame about an order."""
        self._send({**frame, "order": order})

    def answer(self, order: int, frame: Frame) -> None:
        """Say how an order ended. This is the last frame about it that the worker reads."""
        self._send({**frame, "order": order}, last=True)

    async def ask(self, order: int, frame: Frame) -> Frame:
        """Send a question and wait for its answer. Raises the fault that the answer names."""
        with self._question(order, frame) as answer:
            heard = await asyncio.wrap_future(answer)
        if "fault" in heard:
            kind = getattr(holdfast.errors, heard["fault"], HoldfastError)
            raise kind(heard["message"])
        return heard

    def ask_and_wait(self, order: int, frame: Frame) -> None:
        """Send a question, and block until it is answered."""
        with self._question(order, frame) as answer:
            answer.result()

    def check(self) -> None:
        """Raise unless this is the process that the worker talks to."""
        if self.copied:
            raise HoldfastError("this is a copy of the handler's process; only the process itself can reach the worker")

    @contextmanager
    def _question(self, order: int, frame: Frame) -> Iterator[Future[Frame]]:
        number = next(self._numbers)
        answer: Future[Frame] = Future()
        self._asked[number] = answer
        try:
            self._send({**frame, "order": order, "number": number}, only_while=order)
            yield answer
        finally:
            self._asked.pop(number, None)

    def _send(self, frame: Frame, *, only_while: int | None = None, last: bool = False) -> None:
        self.check()
        with self._interruption.shielded(), self._sending:
            if only_while not in (None, self.current):
                raise HoldfastError(ENDED)
            if last:
                self.current = None
            self._sock.sendall(packed(frame))

    def _listen(self) -> None:
        try:
            while (frame := receive(self._sock)) is not None:
                if frame["kind"] != "answer":
                    self._orders.put(frame)
                elif (asked := self._asked.get(frame["number"])) is not None:
                    with suppress(InvalidStateError):  # the thread that asked was interrupted
                        asked.set_result(frame)
        finally:
            os._exit(1)

    def _forked(self) -> None:
        self.copied = True
        self._sock.close()
