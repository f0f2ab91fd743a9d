"""The trials: one situation each, in which a worker must do the right thing.

A trial puts jobs of four types on stage, whose handlers the tested worker has (`docs/protocol.md`):

- `conform.echo`: the result is the payload.
- `conform.items` {count, page}: item number N has the key "item-N" and the data {"n": N}; they are reported in pages,
  each with the number of items so far as cursor, and go on from the cursor that the job came with.
- `conform.slow` {seconds}: does nothing for so long, unless it is told to stop.
- `conform.fail` {kind, message}: ends with this error.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.remote.conformance.jobs import TrialJob
from holdfast.remote.conformance.listening import Reply
from holdfast.remote.conformance.stage import Stage, Trouble, WorkerCall

__all__ = ["TRIALS", "Process", "Trial", "Wrong"]

#: How long a worker may take for what needs no time, retries after trouble included.
_SOON, _RECOVERY = 15.0, 30.0
_TEXT = 'quotes " and \\ backslash, /, \nnewline, tab\t, \u2028, é, 漢字, 😀'


class Process(Protocol):
    """The worker's process."""

    async def terminate(self, seconds: float) -> int | None:
        """Send SIGTERM. Returns how it ended within so many seconds; None if it goes on."""

    async def strike(self) -> None:
        """End it with SIGKILL, and nothing that it started."""


class Wrong(Exception):
    """What the worker did wrong, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One situation."""

    name: str
    rule: str
    try_it: Callable[[Stage], Awaitable[None]] | None = None
    #: Ends the worker's process.
    end_it: Callable[[Stage, Process], Awaitable[None]] | None = None


async def _ended(stage: Stage, job: TrialJob, seconds: float, instead: str = "") -> None:
    """Wait until a job has ended as it should."""
    if not await stage.until(lambda: job.ended or stage.wrong, seconds):
        pulled = "and never ran its job" if job.attempt == 0 else "and the job never ended"
        raise Wrong(instead or f"was given {seconds:g} s {pulled}")


async def _done(stage: Stage, job: TrialJob, seconds: float = _SOON, instead: str = "") -> None:
    await _ended(stage, job, seconds, instead)
    if job.ended and job.state != "success":
        raise Wrong(f"ended {job.type} with {_how(job)}, and not with `done`")


def _how(job: TrialJob) -> str:
    if job.final is None:
        return "a release"
    error = job.final.get("error")
    return f"the error {error!r:.200}" if error else "done"


async def _running(stage: Stage, job: TrialJob) -> None:
    if not await stage.until(lambda: job.attempt, _SOON):
        raise Wrong(f"did not pull {job.type}")


def _items(stage: Stage, count: int = 6, **more: Any) -> TrialJob:
    return stage.offer("conform.items", {"count": count, "page": 2}, **more)


def _all_stored(job: TrialJob, count: int) -> None:
    wanted = {f"item-{n}": {"n": n} for n in range(count)}
    if job.items != wanted:
        lost = sorted(wanted.keys() - job.items.keys())
        what = f"lost a report: {', '.join(lost)} never came" if lost else f"stored other items: {job.items!r:.200}"
        raise Wrong(what)


def _with_items(call: WorkerCall) -> bool:
    return any(one.get("items") for one in [call.body, *call.body.get("reports", ())])


def _final(call: WorkerCall) -> bool:
    return any(one.get("done") for one in [call.body, *call.body.get("reports", ())])


async def _echo(stage: Stage) -> None:
    payload: dict[str, Any] = {
        "value": {"text": _TEXT, "list": [1, 2.5, -3, True, None, []], "": {"0": "a key that looks like a number"}}
    }
    job = stage.offer("conform.echo", payload)
    await _done(stage, job)
    result = None if job.final is None else job.final.get("result")
    if job.ended and result != payload:
        raise Wrong(f"answered another result than the payload: {result!r:.300}")


