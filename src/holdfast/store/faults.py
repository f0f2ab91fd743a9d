"""Translates SQLSTATEs and the driver's errors to Holdfast's; this happens nowhere else."""

from __future__ import annotations

import asyncio
import logging
import re

import asyncpg

from holdfast.errors import (
    Conflict,
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    InvalidPayload,
    PayloadTooLarge,
    SchemaError,
    TooManyQueues,
    TooManySchedules,
    TypeClosed,
)

__all__ = [
    "ANSWERED",
    "CONNECTION_FAULTS",
    "REPEATABLE",
    "never_sent",
    "refused_intent",
    "refused_request",
    "told_by_sqlstate",
    "translated",
]

_log = logging.getLogger("holdfast.store")

#: A deadlock or a serialization failure: nothing was done, and the statement may be repeated.
REPEATABLE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

CONNECTION_FAULTS = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.InternalClientError,
)

#: Errors after which the connection still works and need not be replaced.
ANSWERED = (asyncpg.QueryCanceledError, asyncpg.ReadOnlySQLTransactionError)

#: Messages of the driver about its own state when a connection has gone.
_DRIVERS_OWN = re.compile(
    "another operation|cannot switch to state|unknown protocol state|released back to the pool|connection is closed"
)
#: Messages of the driver before it has sent anything.
_UNSENT = ("cannot switch to state", "connection is closed")

#: The engine's rules that have their own errors (`sizes.sql`, `streams.sql`, `closing.sql`), by constraint name.
_RULES: dict[str | None, type[HoldfastError]] = {
    "payload": InvalidPayload,
    "payload_max_bytes": PayloadTooLarge,
    "schedules_per_tenant": TooManySchedules,
    "streams_per_tenant": TooManyQueues,
    "type_closed": TypeClosed,
}

_ADVICE = "run `holdfast migrate` (or `holdfast doctor` to see what is wrong)"


def never_sent(fault: BaseException) -> bool:
    """Whether the driver refused to send the statement: the server had ended the connection while it was idle."""
    return isinstance(fault, asyncpg.InterfaceError | asyncpg.InternalClientError) and str(fault).startswith(_UNSENT)


def translated(fault: BaseException) -> HoldfastError:
    """The error to raise for a fault of the driver or the database."""
    if isinstance(fault, HoldfastError):
        return fault
    match fault:
        case TimeoutError():
            return DatabaseUnavailable("PostgreSQL did not answer in time", reason="slow")
        case asyncpg.ReadOnlySQLTransactionError():
            return DatabaseUnavailable(f"PostgreSQL takes no writes: {fault}", reason="read-only")
        case asyncpg.TooManyConnectionsError():
            return DatabaseUnavailable(f"PostgreSQL has no connection left: {fault}", reason="connections")
        case asyncpg.QueryCanceledError():
            return DatabaseUnavailable(f"PostgreSQL ended the statement: {fault}", reason="slow")
        case asyncpg.CannotConnectNowError():
            return DatabaseUnavailable(f"PostgreSQL cannot be reached: {fault}")
        case _ if isinstance(fault, CONNECTION_FAULTS):
            return DatabaseUnavailable(f"the connection to PostgreSQL was lost: {_cause(fault)}", reason="cut")
        case asyncpg.InvalidAuthorizationSpecificationError() | asyncpg.InvalidCatalogNameError():
            return DatabaseUnavailable(f"PostgreSQL refused the login: {fault}")
    told = _told(getattr(fault, "sqlstate", None), str(fault), _constraint(fault))
    return told or HoldfastError(f"PostgreSQL answered with an error: {fault}")


def refused_intent(sqlstate: str, text: str, constraint: str | None) -> HoldfastError:
    """The error for one that the engine has told of in an answer."""
    return _told(sqlstate, text, constraint or None) or HoldfastError(f"PostgreSQL answered with an error: {text}")


def told_by_sqlstate(fault: BaseException) -> HoldfastError | None:
    """The error for a fault from another driver; None if that driver's own error is the better one.

    Lost connections, deadlocks and serialization failures are for the caller, who owns the transaction.
    """
    told = _told(_sqlstate(fault), str(getattr(fault, "orig", fault)), _constraint(fault))
    if told is None or isinstance(told, DatabaseUnavailable):
        return None
    return type(told)(f"{told} (the transaction is aborted: roll it back)")


def refused_request(state: str, text: str, pointer: str | None) -> HoldfastError:
    """The error for one of several requests in a statement that the engine itself has told apart.

    `pointer` is the place in the request that the engine's own words are about.
    """
    told = _told(state, text, None) or HoldfastError(f"PostgreSQL answered with an error: {text}")
    if isinstance(told, InvalidInput):
        if not state.startswith("HF"):
            _log.info("a request of a remote worker is refused: %s", text)
            told = InvalidInput("a value cannot be stored")
        told.pointer = pointer or None
    return told


def _cause(fault: BaseException) -> str:
    """What the server said before it cut the connection, if anything.

    The driver's messages about its own state ("cannot switch to state 12", "released back to the pool") do not help.
    """
    cause = fault.__cause__
    if isinstance(cause, asyncpg.PostgresError):
        return str(cause)
    if isinstance(fault, (asyncpg.InterfaceError, asyncpg.InternalClientError)) and _DRIVERS_OWN.search(str(fault)):
        return "it was closed while it was in use"
    return str(fault) or type(fault).__name__


def _sqlstate(fault: BaseException | None) -> str | None:
    """The SQLSTATE. Drivers name it differently, and wrappers keep the driver's error."""
    while fault is not None:
        state = getattr(fault, "sqlstate", None) or getattr(fault, "pgcode", None)
        if isinstance(state, str):
            return state
        fault = getattr(fault, "orig", None) or fault.__cause__
    return None


def _constraint(fault: BaseException | None) -> str | None:
    """The constraint name, by which the engine distinguishes errors with the same SQLSTATE."""
    while fault is not None:
        name = getattr(fault, "constraint_name", None) or getattr(getattr(fault, "diag", None), "constraint_name", None)
        if isinstance(name, str):
            return name
        fault = getattr(fault, "orig", None) or fault.__cause__
    return None


def _told(state: str | None, text: str, constraint: str | None) -> HoldfastError | None:
    match state:
        case "HF001" | "23505":
            return _RULES.get(constraint, Conflict)(text)
        case "HF002":
            return _RULES.get(constraint, InvalidInput)(text)
        case "54001":
            return InvalidInput("a value has more levels of lists and objects than PostgreSQL can read")
        case "22023" if "role" in text:
            return SchemaError(f"a role of the engine is missing ({text}); {_ADVICE}")
        case str() if state.startswith("22"):
            return InvalidInput(f"a value that PostgreSQL cannot store (a NUL or a broken character?): {text}")
        case "3F000" | "42P01" | "42883" | "42703":
            return SchemaError(f"the schema does not fit this release ({text}); {_ADVICE}")
        case "42501":
            return SchemaError(f"the database login lacks a right ({text}); {_ADVICE}")
        case "54000" | "23514":
            return InvalidInput(text)
        case "55P03" | "40P01" | "40001":
            return DatabaseBusy(f"somebody else holds what is needed: {text}")
        case "XX000" if text.startswith("cache lookup failed"):
            return DatabaseBusy(f"the schema was migrated while the statement waited; try again ({text})")
        case "53100":
            return DatabaseUnavailable(f"PostgreSQL's disk is full: {text}", reason="disk-full")
        case "53200" | "53300" | "57P03" | "55000" | "58030":
            return DatabaseUnavailable(f"PostgreSQL is short of something: {text}", reason="short")
    return None
