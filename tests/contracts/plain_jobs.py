"""The jobs of seed 002, as an app: fast ones, slow ones, and a mail service that is down."""

from __future__ import annotations

from holdfast import Context, Holdfast

hf = Holdfast()


@hf.job("email", lane="fast")
async def email(ctx: Context) -> None:
    """Its service does not answer; the circuit says nothing about numbers."""
    async with ctx.circuit("email-service"):
        raise ConnectionError("no answer")


@hf.job("analysis")
async def analysis(ctx: Context) -> str:
    """Slow in its time."""
    return "done"


@hf.job("elevation")
async def elevation(ctx: Context) -> None:
    """Fails each time."""
    raise RuntimeError("no height")


@hf.job("webhook")
async def webhook(ctx: Context) -> None:
    """Not among the enabled job types of development."""
