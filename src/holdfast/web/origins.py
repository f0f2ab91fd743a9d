"""Whether a page of another site sent a request: a browser adds cookies, and the caller's address, to those too.

A key protects by itself, because no browser adds it. Other callers are admitted by something that a foreign page can
use: by a cookie (an application's guard) or by an address (a server without keys). A browser says where a request comes
from (`Sec-Fetch-Site`, `Origin`), and pages cannot change that. Requests without these headers do not come from a page.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from fastapi import Request

from holdfast.web.problems import Problem

__all__ = ["refuse_other_sites"]

#: Sent by the site itself, or by a person (an address typed in, a bookmark).
_OWN = frozenset({"same-origin", "none"})
_READING = frozenset({"GET", "HEAD"})
_PORTS = {"http": 80, "https": 443}


def refuse_other_sites(request: Request, *, own: Literal["host", "origin"], trusted: frozenset[str]) -> None:
    """A problem if a page of another site sent this. Following a link is allowed.

    The server's own origin is what the request was sent to: scheme, name and port (`origin`); or name and port alone
    (`host`), where a proxy may speak TLS for an application. Origins that are trusted count as own ones. A frame is not
    a link: only an application decides who may show its pages in one.
    """
    headers = request.headers
    origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
    if len(origins) == 1 and origins[0].lower() in trusted:
        return
    foreign = not _OWN.issuperset(sites)
    followed = request.method in _READING and headers.get("sec-fetch-mode") == "navigate" and not origins
    if foreign and followed and (own == "host" or headers.getlist("sec-fetch-dest") == ["document"]):
        return
    if own == "origin" or not sites:
        foreign |= any(not _is_own(request, origin, own) for origin in origins)
    if foreign:
        raise Problem(403, "origin", "These routes do not answer pages of another site.")


def _is_own(request: Request, origin: str, own: Literal["host", "origin"]) -> bool:
    scheme = str(request.scope["scheme"])
    try:
        given = urlsplit(origin)
        # If the address has no port, the scheme decides: a proxy that speaks TLS leaves the port out.
        asked = urlsplit(f"{scheme if own == 'origin' else given.scheme}://{request.headers.get('host', '')}")
        places = [(part.scheme, part.hostname, part.port or _PORTS.get(part.scheme)) for part in (given, asked)]
    except ValueError:
        return False
    return places[0] == places[1] and given.hostname is not None
