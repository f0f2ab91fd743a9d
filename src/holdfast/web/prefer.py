"""`Prefer: wait=N` (RFC 7240): how long a caller would like to wait for the job's end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Request, Response

__all__ = ["applied", "asks_to_wait", "wanted_wait"]

LONGEST_SECONDS = 60
#: Calls of remote workers say in their bodies how long they wait.
_WAITING_PATHS = ("/worker/pull", "/worker/extend")
_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;[^,]*)?(?=,|$)', re.IGNORECASE)


def wanted_wait(request: Request) -> int:
    """The number of seconds, at most a minute; 0 if the header is missing or invalid."""
    return _wanted(request.headers.getlist("prefer"))


def asks_to_wait(scope: Mapping[str, Any]) -> bool:
    """Whether a request may wait for long, so that its client has to stay connected."""
    if scope["path"].endswith(_WAITING_PATHS):
        return True
    return _wanted(value.decode("latin-1") for name, value in scope["headers"] if name == b"prefer") > 0


def _wanted(values: Iterable[str]) -> int:
    found = _WAIT.search(",".join(values))
    return min(LONGEST_SECONDS, int(found.group(1))) if found else 0


def applied(response: Response, seconds: int) -> Response:
    """Tell the caller that the preference was applied."""
    if seconds:
        response.headers["Preference-Applied"] = f"wait={seconds}"
    return response
