"""The yardsticks of tests that judge durations: what slows the test's own process alone does not move them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.harness.slowness import Slowness
from tests.harness.stalls import Stalls


def test_a_processor_that_is_shared_makes_all_slower() -> None:
    """Pinned to one processor with a busy loop on it, the process that measures gets half of it."""
    processor = {min(os.sched_getaffinity(0))}
    loop = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        os.sched_setaffinity(loop.pid, processor)
        assert loop.stdout is not None
        loop.stdout.readline()
        with Slowness() as slow:
            os.sched_setaffinity(slow.pid, processor)
            for _ in range(100):
                factor = slow.factor  # each question is answered with one more measurement
            assert factor > 1.3
    finally:
        loop.kill()
        loop.communicate()


def test_a_process_that_stood_still_says_for_how_long() -> None:
    with Stalls() as stalls:
        os.kill(stalls.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(stalls.pid, signal.SIGCONT)
        assert stalls.longest >= 0.25
        assert stalls.longest < 0.25, "each stall is told once"


def test_a_test_that_blocks_itself_is_no_stall() -> None:
    """Compared with the least of some tries: the machine may stall at any moment, but not each time."""
    with Stalls() as stalls:

        def stall() -> float:
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                pass
            return stalls.longest

        assert min(stall() for _ in range(10)) < 0.05
