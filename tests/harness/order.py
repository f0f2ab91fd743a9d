"""In which order tests run: long ones spread over all processes, and none of them near the end.

pytest-randomly keeps a module's tests together, and xdist gives each process a contiguous share of them. Left at that,
one process can be busy for a minute with the last of a module's long tests while the others have nothing left to do;
and two cores run best when a test that mostly waits has short ones beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

__all__ = ["is_long", "spread"]

T = TypeVar("T")

#: Where most tests take seconds, of the processor's time or of mere waiting: they start processes, kill servers, fill
#: tables, or see leases and graces through to their end.
LONG = (
    "tests/faults/",
    "tests/e2e/",
    "tests/maintenance/test_clock.py",
    "tests/maintenance/test_starvation.py",
    "tests/maintenance/test_streams.py",
    "tests/maintenance/test_wake_ups.py",
    "tests/migrations/test_load.py",
    "tests/migrations/test_migrate.py",
    "tests/store/embedded/",
    "tests/store/test_forgetful.py",
    "tests/store/test_servers.py",
    "tests/contracts/test_bench.py",
    "tests/contracts/test_docs.py::test_python_snippets_run",
    "tests/contracts/test_packaging.py",
    "tests/contracts/test_site.py",
    "tests/cli/test_db.py",
    "tests/cli/test_init.py",
    "tests/cli/test_serve.py",
    "tests/cli/test_shutdown.py",
    "tests/cli/test_up.py",
    "tests/cli/test_worker.py",
    "tests/integrations/test_django_project.py",
    "tests/integrations/test_flask.py::test_flask_holdfast",
    "tests/integrations/test_forks.py",
    "tests/sql/test_blocked.py::test_thousands",
    "tests/sql/test_cost.py",
    "tests/sql/test_model.py",
    "tests/testing/test_plugin.py",
    "tests/web/test_bounded.py::test_requests_sent_ahead",
    "tests/web/test_description.py",
    "tests/worker/test_blockage.py",
    "tests/worker/test_handler_matrix.py",
    "tests/worker/test_leases.py",
    "tests/worker/test_payloads.py",
    "tests/worker/test_process_ends.py",
    "tests/worker/test_settlement.py",
)
#: The part of a process's share, from its beginning, in which long tests may stand.
EARLY = 0.75


def is_long(item: pytest.Item) -> bool:
    """Whether a test is among those that take seconds."""
    return item.nodeid.startswith(LONG)


def spread(items: Sequence[T], shares: int, is_long: Callable[[T], bool]) -> list[T]:
    """The same items, for `shares` processes that get equal parts, with the long ones spread evenly and early."""
    long = [item for item in items if is_long(item)]
    short = [item for item in items if not is_long(item)]
    ordered: list[T] = []
    for number in range(shares):
        mine = long[number::shares]
        others = short[len(short) * number // shares : len(short) * (number + 1) // shares]
        between = EARLY * len(others) / max(1, len(mine))
        done = 0
        for position, item in enumerate(mine):
            upto = int(position * between)
            ordered += [*others[done:upto], item]
            done = upto
        ordered += others[done:]
    return ordered
