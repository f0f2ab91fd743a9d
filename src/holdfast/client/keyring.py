"""API keys: make, rotate and revoke them, and tell whose a secret is.

Results are cached for a second: a revoked key is refused after at most a second, and waits and streams with it end.
While the database is away nobody is admitted, except to figures that need no database (`lately`). Unknown secrets are
looked up together, so that callers with invented secrets keep neither the database nor other new callers busy.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from holdfast.client.lookups import LookUps
from holdfast.errors import HoldfastError, NotFound
from holdfast.lifecycle.shared import start_shared
from holdfast.model.ids import new_job_id
from holdfast.model.key import AuditEntry, Caller, EventsToken, Key, digest_of, new_secret, prefix_of
from holdfast.store.keys import KeyStore

__all__ = ["Keyring", "Keys"]

_REMEMBER_SECONDS = 1.0
_REMEMBERED, _STRANGERS = 10_000, 5_000
#: For how long a key that was good counts as good for `lately`: a revoked key may be taken for good for that long.
_LATELY_SECONDS = 600.0
#: A key about to expire is remembered for no time at all: it is not asked for more often than this.
_SHORTEST_SECONDS = 0.05
#: How exactly it is known when a key was last used.
_USED_SECONDS = 60.0
#: No key has this digest: asked for to learn whether there is any.
_NOBODY = b""
#: By what a key is known: the digest of its secret, or a token that stands for it.
_Proof = bytes | EventsToken


class _Found(NamedTuple):
    caller: Caller | None
    any_key: bool
    until: float
    #: Until when it is good for `lately`.
    lately: float


class Keyring:
    """Whose a secret is, for the server."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self._good: dict[_Proof, _Found] = {}
        self._bad: dict[_Proof, _Found] = {}
        self._asked: dict[_Proof, asyncio.Task[_Found]] = {}
        self._unknown = LookUps[_Proof, _Found](self._ask_for_unknown)
        self._ends: dict[_Proof, asyncio.Task[None]] = {}
        self._waiting: Counter[_Proof] = Counter()
        self._used: dict[UUID, float] = {}
        self._touching: set[asyncio.Task[None]] = set()

    async def caller(self, secret: str | EventsToken) -> Caller | None:
        """Who has this secret, or the key that this token stands for; None if nobody, or not any more."""
        return (await self._look(_proof_of(secret))).caller

    async def issue_token(self, secret: str, job_id: UUID, seconds: float) -> tuple[str, datetime] | None:
        """A token for the events of a job, in place of the key, and when it ends; None if the key has ended."""
        return await self._store.issue_token(digest_of(secret), job_id, seconds)

    async def any_key(self) -> bool:
        """Whether there has ever been a key, so that those without one are refused."""
        return (await self._look(_NOBODY)).any_key

    def lately(self, secret: str) -> tuple[Caller | None, bool]:
        """Who had this secret in the last minutes, and whether there was no key at all: asks nobody.

        Only for what can be read while the database is away.
        """
        now = time.monotonic()
        caller, nobody = self._good.get(digest_of(secret)), self._good.get(_NOBODY)
        return (
            caller.caller if secret and caller is not None and now < caller.lately else None,
            nobody is not None and not nobody.any_key and now < nobody.lately,
        )

    async def ended(self, secret: str | EventsToken | None) -> None:
        """Return once nobody has this secret any more; without one, once there is any key.

        All who wait with a secret share one task, which asks as often as requests do: once a second.
        """
        proof = _NOBODY if secret is None else _proof_of(secret)
        if proof not in self._ends:
            self._ends[proof] = asyncio.get_running_loop().create_task(self._until_ended(proof), name="key")
        end = self._ends[proof]
        self._waiting[proof] += 1
        try:
            await asyncio.shield(end)
        finally:
            self._waiting[proof] -= 1
            if not self._waiting[proof]:
                del self._waiting[proof]
                self._ends.pop(proof).cancel()

    async def _until_ended(self, proof: _Proof) -> None:
        while True:
            try:
                found = await self._look(proof)
            except HoldfastError:  # nothing can be delivered either, and it is not known whether the key has ended
                await asyncio.sleep(_REMEMBER_SECONDS)
                continue
            if found.any_key if proof == _NOBODY else found.caller is None:
                return
            await asyncio.sleep(max(_SHORTEST_SECONDS, found.until - time.monotonic()))

    async def _look(self, proof: _Proof) -> _Found:
        found = self._good.get(proof) or self._bad.get(proof)
        if found is not None and time.monotonic() < found.until:
            return found
        if proof in self._good or proof == _NOBODY or proof in self._asked:
            return await self._share(proof)
        return await self._unknown.ask(proof)

    async def _share(self, proof: _Proof) -> _Found:
        """Ask, or wait for the answer with those who have asked."""
        task = self._asked.get(proof)
        if task is None:
            task = self._asked[proof] = self._start_asking(proof)
            task.add_done_callback(lambda _: self._asked.pop(proof, None))
            # Whoever asked may be gone before the database fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    def _start_asking(self, proof: _Proof) -> asyncio.Task[_Found]:
        """A tenant asks for its own keys. Unknown ones have four places together, which no tenant's line may block."""
        if proof in self._good and proof != _NOBODY:
            return asyncio.get_running_loop().create_task(self._ask(proof), name="key")
        return start_shared(self._ask(proof), name="key")

    async def _ask(self, proof: _Proof) -> _Found:
        asked_at = time.monotonic()
        return self._remember(proof, asked_at, *await self._store.find(proof))

    async def _ask_for_unknown(self, proofs: Sequence[_Proof]) -> dict[_Proof, _Found]:
        asked_at = time.monotonic()
        found = await self._store.find_all(proofs)
        return {proof: self._remember(proof, asked_at, *found[proof]) for proof in proofs}

    def _remember(
        self, proof: _Proof, asked_at: float, any_key: bool, caller: Caller | None, seconds_left: float | None
    ) -> _Found:
        good_for = _REMEMBER_SECONDS if seconds_left is None else min(_REMEMBER_SECONDS, seconds_left)
        lately = _LATELY_SECONDS if seconds_left is None else min(_LATELY_SECONDS, seconds_left)
        found = _Found(caller, any_key, asked_at + good_for, asked_at + lately)
        # What strangers send must not push out what is good.
        known, most = (self._good, _REMEMBERED) if caller or proof == _NOBODY else (self._bad, _STRANGERS)
        self._good.pop(proof, None)
        known.pop(proof, None)
        if len(known) >= most:
            del known[next(iter(known))]
        known[proof] = found
        if caller is not None and caller.key_id is not None:
            self._touch(caller.key_id, asked_at)
        return found

    def _touch(self, key_id: UUID, now: float) -> None:
        """Say that a key was used; nobody waits for that."""
        if now >= self._used.get(key_id, float("-inf")) + _USED_SECONDS:
            self._used[key_id] = now
            task = asyncio.get_running_loop().create_task(self._say_used(key_id))
            self._touching.add(task)
            task.add_done_callback(self._touching.discard)

    async def _say_used(self, key_id: UUID) -> None:
        try:
            await self._store.touch([key_id])
        except HoldfastError:
            self._used.pop(key_id, None)


