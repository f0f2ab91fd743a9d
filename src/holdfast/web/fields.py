"""The header fields that some route reads. The server keeps no others: they are counted, and dropped as they arrive.

A stream or a wait keeps its request for a minute, and a field takes thirty times as much memory as its bytes.
`tests/web/test_fields.py` compares the names with what the routes ask for.
"""

from __future__ import annotations

__all__ = ["FORWARDED", "also_read", "is_forwarded", "is_read"]

#: Fields in which proxies name the original caller; and those whose names begin like this.
FORWARDED = frozenset(
    {
        "forwarded", "via", "x-forwarded", "x-real-ip",
        "x-client-ip", "x-cluster-client-ip", "x-original-host", "x-envoy-external-address", "true-client-ip",
        "cf-connecting-ip", "fastly-client-ip",
    }
)  # fmt: skip
_FORWARDED_PREFIX = "x-forwarded-"
_READ = {
    "authorization", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "last-event-id", "origin", "prefer", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "traceparent",
    "transfer-encoding", "x-request-id", "x-worker-id",
    # the framework's, for pages of other origins
    "access-control-request-headers", "access-control-request-method", "access-control-request-private-network",
}  # fmt: skip
_NAMES = frozenset(name.encode() for name in FORWARDED | _READ)
_PREFIX = _FORWARDED_PREFIX.encode()
#: Those that settings of this process name.
_also: set[bytes] = set()


def is_read(name: bytes) -> bool:
    """Whether any route reads the field; the name is in lower case."""
    return name in _NAMES or name.startswith(_PREFIX) or name in _also


def also_read(name: str) -> None:
    """Some route reads this field, too."""
    _also.add(name.lower().encode())


def is_forwarded(name: str) -> bool:
    """Whether a proxy adds this field."""
    return name in FORWARDED or name.startswith(_FORWARDED_PREFIX)
