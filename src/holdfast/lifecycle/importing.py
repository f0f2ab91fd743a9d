"""Refuses side effects while a worker's child process imports the module of a handler.

A script that enqueues or runs a worker when it is imported would do so in every child as well, and each of those
would start more of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import Fatal

__all__ = ["importing", "refuse_while_importing"]

_state = {"importing": False}


@contextmanager
def importing() -> Iterator[None]:
    """Mark the block in which a child imports a handler's module."""
    _state["importing"] = True
    try:
        yield
    finally:
        _state["importing"] = False


def refuse_while_importing() -> None:
    """Raise Fatal, because no retry would help, if the module of a handler does more than define it."""
    if _state["importing"]:
        raise Fatal(
            'the module of a handler with executor="process" uses the app while a worker\'s child imports it; '
            'put what the script does under `if __name__ == "__main__":`'
        )
