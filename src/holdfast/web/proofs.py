"""What a request shows before its route is known that may make its caller known: a key, or a token in its place."""

from __future__ import annotations

import re
from uuid import UUID

from starlette.types import Scope

from holdfast.model.key import EventsToken

__all__ = ["key_ahead", "key_field", "proof_in"]

#: What may be a key (see holdfast.model.key), as it is sent.
_KEY = re.compile(rb"(?i:bearer) +(hf_[A-Za-z0-9_-]{43})")
_KEY_AHEAD = re.compile(rb"(?i:\nauthorization):[ \t]*((?i:bearer) +hf_[A-Za-z0-9_-]{43})[ \t]*\r?\n")
#: A token, and the only path on which one counts.
_TOKEN = re.compile(rb"(?:.*&)?token=([A-Za-z0-9_-]{75})(?:&.*)?", re.DOTALL)
_EVENTS = re.compile(r"/jobs/([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})/events")


def key_field(scope: Scope) -> bytes:
    """The field with the key, empty if there is none."""
    return next((value for name, value in scope["headers"] if name == b"authorization"), b"")


def key_ahead(head: bytes) -> bytes | None:
    """The same in a head that was not parsed yet, if it looks like a key."""
    found = _KEY_AHEAD.search(head)
    return found[1] if found else None


def proof_in(scope: Scope) -> str | EventsToken | None:
    """What may be a key or a token; whether it is good is for the database to say."""
    if field := key_field(scope):
        key = _KEY.fullmatch(field)
        return key[1].decode() if key else None
    token = _TOKEN.fullmatch(scope["query_string"])
    if token is None:
        return None
    events = _EVENTS.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
    return EventsToken.read(token[1].decode(), UUID(events[1])) if events else None
