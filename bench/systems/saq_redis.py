"""SAQ on Redis: hiredis, uvloop, and all else as in `bench.systems.saq`, which tells the two apart by the URL.

SAQ's own defaults: each of the handlers waits with a blocking move on a connection of its own.
"""

from __future__ import annotations

from bench.systems.saq import client, prepare, unfinished, work

__all__ = ["client", "prepare", "unfinished", "work"]
