"""Where a worker's claims have come to, so that it need not walk over dead entries of `ready` again.

Entries are claimed in the order of (rank, seq) within a stream, and new ones get larger seqs. After a claim
the worker looks only behind the last entry it took, per stream and rank. That may miss an entry with a
smaller seq: one whose transaction committed late, or one that another worker's failed claim left behind.
So the caller sets marks, asks now and then for an older view (`since` a mark), and for none at all (`everything`).

A range is (stream, from_rank, from_seq, to_rank): entries after (from_rank, from_seq), rank below to_rank.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from holdfast.model.job import Claim

__all__ = ["Hints", "Ranges"]

Ranges = tuple[list[int], list[int], list[int], list[int]]
_Taken = dict[int, dict[int, int]]
_TOP = 2_147_483_647

#: More ranks than this in one stream, and the hints of that stream start afresh.
_RANKS_KEPT = 16


class Hints:
    """The last (rank → seq) taken per stream, now and as it was at the last two marks of each name."""

    def __init__(self) -> None:
        self._now: _Taken = {}
        self._marks: dict[str, tuple[_Taken | None, _Taken]] = {}

    def learn(self, claims: Iterable[Claim]) -> None:
        """Remember what a claim took."""
        last: dict[tuple[int, int], int] = {}
        for claim in claims:
            place = claim.stream.id, claim.rank
            if claim.seq > last.get(place, 0):
                last[place] = claim.seq
        for (stream, rank), seq in last.items():
            ranks = self._now.setdefault(stream, {})
            if seq > ranks.get(rank, 0):
                ranks[rank] = seq
            if len(ranks) > _RANKS_KEPT:
                del self._now[stream]

    def forget(self, streams: Iterable[int]) -> None:
        """Know nothing of these streams any more."""
        for stream in streams:
            for taken in (self._now, *(mark for marks in self._marks.values() for mark in marks if mark is not None)):
                taken.pop(stream, None)

    def keep(self, streams: Container[int]) -> None:
        """Forget all other streams: most of them will never be used again."""
        for taken in (self._now, *(mark for marks in self._marks.values() for mark in marks if mark is not None)):
            for stream in [stream for stream in taken if stream not in streams]:
                del taken[stream]

    def mark(self, name: str) -> None:
        """Set a mark; `since` looks back to the one before the last of that name."""
        _, last = self._marks.get(name, (None, None))
        self._marks[name] = last, {stream: dict(ranks) for stream, ranks in self._now.items()}

    def ranges(self, streams: Sequence[int]) -> Ranges:
        """What lies behind the last claims."""
        return _ranges(streams, self._now)

    def since(self, name: str, streams: Sequence[int], *, last_will_do: bool = False) -> Ranges:
        """What lies behind the claims up to the mark before the last of that name; all, if there are not two.

        Where the last one is old enough by itself, it will do while it is the only one: a worker that has just come
        to a stream full of dead entries walks over them once, not for as long as it takes to set two marks.
        """
        first, last = self._marks.get(name, (None, None))
        return _ranges(streams, (first if first is not None or not last_will_do else last) or {})

    @staticmethod
    def everything(streams: Sequence[int]) -> Ranges:
        """All of the streams."""
        return _ranges(streams, {})


def _ranges(streams: Sequence[int], hints: _Taken) -> Ranges:
    ids: list[int] = []
    from_ranks: list[int] = []
    from_seqs: list[int] = []
    to_ranks: list[int] = []
    for stream in streams:
        rank, seq = -1, 0
        for next_rank, next_seq in sorted(hints.get(stream, {}).items()):
            ids.append(stream)
            from_ranks.append(rank)
            from_seqs.append(seq)
            to_ranks.append(next_rank)
            rank, seq = next_rank, next_seq
        ids.append(stream)
        from_ranks.append(rank)
        from_seqs.append(seq)
        to_ranks.append(_TOP)
    return ids, from_ranks, from_seqs, to_ranks
