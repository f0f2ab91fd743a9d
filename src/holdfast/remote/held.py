"""The jobs that a remote worker holds: each is a `Claimed` attempt, made of what a pull has answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.job import Claim, Stream
from holdfast.model.progress import DoneReason
from holdfast.worker.claimed import Claimed

__all__ = ["Directive", "Held"]

#: What an answer says is to become of a job: go on, or stop for this reason. Only our own clock says `lapsed`.
Directive = Literal["continue", "cancel", "pause", "drain", "lost", "lapsed"]


class Held(Claimed):
    """One job that this worker has pulled. Its lease is counted from when the answer came, by our own clock."""

    #: A report has ended the job: it has as many items as were wanted.
    has_enough = False
    #: Why it will be done, if the handler has said so.
    done_reason: DoneReason | None = None
    #: The last directive that was obeyed, so that no answer is obeyed twice.
    obeyed: Directive = "continue"

    def __init__(self, job: Mapping[str, Any]) -> None:
        remaining = job["lease_remaining_ms"] / 1000
        now = datetime.now(UTC)
        super().__init__(
            Claim(
                job_id=UUID(job["job_id"]),
                attempt=job["attempt"],
                stream=Stream(id=0, tenant=job.get("tenant") or "", queue=job["queue"], type=job["type"]),
                rank=0,
                seq=0,
                payload=_text(job["payload"]),
                correlation_id=job["correlation_id"],
                target=job.get("target"),
                # At most; the protocol does not tell how many attempts cost nothing.
                failures=job.get("failures", job["attempt"] - 1),
                max_attempts=job["max_attempts"],
                ready_at=now,
                claimed_at=now,
                lease_seconds=remaining,
                cursor=None if job.get("cursor") is None else _text(job["cursor"]),
                traceparent=job.get("traceparent"),
            ),
            "general",
            elapsed(),
        )
        #: The whole lease; the first answer may be a repeated one, with less left.
        self.lease_seconds: float = job.get("lease_sec") or remaining
        self.timeout: float | None = job.get("timeout_sec")
        self.target_count: int | None = job.get("target_count")
        #: Reports of one job are sent one after the other: none may arrive before the one that it builds upon.
        self.turn = asyncio.Lock()

    @property
    def key(self) -> dict[str, Any]:
        """Job and attempt, as every message names them."""
        return {"job_id": str(self.job_id), "attempt": self.attempt}

    @property
    def names(self) -> tuple[str, int]:
        """The same, to find it by."""
        return str(self.job_id), self.attempt

    @property
    def open(self) -> bool:
        """Whether its lease is still worth keeping."""
        return not (self.lost or self.has_enough)

    def prolonged(self, remaining_ms: int | None) -> None:
        """Note what an answer says is left of the lease."""
        if remaining_ms is not None:
            self.lease_end = elapsed() + remaining_ms / 1000
            self.lease_seconds = max(self.lease_seconds, remaining_ms / 1000)

    @property
    def is_over(self) -> bool:
        """Whether the handler must stop because its lease is over, and another job of its target may have begun."""
        return self.claim.target is not None and self.open and self.lease_end < elapsed()

    @property
    def is_due(self) -> bool:
        """Whether less than half of the lease is left."""
        return self.lease_end - elapsed() < self.lease_seconds / 2


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
