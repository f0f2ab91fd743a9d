"""In whose name a test speaks: nobody's, whatever the tests before it said.

pytest runs all tests of a process in one context. What a fixture or a test that is not a coroutine sets there, such as
a tenant, or the address that a command line started in the process has noted, would hold for all tests that follow:
a tenant may not have all connections of a pool, so a test that takes two of two waits until it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.model.provenance import provenance, speaker

__all__ = ["nobody_speaks"]


@contextmanager
def nobody_speaks() -> Iterator[None]:
    """Within the block nothing is known of a speaker at first; after it, nothing of what was said within."""
    spoken, came = speaker.set(""), provenance.set((None, None))
    try:
        yield
    finally:
        provenance.reset(came)
        speaker.reset(spoken)
