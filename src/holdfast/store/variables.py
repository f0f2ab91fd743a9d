"""The variables of libpq (`PGSSLMODE` …), as they were when the process first connected to a server.

The driver reads them for every connection. A handler in the worker's own process may set some for a `pg_dump` of its
own; the connections that its worker opens later must not follow them.
"""

from __future__ import annotations

import getpass
import os
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

__all__ = ["with_first_variables"]

#: The parameter of a URL for each variable that the driver reads.
_PARAMETERS = {
    "PGHOST": "host",
    "PGPORT": "port",
    "PGUSER": "user",
    "PGPASSWORD": "password",
    "PGDATABASE": "dbname",
    "PGPASSFILE": "passfile",
    "PGSSLMODE": "sslmode",
    "PGSSLNEGOTIATION": "sslnegotiation",
    "PGSSLCERT": "sslcert",
    "PGSSLKEY": "sslkey",
    "PGSSLROOTCERT": "sslrootcert",
    "PGSSLCRL": "sslcrl",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version",
    "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
    "PGKRBSRVNAME": "krbsrvname",
    "PGGSSLIB": "gsslib",
}

#: By URL, the variables that were set when it was first used.
_first: dict[str, dict[str, str]] = {}


def with_first_variables(url: str) -> str:
    """The URL with what the variables said when it was first used, and with defaults where they said nothing.

    A file that was not named then (of certificates, of passwords) may be named later: there is no value for none.
    """
    given = _first.setdefault(
        url, {parameter: value for name, parameter in _PARAMETERS.items() if (value := os.environ.get(name))}
    )
    parts = urlsplit(url)
    query: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "service" in query:
        return url  # its file says what the URL does not, and the driver asks it after the URL
    in_place = {
        "user": parts.username or None,
        "password": parts.password,
        "dbname": parts.path.lstrip("/") or query.get("database"),
        "host": parts.hostname or (parts.netloc.rpartition("@")[2] or None),
        "port": _port_of(parts.netloc),
    }
    said = {name for name, value in in_place.items() if value is not None} | set(query)
    wanted = {name: value for name, value in given.items() if name not in said}
    user = parts.username or query.get("user") or wanted.get("user")
    if user is None and (user := _login()) is not None:
        wanted["user"] = user
    host = query.get("host") or in_place["host"] or wanted.get("host") or ""
    defaults = {
        "dbname": user,
        "port": "5432",
        # Over a Unix socket there is no encryption, and to prepare it takes time.
        "sslmode": "disable" if host.startswith("/") else "prefer",
        "sslnegotiation": "postgres",
        "target_session_attrs": "any",
        "gsslib": "gssapi",
    }
    wanted |= {name: value for name, value in defaults.items() if value and name not in said and name not in wanted}
    if "database" in query:
        wanted.pop("dbname", None)
    return f"{url.partition('?')[0]}?{urlencode(query | {name: value for name, value in wanted.items() if value})}"


def _port_of(place: str) -> str | None:
    """The port in the place of a URL, or that of the first of several servers."""
    first = place.rpartition("@")[2].split(",")[0].rpartition("]")[2]
    return first.rpartition(":")[2] or None if ":" in first else None


def _login() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
