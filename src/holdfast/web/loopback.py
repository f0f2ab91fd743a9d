"""Whether a request comes from this machine, is meant for it, and was not sent by a page of another site."""

from __future__ import annotations

import ipaddress
import re

from fastapi import Request

from holdfast.web.fields import is_forwarded
from holdfast.web.origins import refuse_other_sites
from holdfast.web.problems import Problem

__all__ = ["from_this_machine", "is_loopback", "meant_for_loopback"]

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-]+)(?::\d{1,5})?")


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address of a URL is this machine's own."""
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def meant_for_loopback(request: Request) -> None:
    """Refuse requests that a page of another site made a browser send here under its own name."""
    given = request.headers.getlist("host")
    match = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if match is None or not is_loopback(match.group(1).strip("[]").lower()):
        raise Problem(403, "host", "Without keys, the server answers only under localhost, 127.0.0.1 or [::1].")


def from_this_machine(request: Request) -> None:
    """Refuse callers of other machines, forwarded requests, and pages of other sites: another port is another site.

    What comes through a proxy that says nothing of itself looks as if it came from here.
    """
    meant_for_loopback(request)
    forwarded = any(is_forwarded(name) for name in request.headers)
    if forwarded or request.client is None or not is_loopback(request.client.host):
        raise Problem(403, "host", "Without keys, these routes answer only callers on this machine.")
    refuse_other_sites(request, own="origin", trusted=frozenset())
