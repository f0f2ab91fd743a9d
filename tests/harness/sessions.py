"""Sessions of PostgreSQL that outlive the test that opened them, and serve the next one.

A new session costs the server some 20 ms of processor time before it has parsed and planned the engine's functions, and
tests open thousands. So where a test's event loop closes a connection to a reused database, the session is kept, reset
as a pooler does it, and handed to whoever connects next with the same startup message. Neither the driver nor Holdfast
knows: it happens below the driver, in the loop's `create_unix_connection`.

1. Only connections that the driver closed in order are kept. Those that were cut or aborted are ended as ever.
2. A session is reset when it is kept: no transaction, lock, setting, prepared statement, temporary table or LISTEN is
   left. What it has counted is flushed, so that `Databases` sees which tables were written.
3. A session whose reset did not end as it should is ended, not handed out.
4. Tests that look at sessions or change with which settings they begin (they, or what they use of their module), long
   tests, and those with a fresh database have sessions of their own. So have all processes that tests start.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import select
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from asyncpg.protocol import Protocol

__all__ = ["Sessions", "looks_at_sessions"]

_LOOKS = re.compile(
    r"pg_stat_activity|pg_locks|pg_terminate_backend|server_pid|backend_pid|alter (database|role|user|system)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")

_RESET = (
    "rollback; close all; unlisten *; reset session authorization; reset role; reset all; deallocate all; "
    "discard temp; discard sequences; select pg_advisory_unlock_all(); "
    "select pg_stat_force_next_flush(), 'the session is reset'"
)
_QUERY = b"Q" + struct.pack("!i", len(_RESET) + 5) + _RESET.encode() + b"\0"
_TERMINATE = b"X\0\0\0\x04"
#: A session that takes longer to reset itself is stuck.
_SECONDS_TO_RESET = 5.0
_MOST_KEPT = 24


@cache
def looks_at_sessions(module: ModuleType, test: str) -> bool:
    """Whether kept sessions would show in what a test of a module looks at, or hide what it is about.

    What counts is the text of the test, and of what its module defines by a name that stands in a text that counts.
    """
    shared, defined = _pieces(module)
    text, known = shared + "".join(defined.get(test, ())), {test}
    while unread := defined.keys() & set(_WORD.findall(text)) - known:
        known |= unread
        text += "".join(piece for name in unread for piece in defined[name])
    return _LOOKS.search(text) is not None


@cache
def _pieces(module: ModuleType) -> tuple[str, dict[str, list[str]]]:
    """The text of a module that belongs to all of its tests, and what it defines, by name."""
    source = inspect.getsource(module)
    if _LOOKS.search(source) is None:
        return "", {}
    lines, shared, defined = source.splitlines(keepends=True), "", defaultdict[str, list[str]](list)
    for part in ast.parse(source).body:
        first = min(each.lineno for each in (part, *getattr(part, "decorator_list", ())))
        text = "".join(lines[first - 1 : part.end_lineno])
        names = _names(part)
        for name in names:
            defined[name].append(text)
        if not names or "autouse" in text or "pytestmark" in names:
            shared += text
    return shared, defined


def _names(part: ast.stmt) -> list[str]:
    """What a statement of a module defines."""
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [part.name]
    if isinstance(part, ast.Assign | ast.AnnAssign):
        targets = part.targets if isinstance(part, ast.Assign) else [part.target]
        return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []


class Sessions:
    """The kept sessions of this process, on one server."""

    def __init__(self) -> None:
        #: The server's socket, once sessions are to be kept.
        self.path: str | None = None
        self.active = False
        self._kept: list[_Session] = []
        self._lock = threading.Lock()

    def install(self, server_url: str) -> None:
        """Look after the connections that all event loops of this process make to that server."""
        query = parse_qs(urlsplit(server_url).query)
        if "host" not in query:
            return  # not over a Unix socket
        self.path = f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"
        connect: Any = asyncio.SelectorEventLoop.create_unix_connection

        async def create_unix_connection(
            loop: asyncio.SelectorEventLoop, factory: Callable[[], Any], path: Any = None, **options: Any
        ) -> tuple[Any, Any]:
            if not self.active or path != self.path or options:
                return await connect(loop, factory, path, **options)  # type: ignore[no-any-return]
            protocol = factory()
            if not isinstance(protocol, Protocol):  # a request to cancel
                return await connect(loop, lambda: protocol, path)  # type: ignore[no-any-return]
            wire = _Wire(loop, self, protocol)
            protocol.connection_made(wire)
            await wire.connect(path)
            return wire, protocol

        asyncio.SelectorEventLoop.create_unix_connection = create_unix_connection  # type: ignore[method-assign, assignment]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within the block, sessions are kept and handed out."""
        self.active = True
        try:
            yield
        finally:
            self.active = False

    def find(self, startup: bytes) -> _Session | None:
        """A kept session that began with this message and has been reset. Whoever connects waits for none."""
        with self._lock:
            alike = [session for session in reversed(self._kept) if session.startup == startup]
        for session in alike:
            if session.resets():
                continue
            with self._lock:
                if session not in self._kept:  # another thread was faster
                    continue
                self._kept.remove(session)
            if session.is_reset():
                return session
            session.end()
        return None

    def keep(self, session: _Session) -> None:
        """Keep a session that resets itself."""
        with self._lock:
            self._kept.append(session)
            spare = self._kept.pop(0) if len(self._kept) > _MOST_KEPT else None
        if spare is not None:
            spare.end()

    def idle(self, database: str) -> list[int]:
        """The numbers of the sessions kept for this database; all of them have been reset."""
        with self._lock:
            mine = [session for session in self._kept if session.database == database]
        for session in mine:
            if not session.is_reset():
                self._end([session])
        return [session.pid for session in mine if not session.ended]

    def forget(self, database: str | None = None) -> None:
        """End the sessions kept for this database, or all."""
        with self._lock:
            mine = [session for session in self._kept if database is None or session.database == database]
        self._end(mine)

    def _end(self, sessions: list[_Session]) -> None:
        with self._lock:
            self._kept = [session for session in self._kept if session not in sessions]
        for session in sessions:
            session.end()


