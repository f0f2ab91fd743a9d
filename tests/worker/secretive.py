"""An app that takes a secret out of the environment when it is imported, to keep it from programs that it starts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast import Holdfast, RetryPolicy, SyncContext

SECRET = os.environ.pop("APP_SECRET")


@asynccontextmanager
async def lifespan(app: Holdfast) -> AsyncIterator[str]:
    """Another one is only taken here."""
    yield os.environ.pop("APP_PASSWORD")


hf = Holdfast(lifespan=lifespan)


@hf.job("whisper", executor="process", retry=RetryPolicy(max_attempts=1))
def whisper(ctx: SyncContext) -> list[str | None]:
    return [SECRET, ctx.resources, os.environ.get("APP_SECRET"), os.environ.get("APP_PASSWORD")]
