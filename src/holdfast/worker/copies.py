"""Copies of a worker: a handler that forks may return in both processes, and only one of them is the worker.

The copy shares the worker's connections and knows the same attempts. Were it to go on, it would settle them, drain, and
end processes that belong to others. So it is ended where its handler ends.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["Original"]

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - a fork concerns the whole process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Original:
    """The process in which a worker was made."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        self._forks = _forks

    def or_end(self) -> None:
        """Go on, unless this is a copy."""
        if _forks != self._forks:
            with suppress(OSError):
                os.write(2, b"holdfast: a copy of the worker that a handler has forked returned from it, and ends\n")
            os._exit(1)
