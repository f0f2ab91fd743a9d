"""Job ids are UUIDs of version 7, from Python and from SQL alike."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.ids import new_job_id, new_job_ids


def milliseconds(job_id: UUID) -> int:
    return job_id.int >> 80


@given(st.integers(min_value=1, max_value=50))
def test_ids_have_the_version_and_the_time_they_were_made(count: int) -> None:
    before = time.time_ns() // 1_000_000
    ids = [new_job_id() for _ in range(count)]
    after = time.time_ns() // 1_000_000
    assert {(job_id.version, job_id.variant) for job_id in ids} == {(7, "specified in RFC 4122")}
    assert all(before <= milliseconds(job_id) <= after for job_id in ids)
    assert len(set(ids)) == count


def test_a_clock_before_1970_makes_ids_of_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: -86_400 * 10**9)
    ids = [new_job_id(), *new_job_ids(3)]
    assert [milliseconds(job_id) for job_id in ids] == [0] * 4
    assert {job_id.version for job_id in ids} == {7}


@given(st.integers(min_value=0, max_value=3000))
def test_ids_of_a_batch_are_in_order(count: int) -> None:
    before, ids, after = new_job_id(), new_job_ids(count), new_job_id()
    assert len(ids) == len(set(ids)) == count
    assert ids == sorted(ids)
    assert {(job_id.version, job_id.variant) for job_id in ids} <= {(7, "specified in RFC 4122")}
    assert all(milliseconds(before) <= milliseconds(job_id) <= milliseconds(after) for job_id in ids)


def test_an_id_is_like_any_uuid() -> None:
    for job_id in [new_job_id(), *new_job_ids(3)]:
        same = UUID(str(job_id))
        assert (job_id, hash(job_id), job_id.bytes, job_id.is_safe) == (same, hash(same), same.bytes, same.is_safe)
        assert pickle.loads(pickle.dumps(job_id)) == copy.deepcopy(job_id) == same


def test_ids_sort_by_the_microsecond_they_were_made() -> None:
    ids: list[UUID] = []
    for _ in range(100):
        ids.append(new_job_id())
        tick = time.time_ns()
        while time.time_ns() < tick + 1000:
            pass
    assert ids == sorted(ids)


async def test_ids_of_the_database_are_of_the_same_kind(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch(
        "select uuid_v7() as id, (extract(epoch from clock_timestamp()) * 1000)::bigint as at "
        "from generate_series(1, 1000)"
    )
    assert {(row["id"].version, row["id"].variant) for row in rows} == {(7, "specified in RFC 4122")}
    assert all(before["at"] - 1 <= milliseconds(row["id"]) <= row["at"] + 1 for before, row in itertools.pairwise(rows))
    coarse = [row["id"].int >> 64 for row in rows]
    assert coarse == sorted(coarse)
    assert len({row["id"] for row in rows}) == 1000
