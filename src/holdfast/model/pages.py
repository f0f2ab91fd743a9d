"""How many entries a page of a list may have."""

from __future__ import annotations

from typing import Any

from holdfast.bounds import BOUNDS, shown
from holdfast.errors import InvalidInput

__all__ = ["checked_limit"]


def checked_limit(value: Any) -> int:
    """The `limit` of a list, or InvalidInput."""
    if not BOUNDS["page"].holds(value):
        raise InvalidInput(f"limit must be {BOUNDS['page']}, not {shown(value)}")
    return int(value)
