"""The URL of a database that Django knows, for Holdfast's own connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

__all__ = ["connection_of", "database_url", "entry_of", "lead_to", "names_the_same", "url_of"]

#: Options of Django's connection that mean the same in a URL. Others shape Django's sessions, not the connection.
_SHARED_OPTIONS = (
    "passfile", "service", "sslcert", "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert",
    "target_session_attrs",
)  # fmt: skip


def connection_of(alias: str) -> Any:
    """Django's connection of that alias in this thread; `ImproperlyConfigured` unless it is to PostgreSQL."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"Holdfast needs PostgreSQL, and the database {alias!r} is {connection.vendor}: name another one with "
            "HOLDFAST = {'DATABASE': ...}"
        )
    return connection


def database_url(alias: str) -> str:
    """Where the database of that alias is now: within Django's tests it is the test database."""
    return url_of(connection_of(alias).settings_dict)


def names_the_same(url: str | None, alias: str) -> bool:
    """Whether a URL names the database that Django's connections of that alias lead to now."""
    return url is not None and entry_of(url)["NAME"] == str(connection_of(alias).settings_dict.get("NAME") or "")


def lead_to(alias: str, url: str) -> None:
    """Let Django's connections of that alias, in all threads, lead to where the URL says."""
    connection = connection_of(alias)
    if url_of(connection.settings_dict) != url:
        connection.close()
        connection.settings_dict.update(entry_of(url))


def entry_of(url: str) -> dict[str, str]:
    """What a URL says of the place and the login, in the words of DATABASES."""
    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    login, _, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, ""
    return {
        "NAME": unquote(parts.path.removeprefix("/")) or query.get("dbname", ""),
        "USER": unquote(user) or query.get("user", ""),
        "PASSWORD": unquote(password) or query.get("password", ""),
        "HOST": unquote(host).removeprefix("[").removesuffix("]") or query.get("host", ""),
        "PORT": port or query.get("port", ""),
    }


def url_of(given: Mapping[str, Any]) -> str:
    """An entry of DATABASES as a URL."""
    user, password = str(given.get("USER") or ""), str(given.get("PASSWORD") or "")
    host, port = str(given.get("HOST") or ""), str(given.get("PORT") or "")
    options = given.get("OPTIONS") or {}
    query = {name: str(options[name]) for name in _SHARED_OPTIONS if options.get(name) is not None}
    # A folder with a socket, several hosts, or a port alone have no place before the path.
    place = ""
    if host and not host.startswith("/") and "," not in host:
        place = f"[{host}]" if ":" in host else quote(host, safe="")
        place += f":{port}" if port else ""
    else:
        query |= {name: value for name, value in (("host", host), ("port", port)) if value}
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    name = quote(str(given.get("NAME") or ""), safe="")
    return f"postgresql://{login}{'@' if login else ''}{place}/{name}{'?' if query else ''}{urlencode(query)}"
