"""Hundreds of ways in which a handler can misbehave, in every executor where they apply (see `table.Way`)."""

from __future__ import annotations

import inspect
from typing import Any

from holdfast import Context, Holdfast, RetryPolicy, SyncContext
from tests.worker.ways.ending import ENDING
from tests.worker.ways.leaving import LEAVING, condition
from tests.worker.ways.lines import LOGGING
from tests.worker.ways.looping import LOOPING
from tests.worker.ways.raising import RAISING
from tests.worker.ways.returning import RETURNING
from tests.worker.ways.table import Table, Way
from tests.worker.ways.transacting import TRANSACTING
from tests.worker.ways.waiting import WAITING

__all__ = ["BRIEF_SECONDS", "THEMES", "Way", "hf"]

THEMES: dict[str, Table] = {
    "raising": RAISING,
    "returning": RETURNING,
    "leaving": LEAVING,
    "looping": LOOPING,
    "logging": LOGGING,
    "transacting": TRANSACTING,
    "waiting": WAITING,
    "ending": ENDING,
}
BRIEF_SECONDS = 0.3
_ONCE = RetryPolicy(max_attempts=1)

hf = Holdfast()


def _act(ctx: Any, theme: str, way: str) -> Any:
    return THEMES[theme][way].act(ctx)


@hf.job("plain")
async def plain(ctx: Context) -> None: ...


@hf.job("async", retry=_ONCE, timeout=30)
async def in_the_loop(ctx: Context, theme: str, way: str) -> Any:
    value = _act(ctx, theme, way)
    return await value if inspect.iscoroutinefunction(THEMES[theme][way].act) else value


@hf.job("async brief", retry=_ONCE, timeout=BRIEF_SECONDS)
async def briefly_in_the_loop(ctx: Context, theme: str, way: str) -> Any:
    return await _act(ctx, theme, way)


@hf.job("async innocent", retry=_ONCE, timeout=30)
async def innocent_in_the_loop(ctx: Context) -> dict[str, Any]:
    return condition()


@hf.job("thread", retry=_ONCE, timeout=30)
def in_a_thread(ctx: SyncContext, theme: str, way: str) -> Any:
    return _act(ctx, theme, way)


@hf.job("thread brief", retry=_ONCE, timeout=BRIEF_SECONDS)
def briefly_in_a_thread(ctx: SyncContext, theme: str, way: str) -> Any:
    return _act(ctx, theme, way)


@hf.job("thread innocent", retry=_ONCE, timeout=30)
def innocent_in_a_thread(ctx: SyncContext) -> dict[str, Any]:
    return condition()


@hf.job("process", executor="process", retry=_ONCE, timeout=30)
def in_a_process(ctx: SyncContext, theme: str, way: str) -> Any:
    return _act(ctx, theme, way)


@hf.job("process brief", executor="process", retry=_ONCE, timeout=BRIEF_SECONDS)
def briefly_in_a_process(ctx: SyncContext, theme: str, way: str) -> Any:
    return _act(ctx, theme, way)


@hf.job("process innocent", executor="process", retry=_ONCE, timeout=30)
def innocent_in_a_process(ctx: SyncContext) -> dict[str, Any]:
    return condition()
