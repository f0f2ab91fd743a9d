"""Writes log lines to standard error in a separate thread, so that the code that logs never waits for readers.

1. A pipe that nobody reads, or a stopped terminal, would block the event loop in its next log line.
2. Lines are formatted in the thread that logs, and written whole, in the order in which they came. Short ones are
   written together, up to what a pipe takes at once: processes that share a pipe do not cut each other's lines.
3. Only so much may wait. Then all that follows is dropped until nothing waits any more, and the log says how many lines
   are missing, at the place where they are missing.
4. At the end, and before the process is replaced, what waits is written, for a second at most (`flush`).
5. The descriptor is written to directly. Python flushes its own standard error when it ends, and would wait there for a
   thread that stands still in it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
import traceback
from queue import SimpleQueue

__all__ = ["LogWriter"]

#: How many bytes may wait to be written.
_MOST = 8 * 2**20
#: What a pipe takes at once, or not at all.
_TOGETHER = getattr(select, "PIPE_BUF", 512)
_FLUSH_SECONDS = 1.0
#: How long a thread that logs without a pause stands back for the one that writes, if somebody reads.
_YIELD_SECONDS = 0.001


class LogWriter(logging.Handler):
    """Writes log lines to a descriptor, from a thread of its own."""

    def __init__(self, descriptor: int, *, most: int = _MOST) -> None:
        super().__init__()
        self._descriptor, self._most = descriptor, most
        self._lines: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        #: A signal may come while its own thread holds it.
        self._counting = threading.RLock()
        #: Bytes that came, and bytes of them that the thread has taken.
        self._came = self._taken = 0
        self._dropped = 0
        self._process = os.getpid()
        self._closed = False
        threading.Thread(target=self._run, name="holdfast-log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler, but without a lock: foreign code formats the arguments of a message, and may not return."""
        found = self.filter(record)
        if found:
            self.emit(found if isinstance(found, logging.LogRecord) else record)
        return bool(found)

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - foreign code: the arguments of a message
            line = f"--- Logging error ---\n{traceback.format_exc()}Message: {record.msg!r:.1000}"
        self._add((line + "\n").encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Wait until all is written that came so far, but not for long."""
        if not self._closed and os.getpid() == self._process:
            done = threading.Event()
            self._lines.put(done)
            done.wait(_FLUSH_SECONDS)

    def close(self) -> None:
        """The process ends and its threads soon stand still: later lines are written at once, if anybody reads."""
        self._closed = True
        super().close()

    def _add(self, line: bytes) -> None:
        if os.getpid() != self._process:
            self._write(line)  # a fork has no thread that writes, and its parent writes what waited
            return
        if self._closed:
            if self._is_read():
                self._write(line)
            return
        if self._is_full() and not self._dropped and self._is_read():
            time.sleep(_YIELD_SECONDS)
        with self._counting:
            if self._dropped or self._is_full():
                self._dropped += 1
                return
            self._came += len(line)
            self._lines.put(line)

    def _is_full(self) -> bool:
        return self._came - self._taken > self._most

    def _is_read(self) -> bool:
        """Whether the descriptor takes something at once."""
        try:
            return bool(select.select([], [self._descriptor], [], 0)[1])
        except (OSError, ValueError):
            return False

    def _run(self) -> None:
        while True:
            with contextlib.suppress(MemoryError):  # what was in hand is lost; the lines behind it are not
                self._write_all()

    def _write_all(self) -> None:
        following: bytes | threading.Event | None = None
        while True:
            if self._dropped and not isinstance(following, bytes) and self._lines.empty():
                self._tell_dropped()
            item, following = following or self._lines.get(), None
            if isinstance(item, threading.Event):
                item.set()
                continue
            self._taken += len(item)
            while following is None and not self._lines.empty():
                found = self._lines.get()
                if isinstance(found, bytes) and len(item) + len(found) <= _TOGETHER:
                    self._taken += len(found)
                    item += found
                else:
                    following = found
            self._write(item)

    def _tell_dropped(self) -> None:
        with self._counting:
            count, self._dropped = self._dropped, 0
        text = "%s log lines were dropped: they came faster than standard error was read"
        record = logging.LogRecord("holdfast", logging.WARNING, __file__, 0, text, (count,), None)
        self._write(f"{self.format(record)}\n".encode())

    def _write(self, text: bytes) -> None:
        with contextlib.suppress(OSError):  # it is closed, or nobody can read it any more
            while text:
                try:
                    text = text[os.write(self._descriptor, text) :]
                except BlockingIOError:  # whoever shares it wants it so
                    select.select([], [self._descriptor], [])
