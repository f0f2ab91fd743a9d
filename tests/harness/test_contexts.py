"""What one test says of its speaker is not heard by the next."""

from __future__ import annotations

import pytest

from holdfast.model.provenance import provenance, speaker
from tests.harness.contexts import nobody_speaks


def test_the_next_test_hears_nothing_of_a_speaker() -> None:
    for _ in range(2):
        with nobody_speaks():
            assert (speaker.get(), provenance.get()) == ("", (None, None))
            speaker.set("acme")
            provenance.set(("10.0.0.1", "request"))
    assert (speaker.get(), provenance.get()) == ("", (None, None))


@pytest.mark.parametrize("turn", ["one", "another"])
def test_every_test_begins_with_nobody(turn: str) -> None:
    """Whichever of the two is the second hears what the first one left."""
    assert (speaker.get(), provenance.get()) == ("", (None, None))
    speaker.set("acme")
    provenance.set(("10.0.0.1", "request"))
