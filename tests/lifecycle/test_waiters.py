"""Parties take turns, however long their lines are."""

from __future__ import annotations

from holdfast.lifecycle.waiters import Waiters


async def test_parties_take_turns_and_their_lines_keep_their_order() -> None:
    waiters = Waiters[str]()
    asked = [("a", waiters.join("a")) for _ in range(3)] + [(party, waiters.join(party)) for party in ("b", "c", "b")]
    given = []
    while turn := waiters.next():
        given.append(turn)
    assert [party for party, _ in given] == ["a", "b", "c", "a", "b", "a"]
    assert [waiter for party, waiter in given if party == "a"] == [waiter for party, waiter in asked if party == "a"]
    assert not waiters


async def test_waiters_that_gave_up_are_skipped_and_those_that_may_not_go_are_kept() -> None:
    waiters = Waiters[str]()
    gone, kept, other = waiters.join("a"), waiters.join("a"), waiters.join("b")
    gone.cancel()
    assert waiters.next(lambda party: party != "a") == ("b", other)
    assert waiters.next(lambda party: party != "a") is None
    assert "a" in waiters
    assert waiters.next() == ("a", kept)
