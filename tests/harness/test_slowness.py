"""The yardstick of tests that judge durations grows with the load."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.harness.slowness import Slowness


def test_a_processor_that_is_shared_makes_all_slower() -> None:
    """Pinned to one processor with a busy loop on it, this thread gets half of it."""
    processor = min(os.sched_getaffinity(0))
    loop = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(loop.pid, {processor})
        os.sched_setaffinity(0, {processor})
        assert loop.stdout is not None
        loop.stdout.readline()
        slow = Slowness()
        for _ in range(100):
            slow.measure()
        assert slow.factor > 1.3
    finally:
        os.sched_setaffinity(0, before)
        loop.kill()
        loop.communicate()
