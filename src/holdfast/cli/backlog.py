"""Counts of waiting and running jobs, polled while something shows them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError

__all__ = ["watching"]

_LOOK_SECONDS = 0.5


@contextlib.contextmanager
def watching(hf: Holdfast, tell: Callable[[dict[str, int]], None]) -> Iterator[None]:
    """For the duration of a block, report these counts twice a second; nothing while there is no answer."""
    task = asyncio.create_task(_watch(hf, tell))
    try:
        yield
    finally:
        task.cancel()


async def _watch(hf: Holdfast, tell: Callable[[dict[str, int]], None]) -> None:
    while True:
        with contextlib.suppress(HoldfastError):
            tell(await hf.client.backlog())
        await asyncio.sleep(_LOOK_SECONDS)