class _Session:
    """A session's socket, and what the server said at its beginning."""

    def __init__(self, startup: bytes) -> None:
        self.startup = startup
        self.greeting = b""
        self.ended = False
        self._line: socket.socket | None = None
        self._is_reset = False
        fields = startup[8:].split(b"\0")
        self._parameters = dict(zip(fields[::2], fields[1::2], strict=False))

    @property
    def database(self) -> str:
        return self._parameters.get(b"database", b"").decode()

    @property
    def may_be_kept(self) -> bool:
        """Whether nobody could get in by it who would not be let in."""
        return bool(self.greeting) and self._parameters.get(b"user") == b"postgres" and self.database.startswith("hf_")

    @property
    def pid(self) -> int:
        at = self.greeting.index(b"K\0\0\0")
        return int.from_bytes(self.greeting[at + 5 : at + 9], "big")

    def keep(self, line: socket.socket) -> None:
        """Have it reset itself."""
        self._line, self._is_reset = line, False
        line.setblocking(False)
        line.send(_QUERY)  # to whom has nothing else to do

    def resets(self) -> bool:
        """Whether it has not answered yet."""
        return not self._is_reset and not self._is_readable(0)

    def is_reset(self) -> bool:
        """Wait for the answer; whether it is as it should be, and nothing came after it."""
        assert self._line is not None
        answer = b""
        try:
            while not self._is_reset:
                if not self._is_readable(_SECONDS_TO_RESET) or not (part := self._line.recv(65536)):
                    return False
                answer += part
                self._is_reset = answer.endswith(b"Z\0\0\0\x05I") and b"the session is reset" in answer
            return not self._is_readable(0)
        except OSError:
            return False

    def _is_readable(self, seconds: float) -> bool:
        return self._line is None or bool(select.select([self._line], [], [], seconds)[0])

    def take(self) -> socket.socket:
        line, self._line = self._line, None
        assert line is not None
        return line

    def end(self) -> None:
        self.ended = True
        if self._line is not None:
            with suppress(OSError):
                self._line.send(_TERMINATE)
            self._line.close()


