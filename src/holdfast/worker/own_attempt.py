"""What a context needs to know about its attempt, in the worker (`Claimed`) and in a child process (`ChildAttempt`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from holdfast.model.job import HandlerFacts

__all__ = ["ENDED", "OwnAttempt"]

#: The error for a task or thread that the handler left behind.
ENDED = "the handler of this attempt has ended; nothing is recorded for it any more"


class OwnAttempt(Protocol):
    """One attempt, as its handler's context sees it."""

    result: Any
    #: The database has said that the lease is gone.
    lost: bool
    transacting: bool
    #: Ends the connection of the open transaction, if it is one of ours.
    cut_transaction: Callable[[], None] | None
    ending: bool
    completed: bool
    #: The commit that would have ended the job failed, perhaps only on its way back.
    in_doubt: bool
    #: How many reports were sent.
    reports: int

    @property
    def over(self) -> bool: ...  # noqa: D102 - see Claimed
    @property
    def job_id(self) -> UUID: ...  # noqa: D102 - see Claimed
    @property
    def type(self) -> str: ...  # noqa: D102 - see Claimed
    @property
    def attempt(self) -> int: ...  # noqa: D102 - see Claimed
    @property
    def facts(self) -> HandlerFacts: ...  # noqa: D102 - see Claimed
    @property
    def running_ms(self) -> int: ...  # noqa: D102 - see Claimed
    @property
    def excerpt(self) -> str | None: ...  # noqa: D102 - see Claimed
    @property
    def told_to_stop(self) -> bool: ...  # noqa: D102 - see Claimed

    def kept(self, line: str) -> None: ...  # noqa: D102 - see Claimed
