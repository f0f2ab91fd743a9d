"""API keys and the audit log, as statements of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.model.key import AuditEntry, Caller, EventsToken, Key
from holdfast.model.provenance import provenance
from holdfast.store.database import Session

__all__ = ["Found", "KeyStore", "Secret"]

#: The stored parts of a secret: the part that is shown, and its hash.
Secret = tuple[str, bytes]
#: Whether any key exists; whose the one is that was asked for, if it is valid; and for how many seconds it still is.
Found = tuple[bool, Caller | None, float | None]


class KeyStore:
    """Finds keys (as `client`), or manages them (as `operator`)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def find(self, proof: bytes | EventsToken) -> Found:
        """Whether any key exists; the caller with this one, if it is valid; and for how many seconds it still is.

        A key is found by its secret's digest, or by a token that stands for it.
        """
        if isinstance(proof, EventsToken):
            (row,) = await self._session.rows("find_events_token", *proof)
        else:
            (row,) = await self._session.rows("find_key", proof)
        return _found(row)

    async def find_all(self, proofs: Sequence[bytes | EventsToken]) -> dict[bytes | EventsToken, Found]:
        """The same for many, in one statement, or in two if there are tokens among them."""
        found: dict[bytes | EventsToken, Found] = {}
        tokens = [proof for proof in proofs if isinstance(proof, EventsToken)]
        digests = [proof for proof in proofs if not isinstance(proof, EventsToken)]
        if digests:
            rows = await self._session.rows("find_keys", digests)
            found.update(zip(digests, map(_found, rows), strict=True))
        if tokens:
            rows = await self._session.rows("find_events_tokens", *map(list, zip(*tokens, strict=True)))
            found.update(zip(tokens, map(_found, rows), strict=True))
        return found

    async def issue_token(self, digest: bytes, job_id: UUID, seconds: float) -> tuple[str, datetime] | None:
        """A token for the events of a job, and when it expires; None if the key is not valid any more."""
        rows = await self._session.rows("issue_events_token", digest, job_id, seconds)
        return (EventsToken.written(rows[0]["token"]), rows[0]["expires_at"]) if rows else None

    async def touch(self, key_ids: Sequence[UUID]) -> None:
        """Record that these keys were used."""
        await self._session.rows("touch_keys", list(key_ids))

    async def create(
        self,
        key_id: UUID,
        *,
        tenant: str,
        name: str,
        secret: Secret,
        scopes: Sequence[str],
        lifetime_seconds: float | None,
        requests_per_second: float | None,
        max_waiting: int | None,
        by: str,
        by_key: UUID | None,
    ) -> Key:
        """Record a key."""
        limits = lifetime_seconds, requests_per_second, max_waiting
        (row,) = await self._session.rows(
            "create_key", key_id, tenant, name, *secret, list(scopes), *limits, by, by_key, *provenance.get()
        )
        return Key(**dict(row))

    async def rotate(
        self, old_id: UUID, key_id: UUID, *, secret: Secret, overlap_seconds: float, by: str, by_key: UUID | None
    ) -> Key | None:
        """Replace a key by a new one; None if the old one is not valid any more."""
        who = by, by_key, *provenance.get()
        rows = await self._session.rows("rotate_key", old_id, key_id, *secret, overlap_seconds, *who)
        return Key(**dict(rows[0])) if rows else None

    async def revoke(self, key_id: UUID, *, by: str, by_key: UUID | None) -> Key | None:
        """End a key; None if it has ended already."""
        rows = await self._session.rows("revoke_key", key_id, by, by_key, *provenance.get())
        return Key(**dict(rows[0])) if rows else None

    async def list(self, tenant: str | None, *, after: UUID | None, limit: int | None) -> Sequence[Key]:
        """Keys, oldest first, after this one."""
        return [Key(**dict(row)) for row in await self._session.rows("keys_after", tenant, after, limit)]

    async def audit(self, tenant: str | None, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        """The audit log, newest first."""
        rows = await self._session.rows("list_audit", tenant, before, limit)
        return [
            AuditEntry(**{**dict(row), "detail": None if row["detail"] is None else json.loads(row["detail"])})
            for row in rows
        ]


def _found(row: Mapping[str, Any]) -> Found:
    if row["id"] is None:
        return row["any_key"], None, None
    caller = Caller(
        tenant=row["tenant"],
        name=row["name"],
        scopes=frozenset(row["scopes"]),
        key_id=row["id"],
        requests_per_second=row["requests_per_second"],
        max_waiting=row["max_waiting"],
    )
    return True, caller, row["seconds_left"]
