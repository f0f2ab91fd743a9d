"""Hints narrow where a worker looks, and what lies there is never missed by looking at everything."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.hints import Hints, Ranges
from holdfast.model.job import Claim, Stream

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STREAMS = [1, 2, 3]

Entry = tuple[int, int, int]  # stream, rank, seq
entries = st.tuples(st.sampled_from(STREAMS), st.integers(0, 20), st.integers(1, 30))


def claim(entry: Entry) -> Claim:
    stream, rank, seq = entry
    return Claim(
        job_id=UUID(int=seq), attempt=1, stream=Stream(id=stream, tenant="t", queue="q", type="w"), rank=rank, seq=seq,
        payload="{}", correlation_id="", target=None, failures=0, max_attempts=3, ready_at=NOW,
        claimed_at=NOW, lease_seconds=30,
    )  # fmt: skip


def covered(ranges: Ranges, entry: Entry) -> int:
    """How many of the ranges hold an entry, by the rule that the engine applies."""
    stream, rank, seq = entry
    return sum(
        stream == s and (rank, seq) > (from_rank, from_seq) and rank < to_rank
        for s, from_rank, from_seq, to_rank in zip(*ranges, strict=True)
    )


@given(st.lists(entries, max_size=60), st.lists(entries, max_size=30))
def test_everything_holds_every_entry_once_whatever_was_learnt(taken: list[Entry], left: list[Entry]) -> None:
    hints = Hints()
    hints.learn(claim(entry) for entry in taken)
    assert all(covered(hints.everything(STREAMS), entry) == 1 for entry in left)


@given(st.lists(entries, max_size=60), st.lists(entries, max_size=30))
def test_ranges_hold_once_all_but_what_lies_before_the_last_taken_of_its_rank(
    taken: list[Entry], left: list[Entry]
) -> None:
    hints = Hints()
    hints.learn(claim(entry) for entry in taken)
    for stream, rank, seq in left:
        last = max((s for st_, r, s in taken if (st_, r) == (stream, rank)), default=0)
        found = covered(hints.ranges(STREAMS), (stream, rank, seq))
        assert found <= 1
        if seq > last:
            assert found == 1


@given(st.lists(entries, min_size=1, max_size=14))
def test_what_was_taken_is_not_walked_again(taken: list[Entry]) -> None:
    hints = Hints()
    hints.learn(claim(entry) for entry in taken)
    assert all(covered(hints.ranges(STREAMS), entry) == 0 for entry in taken)


@given(st.lists(entries, max_size=14), st.lists(entries, max_size=14), entries)
def test_since_looks_back_to_the_mark_before_the_last_of_that_name(
    older: list[Entry], newer: list[Entry], left: Entry
) -> None:
    hints = Hints()
    hints.learn(claim(entry) for entry in older)
    hints.mark("seldom")
    before = covered(hints.ranges(STREAMS), left)
    hints.learn(claim(entry) for entry in newer)
    assert covered(hints.since("seldom", STREAMS), left) == 1
    hints.mark("often")
    hints.mark("often")
    assert covered(hints.since("seldom", STREAMS), left) == 1
    hints.mark("seldom")
    assert covered(hints.since("seldom", STREAMS), left) == before
    assert covered(hints.since("often", STREAMS), left) == covered(hints.ranges(STREAMS), left)


@given(st.lists(entries, max_size=14), st.lists(entries, max_size=14), entries)
def test_the_only_mark_will_do_where_it_is_old_enough(older: list[Entry], newer: list[Entry], left: Entry) -> None:
    hints = Hints()
    assert covered(hints.since("seldom", STREAMS, last_will_do=True), left) == 1
    hints.learn(claim(entry) for entry in older)
    hints.mark("seldom")
    before = covered(hints.ranges(STREAMS), left)
    hints.learn(claim(entry) for entry in newer)
    assert covered(hints.since("seldom", STREAMS, last_will_do=True), left) == before
    hints.mark("seldom")
    assert covered(hints.since("seldom", STREAMS, last_will_do=True), left) == before


@given(st.lists(entries, max_size=200))
def test_the_ranges_stay_few(taken: list[Entry]) -> None:
    hints = Hints()
    hints.learn(claim(entry) for entry in taken)
    assert len(hints.ranges(STREAMS)[0]) <= 17 * len(STREAMS)


def test_streams_that_were_not_asked_for_have_no_range() -> None:
    hints = Hints()
    hints.learn([claim((1, 5, 10)), claim((2, 5, 10))])
    assert hints.ranges([2]) == ([2, 2], [-1, 5], [0, 10], [5, 2_147_483_647])


def test_hints_of_forgotten_streams_are_dropped() -> None:
    hints = Hints()
    hints.learn([claim((1, 5, 10)), claim((2, 5, 10))])
    for _ in range(2):
        hints.mark("seldom")
    hints.keep({2})
    everything = Hints.everything([1])
    assert hints.ranges([1]) == hints.since("seldom", [1]) == everything
    assert hints.ranges([2]) == hints.since("seldom", [2]) != Hints.everything([2])