def _proof_of(secret: str | EventsToken) -> _Proof:
    return secret if isinstance(secret, EventsToken) else digest_of(secret)


class Keys:
    """Make, list and end keys, for operators. `by` and `by_key` say who does."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store

    async def create(
        self,
        name: str,
        *,
        scopes: Sequence[str],
        tenant: str = "default",
        lifetime: timedelta | None = None,
        requests_per_second: float | None = None,
        max_waiting: int | None = None,
        by: str,
        by_key: UUID | None = None,
    ) -> tuple[Key, str]:
        """A new key and its secret, which is not kept anywhere."""
        secret = new_secret()
        key = await self._store.create(
            new_job_id(),
            tenant=tenant,
            name=name,
            secret=(prefix_of(secret), digest_of(secret)),
            scopes=scopes,
            lifetime_seconds=None if lifetime is None else lifetime.total_seconds(),
            requests_per_second=requests_per_second,
            max_waiting=max_waiting,
            by=by,
            by_key=by_key,
        )
        return key, secret

    async def rotate(self, key_id: UUID, *, overlap: timedelta, by: str, by_key: UUID | None = None) -> tuple[Key, str]:
        """A new key in place of another, which is good for a while longer, so that nobody is locked out meanwhile."""
        secret = new_secret()
        key = await self._store.rotate(
            key_id,
            new_job_id(),
            secret=(prefix_of(secret), digest_of(secret)),
            overlap_seconds=overlap.total_seconds(),
            by=by,
            by_key=by_key,
        )
        if key is None:
            raise NotFound(f"there is no key {key_id} that could be rotated")
        return key, secret

    async def revoke(self, key_id: UUID, *, by: str, by_key: UUID | None = None) -> Key:
        """End a key now; NotFound if there is none, or it has ended."""
        key = await self._store.revoke(key_id, by=by, by_key=by_key)
        if key is None:
            raise NotFound(f"there is no key {key_id} that could be revoked")
        return key

    async def list(
        self, tenant: str | None = None, *, after: UUID | None = None, limit: int | None = None
    ) -> Sequence[Key]:
        """All keys, or so many behind a given one; oldest first, those that have ended too."""
        return await self._store.list(tenant, after=after, limit=limit)

    async def audit(
        self, tenant: str | None = None, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """What was done, newest first."""
        return await self._store.audit(tenant, before=before, limit=limit)
