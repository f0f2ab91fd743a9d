"""What an enqueue answers."""

from __future__ import annotations

from uuid import UUID

from holdfast.model.job import Enqueued
from holdfast.model.states import State, Status, public_status

__all__ = ["JobRef"]


class JobRef:
    """A recorded job: its id, its type, and its state when it was recorded (or found, if it existed)."""

    __slots__ = ("id", "outcome", "state", "type")

    def __init__(self, job_type: str, answer: Enqueued) -> None:
        self.id: UUID
        self.state: State
        self.outcome: str
        self.id, self.state, self.outcome = answer
        self.type = job_type

    @property
    def existing(self) -> bool:
        """Whether a key already had this job."""
        return self.outcome == "existing"

    @property
    def conflict(self) -> bool:
        """Whether nothing was recorded, because a key already has this job, which has another type or payload."""
        return self.outcome == "conflict"

    @property
    def status(self) -> Status:
        """What clients see of the state."""
        return public_status(self.state)

    def __repr__(self) -> str:
        return f"JobRef(id={self.id}, type={self.type!r}, state={self.state.value!r}, outcome={self.outcome!r})"
