"""Work that many callers share: it runs in the name of none of them.

A task copies the context of whoever starts it, and with it the tenant whose line for the database it stands in
(`holdfast.model.provenance.speaker`). Work for all tenants that the first caller happens to start would stand in that
caller's line: whoever floods it would hold up everybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

__all__ = ["start_shared"]

T = TypeVar("T")


def start_shared(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """A task with nothing of the context of whoever starts it."""
    return asyncio.get_running_loop().create_task(work, name=name, context=Context())
