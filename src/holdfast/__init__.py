"""Holdfast: background work that must not be lost, on PostgreSQL."""

from holdfast.app import Handler, Holdfast
from holdfast.client.job_ref import JobRef
from holdfast.config import Config
from holdfast.errors import (
    AlreadyFinal,
    ConfigError,
    Conflict,
    DatabaseUnavailable,
    Fatal,
    Hold,
    HoldfastError,
    InvalidInput,
    InvalidPayload,
    KeyConflict,
    NotFound,
    Retry,
    SchemaError,
    Snooze,
    WaitTimeout,
)
from holdfast.model.job import Attempt, Event, Job
from holdfast.model.retry import RetryPolicy
from holdfast.model.states import State, Status
from holdfast.version import __version__
from holdfast.worker.context import Context

__all__ = [
    "AlreadyFinal",
    "Attempt",
    "Config",
    "ConfigError",
    "Conflict",
    "Context",
    "DatabaseUnavailable",
    "Event",
    "Fatal",
    "Handler",
    "Hold",
    "Holdfast",
    "HoldfastError",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "JobRef",
    "KeyConflict",
    "NotFound",
    "Retry",
    "RetryPolicy",
    "SchemaError",
    "Snooze",
    "State",
    "Status",
    "WaitTimeout",
    "__version__",
]
