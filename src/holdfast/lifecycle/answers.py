"""Answers to callers that may have stopped waiting. Only the first answer counts."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

__all__ = ["accept", "refuse"]

T = TypeVar("T")


def accept(answer: asyncio.Future[T], value: T) -> None:
    """Answer with a value, if anybody still waits."""
    if not answer.done():
        answer.set_result(value)


def refuse(answer: asyncio.Future[Any], fault: BaseException) -> None:
    """Answer with an error, if anybody still waits. A cancellation, which is not an error, cancels the wait."""
    if answer.done():
        return
    if isinstance(fault, Exception):
        answer.set_exception(fault)
    else:
        answer.cancel()
