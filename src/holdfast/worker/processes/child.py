"""One child process, as the worker sees it.

A child is a fresh interpreter in a session of its own: never a fork of a process that has threads, and out of reach of
Ctrl-C, which only the worker handles. A thread waits for its end, kills all processes that are left in its process
group, and only then releases the process id, so that no signal can reach another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time

from holdfast.worker.copies import Original
from holdfast.worker.processes.frames import Frame, packed, read
from holdfast.worker.processes.guard import Guard
from holdfast.worker.processes.launch import Launch

__all__ = ["Child"]

#: How long a socket is still read after its process has ended: another process may hold the other end.
_LAST_WORDS_SECONDS = 1.0
#: How long to wait for killed processes of a group that have become our children.
_ORPHANS_SECONDS = 0.5


class Child:
    """A process that runs handlers, one at a time."""

    def __init__(self, launch: Launch | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._original = Original()
        self._launch = launch or Launch()
        self._sock, theirs = socket.socketpair()
        told, self._stop = os.pipe()
        guarded, guard = os.pipe()
        try:
            # From this very thread: on Linux, children end with the thread that started them.
            self._process = self._launch.start((theirs.fileno(), told, guarded))
        except OSError:
            self._sock.close()
            os.close(self._stop)
            os.close(guard)
            raise
        finally:
            theirs.close()
            os.close(told)
            os.close(guarded)
        #: Ends the child's handler when its lease is over and this process cannot.
        self.guard = Guard(guard, on_gone=self.kill)
        self.pid = self._process.pid
        #: Whether it has run a handler.
        self.warm = False
        #: Numbers of its orders, so that an answer to one is never taken for an answer to another.
        self.numbers = itertools.count(1)
        #: How it ended, as in `subprocess`.
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._signalling = threading.Lock()
        self._reaped = False
        self._reaper = threading.Thread(target=self._reap, name=f"holdfast-child-{self.pid}", daemon=True)
        try:
            self._reaper.start()
        except RuntimeError:  # the system has no more threads
            self._kill_group()
            self._process.wait()
            os.close(self._stop)
            self.guard.close()
            self._sock.close()
            raise

    async def greet(self) -> None:
        """Tell a new child about this process, and wait until it is ready."""
        await asyncio.shield(self.greeting())

    def greeting(self) -> asyncio.Task[None]:
        """Begin to greet a new child, unless that was done before."""
        if self._greeting is None:
            self._greeting = asyncio.create_task(self._greet(), name=f"greeting of child {self.pid}")
            self._greeting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._greeting

    async def _greet(self) -> None:
        self._streams = await asyncio.open_connection(sock=self._sock)
        self._streams[1].write(json.dumps(self._launch.greeting()).encode() + b"\n")
        await self._streams[1].drain()
        if (first := await self.read())["kind"] != "ready":
            raise ValueError(f"a child began with {first['kind']}")

    async def send(self, frame: Frame) -> None:
        """Send a frame."""
        if self._streams is None:
            raise ConnectionResetError("the child was not greeted")
        self._streams[1].write(packed(frame))
        await self._streams[1].drain()

    async def read(self) -> Frame:
        """The next frame."""
        if self._streams is None:
            raise ConnectionResetError("the child was not greeted")
        return await read(self._streams[0])

    def interrupt(self) -> None:
        """Raise `Interrupted` in the handler. The byte in the pipe proves that this signal is ours."""
        with self._signalling:
            if not self._reaped and self._original:
                with contextlib.suppress(OSError):
                    os.write(self._stop, b".")
                    os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and all processes that it has started, at once."""
        with self._signalling:
            if not self._reaped:
                self._kill_group()

    def leave(self) -> None:
        """Ask it to end when it is idle: it leaves the app's lifespan in good order."""
        if self._streams is not None and not self._streams[1].is_closing():
            self._streams[1].write(packed({"kind": "leave"}))

    def join(self, seconds: float) -> bool:
        """Block until it has ended, for at most `seconds`. Returns whether it has."""
        self._reaper.join(seconds)
        return not self._reaper.is_alive()

    def close(self) -> None:
        """Close the worker's end of the connection."""
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._sock.close()

    def _reap(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with self._signalling:
            self._kill_group()
            code = self._process.wait()
            self._reaped = True
            os.close(self._stop)
            self.guard.close()
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._gone, code)
        self._reap_orphans()

    def _kill_group(self) -> None:
        if not self._original:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _reap_orphans(self) -> None:
        """Reap processes left in the group: they are ours if we are the first process of a container."""
        end = time.monotonic() + _ORPHANS_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < end:
                if os.waitpid(-self.pid, os.WNOHANG) == (0, 0):
                    time.sleep(0.005)

    def _gone(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)
        self._loop.call_later(_LAST_WORDS_SECONDS, self.close)
