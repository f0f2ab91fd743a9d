"""What the driver says of its own state reaches nobody."""

from __future__ import annotations

import asyncpg
import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.store.faults import translated


@pytest.mark.parametrize(
    "fault",
    [
        asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
        asyncpg.InterfaceError("cannot call Connection.terminate(): connection has been released back to the pool"),
        asyncpg.InterfaceError("connection is closed"),
    ],
)
def test_the_error_for_a_lost_connection_is_in_plain_words(fault: Exception) -> None:
    told = translated(fault)
    assert isinstance(told, DatabaseUnavailable)
    assert told.reason == "cut"
    assert str(told) == "the connection to PostgreSQL was lost: it was closed while it was in use"


def test_the_error_quotes_what_the_server_said_before_it_cut_the_connection() -> None:
    fault = asyncpg.InterfaceError("connection is closed")
    fault.__cause__ = asyncpg.AdminShutdownError("terminating connection due to administrator command")
    assert str(translated(fault)).endswith("terminating connection due to administrator command")
