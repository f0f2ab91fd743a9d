"""Listens for notifications on a connection of its own, past any pooler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.store.database import Backoff
from holdfast.store.lifeline import Lifeline

__all__ = ["Ear"]


class Ear:
    """A listening connection, replaced whenever it is cut. Missed notifications are made up for by a look."""

    def __init__(
        self, config: Config, topics: Sequence[str], heard: Callable[[str, str], None], *, role: str = "worker"
    ) -> None:
        """`heard` gets topic and payload; without a payload, anything may have happened."""
        self._config, self._topics, self._heard, self._role = config, topics, heard, role
        #: Whether it listens now.
        self.listens = False

    async def run(self) -> None:
        """Listen until canceled."""
        pause = Backoff()
        while True:
            try:
                lifeline = await Lifeline.open(self._config, role=self._role)
            except HoldfastError:
                await asyncio.sleep(pause.seconds())
                continue
            try:
                await lifeline.listen(self._topics, self._heard)
                pause.reset()
                self.listens = True
                for topic in self._topics:
                    self._heard(topic, "")
                await lifeline.cut()
            except HoldfastError:
                await asyncio.sleep(pause.seconds())
            finally:
                self.listens = False
                await lifeline.close()
