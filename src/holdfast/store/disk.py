"""Whether the server waits for its disk: with `fsync = off`, a crash of its machine loses accepted jobs.

Such a server is refused, unless somebody says that this is intended: the process (`HOLDFAST_ALLOW_FSYNC_OFF`), or the
server's own configuration (`holdfast.allow_fsync_off`); a database, role or URL does not count. The setting can change
at any time, so it is read again: every few seconds before something is recorded, on a caller's connection too, and with
every readiness check.
"""

from __future__ import annotations

import time
from urllib.parse import unquote

import asyncpg

from holdfast.config import Config
from holdfast.errors import ConfigError, DatabaseUnavailable
from holdfast.store.statements import queries

__all__ = ["DiskWatch", "refuse_forgetful_server"]

_TOLD = (
    "the server runs with fsync = off: a crash of its machine loses accepted jobs, or the whole database. Turn it on; "
    "where nothing has to last, set HOLDFAST_ALLOW_FSYNC_OFF=true, or holdfast.allow_fsync_off = on in the server's "
    "configuration"
)
_ASK_SECONDS, _CHECK_SECONDS = 10.0, 30.0
#: Statements that acknowledge a job, or a request about one.
_RECORDS = frozenset(
    {
        "enqueue_plain", "enqueue_many", "submit", "request", "request_later", "tenant_request", "operator_request",
        "release_held",
    }
)  # fmt: skip


class DiskWatch:
    """Knows when to ask the server, and refuses to go on if the server does not wait for its disk."""

    def __init__(self, config: Config | None) -> None:
        """Without a configuration it never asks: the worker asks for its handlers' processes."""
        self._allowed = config is None or config.allow_fsync_off or config.is_of_a_test
        self._next = float("-inf")
        #: The argument of `forgets_unasked`: whether the URL itself contains the permission, which is then ignored.
        self.self_allowed = config is not None and "allow_fsync_off" in unquote(config.database_url or "")

    def is_due(self, statement: str) -> bool:
        """Whether the server must be asked before this statement."""
        if statement in _RECORDS:
            return not self._allowed and time.monotonic() >= self._next
        return statement == "probe" and not self._allowed

    def judge(self, forgets: bool) -> None:
        """Take the server's answer. Raises DatabaseUnavailable if nothing may be recorded there."""
        if forgets:
            self._next = float("-inf")
            raise DatabaseUnavailable(_TOLD, reason="volatile")
        self._next = time.monotonic() + _ASK_SECONDS


async def refuse_forgetful_server(conn: asyncpg.Connection, config: Config) -> None:
    """Raise ConfigError if the server does not wait for its disk, unless somebody said that this is intended."""
    watch = DiskWatch(config)
    sql = queries(config.schema)["forgets_unasked"]
    if watch.is_due("probe") and await conn.fetchval(sql, watch.self_allowed, timeout=_CHECK_SECONDS):
        raise ConfigError(_TOLD)
