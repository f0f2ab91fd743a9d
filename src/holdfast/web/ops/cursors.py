"""Where a page ended, as a text that callers hand back and need not understand."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from holdfast.web.problems import Problem

__all__ = ["cursor_of", "id_of"]


def cursor_of(job_id: UUID | None) -> str | None:
    """The cursor behind this job."""
    return None if job_id is None else base64.urlsafe_b64encode(job_id.bytes).rstrip(b"=").decode()


def id_of(cursor: str | None) -> UUID | None:
    """The job that a cursor stands behind."""
    if cursor is None:
        return None
    try:
        return UUID(bytes=base64.b64decode(cursor.encode() + b"==", b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise Problem(422, "invalid", "The cursor is not one that was given out here.") from None
