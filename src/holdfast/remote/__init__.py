"""For programs that do not reach the database: a client of the HTTP API, and a worker over HTTP."""

from typing import TYPE_CHECKING

from holdfast.remote.client import HttpClient, RemoteItem, RemoteJob, RemoteResult, SyncClient

if TYPE_CHECKING:
    from holdfast.remote.worker import RemoteWorker

#: The name of HttpClient up to 0.2, and in programs that use it.
Client = HttpClient

__all__ = ["Client", "HttpClient", "RemoteItem", "RemoteJob", "RemoteResult", "RemoteWorker", "SyncClient"]


def __getattr__(name: str) -> type:
    """The worker, imported where it is used: a program that only submits does not load what runs handlers."""
    if name == "RemoteWorker":
        from holdfast.remote.worker import RemoteWorker

        return RemoteWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