async def _in_order(stage: Stage) -> None:
    job = _items(stage)
    await _done(stage, job)
    _all_stored(job, 6)
    if job.cursor != 6:
        raise Wrong(f"reported no cursor with its items: the last one was {job.cursor!r}, and not 6")


async def _resumed(stage: Stage) -> None:
    job = _items(stage, cursor=4, items={f"item-{n}": {"n": n} for n in range(4)})
    await _done(stage, job)
    _all_stored(job, 6)


async def _failed(stage: Stage) -> None:
    for kind in ("fatal", "retryable"):
        job = stage.offer("conform.fail", {"kind": kind, "message": _TEXT})
        await _ended(stage, job, _SOON)
        error = None if job.final is None else job.final.get("error")
        if error is None:
            raise Wrong(f"ended conform.fail with {_how(job)}, and not with an error")
        told, message = ("retryable", error) if isinstance(error, str) else (error["kind"], error["message"])
        if told != kind:
            raise Wrong(f"reported an error of kind {told!r}, and not {kind!r}")
        if _TEXT not in message:
            raise Wrong(f"changed the message of an error: {message!r:.200}")


async def _lost_pull(stage: Stage) -> None:
    stage.trouble.append(lost := Trouble(verb="pull", lose_answer=True))
    job = stage.offer("conform.echo", {"value": 1}, lease=60)
    await stage.until(lambda: job.ended or stage.wrong or _pulled_anew(stage, lost), _RECOVERY)
    if not job.ended:
        raise Wrong("did not repeat a pull with its request_id when the answer was lost: the job waits for its lease")


def _pulled_anew(stage: Stage, lost: Trouble) -> bool:
    if lost.met is None:
        return False
    pulls = [call for call in stage.calls if call.verb == "pull" and call.at > lost.met.at]
    return bool(pulls) and pulls[0].body.get("request_id") != lost.met.body.get("request_id")


async def _lost_report(stage: Stage) -> None:
    stage.trouble.append(Trouble(verb="report", lose_request=True, about=_with_items, times=2))
    job = _items(stage)
    await _done(stage, job, _RECOVERY, "gave up its job when a report was not answered, and said nothing of it")
    _all_stored(job, 6)


async def _lost_answer(stage: Stage) -> None:
    stage.trouble.append(Trouble(verb="report", lose_answer=True, about=_with_items))
    stage.trouble.append(final := Trouble(verb="report", lose_answer=True, about=_final))
    job = _items(stage)
    await _done(stage, job, _RECOVERY)
    _all_stored(job, 6)
    if not await stage.until(lambda: stage.wrong or _repeated(stage, final), _RECOVERY):
        raise Wrong("did not repeat its last report when the answer was lost: it cannot know that it arrived")


def _repeated(stage: Stage, trouble: Trouble) -> bool:
    met = trouble.met
    return met is not None and any(
        call.at > met.at and call.jobs & met.jobs for call in stage.calls if call.verb == "report"
    )


async def _errors(stage: Stage) -> None:
    later = {"Retry-After": "1"}
    for status in (500, 503):
        headers = later if status == 503 else {}
        stage.trouble.append(Trouble(verb="pull", reply=Reply(status=status, headers=headers)))
    stage.offer("conform.echo", {"value": "so that a pull that waits is answered"})
    if not await stage.until(lambda: stage.wrong or all(not one.times for one in stage.trouble), _RECOVERY):
        raise Wrong("stopped pulling when a pull was answered with 500 or 503")
    for status in (502, 429, 503):
        headers = later if status == 429 else {}
        problem = {"type": "/problems/overload", "code": "overload", "title": "later", "status": status}
        reply = Reply(status=status, headers=headers, body=None if status == 502 else problem)
        stage.trouble.append(Trouble(verb="report", reply=reply))
    job = _items(stage, lease=30)
    await _done(stage, job, _RECOVERY, "gave up its job when reports were answered with 502, 429 and 503")
    _all_stored(job, 6)


