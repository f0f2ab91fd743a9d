"""From where somebody speaks who changes something: kept with what the audit log says of it."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["Provenance", "provenance"]

#: The address that the caller came from, and the id of the request.
Provenance = tuple[str | None, str | None]

#: Set once per request or command, where it comes in; read where a change is recorded.
provenance: ContextVar[Provenance] = ContextVar("provenance", default=(None, None))
