"""The main loop of a child: orders come in, handlers run in the main thread, answers go out.

Each handler begins in the working directory that the child began with. The app uses the worker's database. Its lifespan
is entered once per child, in an event loop in another thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from typing import Any, NoReturn

from holdfast.definitions.json_text import encode_result
from holdfast.errors import CircuitOpen, Interrupted, InvalidInput
from holdfast.lifecycle.decimals import with_own_rounding
from holdfast.lifecycle.importing import variables_for_a_while
from holdfast.lifecycle.portal import Portal
from holdfast.model.foreign import described, name_of, traceback_of
from holdfast.model.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, clean
from holdfast.store.transactions import Transactions
from holdfast.worker.endings import SIGNALS, Misfit, bare, signal_of
from holdfast.worker.processes.addresses import HandlerAddress, find
from holdfast.worker.processes.context import (
    ChildAttempt,
    ProcessContext,
    RemoteBreaker,
    forward_lines,
    remote_store,
    reporting,
    set_level,
)
from holdfast.worker.processes.frames import Frame
from holdfast.worker.processes.interruption import Interruption
from holdfast.worker.processes.leftovers import Leftovers
from holdfast.worker.processes.line import Line
from holdfast.worker.transaction import refuse_open

__all__ = ["serve"]


def serve(sock: socket.socket, stop: int, taken: Mapping[str, str]) -> None:
    """Run handlers until the worker says that this child may leave.

    `taken` are variables that the app has taken out of the worker's environment, and may look for in this one.
    """
    interruption = Interruption(stop)
    _Child(Line(sock, interruption), interruption, taken).serve()


class _Child:
    def __init__(self, line: Line, interruption: Interruption, taken: Mapping[str, str]) -> None:
        self._line, self._interruption, self._taken = line, interruption, taken
        # By descriptor, not by name: the directory may be renamed or removed meanwhile.
        self._folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
        self._leftovers = Leftovers(Interruption.SIGNALS)
        self._portal: Portal | None = None
        self._lifespan: AbstractAsyncContextManager[Any] | None = None
        self._resources: Any = None
        self._transactions: Transactions | None = None

    def serve(self) -> None:
        forward_lines(self._line)
        self._line.open()
        while (order := self._line.next_order())["kind"] != "leave":
            attempt = ChildAttempt(order, self._interruption, self._line)
            answer = self._run(order, attempt)
            # A transaction that outlives its handler keeps locks and the connection. It ends with the child.
            is_left = attempt.ended() or attempt.left or self._leftovers.accompanied()
            self._line.answer(attempt.order, {**answer, "reusable": not is_left})
        if self._portal is not None:
            if self._lifespan is not None:
                self._portal.run(self._left(self._lifespan))
            if self._transactions is not None:
                self._portal.run(self._transactions.close())
            self._portal.stop()

    def _run(self, order: Frame, attempt: ChildAttempt) -> Frame:
        """Run one handler. Returns the frame that says how it ended."""
        set_level(order["log_level"])
        try:
            self._interruption.arm()
            os.fchdir(self._folder)
            with variables_for_a_while(self._taken):
                handler = find(HandlerAddress(**order["address"]))
                self._enter(order, handler)
            try:
                arguments = handler.job_type.payload.call_arguments(order["payload"])
            except InvalidInput as fault:
                return {"kind": "misfit", "of": "payload", "message": str(fault)}
            context = self._context(order, handler, attempt)
            if order["asks"]:
                self._line.ask_and_wait(attempt.order, {"kind": "begin"})
            self._line.say(attempt.order, {"kind": "began"})
            self._leftovers.begin()
            call = partial(handler.job_type.handler, context, **arguments)
            if handler.job_type.circuit is not None:
                call = partial(_within, context.circuit(handler.job_type.circuit), call)
            try:
                value = contextvars.copy_context().run(with_own_rounding, call)
            finally:
                attempt.left = self._leftovers.found()
            if self._line.copied:
                _end_copy(None)
            refuse_open(attempt)
            result = context.result if value is None else value
            try:
                text = encode_result(result, handler.job_type.name, order["result_limit"])
            except InvalidInput as fault:
                return _misfit(fault)
            return {"kind": "returned", "value": text}
        except Misfit as misfit:
            self._interruption.disarm()
            if self._line.copied:
                _end_copy(misfit)
            return _misfit(misfit.fault)
        except BaseException as error:  # noqa: BLE001 - foreign code runs here, and may call sys.exit()
            self._interruption.disarm()
            if self._line.copied:
                _end_copy(error)
            return _raised(error)
        finally:
            self._interruption.disarm()

    def _context(self, order: Frame, handler: Any, attempt: ChildAttempt) -> ProcessContext:
        ask = partial(self._line.ask, attempt.order)
        client = handler.app.client.with_store(remote_store(ask, order["schema"]))
        if self._transactions is None:
            # The connection is opened when a handler asks for it, and kept for the next one.
            self._transactions = Transactions(handler.app.config, order["worker"], size=1)
        self._transactions.result_limit = lambda: int(order["result_limit"])
        breaker = RemoteBreaker(ask, (t.circuit for t in handler.app.registry if t.circuit is not None))
        return ProcessContext(
            attempt, client, self._resources, self._loop, self._transactions, send=reporting(ask), breaker=breaker
        )

    def _loop(self) -> asyncio.AbstractEventLoop:
        self._line.check()  # a copy of this process has no such thread
        self._portal = self._portal or Portal("holdfast-lifespan")
        return self._portal.loop

    def _enter(self, order: Frame, handler: Any) -> None:
        """Tell the app which database the worker uses. The first time, enter the app's lifespan."""
        config = handler.app.config
        told = {**config.origins, "database_url": "order", "direct_url": "order"}
        handler.app.config = dataclasses.replace(config, **order["database"], origins=told)
        if self._lifespan is None and handler.app.resources is not None:
            self._portal = self._portal or Portal("holdfast-lifespan")
            lifespan = handler.app.resources()
            self._resources = self._portal.run(self._entered(lifespan))
            self._lifespan = lifespan

    async def _entered(self, lifespan: AbstractAsyncContextManager[Any]) -> Any:
        return await lifespan.__aenter__()

    async def _left(self, lifespan: AbstractAsyncContextManager[Any]) -> None:
        await lifespan.__aexit__(None, None, None)


