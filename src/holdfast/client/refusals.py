"""What is raised if the engine did not do what it was asked for; the message says what to do instead."""

from __future__ import annotations

from uuid import UUID

from holdfast.errors import AlreadyFinal, Conflict, NotFound
from holdfast.store.by_hand import HandAnswer

__all__ = ["judge", "judge_by_hand"]

#: What to do instead of a request that the state of the job does not allow.
_INSTEAD = {
    "retry": "; if it runs, wait for its end, or let an operator fail it; if it was recorded with hold, release it",
    "pause": "; if it was recorded with hold, release it first; in error, it stands still already",
    "resume": "; only paused jobs and jobs in error can be resumed; retry another one to run it now",
    "release": "; only a job that was recorded with hold can be released",
}
_AFTER_THE_END = "; retry it if it is to run again, as a new job"
#: What to do with a job in this state instead of taking it from its worker.
_INSTEAD_OF_EXPIRING = {
    "created": "; release it to let it run",
    "scheduled": "; retry it to run it now",
    "queued": "; it runs as soon as a worker is free: explain says what it waits for",
    "retry": "; retry it to run it now",
    "paused": "; resume it to let it run",
    "error": "; resume it to run it again",
}
#: What to do with a job in this state instead of failing or killing it.
_INSTEAD_OF_FAILING = {
    "created": ", and no attempt of it runs that could fail; cancel it instead",
    "scheduled": ", and no attempt of it runs that could fail; cancel it instead",
    "queued": ", and no attempt of it runs that could fail; cancel it instead",
    "paused": ", and no attempt of it runs that could fail; cancel it instead, or resume it",
    "retry": "; it has failed and will be retried already; fail it without a retry, or kill it, to end it",
    "error": "; it has failed and is held already; resume it to run it again, or fail it without a retry",
    "success": _AFTER_THE_END,
    "dead": "; requeue it if it is to run again, as a new job",
    "canceled": _AFTER_THE_END,
}
#: Decisions about a running attempt, as its lease has them.
_DECIDED = {
    "cancel": "was canceled",
    "resolve": "was resolved",
    "retry": "was failed with a retry",
    "fail": "was failed without a retry",
    "kill": "was killed",
}


def judge(verb: str, job_id: UUID, outcome: str) -> None:
    """Raise for what the engine answers when it did not do what it was asked for."""
    match outcome:
        case "not-found":
            raise NotFound(f"there is no job {job_id}")
        case "already-final":
            raise AlreadyFinal(f"job {job_id} has ended and can no longer be changed{_AFTER_THE_END}")
        case "not-possible" | "not-held":
            instead = _INSTEAD.get(verb, "")
            raise Conflict(f"the state of job {job_id} does not allow this request ({verb}){instead}")


def judge_by_hand(verb: str, job_id: UUID, answer: HandAnswer) -> None:
    """The same for what operators decide about one job."""
    match answer.outcome:
        case "not-found":
            raise NotFound(f"there is no job {job_id}")
        case "already-final":
            raise AlreadyFinal(f"job {job_id} has ended as {answer.state}{_instead(verb, str(answer.state))}")
        case "not-possible":
            raise Conflict(f"job {job_id} is {answer.state}{_instead(verb, str(answer.state))}")
        case "overruled":
            decided = _DECIDED[str(answer.decided)]
            by = f" by {answer.decided_by}" if answer.decided_by else ""
            when = "when its handler has ended" if answer.state == "running" else "in a moment"
            raise Conflict(f"job {job_id} {decided}{by} before; that takes effect {when}")


def _instead(verb: str, state: str) -> str:
    match verb:
        case "expire-lease":
            return f", and only a running job has a lease{_INSTEAD_OF_EXPIRING.get(state, _AFTER_THE_END)}"
        case "reprioritize":
            return "; to run it again with another priority, retry it and reprioritize the new job"
        case _:
            return _INSTEAD_OF_FAILING[state]
