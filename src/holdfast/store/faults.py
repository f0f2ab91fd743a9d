"""SQLSTATEs and the driver's errors become Holdfast's, here and nowhere else."""

from __future__ import annotations

import asyncio

import asyncpg

from holdfast.errors import Conflict, DatabaseUnavailable, HoldfastError, InvalidInput, SchemaError

__all__ = ["CONNECTION_FAULTS", "REPEATABLE", "translated"]

#: A deadlock or a serialisation failure: nothing was done, the statement may be repeated.
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

_ADVICE = "run `holdfast migrate` (or `holdfast doctor` to see what is wrong)"


def translated(fault: BaseException) -> HoldfastError:
    """The error to raise for a fault of the driver or the database."""
    if isinstance(fault, HoldfastError):
        return fault
    if isinstance(fault, CONNECTION_FAULTS):
        return DatabaseUnavailable(f"PostgreSQL cannot be reached: {fault or type(fault).__name__}")
    if isinstance(fault, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidCatalogNameError):
        return DatabaseUnavailable(f"PostgreSQL refused the login: {fault}")
    state = getattr(fault, "sqlstate", None)
    match state:
        case "HF001" | "23505":
            return Conflict(str(fault))
        case "HF002":
            return InvalidInput(str(fault))
        case "22023" if "role" in str(fault):
            return SchemaError(f"a role of the engine is missing ({fault}); {_ADVICE}")
        case str() if state.startswith("22"):
            return InvalidInput(f"a value that PostgreSQL cannot store (a NUL or a broken character?): {fault}")
        case "3F000" | "42P01" | "42883" | "42703":
            return SchemaError(f"the schema does not fit this release ({fault}); {_ADVICE}")
        case "42501":
            return SchemaError(f"the database login lacks a right ({fault}); {_ADVICE}")
        case "54000" | "23514":
            return InvalidInput(str(fault))
        case "53100" | "53200" | "53300" | "57P03" | "55P03":
            return DatabaseUnavailable(f"PostgreSQL is short of something: {fault}")
    return HoldfastError(f"PostgreSQL answered with an error: {fault}")
