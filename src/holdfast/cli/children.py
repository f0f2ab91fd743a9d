"""Child processes, each on a leash, which are restarted when they die."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.cli.exits import Exit
from holdfast.cli.shutdown import ANSWERS, DRAIN, HURRY, IMPORTED, LEASH

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "MOST_IMPORTS", "ChildCommand"]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
#: How often in a row an app that could be imported before is tried again: for about five minutes.
MOST_IMPORTS = 32
#: How long a child that has to hurry may take, and how long to wait for its last output.
_HURRY_SECONDS, _LAST_WORDS_SECONDS = 45.0, 1.0
_log = logging.getLogger("holdfast")


class ChildCommand:
    """`holdfast ARGUMENTS` as a process, kept alive until it is told to drain.

    1. A child that ends by itself is restarted, with growing pauses,
    2. unless its exit code says that another start would end in the same way (`final_codes`). If this child or one of
       its `siblings` could import the app before, and it cannot be imported now, a deploy may be under way: the child
       is started again for some minutes.
    3. Its standard error goes to `hear`, line by line, or to our own.
    4. Once it was told to drain, it is killed if it has not ended long after its grace; sooner if it has to hurry. The
       grace is a setting, which it may have learned from the database: if its drain takes longer, it says so.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        final_codes: Collection[int] = (Exit.USAGE,),
        hear: Callable[[str], None] | None = None,
        grace_seconds: float,
        siblings: Sequence[ChildCommand] = (),
        most_imports: int = MOST_IMPORTS,
    ) -> None:
        self.name = name
        self._siblings, self._most_imports = siblings, most_imports
        #: Whether it has ever imported the app, and whether it has this time.
        self.imported = self._imported_now = False
        self._command = [sys.executable, "-m", "holdfast", *arguments]
        self._environment = {**os.environ, **(environment or {})}
        self._descriptors = tuple(descriptors)
        self._final_codes = final_codes
        self._hear = hear
        self._leash: int | None = None
        self._number: int | None = None
        self._told = asyncio.Event()
        self._words: list[bytes] = []
        self._patience_seconds = grace_seconds + _HURRY_SECONDS
        #: When it is killed, once it was told to end; and that this has changed.
        self._until: float | None = None
        self._hurried = False
        self._news = asyncio.Event()

    def process_id(self) -> int | None:
        """Which process it is now."""
        return self._number

    def drain(self) -> None:
        """Tell it to finish its work and end."""
        self._tell(DRAIN)

    def hurry(self) -> None:
        """Tell it to interrupt its work and end."""
        self._tell(HURRY)

    async def run(self) -> int:
        """Run until the child has ended for good; returns its exit code."""
        pause, imports = FIRST_PAUSE, 0
        while True:
            began = time.monotonic()
            code = await self._run_once()
            imports = imports + 1 if self._is_deploy(code) else 0
            if self._told.is_set() or (code in self._final_codes and not imports):
                return code
            if imports > self._most_imports:
                _log.error("the %s is given up: its app could be imported before, and still cannot be", self.name)
                return Exit.FAILED
            if time.monotonic() - began > LONGEST_PAUSE and not imports:
                pause = FIRST_PAUSE
            if imports:
                told = "cannot import its app, which could be imported before, and tries again in %g s"
                _log.warning("the %s " + told, self.name, pause)
            else:
                _log.warning("the %s %s and is restarted", self.name, _ending(code))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._told.wait()
                    return 0
            pause = min(LONGEST_PAUSE, pause * 2)

    def _is_deploy(self, code: int) -> bool:
        """Whether the app could not be imported, although the same command line was right before."""
        return code == Exit.USAGE and not self._imported_now and any(c.imported for c in (self, *self._siblings))

    async def _run_once(self) -> int:
        self._imported_now = False
        reader, self._leash = os.pipe()
        answers, writer = os.pipe()
        asyncio.get_running_loop().add_reader(answers, self._answered, answers)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**self._environment, LEASH: str(reader), ANSWERS: str(writer)},
                pass_fds=(reader, writer, *self._descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE if self._hear else None,
            )
            self._number = process.pid
            os.close(reader)
            os.close(writer)
            for word in self._words:
                os.write(self._leash, word)
            listening = None
            if self._hear is not None and process.stderr is not None:
                listening = asyncio.create_task(self._listen(process.stderr, self._hear))
            code = await self._ended(process)
            if listening is not None:
                # Its own children may keep its standard error open, and never end.
                await asyncio.wait({listening}, timeout=_LAST_WORDS_SECONDS)
                listening.cancel()
            return code
        finally:
            leash, self._leash, self._number = self._leash, None, None
            os.close(leash)
            asyncio.get_running_loop().remove_reader(answers)
            os.set_blocking(answers, False)
            with contextlib.suppress(BlockingIOError):
                self._answered(answers)
            os.close(answers)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Wait until it has ended. A child that was told to end and does not (it may be stopped) is killed."""
        waiting = asyncio.create_task(process.wait())
        while not waiting.done():
            left = None if self._until is None else self._until - time.monotonic()
            if left is not None and left <= 0:
                _log.warning("the %s does not end and is killed", self.name)
                process.kill()
                break
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait({waiting, news}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        return await waiting

    @staticmethod
    async def _listen(stream: asyncio.StreamReader, hear: Callable[[str], None]) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # a line too long to be one of ours
            if not line:
                return
            hear(line.decode(errors="replace").rstrip("\n"))

    def kill(self) -> None:
        """End it now, whatever it does. A signal handler may call this."""
        if self._number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._number, signal.SIGKILL)

    def _answered(self, answers: int) -> None:
        """The child tells that it has imported the app, or how long its drain may take, in a line of seconds."""
        said = os.read(answers, 4096)
        if not said:
            asyncio.get_running_loop().remove_reader(answers)
        if IMPORTED in said.split():
            self.imported = self._imported_now = True
        with contextlib.suppress(ValueError):
            patience = float(b" ".join(said.split()[-1:])) + _HURRY_SECONDS
            self._patience_seconds = max(self._patience_seconds, patience)
            if not self._hurried and self._until is not None:
                self._until = max(self._until, time.monotonic() + patience)
                self._news.set()

    def _end_by(self, seconds: float) -> None:
        self._until = min(self._until or float("inf"), time.monotonic() + seconds)
        self._news.set()

    def _tell(self, word: bytes) -> None:
        self._words.append(word)
        self._told.set()
        self._hurried = self._hurried or word == HURRY
        self._end_by(self._patience_seconds if word == DRAIN else _HURRY_SECONDS)
        if self._leash is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._leash, word)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no names
        return f"was killed by signal {-code}"
