"""Why the embedded PostgreSQL cannot be used. Separate from the rest, which cannot even be imported on Windows."""

from __future__ import annotations

from importlib import import_module

from holdfast.errors import HoldfastError

__all__ = ["EmbeddedError", "refuse_where_it_cannot_run"]


class EmbeddedError(HoldfastError):
    """The embedded PostgreSQL cannot be used; the message says why, and what to do."""

    code = "embedded-postgres"


def refuse_where_it_cannot_run() -> None:
    """Raise on systems without the locks and users that it needs."""
    try:
        import_module("fcntl")
    except ImportError:
        raise EmbeddedError(
            "The embedded PostgreSQL runs on Linux and macOS only: set HOLDFAST_DATABASE_URL."
        ) from None
