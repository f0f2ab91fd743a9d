"""Which jobs somebody wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

__all__ = ["Filters"]


class Filters(TypedDict, total=False):
    """All that are given must fit; `before` is the last id of the page before, `limit` the length of a page."""

    states: Sequence[str] | None
    types: Sequence[str] | None
    queues: Sequence[str] | None
    tenant: str | None
    target: str | None
    correlation_id: str | None
    before: UUID | None
    limit: int
