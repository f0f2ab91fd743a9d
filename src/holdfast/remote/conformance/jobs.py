"""A job on stage: its lease, what was reported for it, and how it ended."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

__all__ = ["TrialJob"]

_GONE = "the job is somebody else's by now"


@dataclass(slots=True, kw_only=True, eq=False)
class TrialJob:
    """One job."""

    type: str
    payload: dict[str, Any]
    lease: float
    target_count: int | None = None
    id: str = field(default_factory=lambda: str(uuid4()))
    state: str = "queued"
    attempt: int = 0
    cursor: Any = None
    items: dict[str, Any] = field(default_factory=dict)
    progress: int = 0
    interrupt: str | None = None
    #: Since when the worker has been told to stop.
    told: float | None = None
    #: The attempts whose worker was told that it has lost the lease.
    lost_to: set[int] = field(default_factory=set)
    began: float | None = None
    ended: float | None = None
    #: The body of the report that ended it.
    final: dict[str, Any] | None = None
    #: How often its lease was prolonged, and how often it lapsed.
    extended: int = 0
    lapsed: int = 0
    #: By attempt: the accepted reports by their number, and the last number.
    accepted: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    #: The key of an item that is refused, and how often it was.
    bad_item: str | None = None
    refused: list[str] = field(default_factory=list)
    #: After this many reports the lease is lost.
    lose_after: int | None = None
    #: Where attempts began.
    starts: list[Any] = field(default_factory=list)
    _until: float = 0.0

    @property
    def owned(self) -> bool:
        """Whether a worker has it. A lease that is over ends here."""
        if self.state == "running" and time.monotonic() > self._until:
            self.state = "queued"
            self.lapsed += 1
        return self.state == "running"

    def owned_in(self, attempt: int) -> bool:
        """Whether this attempt has it."""
        return self.owned and self.attempt == attempt

    @property
    def claimable(self) -> bool:
        """Whether it can be handed out."""
        return not self.owned and self.state == "queued"

    def claim(self) -> int:
        """Hand it out. Returns the attempt."""
        self.state, self.attempt = "running", self.attempt + 1
        self.began = time.monotonic()
        self.starts.append(self.cursor)
        self._until = self.began + self.lease
        return self.attempt

    def take_away(self) -> None:
        """Give it to another worker, so to say: the next pull gets it anew."""
        self.state = "queued"

    def prolong(self, seconds: float | None = None) -> None:
        """Prolong the lease."""
        self.extended += 1
        self._until = time.monotonic() + min(self.lease, seconds or self.lease)

    def tell(self) -> None:
        """Note that the worker is being told to stop."""
        self.told = self.told or time.monotonic()

    def hand_back(self) -> None:
        """It was handed back."""
        self._end({"cancel": "canceled", "pause": "paused"}.get(self.interrupt or "", "queued"))

    def lease_left(self) -> dict[str, Any]:
        """What answers say of the lease."""
        if not self.owned:
            return {"lease_expires_at": None, "lease_remaining_ms": None}
        left = max(0.0, self._until - time.monotonic())
        # Clocks of workers may be wrong, and so is this server's.
        expires = datetime.now(UTC) + timedelta(hours=1, seconds=left)
        return {"lease_expires_at": expires.isoformat(), "lease_remaining_ms": int(left * 1000)}

    def handed_out(self) -> dict[str, Any]:
        """It, as a pull answers it."""
        return {
            "job_id": self.id,
            "type": self.type,
            "queue": "default",
            "payload": self.payload,
            "attempt": self.attempt,
            "max_attempts": 5,
            "correlation_id": self.id,
            "target": None,
            "cursor": self.cursor,
            "progress_count": self.progress,
            "result_count": len(self.items),
            "target_count": self.target_count,
            "traceparent": None,
            "timeout_sec": 600,
            "lease_sec": self.lease,
            **self.lease_left(),
            "x_conform": {"a member": "that a later server may add"},
        }

    def report(self, body: dict[str, Any], note: Callable[[str], None]) -> bool:
        """Take a report. Returns whether it is a repeated one; LookupError: a conflict; ValueError: not valid."""
        attempt, number = body["attempt"], body.get("seq")
        accepted = self.accepted.setdefault(attempt, {})
        is_final = bool(body.get("done") or body.get("error"))
        if number in accepted and _same(accepted[number], body):
            return True
        if is_final and self.final is not None and self.final["attempt"] == attempt and _same(self.final, body):
            return True
        if attempt in self.lost_to:
            note(f"reported for attempt {attempt} again after it had been told that the lease was lost (409)")
        if self.final is not None and self.final["attempt"] == attempt:
            note("reported again for a job that had ended")
            raise LookupError("already-reported", "the job has ended")
        if self.lose_after is not None and len(accepted) >= self.lose_after and attempt == 1:
            self.take_away()
        if not self.owned_in(attempt):
            self.lost_to.add(attempt)
            raise LookupError("lease-lost", _GONE)
        self._judge_number(accepted, number, note)
        self._refuse_bad(body)
        self._store(body, note)
        if number is not None:
            accepted[number] = body
        if is_final:
            self.final = body
            self._end(_state(body, self.interrupt))
        elif self.target_count is not None and len(self.items) >= self.target_count:
            self.final = {**body, "done": True}
            self._end("success")
        else:
            self.prolong(body.get("extend_lease_sec"))
        return False

    def _judge_number(
        self, accepted: dict[int, dict[str, Any]], number: int | None, note: Callable[[str], None]
    ) -> None:
        if number is None:
            return
        if number in accepted:
            note(
                f"used seq {number} twice, for reports that differ: the second one would count as a repeat, and be lost"
            )
        elif accepted and number < max(accepted):
            note(f"reported out of order: seq {number} came after seq {max(accepted)}, so the cursor went back")

    def _refuse_bad(self, body: dict[str, Any]) -> None:
        for place, item in enumerate(body.get("items", ())):
            if item.get("key") == self.bad_item and self.bad_item is not None:
                self.refused.append(json.dumps(body, sort_keys=True))
                raise ValueError({"pointer": f"/items/{place}/data", "detail": "this item is refused, for the trial"})

    def _store(self, body: dict[str, Any], note: Callable[[str], None]) -> None:
        start = self.starts[-1] or 0
        if self.type == "conform.items" and any(_place(item) < start for item in body.get("items", ())):
            note(f"began again at the start, although the job came with the cursor {start}")
        for item in body.get("items", ()):
            key = item.get("key") or json.dumps(item["data"], sort_keys=True)
            self.items.setdefault(key, item["data"])
            self.progress += 1
        self.progress += body.get("progress", 0)
        if body.get("cursor") is None:
            return
        self.cursor = body["cursor"]
        if self.type == "conform.items" and self.bad_item is None and self.cursor != len(self.items):
            stored = f"{len(self.items)} items were stored"
            note(f"reported the cursor {self.cursor} when {stored}: items would be lost, or found twice")

    def _end(self, state: str) -> None:
        self.state, self.ended = state, time.monotonic()


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a report is the repeated one; the name of the worker stands beside it in batches."""
    return {**one, "worker_id": ""} == {**other, "worker_id": ""}


def _place(item: dict[str, Any]) -> float:
    """The number of an item of `conform.items`."""
    number = item["data"].get("n") if isinstance(item["data"], dict) else None
    return number if isinstance(number, int) else math.inf


def _state(body: dict[str, Any], interrupt: str | None) -> str:
    if body.get("done"):
        return "success"
    if interrupt is not None:
        return {"cancel": "canceled", "pause": "paused"}.get(interrupt, "queued")
    error = body["error"]
    kind = "retryable" if isinstance(error, str) else error["kind"]
    return {"fatal": "dead", "hold": "error", "snooze": "scheduled"}.get(kind, "retry")
