"""An API process on a listener that it was given: `python -m tests.faults.serving DESCRIPTOR DIES_AFTER`.

With IMPATIENT=1 streams and waits are short. With a number above 0 it kills itself, as by kill -9, when the so-manyth
statement that records jobs has been committed and nobody was answered yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

from holdfast import Holdfast
from holdfast.store.tenancy import TenancyStore
from holdfast.telemetry.narrator import set_up_logging
from holdfast.web import prefer
from holdfast.web.control import events
from holdfast.web.server import Server


def die_after(statements: int) -> None:
    """Between commit and answer."""
    submit, left = TenancyStore.submit, [statements]

    async def deadly(self: TenancyStore, intents: Any) -> Any:
        answers = await submit(self, intents)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answers

    TenancyStore.submit = deadly  # type: ignore[method-assign]


async def main(descriptor: int) -> None:
    hf = Holdfast()
    async with hf:
        server = Server(hf)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        await server.serve(sockets=[socket.socket(fileno=descriptor)])


def hurry() -> None:
    """A client that tries everything would sit in every stream until its end."""
    from holdfast.web.remote import schemas  # the release before does not have it

    events._PING_SECONDS, events._LONGEST_SECONDS = 0.1, 0.2
    prefer.LONGEST_SECONDS = 1
    schemas.LONGEST_SECONDS = 0.2


if __name__ == "__main__":
    set_up_logging("json", "WARNING")
    if os.environ.get("IMPATIENT") == "1":
        hurry()
    if (statements := int(sys.argv[2])) > 0:
        die_after(statements)
    asyncio.run(main(int(sys.argv[1])))
