"""The cells of the table: each module measures one kind, for every system that it applies to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from bench.cells import api, drain, enqueue, idle, kill, latency, remote, states, sustained
from bench.options import SMALL, Options
from bench.stage import Stage

__all__ = ["CELLS", "chosen", "measure"]

CELLS: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    "enqueue-one": enqueue.one,
    "enqueue-bulk": enqueue.bulk,
    **{f"enqueue-tasks-{number}": partial(enqueue.tasks, number=number) for number in enqueue.TASKS},
    **{f"enqueue-threads-{number}": partial(enqueue.threads, number=number) for number in enqueue.THREADS},
    **{
        f"drain-{processes}x{size}": partial(drain.run, processes=processes, size=size)
        for size in (SMALL, drain.LARGE)
        for processes in (1, 2)
    },
    "latency": latency.run,
    **{f"state-{state}": partial(states.run, states=[state]) for state in states.STATES},
    "idle": idle.run,
    "kill": kill.run,
    "api": api.run,
    "remote": remote.run,
    "sustained": sustained.run,
}
#: Only in a full run, unless they are asked for by name.
_LONG = {"sustained"}


async def measure(stage: Stage) -> None:
    """All that were asked for. States share an undisturbed drain, but for a full run."""
    wanted = chosen(stage.options)
    bad = [name.removeprefix("state-") for name in wanted if name.startswith("state-")]
    for name in wanted:
        if not name.startswith("state-") or stage.options.full:
            await CELLS[name](stage)
        elif name == f"state-{bad[0]}":
            await states.run(stage, bad)


def chosen(options: Options) -> list[str]:
    """The cells that CELLS names, each by its name or by the first word of it; all without it."""
    if not options.cells:
        return [name for name in CELLS if options.full or name not in _LONG]
    for wish in options.cells:
        if not any(_is(name, wish) for name in CELLS):
            raise SystemExit(f"CELLS: unknown {wish}; known are {', '.join(CELLS)}")
    return [name for name in CELLS if any(_is(name, wish) for wish in options.cells)]


def _is(name: str, wish: str) -> bool:
    return name == wish or name.startswith(f"{wish}-")
