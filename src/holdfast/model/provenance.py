"""Who speaks, and from where: known where a request or command comes in, and asked for far below."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["Provenance", "provenance", "speaker"]

#: The address that the caller came from, and the id of the request.
Provenance = tuple[str | None, str | None]

#: Set once per request or command; kept with what the audit log says of a change.
provenance: ContextVar[Provenance] = ContextVar("provenance", default=(None, None))

#: In whose name the database is asked: tenants take turns where they wait for it. Nobody's where it is not said.
speaker: ContextVar[str] = ContextVar("speaker", default="")
