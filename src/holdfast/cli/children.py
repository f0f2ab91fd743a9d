"""Processes of our own, each on a leash, started again when they die."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.cli.failures import Exit
from holdfast.cli.shutdown import DRAIN, HURRY, LEASH

__all__ = ["Child"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_log = logging.getLogger("holdfast")


class Child:
    """`holdfast ARGUMENTS` as a process, kept alive until it is told to drain.

    1. A child that ends by itself is started again, with growing pauses;
    2. unless its exit code says that another start would end alike (`final_codes`);
    3. what it writes to standard error goes to `hear`, line by line, or to our own.
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
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "holdfast", *arguments]
        self._environment = {**os.environ, **(environment or {})}
        self._descriptors = tuple(descriptors)
        self._final_codes = final_codes
        self._hear = hear
        self._leash: int | None = None
        self._told = asyncio.Event()
        self._words: list[bytes] = []

    def drain(self) -> None:
        """Let it finish what it does, and end."""
        self._tell(DRAIN)

    def hurry(self) -> None:
        """Let it interrupt what it does, and end."""
        self._tell(HURRY)

    async def run(self) -> int:
        """Until the child has ended for good; its exit code."""
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = await self._run_once()
            if self._told.is_set() or code in self._final_codes:
                return code
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            _log.warning("the %s %s and is started again", self.name, _ending(code))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._told.wait()
                    return 0
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _run_once(self) -> int:
        reader, self._leash = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**self._environment, LEASH: str(reader)},
                pass_fds=(reader, *self._descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE if self._hear else None,
            )
            os.close(reader)
            for word in self._words:
                os.write(self._leash, word)
            if self._hear is not None and process.stderr is not None:
                await self._listen(process.stderr, self._hear)
            return await process.wait()
        finally:
            leash, self._leash = self._leash, None
            os.close(leash)

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

    def _tell(self, word: bytes) -> None:
        self._words.append(word)
        self._told.set()
        if self._leash is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._leash, word)


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