class _Wire(asyncio.Transport):
    """What the driver writes to: a transport of the loop, over a new session or a kept one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sessions: Sessions, protocol: Any) -> None:
        super().__init__()
        self._loop, self._sessions, self._protocol = loop, sessions, protocol
        self._session: _Session | None = None
        self._inner: Any = None
        self._is_leaving = False

    async def connect(self, path: str) -> None:
        """Take a kept session, or begin one."""
        assert self._session is not None, "the driver begins with the startup message"
        startup = self._session.startup
        if (found := self._sessions.find(startup)) is not None:
            self._session = found
            self._inner = self._loop._make_socket_transport(found.take(), _Tap(self, found))  # type: ignore[attr-defined]
            self._loop.call_soon(self.received, found.greeting)
            return
        line = socket.socket(socket.AF_UNIX)
        line.setblocking(False)
        try:
            await self._loop.sock_connect(line, path)
        except BaseException:
            line.close()
            raise
        self._inner = self._loop._make_socket_transport(line, _Tap(self, self._session))  # type: ignore[attr-defined]
        self._inner.write(startup)

    def received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def lost(self, fault: Exception | None) -> None:
        self._protocol.connection_lost(fault)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def write(self, data: Any) -> None:
        if self._session is None:
            self._session = _Session(bytes(data))
        elif bytes(data[:5]) == _TERMINATE and self._session.may_be_kept:
            # A connection that is aborted says goodbye, too, and ends its transport in the same turn.
            self._is_leaving = True
            self._loop.call_soon(self._keep)
        else:
            self._inner.write(data)

    def writelines(self, lines: Any) -> None:
        self._inner.writelines(lines)

    def _keep(self) -> None:
        if not self._is_leaving:
            return
        self._is_leaving = False
        session, line = self._session, self._inner.get_extra_info("socket")
        assert session is not None
        if not self._sessions.active or self._inner.get_write_buffer_size() or self._inner.is_closing():
            self._inner.write(_TERMINATE)
            return
        copy = socket.socket(fileno=os.dup(line.fileno()))
        try:
            session.keep(copy)
        except OSError:
            copy.close()
            self._inner.abort()
            return
        self._inner.abort()
        self._sessions.keep(session)

    def abort(self) -> None:
        if self._is_leaving:
            self._is_leaving = False
            self._inner.write(_TERMINATE)
        if self._inner is not None:
            self._inner.abort()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def is_closing(self) -> bool:
        return self._inner is not None and bool(self._inner.is_closing())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._inner is None else self._inner.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return int(self._inner.get_write_buffer_size())

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()


class _Tap(asyncio.Protocol):
    """Hands on what the server sends, and remembers how it began."""

    def __init__(self, wire: _Wire, session: _Session) -> None:
        self._wire, self._session = wire, session
        self._beginning = b""
        self._has_begun = bool(session.greeting)

    def data_received(self, data: bytes) -> None:
        if not self._has_begun:
            self._listen(data)
        self._wire.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.lost(exc)

    def pause_writing(self) -> None:
        self._wire.pause_writing()

    def resume_writing(self) -> None:
        self._wire.resume_writing()

    def _listen(self, data: bytes) -> None:
        """Remember all messages from the welcome up to the first that says that the server is ready."""
        self._beginning += data
        at, welcome = 0, None
        while len(self._beginning) >= at + 5:
            kind, length = self._beginning[at : at + 1], int.from_bytes(self._beginning[at + 1 : at + 5], "big")
            if kind == b"R" and self._beginning[at + 5 : at + 9] == b"\0\0\0\0":
                welcome = at
            at += 1 + length
            if kind in b"ZE" and len(self._beginning) >= at:
                self._has_begun = True
                if kind == b"Z" and welcome is not None:
                    self._session.greeting = self._beginning[welcome:at]
                return
