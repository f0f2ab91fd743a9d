"""When Python's collector of garbage goes over all objects: between tests, and not often.

By itself it does whenever a quarter more objects have survived than there were. An app of FastAPI has ten thousand of
them, and tests make hundreds of apps: a third of the processor time of the API's tests was the collector's, for some
100 MB that it saved.
"""

from __future__ import annotations

import gc

__all__ = ["Garbage"]

#: The collector's own runs over all objects never come; those over young ones are as they were.
_THRESHOLDS = 700, 10, 1_000_000
#: So many tests are between two collections.
_TESTS = 100


class Garbage:
    """Collects between tests."""

    def __init__(self) -> None:
        # Thousands of modules and tests live as long as the process: the collector is to pass them over.
        gc.disable()
        self._tests = 0

    def begin(self) -> None:
        """What there is will stay; from here on there is something to collect."""
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
        gc.enable()

    def after_test(self) -> None:
        """Nothing of the test is in use any more."""
        self._tests += 1
        if self._tests % _TESTS == 0:
            gc.collect()
