"""What the engine promises, in plain Python: dicts and lists, no SQL, one thing at a time.

A target's line is its jobs that were released and have not ended. Nothing of it can be claimed while one of them runs,
waits for its next attempt, or is held; else the one that was released first can, whatever its priority. How a job came
to be first, which the engine keeps in `heads` and `waiting`, is not modelled: this is what all of that must amount to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

from tests.sql.factories import Lease

LEASE_SECONDS = 30.0
#: For how long a leader that has been in touch for ages is believed after its last word.
LEADER_SECONDS = 4.0
REQUEST_PAUSE = 0.5
DEFAULT_ATTEMPTS = 3
#: Job types, and what becomes of their failures.
POLICIES = {"work": "retry", "careful": "hold"}
FINAL = ("success", "dead", "canceled")

Line = tuple[str, str]


@dataclass(eq=False, kw_only=True)
class ModelJob:
    """One job. `place` is when it was released, `stood` since when (and how far in front) it can be claimed."""

    id: UUID
    type: str
    tenant: str
    target: str | None
    priority: int
    max_attempts: int
    state: str
    run_at: float
    place: int
    #: The engine's own number. Jobs of one kind may stand in several streams, once one was forgotten.
    stream: int = 0
    attempt: int = 0
    failures: int = 0
    returned: bool = False
    erased: bool = False
    worker: str = ""
    expires_at: float = 0.0
    interrupt: str | None = None
    #: What an operator has decided about the attempt.
    verdict: str | None = None
    #: Of the letter of a dead job.
    acknowledged: bool = False
    requeued_as: UUID | None = None
    stood: tuple[int, int, int] | None = None

    @property
    def line(self) -> Line | None:
        """Where it stands in line, if it has a target."""
        return None if self.target is None else (self.tenant, self.target)

    @property
    def in_line(self) -> bool:
        """Released, and not ended; a snoozed job has run before, one scheduled for later has not joined."""
        return self.state in ("queued", "running", "retry", "paused", "error") or (
            self.state == "scheduled" and self.attempt > 0
        )


@dataclass(kw_only=True)
class Wish:
    """A recorded request. `flagged` is the attempt that it flagged when it was recorded; `looks` counts its tries."""

    verb: str
    job: ModelJob
    flagged: int | None
    due: float | None = None
    looks: int = 0
    verdict: str | None = None
    priority: int | None = None
    #: Which came first; due ones go to the end of the list.
    place: int = 0
    #: It was accepted and no attempt has its flag, so it decides how the next one ends; or that has happened.
    pending: bool = False
    settled: bool = False

    @property
    def decision(self) -> str | None:
        """What it decides about an attempt, if anything."""
        if self.verb in ("cancel", "resolve", "pause"):
            return self.verb
        return "cancel" if self.verb == "delete" else self.verdict

    def repeats(self, other: Wish) -> bool:
        """Whether the other one is as good as this one: neither can be taken back."""
        return (self.verb, self.job.id, self.verdict) == (other.verb, other.job.id, other.verdict) and (
            self.verb == "delete"
            or (self.verb in ("cancel", "resolve", "fail", "kill", "expire-lease") and self.flagged == other.flagged)
        )


@dataclass(eq=False, kw_only=True)
class Bulk:
    """A bulk operation under way. `steady` are the jobs that have fitted ever since it was started."""

    id: UUID
    action: str
    states: Collection[str]
    tenant: str | None
    priority: int
    #: The jobs that were there when it was started.
    known: Collection[UUID]
    steady: set[UUID]
    noted: list[UUID] | None = None

    def fits(self, job: ModelJob) -> bool:
        """Whether it is about this job, as it is now."""
        return (
            job.id in self.known
            and job.state in self.states
            and self.tenant in (None, job.tenant)
            and not (self.action in ("requeue", "ack") and job.acknowledged)
        )


@dataclass(eq=False)
class Model:
    """The jobs, and every verb of the engine as a plain method."""

    now: float = 0.0
    #: When the leader was last heard of; whoever claims by id takes back a lapsed lease only where the leader would.
    led_at: float = float("-inf")
    jobs: dict[UUID, ModelJob] = field(default_factory=dict)
    wishes: list[Wish] = field(default_factory=list)
    #: Lines that maintenance knows of: until it heard the call of the first job, nothing there can be claimed.
    known: set[Line] = field(default_factory=set)
    #: Tenants whose weight is not 1.
    weights: dict[str, float] = field(default_factory=dict)
    #: How each attempt ended, and on which worker.
    ends: dict[Lease, tuple[str, str]] = field(default_factory=dict)
    _places: Iterator[int] = field(default_factory=count)
    _step: int = 0

    # What can be claimed

    def claimable(self) -> list[ModelJob]:
        """The jobs that may run now, in no order."""
        free = [job for job in self.jobs.values() if job.state == "queued" and job.target is None]
        firsts = [first for line in sorted(self.known) if (first := self._first(line)) is not None]
        return free + firsts

    def _first(self, line: Line) -> ModelJob | None:
        members = self._members(line)
        if any(job.state != "queued" for job in members):
            return None
        return min(members, key=lambda job: job.place, default=None)

    def _members(self, line: Line) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.line == line and job.in_line]

    def _look(self, line: Line | None) -> None:
        """Maintenance or a settlement looked after this line."""
        if line is not None:
            if self._members(line):
                self.known.add(line)
            else:
                self.known.discard(line)

    def _settled_down(self) -> None:
        """Jobs that become claimable come after earlier ones, within priority and kind."""
        able = set(self.claimable())
        for job in self.jobs.values():
            if job not in able:
                job.stood = None
            elif job.stood is None:
                job.stood = (job.priority, 0 if job.returned else 1, self._step)
        self._step += 1

    # Enqueueing

    def enqueue(
        self,
        job_id: UUID,
        *,
        job_type: str,
        tenant: str,
        target: str | None,
        priority: int,
        attempts: int | None,
        delay: float = 0.0,
        hold: bool = False,
    ) -> str:
        """A new job; its state."""
        state = "created" if hold else "scheduled" if delay > 0 else "queued"
        self.jobs[job_id] = ModelJob(
            id=job_id,
            type=job_type,
            tenant=tenant,
            target=target,
            priority=priority,
            max_attempts=attempts or DEFAULT_ATTEMPTS,
            state=state,
            run_at=self.now + delay,
            place=next(self._places),
        )
        self._settled_down()
        return state

    def release_held(self, job: ModelJob) -> str:
        """Let a created job go."""
        if job.state != "created":
            return "already-final" if job.state in FINAL else "not-held"
        job.state = "scheduled" if job.run_at > self.now else "queued"
        job.place = next(self._places)
        self._settled_down()
        return "released"

    # Claims

    def claimed(
        self, leases: list[Lease], worker: str, types: Collection[str], tenants: Collection[str] | None, limit: int
    ) -> None:
        """A claim gave these. It must have been as many as possible, and the right ones."""
        able = [j for j in self.claimable() if j.type in types and (tenants is None or j.tenant in tenants)]
        taken = [self.jobs[lease.job_id] for lease in leases]
        assert len(set(taken)) == len(taken) == min(limit, len(able)), (taken, able)
        assert set(taken) <= set(able), "what was claimed could not be claimed"
        for job in taken:
            for other in set(able) - set(taken):
                if job.tenant == other.tenant:
                    assert job.priority <= other.priority, "a more urgent job was left"
                    assert job.stream != other.stream or not _passes(job, other), "an older job was left"
        self._begin(leases, worker)
        winners, losers = ({job.tenant for job in jobs} for jobs in (taken, set(able) - set(taken)))
        for winner in winners:
            for loser in losers - {winner}:
                # One slot less for the one and one more for the other would not have been fairer.
                more, less = self._load(winner, -1), self._load(loser, +1)
                assert more < less, f"{winner} has more than its share: {more} not below {less}, got {taken} of {able}"

    def _load(self, tenant: str, more: int) -> float:
        """How many jobs a tenant would run by its weight, with this many more."""
        running = [job for job in self.jobs.values() if job.state == "running" and job.tenant == tenant]
        number = sum(job.expires_at > self.now for job in running) + more
        return number / self.weights.get(tenant, 1.0)

    def claimed_by_id(self, job: ModelJob, lease: Lease | None, worker: str) -> None:
        """A claim by id gave this, or nothing."""
        if job.state == "running" and job.expires_at < self.now and self.now - self.led_at <= LEADER_SECONDS:
            self._end(job, "lost", None, 0.0)
        elif job.state == "retry" and job.run_at <= self.now:
            self._become_due([job])
        expected = Lease(job.id, job.attempt + 1) if job in self.claimable() else None
        assert lease == expected
        self._begin([lease] if lease else [], worker)

    def _begin(self, leases: list[Lease], worker: str) -> None:
        for lease in leases:
            job = self.jobs[lease.job_id]
            job.state, job.attempt, job.returned = "running", job.attempt + 1, False
            job.interrupt = job.verdict = None
            job.worker, job.expires_at = worker, self.now + LEASE_SECONDS
            assert lease.attempt == job.attempt
        self._settled_down()

    def renewed(self, worker: str) -> dict[Lease, str | None]:
        """A worker prolongs all its leases. Returns which leases these are, and their interrupts."""
        mine = [job for job in self.jobs.values() if job.state == "running" and job.worker == worker]
        for job in mine:
            job.expires_at = self.now + LEASE_SECONDS
        told = {"resolve": "cancel"}
        return {Lease(job.id, job.attempt): told.get(job.interrupt or "", job.interrupt) for job in mine}

    # Endings

    def settle(self, lease: Lease, outcome: str, kind: str | None, delay: float | None, worker: str) -> str:
        """An attempt ended; the answer."""
        job = self.jobs[lease.job_id]
        if job.state != "running" or job.attempt != lease.attempt:
            closed = self.ends[lease]
            return job.state if closed[0] == worker and closed[1] != "lost" else "lease-lost"
        self._end(job, outcome, kind, delay)
        self._settled_down()
        return job.state

    def sweep(self) -> dict[UUID, str]:
        """Leases that lapsed are taken back."""
        lapsed = [job for job in self.jobs.values() if job.state == "running" and job.expires_at < self.now]
        for job in lapsed:
            self._end(job, "lost", None, 0.0)
        self._settled_down()
        return {job.id: job.state for job in lapsed}

    def _end(self, job: ModelJob, outcome: str, kind: str | None, delay: float | None) -> None:
        self.ends[Lease(job.id, job.attempt)] = (job.worker, outcome)
        if outcome != "success":
            self._pass_on(job, None)
        if job.verdict is not None and outcome != "success":
            outcome, kind, delay = "failed", None, None
        if outcome in ("failed", "lost"):
            job.failures += 1
        job.state = self._verdict(job, outcome, kind, delay)
        if outcome != "success" and job.interrupt and job.state in ("paused", "canceled", "dead"):
            for wish in self._pending(job):
                wish.pending, wish.settled = False, True
        if job.state == "retry":
            job.run_at = self.now + (2.0 ** (job.failures - 1) if delay is None else delay)
        elif job.state == "scheduled":
            job.run_at = self.now + (delay or 0.0)
        elif job.state == "queued":
            job.returned = outcome in ("released", "lost") or job.target is None
            if job.target is None:
                job.place = next(self._places)
        self._look(job.line)

    @staticmethod
    def _verdict(job: ModelJob, outcome: str, kind: str | None, delay: float | None) -> str:
        """A success counts, then what an operator decided; then a hold; then requests; then the budget."""
        if outcome == "success":
            return "success"
        if job.verdict is not None:
            if job.verdict == "retry" and job.failures < job.max_attempts:
                return "retry"
            return "error" if job.verdict == "retry" and POLICIES[job.type] == "hold" else "dead"
        if kind == "hold":
            return "error"
        if outcome in ("canceled", "paused") or job.interrupt:
            return "canceled" if {"cancel", "resolve"} & {job.interrupt, outcome.removesuffix("ed")} else "paused"
        if outcome == "released":
            return "queued"
        if outcome == "snoozed":
            return "scheduled" if delay else "queued"
        spent = job.failures >= job.max_attempts
        if kind == "fatal":
            return "dead"
        if POLICIES[job.type] == "hold" and (kind != "retry" or spent):
            return "error"
        if spent:
            return "dead"
        return "queued" if outcome == "lost" else "retry"

    # Time and maintenance

    def promote(self) -> int:
        """Due jobs join, in the order of their time. Returns how many."""
        due = [job for job in self.jobs.values() if job.state in ("scheduled", "retry") and job.run_at <= self.now]
        self._become_due(sorted(due, key=lambda job: (job.run_at, job.id)))
        late = [wish for wish in self.wishes if wish.due is not None and wish.due <= self.now]
        for wish in late:
            wish.due = None
            self.wishes.remove(wish)
            self.wishes.append(wish)
        self._settled_down()
        return len(due) + len(late)

    def _become_due(self, jobs: list[ModelJob]) -> None:
        for job in jobs:
            if job.target is None or not job.in_line:
                job.place = next(self._places)
            job.state, job.returned = "queued", False
        for job in jobs:
            self._look(job.line)

    def look_at_all_lines(self) -> None:
        """Every call is heard."""
        for job in self.jobs.values():
            self._look(job.line)
        self._settled_down()

    # Requests

    def request(self, verb: str, job: ModelJob) -> str:
        """Record a wish; how it was taken (`new-job`: the caller tells of it; `same-job`: it was told before)."""
        if verb == "retry" and job.requeued_as is not None:
            return "same-job"
        if verb == "retry" and job.erased:
            return "not-possible"
        if job.state in FINAL:
            if verb == "retry":
                return "new-job"
            if verb != "delete":
                return "already-final"
        possible = {
            "cancel": True,
            "resolve": True,
            "delete": True,
            "pause": job.state in ("scheduled", "queued", "running", "retry", "paused"),
            "resume": job.state in ("paused", "error"),
            "retry": job.state in ("scheduled", "queued", "retry", "paused", "error"),
        }
        if not possible[verb]:
            return "not-possible"
        flagged = self._flag(job, verb) if verb in ("cancel", "resolve", "delete", "pause") else None
        self._record(Wish(verb=verb, job=job, flagged=flagged))
        return "accepted"

    def _record(self, asked: Wish) -> None:
        asked.pending = asked.decision is not None and asked.flagged is None and asked.job.state not in FINAL
        asked.place = next(self._places)
        for wish in self.wishes:
            if asked.repeats(wish):
                wish.pending |= asked.pending
                return
        self.wishes.append(asked)

    def _pending(self, job: ModelJob) -> list[Wish]:
        """What was decided about a job and not carried out yet; what holds comes first."""
        wishes = [wish for wish in self.wishes if wish.job is job and wish.pending]
        return sorted(wishes, key=lambda wish: (-_firmness(wish.decision), wish.place))

    def act_by_hand(self, verb: str, job: ModelJob, will_retry: bool, priority: int) -> str:
        """An operator decides something; how it was taken."""
        verdict = {"fail": "retry" if will_retry else "fail", "kill": "kill"}.get(verb)
        if job.state in FINAL:
            return "already-final"
        dies = verdict in ("fail", "kill") and job.state in ("retry", "error")
        if job.state != "running" and verb != "reprioritize" and not dies:
            return "not-possible"
        wish = Wish(verb=verb, job=job, flagged=None, verdict=verdict)
        if verb == "reprioritize":
            self._overtake_priorities(job)
            wish.priority = priority
        elif job.state != "running":
            first = next(iter(self._pending(job)), wish)
            if first.decision != verdict and _firmness(first.decision) >= _firmness(verdict):
                return "overruled"
        else:
            wish.flagged = job.attempt
            if verdict is not None and self._flag(job, verdict) and (job.verdict or job.interrupt) != verdict:
                return "overruled"
        self._record(wish)
        return "accepted"

    def acknowledge(self, job: ModelJob) -> str:
        """Somebody knows of the failure; how it was taken."""
        if job.state != "dead":
            return "not-dead"
        known, job.acknowledged = job.acknowledged, True
        return "unchanged" if known else "acknowledged"

    def requeue(self, job: ModelJob) -> str:
        """Run a dead job again; how it was taken (`requeued`: the caller tells of the new job)."""
        if job.state != "dead":
            return "not-dead"
        if job.requeued_as is not None:
            return "repeated"
        return "erased" if job.erased else "requeued"

    def runs_again(self, job: ModelJob, new: UUID) -> None:
        """A new job does what an ended one was to do; the letter of a dead one says so."""
        self.enqueue(
            new,
            job_type=job.type,
            tenant=job.tenant,
            target=job.target,
            priority=job.priority,
            attempts=job.max_attempts,
        )
        if job.state == "dead":
            job.requeued_as, job.acknowledged = new, True

    def look_at(self, bulk: Bulk) -> None:
        """Whoever does not fit now has not fitted ever since."""
        bulk.steady -= {job.id for job in self.jobs.values() if not bulk.fits(job)}

    def act_in_bulk(self, bulk: Bulk, job: ModelJob) -> str:
        """The turn of a job: done, skipped, or new-job, which the caller tells of."""
        if not bulk.fits(job):
            return "skipped"
        if bulk.action == "ack":
            self.acknowledge(job)
        elif bulk.action in ("requeue", "retry") and job.state == "dead":
            return "new-job" if self.requeue(job) == "requeued" else "skipped"
        elif bulk.action == "retry" and job.state in FINAL:
            return "skipped" if job.erased else "new-job"
        elif bulk.action == "reprioritize":
            if job.priority == bulk.priority:
                return "skipped"
            self._overtake_priorities(job)
            self._reprioritize(job, bulk.priority)
        elif not self._carry_out(wish := Wish(verb=bulk.action, job=job, flagged=None)):
            self._record(wish)
        self._settled_down()
        return "done"

    def execute_one(self) -> int:
        """Maintenance executes the oldest wish; how many that were."""
        wish = next((wish for wish in self.wishes if wish.due is None), None)
        if wish is None:
            return 0
        wish.looks += 1
        if self._carry_out(wish):
            self.wishes.remove(wish)
        else:  # for example a delete, while the handler runs
            wish.due = self.now + min(60.0, REQUEST_PAUSE * 2 ** (wish.looks - 1))
        self._settled_down()
        return 1

    def _carry_out(self, wish: Wish) -> bool:
        """False: not yet."""
        job, verb = wish.job, wish.verb
        if wish.settled and verb != "delete":
            pass  # the end of an attempt has done it
        elif job.state in FINAL:
            job.erased |= verb == "delete"
        elif verb in ("fail", "kill", "expire-lease", "reprioritize"):
            return self._carry_out_by_hand(wish)
        elif verb in ("cancel", "resolve", "pause") and wish.flagged is not None:
            pass  # decided by how that attempt ended
        elif job.state == "running":
            if verb in ("cancel", "resolve", "pause", "delete"):
                return self._flag(job, verb) is not None and verb != "delete"
        elif verb in ("cancel", "resolve", "delete"):
            self._move(job, "canceled")
            job.erased |= verb == "delete"
        elif verb == "pause":
            if job.state in ("scheduled", "queued", "retry"):
                self._move(job, "paused")
        elif job.state in ("paused", "error") or (verb == "retry" and job.state in ("scheduled", "retry")):
            later = verb == "resume" and job.state == "paused" and job.run_at > self.now
            self._move(job, "scheduled" if later else "queued")
        return True

    def _carry_out_by_hand(self, wish: Wish) -> bool:
        job = wish.job
        if wish.verb == "expire-lease":
            if (job.state, job.attempt) == ("running", wish.flagged):
                self._end(job, "lost", None, 0.0)
        elif wish.verb == "reprioritize":
            if wish.priority is not None:
                self._reprioritize(job, wish.priority)
        elif wish.flagged is None and job.state == "running":
            self._flag(job, str(wish.verdict))
        elif wish.flagged is None and job.state in ("retry", "error"):
            self._move(job, "dead")
        else:  # queued before it could die, it dies with its next attempt
            return wish.flagged is not None or job.state not in ("queued", "scheduled")
        return True

    def _overtake_priorities(self, job: ModelJob) -> None:
        """Of several priorities, the one that was asked for last holds."""
        for earlier in self.wishes:
            if earlier.verb == "reprioritize" and earlier.job is job:
                earlier.priority = None

    def _reprioritize(self, job: ModelJob, priority: int) -> None:
        if job.state == "queued" and job.priority != priority:
            self._look(job.line)
        job.priority = priority
        job.stood = job.stood and (job.priority, *job.stood[1:])

    def _flag(self, job: ModelJob, verb: str) -> int | None:
        """A decision about the attempt that runs: the firmer one holds, else the first."""
        if job.state != "running":
            return None
        told = self._pass_on(job, "cancel" if verb == "delete" else verb)
        return None if verb == "pause" and job.verdict == "retry" and not told else job.attempt

    def _pass_on(self, job: ModelJob, decision: str | None) -> bool:
        """Let the attempt have this decision, or an earlier one that was not carried out; whether that was news."""
        earlier = next((wish.decision for wish in self._pending(job)), None)
        if earlier is not None and _firmness(earlier) >= _firmness(decision):
            decision = earlier
        if _firmness(decision) <= _firmness(job.verdict or job.interrupt):
            return False
        job.verdict = decision if decision in ("retry", "fail", "kill") else None
        job.interrupt = decision if decision in ("pause", "resolve") else "cancel"
        return True

    def _move(self, job: ModelJob, goal: str) -> None:
        """A job that does not run goes elsewhere. Held ones start with a fresh budget."""
        if goal == "queued":
            if job.target is None or not job.in_line:
                job.place = next(self._places)
            job.run_at = min(job.run_at, self.now)
            job.returned = False
        if job.state in ("paused", "error") and goal not in FINAL:
            job.failures = 0
        job.state = goal
        self._look(job.line)


def _firmness(decision: str | None) -> int:
    return {None: 0, "pause": 1, "retry": 2}.get(decision, 3)


def _passes(job: ModelJob, other: ModelJob) -> bool:
    """Whether it stands behind the other in their stream."""
    assert job.stood is not None
    assert other.stood is not None
    return job.stood > other.stood
