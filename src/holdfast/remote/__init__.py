"""A client of the HTTP API, for programs that do not reach the database."""

from holdfast.remote.client import HttpClient, RemoteItem, RemoteJob, RemoteResult, SyncClient

#: The name of HttpClient up to 0.2, and in programs that use it.
Client = HttpClient

__all__ = ["Client", "HttpClient", "RemoteItem", "RemoteJob", "RemoteResult", "SyncClient"]