async def _slow_answers(stage: Stage) -> None:
    for verb in ("report", "extend"):
        stage.trouble.append(Trouble(verb=verb, delay=2.0))
    job = _items(stage, lease=5)
    await _done(stage, job, _RECOVERY)
    _all_stored(job, 6)


async def _extended(stage: Stage) -> None:
    job = stage.offer("conform.slow", {"seconds": 4}, lease=2.0)
    await _running(stage, job)
    await stage.until(lambda: job.ended or job.lapsed or (not job.owned and job.lapsed), _SOON)
    if job.lapsed:
        how = "never extended its lease" if not job.extended else "extended its lease too late"
        raise Wrong(f"{how}: a lease of 2 s was over while its handler still ran")
    await _done(stage, job)


async def _lost_by_report(stage: Stage) -> None:
    job = _items(stage, lose_after=1)
    await _done(stage, job, _SOON, "did not pull any more after it had lost a lease")
    if job.attempt < 2:
        raise Wrong("went on with a job whose lease it had lost")
    if job.starts[1] != 2 or job.progress > 6:
        raise Wrong(f"did not go on from the cursor 2, but reported {job.progress} items instead of 6")
    _all_stored(job, 6)


async def _lost_by_extend(stage: Stage) -> None:
    job = stage.offer("conform.slow", {"seconds": 3}, lease=2.0)
    await _running(stage, job)
    job.state = "elsewhere"
    stage.stir()
    if not await stage.until(lambda: job.lost_to or stage.wrong, 3.5):
        raise Wrong("never extended its lease, and so did not hear that it was lost")
    await stage.until(lambda: stage.wrong, 3.5)
    late = [call for call in stage.calls if call.verb == "report" and job.id in call.jobs]
    if late:
        raise Wrong("ignored that its lease was lost (`owned: false`), and reported the job all the same")


async def _stopped(stage: Stage, directive: str) -> None:
    job = stage.offer("conform.slow", {"seconds": 40}, lease=6.0)
    await _running(stage, job)
    await stage.until(lambda: False, 0.5)
    job.interrupt, began = directive, time.monotonic()
    stage.stir()
    if not await stage.until(lambda: job.ended or stage.wrong, 8.0):
        heard = "it was told" if job.told else "it never asked"
        raise Wrong(f"ran past a {directive}: 8 s later its job still ran, and {heard}")
    if job.lapsed:
        raise Wrong(f"let its lease lapse after a {directive}, and said nothing")
    if job.told and (job.ended or began) - job.told > 3.0:
        raise Wrong(f"ended only {(job.ended or began) - job.told:.1f} s after it had been told to {directive}")


async def _canceled(stage: Stage) -> None:
    await _stopped(stage, "cancel")


async def _paused(stage: Stage) -> None:
    await _stopped(stage, "pause")


async def _enough(stage: Stage) -> None:
    job = _items(stage, count=10, target_count=4)
    await _done(stage, job)
    await stage.until(lambda: stage.wrong, 1.0)
    if len(job.items) > 4:
        raise Wrong("went on after its job had ended (`owned: false`), because it had as many items as were wanted")


async def _bad_item(stage: Stage) -> None:
    job = _items(stage, count=4, bad_item="item-2")
    await stage.until(lambda: job.ended or stage.wrong or len(job.refused) > 3, _SOON)
    if len(job.refused) > 3 and len(set(job.refused)) == 1:
        raise Wrong("repeated a report that was refused (422) as it was, again and again")
    if not job.ended and not stage.wrong:
        raise Wrong("said nothing more of a job whose report was refused (422)")
    if job.state == "success" and "item-3" not in job.items:
        raise Wrong("dropped a whole report because one of its items was refused, and said that the job was done")


async def _idle(stage: Stage) -> None:
    await stage.until(lambda: stage.wrong, 3.0)