def _within(block: AbstractContextManager[None], call: Callable[[], Any]) -> Any:
    with block:
        return call()


def _end_copy(error: BaseException | None) -> NoReturn:
    """End a forked copy that returned from the handler, with the exit code of a program that ended like this.

    It ends at once, because resources that a normal exit cleans up (connections, an event loop) are shared with the
    child.
    """
    code: Any = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    elif error is not None:
        sys.stderr.write(traceback_of(error))
    with suppress(OSError, ValueError, AttributeError):  # closed, or taken away
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _misfit(fault: InvalidInput) -> Frame:
    """A result that cannot be stored."""
    return {"kind": "misfit", "of": "result", "type": type(fault).__name__, "message": str(fault)}


def _raised(error: BaseException) -> Frame:
    """What a handler raised, as text. `meaning` says what it means for the job, apart from the name of its type."""
    error = bare(error)
    signal = signal_of(error)
    meaning = next((kind for kind in (*SIGNALS.values(), Interrupted) if issubclass(type(error), kind)), None)
    message, traceback = described(error)
    return {
        "kind": "raised",
        "meaning": None if meaning is None else meaning.__name__,
        "type": name_of(error),
        "message": clean(message, MESSAGE_LIMIT),
        "traceback": clean(traceback, TRACEBACK_LIMIT),
        "delay_seconds": None if signal is None else signal.delay_seconds,
        "circuit": signal.circuit if isinstance(signal, CircuitOpen) else None,
    }
