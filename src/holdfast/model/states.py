"""The one state machine: states, the transitions allowed between them, and what clients see of it.

`sql/functions/guard.sql` holds the same table for the database, which enforces it; a test proves the two
equal and tries every forbidden pair.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["INITIAL", "TERMINAL", "TRANSITIONS", "State", "Status", "public_status"]


class State(StrEnum):
    """The state of a job."""

    CREATED = "created"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRY = "retry"
    PAUSED = "paused"
    ERROR = "error"
    SUCCESS = "success"
    DEAD = "dead"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended for good."""
        return self in TERMINAL


class Status(StrEnum):
    """What clients see of a job's state."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PAUSED = "PAUSED"
    ERROR = "ERROR"
    CANCELED = "CANCELED"


INITIAL = frozenset({State.CREATED, State.SCHEDULED, State.QUEUED})
TERMINAL = frozenset({State.SUCCESS, State.DEAD, State.CANCELED})

#: Every allowed move. running → running is a new attempt over a lapsed lease, nothing else.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.CREATED: frozenset({State.SCHEDULED, State.QUEUED, State.CANCELED}),
    State.SCHEDULED: frozenset({State.QUEUED, State.PAUSED, State.CANCELED}),
    State.QUEUED: frozenset({State.RUNNING, State.PAUSED, State.CANCELED}),
    State.RUNNING: frozenset(
        {
            State.RUNNING,
            State.SUCCESS,
            State.RETRY,
            State.DEAD,
            State.ERROR,
            State.PAUSED,
            State.CANCELED,
            State.QUEUED,
            State.SCHEDULED,
        }
    ),
    State.RETRY: frozenset({State.QUEUED, State.RUNNING, State.DEAD, State.PAUSED, State.CANCELED}),
    State.PAUSED: frozenset({State.QUEUED, State.SCHEDULED, State.CANCELED}),
    State.ERROR: frozenset({State.QUEUED, State.DEAD, State.CANCELED}),
    State.SUCCESS: frozenset(),
    State.DEAD: frozenset(),
    State.CANCELED: frozenset(),
}

_STATUS = {
    State.RUNNING: Status.RUNNING,
    State.SUCCESS: Status.COMPLETED,
    State.DEAD: Status.FAILED,
    State.PAUSED: Status.PAUSED,
    State.ERROR: Status.ERROR,
    State.CANCELED: Status.CANCELED,
}


def public_status(state: State) -> Status:
    """The status that clients see: everything that waits is PENDING."""
    return _STATUS.get(state, Status.PENDING)
