"""Django's tests forbid databases by refusing to connect; Holdfast's own connections would go round that.

`SimpleTestCase`, and pytest without the mark for a database, are to keep tests off a database that is the real one.
So within Django's test environment its own connection is asked first, and what it raises is what the caller gets.
"""

from __future__ import annotations

from typing import Any

from django.core import mail
from django.db import connections

__all__ = ["ask_for_leave", "in_tests"]


def in_tests() -> bool:
    """Whether Django's test environment is on: it collects mail instead of sending it."""
    return hasattr(mail, "outbox")


def ask_for_leave(connection: Any) -> None:
    """Raise what Django raises where a test may not use this connection of the calling thread."""
    if not in_tests():
        return
    opened = connection.connection is not None
    # A connection that is open already is refused no sooner than at a cursor.
    connection.cursor().close()
    if not opened:
        connection.close()


def ask_in_this_thread(alias: str) -> None:
    """The same for a thread that has no connection of its own to name."""
    if in_tests():
        ask_for_leave(connections[alias])
