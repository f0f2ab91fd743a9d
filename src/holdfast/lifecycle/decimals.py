"""The context of `decimal`: copies of a context share it, so what one handler sets would meet the next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = ["with_own_rounding"]

R = TypeVar("R")


def with_own_rounding(call: Callable[[], R]) -> R:
    """Call a function whose changes of the decimal context end with the context that this runs in."""
    if (module := sys.modules.get("decimal")) is not None:
        module.setcontext(module.getcontext().copy())
    return call()
