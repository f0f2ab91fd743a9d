"""API keys: who may use the control plane, for which tenant, and for what."""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

__all__ = ["SCOPES", "AuditEntry", "Caller", "EventsToken", "Key", "Scope", "digest_of", "new_secret", "prefix_of"]

Scope = Literal["submit", "read", "work", "operate", "metrics", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

#: What a scope allows beside itself.
_IMPLIED: dict[str, frozenset[str]] = {
    "operate": frozenset({"submit", "read"}),
    "admin": frozenset({"submit", "read", "work", "operate", "metrics"}),
}
#: Found by scanners of source code and logs.
_PREFIX = "hf_"
_SHOWN = 8
_TOKEN_BYTES = 16 + 8 + 32


def new_secret() -> str:
    """A key's secret: 256 random bits behind a prefix that is easy to search for."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """What is stored of a secret. It is random and long, so that a plain hash cannot be guessed back."""
    return hashlib.sha256(secret.encode()).digest()


def prefix_of(secret: str) -> str:
    """What is shown of a secret, to tell keys apart."""
    return secret[: len(_PREFIX) + _SHOWN]


class EventsToken(NamedTuple):
    """What stands for a key where no header can be sent: for the events of one job, until a second of the epoch."""

    key_id: UUID
    job_id: UUID
    till: int
    seal: bytes

    @classmethod
    def read(cls, text: str, job_id: UUID) -> EventsToken | None:
        """The token that a caller has sent; None if it cannot be one."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        if len(raw) != _TOKEN_BYTES:
            return None
        till = int.from_bytes(raw[16:24], signed=True)
        return cls(UUID(bytes=raw[:16]), job_id, till, raw[24:])

    @staticmethod
    def written(raw: bytes) -> str:
        """The token as callers send it; it can be part of an address."""
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as it is listed; its secret was shown once, when it was made."""

    id: UUID
    tenant: str
    name: str
    prefix: str
    scopes: list[str]
    requests_per_second: float | None
    max_waiting: int | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    replaced_by: UUID | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request: for one tenant, with some scopes. Without a key it is a user of this machine."""

    tenant: str
    name: str
    scopes: frozenset[str]
    key_id: UUID | None = None
    requests_per_second: float | None = None
    max_waiting: int | None = None
    #: What was sent in place of the key.
    token: EventsToken | None = None

    def may(self, scope: str) -> bool:
        """Whether a scope was given, by itself or with a wider one."""
        return scope in self.scopes or any(scope in _IMPLIED.get(own, ()) for own in self.scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that somebody did."""

    id: int
    at: datetime
    actor: str
    key_id: UUID | None
    tenant: str | None
    action: str
    subject: str | None
    detail: dict[str, Any] | None
    #: From where: the other end of the connection (a proxy, if there is one), and the id of the request.
    address: str | None = None
    request_id: str | None = None
