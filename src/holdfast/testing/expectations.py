"""What a test expects of recorded jobs, which jobs fit, and what to say when none does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.app import Handler
from holdfast.errors import InvalidInput
from holdfast.model.job import Job
from holdfast.model.names import nearest
from holdfast.model.options import Options
from holdfast.model.states import State

__all__ = ["Expectation", "Expected"]

#: As many of the jobs that are there are shown when the expected one is not.
_SHOWN = 10


class Expected(Options, total=False):
    """What may be said of a job: the options of its enqueue, and more. What is left out may be anything."""

    payload: Mapping[str, Any]
    state: str


class Expectation:
    """One expectation: a job type, and what is said of the job.

    A payload fits if it has what is expected, at any depth; it may have more. Times may differ by `tolerance`.
    """

    def __init__(
        self, job_type: str | Handler[Any, Any] | None, expected: Mapping[str, Any], tolerance: float | timedelta
    ) -> None:
        unknown = [name for name in expected if name not in Expected.__annotations__]
        if unknown:
            near = nearest(unknown[0], Expected.__annotations__)
            advice = f"did you mean {near!r}?" if near else f"known are {', '.join(Expected.__annotations__)}"
            raise InvalidInput(f"unknown option {unknown[0]!r}; {advice}")
        self.type = job_type.name if isinstance(job_type, Handler) else job_type
        self._expected = dict(expected)
        self._tolerance = tolerance if isinstance(tolerance, timedelta) else timedelta(seconds=tolerance)

    def fits(self, job: Job) -> bool:
        """Whether the job is what is expected."""
        return not self.differences(job)

    def differences(self, job: Job) -> list[str]:
        """In what the job differs, in words."""
        found = [] if self.type in (None, job.type) else [f"type is {job.type!r}"]
        for name, wanted in self._expected.items():
            found += self._difference(name, wanted, job)
        return found

    def told(self) -> str:
        """The expectation in words."""
        said = [f"{name} {_brief(value)}" for name, value in self._expected.items()]
        return f"{self.type or 'any type'}{' with ' if said else ''}{', '.join(said)}"

    def missing(self, jobs: Sequence[Job], ended: Sequence[Job], found: int, wanted: int | None) -> str:
        """What to say when the number of fitting jobs is not the wanted one."""
        counted = "no job was" if found == 0 else f"{found} {'job was' if found == 1 else 'jobs were'}"
        lines = [f"{counted} enqueued as {self.told()}{'' if wanted is None else f', and {wanted} should have been'}"]
        over = [job for job in ended if self.fits(job)]
        if over:
            lines.append(f"{len(over)} such have ended already: `ended=True` counts them, too")
        if not jobs:
            return "\n".join([*lines, "nothing is waiting"])
        nearest = sorted(jobs, key=lambda job: (self.type != job.type, len(self.differences(job))))
        lines.append("waiting are:")
        lines += [f"  {shown(job)}{self._why(job)}" for job in nearest[:_SHOWN]]
        return "\n".join(lines + ([f"  … and {len(jobs) - _SHOWN} more"] if len(jobs) > _SHOWN else []))

    def _why(self, job: Job) -> str:
        differences = self.differences(job) if job.type == self.type or self.type is None else []
        return f"\n    but {'; '.join(differences)}" if differences else ""

    def _difference(self, name: str, wanted: Any, job: Job) -> list[str]:
        match name:
            case "payload":
                return list(_lacking("payload", wanted, job.payload))
            case "delay":
                wanted = wanted if isinstance(wanted, timedelta) else timedelta(seconds=wanted)
                is_there, fits = job.run_at - job.created_at, self._near(job.run_at - job.created_at - wanted)
                return [] if fits else [f"delay is {is_there.total_seconds():g} s, not {wanted.total_seconds():g} s"]
            case "run_at":
                return [] if self._near(job.run_at - wanted) else [f"run_at is {job.run_at}, not {wanted}"]
            case "hold":
                there: Any = job.state is State.CREATED
            case "parent":
                wanted, there = str(getattr(wanted, "id", wanted)), str(job.parent_id)
            case "state":
                wanted, there = str(getattr(wanted, "value", wanted)), job.state.value
            case _:
                there = getattr(job, name)
        return [] if there == wanted else [f"{name} is {there!r}, not {wanted!r}"]

    def _near(self, difference: timedelta) -> bool:
        return abs(difference) <= self._tolerance


def shown(job: Job) -> str:
    """A job in one line."""
    extra = {"queue": "default", "priority": 100, "target": None, "tenant": "default"}
    options = [f"{name}={getattr(job, name)}" for name, usual in extra.items() if getattr(job, name) != usual]
    if job.state.value in ("scheduled", "retry"):
        options.append(f"run_at={job.run_at.isoformat(timespec='seconds')}")
    return " ".join([job.type, _brief(job.payload), job.state.value, *options])


def _lacking(path: str, wanted: Any, there: Any) -> Iterable[str]:
    """What of the wanted value is not there; mappings may have more than is wanted."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for key, value in wanted.items():
            if key not in there:
                yield f"{path} has no {key!r}"
            else:
                yield from _lacking(f"{path}.{key}", value, there[key])
    elif wanted != there:
        yield f"{path} is {there!r}, not {wanted!r}"


def _brief(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
