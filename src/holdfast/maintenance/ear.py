"""Listens for notifications to maintenance, in a process without a worker that does so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.store.database import Backoff
from holdfast.store.lifeline import Lifeline

__all__ = ["Ear"]


class Ear:
    """A listening connection, replaced whenever it is cut. Missed notifications are made up for by a look."""

    def __init__(self, config: Config, heard: Callable[[str], None]) -> None:
        self._config, self._heard = config, heard

    async def run(self) -> None:
        """Listen until canceled."""
        pause = Backoff()
        while True:
            try:
                lifeline = await Lifeline.open(self._config)
            except HoldfastError:
                await asyncio.sleep(pause.seconds())
                continue
            try:
                await lifeline.listen(("duty",), lambda _topic, payload: self._heard(payload))
                pause.reset()
                self._heard("")
                await lifeline.cut()
            except HoldfastError:
                await asyncio.sleep(pause.seconds())
            finally:
                await lifeline.close()
