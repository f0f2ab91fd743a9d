"""The cells of the table: each module measures one kind, for every system that it applies to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bench.cells import drain, enqueue, idle, kill, latency, states, sustained
from bench.stage import Stage

__all__ = ["CELLS", "LONG"]

CELLS: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    "enqueue-one": enqueue.one,
    "enqueue-bulk": enqueue.bulk,
    "drain": drain.run,
    "latency": latency.run,
    "states": states.run,
    "idle": idle.run,
    "kill": kill.run,
    "sustained": sustained.run,
}
#: Only in a full run, unless they are asked for by name.
LONG = {"sustained"}
