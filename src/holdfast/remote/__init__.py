"""A client of the HTTP API, for programs that do not reach the database."""

from holdfast.remote.client import Client, RemoteItem, RemoteJob, RemoteResult, SyncClient

__all__ = ["Client", "RemoteItem", "RemoteJob", "RemoteResult", "SyncClient"]
