"""The checker itself: a good history has no offences, and every rule fires on a bad one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from holdfast import Attempt, Job, State
from tests.harness.checker import RULES, check
from tests.harness.history import Fact, Kind

NOW = datetime(2030, 1, 1, tzinfo=UTC)
A, B = UUID(int=1), UUID(int=2)
DEAD_WORKER, LIVING_WORKER = 10, 20


def _job(job_id: UUID, **changes: Any) -> Job:
    fields: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Job))
    fields |= {"id": job_id, "type": "work", "tenant": "default", "target": "a target", "max_attempts": 3}
    fields |= {"state": State.SUCCESS, "attempt": 1, "failures": 0, "result": "done", "finished_at": NOW}
    return Job(**{**fields, **changes})


def _attempt(job_id: UUID, number: int, outcome: str, process: int = LIVING_WORKER) -> Attempt:
    fields: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Attempt))
    fields |= {"job_id": job_id, "attempt": number, "outcome": outcome, "worker": f"host:{process}:abc"}
    return Attempt(**fields)


def _fact(kind: Kind, at: float, **fields: Any) -> Fact:
    return Fact(kind=kind, at=at, **{"process": LIVING_WORKER, "log": "a log", **fields})


class Case:
    """Two jobs of one target. The first lost an attempt to a kill, failed once, and succeeded."""

    def __init__(self) -> None:
        self.jobs = {A: _job(A, attempt=3, failures=2), B: _job(B)}
        self.attempts = [
            _attempt(A, 1, "lost", DEAD_WORKER),
            _attempt(A, 2, "failed"),
            _attempt(A, 3, "success"),
            _attempt(B, 1, "success"),
        ]
        self.facts = [
            _fact("enqueued", 0.0, job_id=A, key="a", target="a target"),
            _fact("enqueued", 0.1, job_id=B, key="b", target="a target"),
            _fact("started", 1.0, job_id=A, attempt=1, process=DEAD_WORKER),
            _fact("killed", 1.5, process=DEAD_WORKER),
            _fact("started", 2.0, job_id=A, attempt=2),
            _fact("ended", 2.5, job_id=A, attempt=2, how="raised ValueError"),
            _fact("started", 3.0, job_id=A, attempt=3),
            _fact("ended", 3.5, job_id=A, attempt=3, how="success", value="done"),
            _fact("seen", 3.6, job_id=A, how="success"),
            _fact("started", 4.0, job_id=B, attempt=1),
            _fact("ended", 4.5, job_id=B, attempt=1, how="success", value="done"),
        ]

    def offences(self) -> set[str]:
        return {offence.rule for offence in check(self.facts, self.jobs.values(), self.attempts)}

    def job(self, job_id: UUID, **changes: Any) -> None:
        self.jobs[job_id] = dataclasses.replace(self.jobs[job_id], **changes)

    def attempt(self, place: int, **changes: Any) -> None:
        self.attempts[place] = dataclasses.replace(self.attempts[place], **changes)

    def fact(self, place: int, **changes: Any) -> None:
        self.facts[place] = dataclasses.replace(self.facts[place], **changes)


def _set(*changes: Callable[[Case], object]) -> Case:
    case = Case()
    for change in changes:
        change(case)
    return case


BAD: dict[str, list[Case]] = {
    "nothing is lost": [_set(lambda c: c.jobs.pop(B))],
    "everything comes to an end": [
        _set(lambda c: c.job(B, state=State.QUEUED, finished_at=None)),
        _set(lambda c: c.job(B, state=State.RUNNING, finished_at=None)),
    ],
    "one key one job": [_set(lambda c: c.fact(1, key="a"))],
    "an attempt runs once": [_set(lambda c: c.facts.append(_fact("started", 9.0, job_id=B, attempt=1)))],
    "attempts grow": [_set(lambda c: c.fact(2, at=2.7))],
    "runs of a job do not overlap": [
        _set(lambda c: c.fact(6, at=2.4)),
        _set(lambda c: c.facts.pop(5)),
    ],
    "runs of a target do not overlap": [_set(lambda c: c.fact(9, at=3.4)), _set(lambda c: c.fact(9, at=2.2))],
    "targets keep their order": [
        _set(lambda c: c.fact(9, at=0.5), lambda c: c.fact(10, at=0.6)),
        _set(lambda c: c.fact(9, at=1.6), lambda c: c.fact(10, at=1.7)),
        _set(lambda c: c.job(A, state=State.PAUSED, finished_at=None)),
    ],
    "attempts are on record": [_set(lambda c: c.attempts.pop(1)), _set(lambda c: c.job(A, attempt=2))],
    "records agree with what happened": [
        _set(lambda c: c.attempt(3, outcome="failed")),
        _set(lambda c: c.attempt(1, outcome="success")),
        _set(lambda c: c.facts.pop(10)),
    ],
    "the outcome is of the last attempt": [
        _set(lambda c: c.attempt(1, outcome="success")),
        _set(lambda c: c.job(B, state=State.DEAD)),
        _set(lambda c: c.job(B, result="of another attempt")),
        _set(lambda c: c.attempt(3, outcome="failed")),
    ],
    "an end is final": [
        _set(lambda c: c.fact(8, how="canceled")),
        _set(lambda c: c.job(B, finished_at=None)),
    ],
    "budgets are kept": [_set(lambda c: c.job(A, max_attempts=1)), _set(lambda c: c.job(A, failures=1))],
    "leases lapse for a reason": [
        _set(lambda c: c.attempt(0, worker=f"host:{LIVING_WORKER}:abc")),
        _set(lambda c: c.attempt(0, worker="unknown")),
    ],
}


def test_a_good_history_has_no_offences() -> None:
    assert Case().offences() == set()


@pytest.mark.parametrize(("rule", "case"), [(rule, case) for rule, cases in BAD.items() for case in cases])
def test_a_bad_history_offends(rule: str, case: Case) -> None:
    assert rule in case.offences()


def test_every_rule_has_a_bad_history() -> None:
    assert {rule.__name__.strip("_").replace("_", " ") for rule in RULES} == BAD.keys()


def test_a_frozen_worker_excuses_its_lost_lease_and_its_late_end() -> None:
    late = _fact("ended", 3.2, job_id=A, attempt=1, process=DEAD_WORKER, how="success", value="too late")
    case = _set(lambda c: c.fact(3, kind="frozen"), lambda c: c.facts.append(late))
    assert case.offences() == set()


def test_a_held_job_is_not_lost() -> None:
    held = {"state": State.CREATED, "finished_at": None, "attempt": 0}
    case = _set(lambda c: c.job(B, **held), lambda c: c.attempts.pop(3), lambda c: c.facts.__delitem__(slice(9, 11)))
    assert case.offences() == set()
