"""The URL of a database that Django knows, for Holdfast's own connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

__all__ = ["connection_of", "database_url"]

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
            f"Holdfast lives in PostgreSQL, and the database {alias!r} is {connection.vendor}: name another one with "
            "HOLDFAST = {'DATABASE': ...}"
        )
    return connection


def database_url(alias: str) -> str:
    """Where the database of that alias is now: within Django's tests it is the test database."""
    return url_of(connection_of(alias).settings_dict)


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
