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


async def test_whoever_comes_again_goes_before_most_who_come_first() -> None:
    waiters = Waiters[str]()
    first = [waiters.join("a", f"m{number}") for number in range(3)]
    again = [waiters.join("a", "m9", again=True) for _ in range(4)]
    given = []
    while turn := waiters.next():
        given.append(turn[1])
    assert given == [*again[:3], first[0], again[3], first[1], first[2]]


async def test_whoever_leaves_is_not_kept() -> None:
    waiters = Waiters[str]()
    gone, kept = waiters.join("a", "m"), waiters.join("a", "m")
    waiters.leave(gone, "a", "m")
    assert list(waiters) == [kept]
    waiters.leave(kept, "a", "m")
    waiters.leave(kept, "a", "m")
    assert "a" not in waiters
    assert not waiters
