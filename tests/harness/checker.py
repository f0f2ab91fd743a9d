"""Compares what was seen with what the database has in the end. Pure: facts and rows in, offences out.

A run whose attempt the database closed as `lost` may overlap others: its lease had lapsed, and the fence
keeps it harmless. That a lease lapsed at all needs a reason: its process was killed or frozen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.model.job import Attempt, Job
from holdfast.model.outcome import COSTS_ATTEMPT
from holdfast.model.states import State
from tests.harness.history import Fact

__all__ = ["RULES", "Offence", "check"]

_HELD = frozenset({State.CREATED, State.PAUSED, State.ERROR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """A rule that does not hold, and where."""

    rule: str
    job_id: UUID | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    job_id: UUID
    attempt: int
    process: int
    start: float
    end: float
    how: str | None
    value: Any


class _Case:
    """Facts and rows, arranged for the rules."""

    def __init__(self, facts: Iterable[Fact], jobs: Iterable[Job], attempts: Iterable[Attempt]) -> None:
        self.facts = sorted(facts, key=lambda fact: fact.at)
        self.jobs = {job.id: job for job in jobs}
        self.attempts: dict[UUID, dict[int, Attempt]] = defaultdict(dict)
        for attempt in attempts:
            self.attempts[attempt.job_id][attempt.attempt] = attempt
        self.killed = {f.process: f.at for f in self.of("killed")}
        self.disturbed = self.killed.keys() | {f.process for f in self.of("frozen")}
        ends = {(f.job_id, f.attempt): f for f in self.of("ended")}
        self.runs: dict[UUID, list[_Run]] = defaultdict(list)
        for fact in self.of("started"):
            assert fact.job_id is not None and fact.attempt is not None  # noqa: PT018 - the log's own form
            end = ends.get((fact.job_id, fact.attempt))
            self.runs[fact.job_id].append(
                _Run(
                    job_id=fact.job_id,
                    attempt=fact.attempt,
                    process=fact.process,
                    start=fact.at,
                    end=end.at if end else self.killed.get(fact.process, float("inf")),
                    how=end.how if end else None,
                    value=end.value if end else None,
                )
            )

    def of(self, kind: str) -> list[Fact]:
        return [fact for fact in self.facts if fact.kind == kind]

    def outcome(self, run: _Run) -> str | None:
        row = self.attempts[run.job_id].get(run.attempt)
        return row.outcome if row else None


def check(facts: Iterable[Fact], jobs: Iterable[Job], attempts: Iterable[Attempt]) -> list[Offence]:
    """Every offence, after all workers have drained and nothing runs any more."""
    case = _Case(facts, jobs, attempts)
    return [
        Offence(rule=rule.__name__.strip("_").replace("_", " "), job_id=job_id, detail=detail)
        for rule in RULES
        for job_id, detail in rule(case)
    ]


_Found = Iterator[tuple[UUID | None, str]]


def _nothing_is_lost(case: _Case) -> _Found:
    for fact in case.of("enqueued"):
        if fact.job_id not in case.jobs:
            yield fact.job_id, "was acknowledged and is not in the database"


def _everything_comes_to_an_end(case: _Case) -> _Found:
    for job in case.jobs.values():
        if not job.state.terminal and job.state not in _HELD:
            yield job.id, f"is still {job.state.value}"


def _one_key_one_job(case: _Case) -> _Found:
    found: dict[str, set[UUID | None]] = defaultdict(set)
    for fact in case.of("enqueued"):
        if fact.key is not None:
            found[fact.key].add(fact.job_id)
    for key, ids in found.items():
        if len(ids) > 1:
            yield None, f"the key {key!r} was answered with {len(ids)} jobs"


def _an_attempt_runs_once(case: _Case) -> _Found:
    for job_id, runs in case.runs.items():
        for number, times in Counter(run.attempt for run in runs).items():
            if times > 1:
                yield job_id, f"attempt {number} was started {times} times"


def _attempts_grow(case: _Case) -> _Found:
    for job_id, runs in case.runs.items():
        numbers = [run.attempt for run in runs]
        if numbers != sorted(numbers):
            yield job_id, f"attempts were started in the order {numbers}"


def _runs_of_a_job_do_not_overlap(case: _Case) -> _Found:
    for job_id, runs in case.runs.items():
        for earlier, later in _overlaps(case, runs):
            yield job_id, f"attempt {later.attempt} began before attempt {earlier.attempt} had ended"


def _runs_of_a_target_do_not_overlap(case: _Case) -> _Found:
    lines: dict[tuple[str, str], list[_Run]] = defaultdict(list)
    for job_id, runs in case.runs.items():
        job = case.jobs.get(job_id)
        if job is not None and job.target is not None:
            lines[job.tenant, job.target] += runs
    for (_, target), runs in lines.items():
        for earlier, later in _overlaps(case, runs):
            if earlier.job_id != later.job_id:
                yield later.job_id, f"ran on target {target!r} while {earlier.job_id} did"


def _targets_keep_their_order(case: _Case) -> _Found:
    """Per client and target: a job begins only after the one released before it has ended."""
    lines: dict[tuple[str, str], list[UUID]] = defaultdict(list)
    for fact in case.of("enqueued"):
        if fact.target is not None and fact.job_id in case.jobs:
            line = lines[fact.log, fact.target]
            if fact.job_id not in line:
                line.append(fact.job_id)
    for (_, target), line in lines.items():
        busy_until, before = float("-inf"), line[0]
        for job_id in line:
            runs = case.runs.get(job_id, [])
            if runs and runs[0].start < busy_until:
                yield job_id, f"passed {before} on target {target!r}"
            last = max((r.start if case.outcome(r) == "lost" else r.end for r in runs), default=busy_until)
            if not case.jobs[job_id].state.terminal:
                last = float("inf")
            if last > busy_until:
                busy_until, before = last, job_id


def _attempts_are_on_record(case: _Case) -> _Found:
    for job in case.jobs.values():
        expected = set(range(1, job.attempt + (0 if job.state is State.RUNNING else 1)))
        if set(case.attempts[job.id]) != expected:
            known = sorted(case.attempts[job.id])
            yield job.id, f"is {job.state.value} at attempt {job.attempt}, on record are {known}"
        for run in case.runs.get(job.id, []):
            if run.attempt > job.attempt:
                yield job.id, f"ran as attempt {run.attempt}, the database knows {job.attempt}"


def _records_agree_with_what_happened(case: _Case) -> _Found:
    for runs in case.runs.values():
        for run in runs:
            outcome = case.outcome(run)
            if outcome in (None, "lost"):
                continue
            if run.how is None:
                yield run.job_id, f"attempt {run.attempt} is recorded as {outcome} and never ended"
            elif (run.how == "success") != (outcome == "success"):
                yield run.job_id, f"attempt {run.attempt} is recorded as {outcome} and ended with {run.how}"


def _the_outcome_is_of_the_last_attempt(case: _Case) -> _Found:
    for job in case.jobs.values():
        wins = [a.attempt for a in case.attempts[job.id].values() if a.outcome == "success"]
        if job.state is State.SUCCESS and wins != [job.attempt]:
            yield job.id, f"is success at attempt {job.attempt}, attempts {wins} succeeded"
        elif job.state is not State.SUCCESS and wins:
            yield job.id, f"is {job.state.value}, but attempts {wins} succeeded"
        for run in case.runs.get(job.id, []):
            if job.state is State.SUCCESS and run.attempt == job.attempt and run.value != job.result:
                yield job.id, f"has the result {job.result!r}, its last attempt returned {run.value!r}"


def _an_end_is_final(case: _Case) -> _Found:
    for fact in case.of("seen"):
        job = case.jobs.get(fact.job_id) if fact.job_id else None
        if job is not None and fact.how != job.state.value and State(fact.how or "").terminal:
            yield job.id, f"was seen as {fact.how} and is now {job.state.value}"
    for job in case.jobs.values():
        if job.state.terminal != (job.finished_at is not None):
            yield job.id, f"is {job.state.value} and finished at {job.finished_at}"


def _budgets_are_kept(case: _Case) -> _Found:
    resumed = {fact.job_id for fact in case.of("resumed")}
    for job in case.jobs.values():
        burned = sum(a.outcome in COSTS_ATTEMPT for a in case.attempts[job.id].values())
        if job.id in resumed:
            continue
        if burned > job.max_attempts:
            yield job.id, f"burned {burned} of {job.max_attempts} attempts"
        if burned != job.failures:
            yield job.id, f"counts {job.failures} failures, its attempts show {burned}"


def _leases_lapse_for_a_reason(case: _Case) -> _Found:
    for attempts in case.attempts.values():
        for attempt in attempts.values():
            if attempt.outcome == "lost" and _process_of(attempt.worker) not in case.disturbed:
                yield attempt.job_id, f"attempt {attempt.attempt} was lost while {attempt.worker} lived"


def _overlaps(case: _Case, runs: Sequence[_Run]) -> Iterator[tuple[_Run, _Run]]:
    """Runs that began before an earlier one, whose lease had not lapsed, was over."""
    last: _Run | None = None
    for run in sorted(runs, key=lambda run: run.start):
        if last is not None and run.start < last.end:
            yield last, run
        if case.outcome(run) != "lost" and (last is None or run.end > last.end):
            last = run


def _process_of(worker: str) -> int | None:
    """The process in a worker's id, which is host:process:token."""
    parts = worker.rsplit(":", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else None


RULES: tuple[Callable[[_Case], _Found], ...] = (
    _nothing_is_lost,
    _everything_comes_to_an_end,
    _one_key_one_job,
    _an_attempt_runs_once,
    _attempts_grow,
    _runs_of_a_job_do_not_overlap,
    _runs_of_a_target_do_not_overlap,
    _targets_keep_their_order,
    _attempts_are_on_record,
    _records_agree_with_what_happened,
    _the_outcome_is_of_the_last_attempt,
    _an_end_is_final,
    _budgets_are_kept,
    _leases_lapse_for_a_reason,
)
