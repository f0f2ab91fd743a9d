"""Who is at the keyboard, for histories and the audit log."""

from __future__ import annotations

import getpass

__all__ = ["operator"]


def operator() -> str:
    """The user's name; in a container the number may have none."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"
