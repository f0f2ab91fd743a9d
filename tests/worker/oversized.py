"""Handlers whose result is as large as the payload says, in every executor."""

from __future__ import annotations

from holdfast import Context, Holdfast, SyncContext

hf = Holdfast()


@hf.job("async")
async def returning(ctx: Context, size: int) -> str:
    return "x" * size


@hf.job("thread", executor="thread")
def in_thread(ctx: SyncContext, size: int) -> str:
    return "x" * size


@hf.job("process", executor="process")
def in_process(ctx: SyncContext, size: int) -> str:
    return "x" * size


@hf.job("transaction")
async def in_transaction(ctx: Context, size: int) -> None:
    async with ctx.transaction():
        ctx.result = "x" * size


@hf.job("process transaction", executor="process")
def in_process_and_transaction(ctx: SyncContext, size: int) -> None:
    with ctx.transaction():
        ctx.result = "x" * size
