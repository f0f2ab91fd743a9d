"""What a context needs to know of its attempt, in the worker's process (`Held`) and in a child (`ChildAttempt`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

__all__ = ["ENDED", "OwnAttempt"]

#: What a task or thread hears that the handler left behind.
ENDED = "the handler of this attempt has ended; nothing is recorded for it any more"


class OwnAttempt(Protocol):
    """One attempt, as its handler's context sees it."""

    result: Any
    #: The database has said that the lease is gone.
    lost: bool
    transacting: bool
    #: Ends the connection of the open transaction, where it is one of ours.
    cut_transaction: Callable[[], None] | None
    ending: bool
    completed: bool
    #: How many reports were sent.
    reports: int

    @property
    def over(self) -> bool: ...  # noqa: D102 - see Held
    @property
    def job_id(self) -> UUID: ...  # noqa: D102 - see Held
    @property
    def type(self) -> str: ...  # noqa: D102 - see Held
    @property
    def attempt(self) -> int: ...  # noqa: D102 - see Held
    @property
    def tenant(self) -> str: ...  # noqa: D102 - see Held
    @property
    def correlation_id(self) -> str: ...  # noqa: D102 - see Held
    @property
    def cursor(self) -> str | None: ...  # noqa: D102 - see Held
    @property
    def failures(self) -> int: ...  # noqa: D102 - see Held
    @property
    def max_attempts(self) -> int: ...  # noqa: D102 - see Held
    @property
    def traceparent(self) -> str | None: ...  # noqa: D102 - see Held
    @property
    def running_ms(self) -> int: ...  # noqa: D102 - see Held
    @property
    def excerpt(self) -> str | None: ...  # noqa: D102 - see Held
    @property
    def told_to_stop(self) -> bool: ...  # noqa: D102 - see Held

    def kept(self, line: str) -> None: ...  # noqa: D102 - see Held
