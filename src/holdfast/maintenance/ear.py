"""Listens for what maintenance is to do, where no worker in this process does so anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.store.database import Pause
from holdfast.store.lifeline import Lifeline

__all__ = ["Ear"]


class Ear:
    """A connection that listens, replaced whenever it is cut. What was missed meanwhile is looked for."""

    def __init__(self, config: Config, heard: Callable[[str], None]) -> None:
        self._config, self._heard = config, heard

    async def run(self) -> None:
        """Listen until cancelled."""
        pause = Pause()
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
