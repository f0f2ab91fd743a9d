"""`Prefer: wait=N` (RFC 7240): how long a caller would like to wait for the job's end."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fastapi import Request, Response

__all__ = ["applied", "asks_to_wait", "wanted_wait"]

LONGEST_SECONDS = 60
_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;[^,]*)?(?=,|$)', re.IGNORECASE)


def wanted_wait(request: Request) -> int:
    """The number of seconds, at most a minute; 0 if the header is missing or invalid."""
    return _wanted(request.headers.getlist("prefer"))


def asks_to_wait(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request with these header fields wants to wait."""
    return _wanted(value.decode("latin-1") for name, value in fields if name == b"prefer") > 0


def _wanted(values: Iterable[str]) -> int:
    found = _WAIT.search(",".join(values))
    return min(LONGEST_SECONDS, int(found.group(1))) if found else 0


def applied(response: Response, seconds: int) -> Response:
    """Tell the caller that the preference was applied."""
    if seconds:
        response.headers["Preference-Applied"] = f"wait={seconds}"
    return response
