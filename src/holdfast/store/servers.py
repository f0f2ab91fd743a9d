"""Connects to the server that accepts writes, within a time limit, and explains failures.

1. If a URL names several servers, each has a short time limit, so that one that drops packets does not use up the time
   of the others. The one that worked last is tried first. Those that did not answer are tried a second time, with the
   remaining time.
2. Of several servers, standbys and read-only ones are passed over (`target_session_attrs`).
3. Both ends of a connection notice within half a minute if the other one has disappeared.
4. An error names the address: "No such file or directory" alone does not help.
5. Variables such as `PGSSLMODE` count as they were at the first connection, whatever handlers set later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any

import asyncpg

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.addresses import Address, addresses_of, parameter_of, without_parameters
from holdfast.store.faults import CONNECTION_FAULTS, translated
from holdfast.store.known_types import Connection
from holdfast.store.variables import with_first_variables

__all__ = ["CONNECT_SECONDS", "open_connection", "retire"]

CONNECT_SECONDS = 10.0
_HOST_SECONDS = 2.0
#: How long the server has to confirm that an abandoned statement has ended.
_RETIRE_SECONDS = 2.0

#: Parameters that only libpq knows: asyncpg would send them to the server as settings, and the server would refuse
#: them.
_OF_LIBPQ = (
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
    "load_balance_hosts",
)  # fmt: skip

#: (level, option, value): a peer that has disappeared is noticed after 10 s of silence and three probes 5 s apart, and
#: data sent to it is not waited for longer. Not every platform has all of these.
_SOCKET_OPTIONS = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 10),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 25_000),
)

#: The server that worked last, by URL.
_good: dict[str, Address] = {}


async def open_connection(arguments: Mapping[str, Any], seconds: float = CONNECT_SECONDS) -> asyncpg.Connection:
    """A connection to the server that accepts writes. Raises HoldfastError with the reason if there is none."""
    url = str(arguments["dsn"])
    addresses = addresses_of(url)
    given = {**arguments, "dsn": with_first_variables(without_parameters(url, *_OF_LIBPQ))}
    if len(addresses) < 2:
        return await _open_one(given, addresses[0] if addresses else None, min(seconds, CONNECT_SECONDS))
    if parameter_of(url, "target_session_attrs") is None:
        given["target_session_attrs"] = "read-write"
    end = asyncio.get_running_loop().time() + seconds
    if (good := _good.get(url)) in addresses:
        addresses.sort(key=lambda address: address != good)
    faults: dict[Address, DatabaseUnavailable] = {}
    for again in (False, True):
        for address in [a for a in addresses if not again or faults[a].reason == "slow"]:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                break
            try:
                conn = await _open_one(given, address, left if again else min(left, _HOST_SECONDS))
            except DatabaseUnavailable as fault:
                faults[address] = fault
                continue
            _good[url] = address
            return conn
        for address in addresses:
            faults.setdefault(address, DatabaseUnavailable("there was no time left", reason="slow"))
    raise DatabaseUnavailable(
        "none of the servers accepts writes: " + "; ".join(str(fault) for fault in faults.values()),
        reason=next(iter(faults.values())).reason if len({f.reason for f in faults.values()}) == 1 else "unreachable",
    )


async def retire(conn: asyncpg.Connection) -> bool:
    """End a connection whose statement was given up, in the server first. Returns whether the server confirmed it."""
    try:
        await conn.close(timeout=_RETIRE_SECONDS)
    except TimeoutError:
        return False
    except (*CONNECTION_FAULTS, asyncpg.PostgresError):
        return True  # it is gone
    finally:
        conn.terminate()
    return True


async def _open_one(arguments: Mapping[str, Any], address: Address | None, seconds: float) -> asyncpg.Connection:
    where = {} if address is None else {"host": address.host, "port": address.port}
    try:
        conn: asyncpg.Connection = await asyncpg.connect(
            **{"connection_class": Connection, **arguments, **where, "timeout": seconds}
        )
    except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
        raise _explained(fault, address, seconds) from fault
    _watch_the_line(conn)
    return conn


def _explained(fault: BaseException, address: Address | None, seconds: float) -> HoldfastError:
    at = "" if address is None else f" at {address}"
    match fault:
        case TimeoutError():
            return DatabaseUnavailable(f"PostgreSQL cannot be reached{at}: no answer in {seconds:.1f} s", reason="slow")
        case asyncpg.TargetServerAttributeNotMatched():
            told = f"the server{at} takes no writes: it is a standby, or read-only"
            return DatabaseUnavailable(told, reason="read-only")
        case FileNotFoundError() | ConnectionRefusedError():
            return DatabaseUnavailable(f"PostgreSQL cannot be reached{at}: nothing listens there; is it running?")
        case socket.gaierror():
            return DatabaseUnavailable(f"PostgreSQL cannot be reached{at}: the name is unknown ({fault.strerror})")
        case OSError():
            return DatabaseUnavailable(f"PostgreSQL cannot be reached{at}: {fault}; is it running?")
    return translated(fault)


def _watch_the_line(conn: asyncpg.Connection) -> None:
    """Let the socket notice that the other end is gone. A Unix socket always does."""
    line = conn._transport.get_extra_info("socket")  # type: ignore[attr-defined] # there is no other way to it
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for level, option, value in _SOCKET_OPTIONS:
        if hasattr(socket, option):
            with contextlib.suppress(OSError):
                line.setsockopt(getattr(socket, level), getattr(socket, option), value)
