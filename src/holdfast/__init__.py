"""Holdfast: background work that must not be lost, on PostgreSQL."""

from holdfast.app import Handler, Holdfast, Sync, SyncHandler
from holdfast.client.job_ref import JobRef
from holdfast.client.new_job import NewJob
from holdfast.config import Config
from holdfast.errors import (
    AlreadyFinal,
    CircuitOpen,
    ConfigError,
    Conflict,
    DatabaseUnavailable,
    Fatal,
    Forbidden,
    Hold,
    HoldfastError,
    Interrupted,
    InvalidInput,
    InvalidPayload,
    KeyConflict,
    LeaseLost,
    LimitExceeded,
    NotFound,
    NotOpen,
    PayloadTooLarge,
    Retry,
    SchemaError,
    ServerUnavailable,
    Snooze,
    WaitTimeout,
)
from holdfast.model.circuit import Circuit
from holdfast.model.job import Attempt, Job, JobEvent, ListedJob
from holdfast.model.limits import Limit, Rate
from holdfast.model.progress import Item, Reported
from holdfast.model.retry import RetryPolicy
from holdfast.model.states import State, Status
from holdfast.remote import Client, HttpClient
from holdfast.telemetry import events
from holdfast.version import __version__
from holdfast.worker.context import Context, SyncContext
from holdfast.worker.middleware import Middleware

__all__ = [
    "AlreadyFinal",
    "Attempt",
    "Circuit",
    "CircuitOpen",
    "Client",
    "Config",
    "ConfigError",
    "Conflict",
    "Context",
    "DatabaseUnavailable",
    "Fatal",
    "Forbidden",
    "Handler",
    "Hold",
    "Holdfast",
    "HoldfastError",
    "HttpClient",
    "Interrupted",
    "InvalidInput",
    "InvalidPayload",
    "Item",
    "Job",
    "JobEvent",
    "JobRef",
    "KeyConflict",
    "LeaseLost",
    "Limit",
    "LimitExceeded",
    "ListedJob",
    "Middleware",
    "NewJob",
    "NotFound",
    "NotOpen",
    "PayloadTooLarge",
    "Rate",
    "Reported",
    "Retry",
    "RetryPolicy",
    "SchemaError",
    "ServerUnavailable",
    "Snooze",
    "State",
    "Status",
    "Sync",
    "SyncContext",
    "SyncHandler",
    "WaitTimeout",
    "__version__",
    "events",
]
