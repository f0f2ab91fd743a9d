"""What a fault test did, in one line: the tests that prove most are worth nothing if little happened in them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.harness.fleet import Fleet

#: The name under which a line travels from an xdist worker to the terminal.
PROPERTY = "deeds"


class Deeds:
    """Counts of one test, from the histories of its fleets and from the test itself."""

    def __init__(self) -> None:
        self._fleets: list[Fleet] = []
        self._said: list[str] = []

    def watch(self, fleet: Fleet) -> Fleet:
        """Count what this fleet does."""
        self._fleets.append(fleet)
        return fleet

    def say(self, text: str) -> None:
        """Add to the line, and to what a failure shows."""
        print(text)
        self._said.append(text)

    def count(self) -> None:
        """Add what the fleets did, before they are taken down."""
        self._said[:0] = [_of_fleet(fleet) for fleet in self._fleets]

    def line(self) -> str:
        """All of it; empty if there is nothing to tell."""
        return "; ".join(self._said)


def show_deeds(reporter: pytest.TerminalReporter, seed: str) -> None:
    """Write the lines of all tests that have one."""
    lines = {
        report.nodeid: line
        for kind in ("", "error")
        for report in reporter.stats.get(kind, [])
        if report.when == "teardown" and (line := dict(report.user_properties).get(PROPERTY))
    }
    if lines:
        reporter.section(f"what the fault tests did, with HOLDFAST_CHAOS_SEED={seed}")
        for nodeid, line in sorted(lines.items()):
            reporter.write_line(f"{nodeid.rpartition('/')[2]}: {line}")


def _of_fleet(fleet: Fleet) -> str:
    facts = fleet.history.facts()
    kinds = Counter(fact.kind for fact in facts)
    runs = [fact for fact in facts if fact.kind == "started"]
    again = sum((fact.attempt or 1) > 1 for fact in runs)
    jobs = len({fact.job_id for fact in facts if fact.job_id is not None})
    parts = [
        f"{len(fleet.processes)} processes",
        f"{kinds['killed']} kills",
        f"{jobs} jobs",
        f"{len(runs)} runs ({again} after the first)",
    ]
    parts += [f"{kinds['frozen']} freezes"] if kinds["frozen"] else []
    parts += [f"{kinds['resumed']} resumed"] if kinds["resumed"] else []
    return ", ".join(parts)
