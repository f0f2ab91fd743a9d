"""Where a PostgreSQL URL leads: one server or several, of which one takes writes.

Both forms that libpq knows are read: `postgresql://h1:5432,h2:5433/db` and `postgresql:///db?host=h1,h2&port=5432`.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlencode, urlsplit, urlunsplit

__all__ = ["Address", "addresses_of", "parameter_of", "without_parameters"]


class Address(NamedTuple):
    """One server; without a port it is the usual one."""

    host: str
    port: int | None

    def __str__(self) -> str:
        """As people write it."""
        if self.host.startswith(("/", "@")):
            return f"{self.host}/.s.PGSQL.{self.port or 5432}"
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port or 5432}"


def addresses_of(url: str) -> list[Address]:
    """The servers that a URL names, in its order; none where the environment decides. ValueError says what is wrong."""
    place = urlsplit(url).netloc.rpartition("@")[2]
    hosts = place or parameter_of(url, "host") or ""
    found = [_address(unquote(host) if place else host) for host in hosts.split(",")] if hosts else []
    ports = [_port(port) for port in (parameter_of(url, "port") or "").split(",")]
    if len(ports) > 1 and len(ports) != len(found):
        raise ValueError(f"names {len(found)} hosts and {len(ports)} ports")
    return [
        address._replace(port=address.port or ports[number if len(ports) > 1 else 0])
        for number, address in enumerate(found)
    ]


def parameter_of(url: str, name: str) -> str | None:
    """A parameter of a URL; the last one counts."""
    return parse_qs(urlsplit(url).query).get(name, [None])[-1]


def without_parameters(url: str, *names: str) -> str:
    """The URL without these parameters; as it is where it has none of them."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    if not any(name in query for name in names):
        return url
    kept = {name: values[-1] for name, values in query.items() if name not in names}
    return urlunsplit(parts._replace(query=urlencode(kept)))


def _address(text: str) -> Address:
    if text.startswith(("/", "@")):
        folder, _, port = text.partition(":")
        return Address(folder, _port(port))
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return Address(host, _port(rest.removeprefix(":")))
    host, _, port = text.partition(":")
    return Address(host, _port(port))


def _port(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ValueError("has a part that is not a port; a / or @ in a password must be written as %2F or %40")
    return int(text)