async def _drained(stage: Stage) -> None:
    job = stage.offer("conform.slow", {"seconds": 2}, lease=3.0)
    await _running(stage, job)
    stage.draining = time.monotonic()
    stage.stir()
    await _done(stage, job, _SOON, "did not end the job that it ran when it was told to drain")
    await stage.until(lambda: stage.wrong, 2.0)


async def _terminated(stage: Stage, worker: Process) -> None:
    job = stage.offer("conform.slow", {"seconds": 2}, lease=3.0)
    await _running(stage, job)
    await stage.until(lambda: False, 0.5)
    began = time.monotonic()
    code = await worker.terminate(_SOON)
    if code is None:
        raise Wrong(f"had not ended {_SOON:g} s after SIGTERM")
    if not job.ended:
        raise Wrong("ended at SIGTERM with a job in hand: it neither finished it nor handed it back (/worker/release)")
    fresh = {call.body.get("request_id") for call in stage.calls if call.verb == "pull" and call.at < began}
    later = [call for call in stage.calls if call.verb == "pull" and call.at > began + 0.3]
    if [call for call in later if call.body.get("request_id") not in fresh or not call.body.get("request_id")]:
        raise Wrong("pulled again after SIGTERM")


async def _killed(stage: Stage, worker: Process) -> None:
    job = stage.offer("conform.slow", {"seconds": 20}, lease=2.0)
    await _running(stage, job)
    await stage.until(lambda: False, 0.5)
    await worker.strike()
    struck = time.monotonic() + 0.3  # what was sent before may arrive after
    await stage.until(lambda: _heard_of(stage, job, struck), 3.5)
    if late := _heard_of(stage, job, struck):
        raise Wrong(
            f"went on with its job after SIGKILL (/worker/{late[0].verb}): what keeps the lease must end with the "
            "worker, else its job is never taken over. A command that starts the worker must `exec` it"
        )


def _heard_of(stage: Stage, job: TrialJob, since: float) -> list[WorkerCall]:
    return [call for call in stage.calls if job.id in call.jobs and call.at > since]


#: In this order; those that end the worker come last.
TRIALS: tuple[Trial, ...] = (
    Trial(name="echo", rule="payload and result are what they are", try_it=_echo),
    Trial(name="items", rule="items and cursor are reported in order", try_it=_in_order),
    Trial(name="resume", rule="a job goes on from its cursor", try_it=_resumed),
    Trial(name="errors", rule="errors are reported, with any text", try_it=_failed),
    Trial(name="lost-pull", rule="a pull whose answer was lost is repeated", try_it=_lost_pull),
    Trial(name="lost-report", rule="a report that was lost is repeated", try_it=_lost_report),
    Trial(name="lost-answer", rule="a report whose answer was lost is repeated", try_it=_lost_answer),
    Trial(name="server-errors", rule="5xx and 429 are waited out", try_it=_errors),
    Trial(name="slow-answers", rule="slow answers are waited for", try_it=_slow_answers),
    Trial(name="short-lease", rule="leases are extended", try_it=_extended),
    Trial(name="lease-lost", rule="409 lease-lost ends the job's handler", try_it=_lost_by_report),
    Trial(name="lease-lost-early", rule="owned: false does, too", try_it=_lost_by_extend),
    Trial(name="cancel", rule="cancel is obeyed", try_it=_canceled),
    Trial(name="pause", rule="pause is obeyed", try_it=_paused),
    Trial(name="enough", rule="a job that has enough items is over", try_it=_enough),
    Trial(name="bad-item", rule="a report that is refused is mended, or the job fails", try_it=_bad_item),
    Trial(name="idle", rule="nothing to do costs little", try_it=_idle),
    Trial(name="drain", rule="drain ends the pulls, not the jobs", try_it=_drained),
    Trial(name="sigterm", rule="SIGTERM ends the worker in good order", end_it=_terminated),
    Trial(name="sigkill", rule="a killed worker keeps no lease", end_it=_killed),
)
