"""Lets go of what failed handlers had in their variables.

An error refers to the frames of its traceback, and so to all variables of a handler. Where such a frame refers to the
error as well, as in `asyncio.TaskGroup` or where an error is kept and raised again, all of it lives until Python
collects cycles. Python counts objects, not bytes: a few failures with large variables could fill the memory first. So
once an error has been written down as text, it loses its traceback, and so do the errors that it refers to.
"""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["forget_tracebacks"]

#: A group may hold any number of errors.
_MOST_ERRORS = 1000
# Errors are foreign: they may have attributes of their own with these names.
_traceback: Any = vars(BaseException)["__traceback__"]
_links: tuple[Any, ...] = (vars(BaseException)["__cause__"], vars(BaseException)["__context__"])
_members: Any = vars(BaseExceptionGroup)["exceptions"]


def forget_tracebacks(error: BaseException) -> None:
    """Take the tracebacks away from an error that was written down, and from all that it was raised from."""
    ahead, seen = deque([error]), {id(error)}
    while ahead:
        one = ahead.popleft()
        _traceback.__set__(one, None)
        others = [link.__get__(one) for link in _links]
        if issubclass(type(one), BaseExceptionGroup):
            others += _members.__get__(one)[:_MOST_ERRORS]
        for other in others:
            if other is not None and id(other) not in seen and len(seen) < _MOST_ERRORS:
                seen.add(id(other))
                ahead.append(other)
