"""Events become log lines: JSON for machines, a readable line on a terminal."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from holdfast.model.outcome import COSTS_ATTEMPT
from holdfast.model.visible import visible
from holdfast.telemetry.events import (
    AttemptEnded,
    ClockJumped,
    DatabaseBack,
    DatabaseLost,
    DutyBack,
    DutyFailed,
    Event,
    LeaderChanged,
    LeaseLost,
    LoopBlocked,
    Mended,
    PayloadMisfit,
    RequestServed,
    ScheduleFailed,
    ScheduleMissed,
    ScheduleRefused,
    SettingOverruled,
    SettlementDelayed,
    SweepPostponed,
    WorkerChanged,
)
from holdfast.telemetry.log_writer import LogWriter

__all__ = ["NARRATED", "Narrator", "flush_log", "narrate", "routine_is_narrated", "set_up_logging"]

#: The events that get a log line. Recorded jobs and started attempts are too many; the end of an attempt has it all.
NARRATED = (
    AttemptEnded,
    ClockJumped,
    DatabaseBack,
    DatabaseLost,
    DutyBack,
    DutyFailed,
    LeaderChanged,
    LeaseLost,
    LoopBlocked,
    Mended,
    PayloadMisfit,
    RequestServed,
    ScheduleFailed,
    ScheduleMissed,
    ScheduleRefused,
    SettingOverruled,
    SettlementDelayed,
    SweepPostponed,
    WorkerChanged,
)

#: How many characters of a message are written.
_LONGEST = 64 * 1024
_log = logging.getLogger("holdfast")
_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m"}
#: Who has lost the database when it is away, and how long it may take until all parts have noticed.
_WHOLE = "this process"
_NOTICED_SECONDS = 60.0

_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in NARRATED}


def set_up_logging(form: str, level: str) -> None:
    """Log lines of this process go to standard error, as `form` says (json, text, or what fits the place)."""
    # Something that replaced it, such as a progress bar, has to see the lines.
    own = sys.stderr is not None and sys.stderr is sys.__stderr__
    handler = LogWriter(sys.stderr.fileno()) if own else logging.StreamHandler(sys.stderr)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Readable() if as_text else _Json())
    flush_log()
    _log.handlers[:] = [handler]
    _log.setLevel(level)
    _log.propagate = False


def flush_log() -> None:
    """Write what is buffered, for a second at most, before this process ends at once or becomes another program."""
    for handler in _log.handlers:
        if isinstance(handler, LogWriter):
            handler.flush()


def routine_is_narrated() -> bool:
    """Whether successful attempts get a log line."""
    return _log.isEnabledFor(logging.INFO)


class Narrator:
    """One log line per event.

    All parts of a process report an outage of the database: one line says that it began, and one that it ended.
    """

    def __init__(self) -> None:
        #: Parts come from several threads.
        self._lock = threading.Lock()
        #: Since when the database has been away, and the parts that have noticed.
        self._since: float | None = None
        self._parts: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Something happened."""
        if isinstance(event, DatabaseLost) and event.away:
            if self._begins(event.part):
                narrate(replace(event, part=_WHOLE))
        elif isinstance(event, DatabaseBack) and event.part in self._parts:
            if (seconds := self._ends(event.part)) is not None:
                narrate(replace(event, part=_WHOLE, seconds=max(seconds, event.seconds)))
        else:
            narrate(event)

    def _begins(self, part: str) -> bool:
        with self._lock:
            now = time.monotonic()
            # A part may never have what all others have, and must not hide the next outage.
            is_known = self._since is not None and now - self._since < _NOTICED_SECONDS
            self._parts.add(part)
            if not is_known:
                self._since = now
            return not is_known

    def _ends(self, part: str) -> float | None:
        """For how long the database was away, if this part is the first that has it again."""
        with self._lock:
            self._parts.discard(part)
            since, self._since = self._since, None
            return None if since is None else time.monotonic() - since


def narrate(event: Event) -> None:
    """One log line per event."""
    level = logging.INFO
    match event:
        case AttemptEnded() | LeaseLost() | SettlementDelayed():
            level, message = _of_an_attempt(event)
        case LoopBlocked():
            who = "something" if event.job_id is None else f"the handler of {event.type} {event.job_id}"
            level, message = logging.ERROR, f"{who} has blocked the event loop for {event.seconds:.0f} s"
        case WorkerChanged():
            message = f"worker {event.change}{': ' if event.detail else ''}{event.detail}"
        case LeaderChanged() | Mended() | DutyFailed() | DutyBack() | SweepPostponed() | ClockJumped():
            level, message = _of_maintenance(event)
        case DatabaseLost():
            level, message = logging.WARNING, f"{event.part} lost the database and keeps trying: {event.fault}"
        case RequestServed():
            level = logging.INFO if event.status < 500 else logging.WARNING
            message = f"{event.method} {event.route} {event.status}"
        case PayloadMisfit():
            level, message = logging.WARNING, f"no live worker accepts this payload: {event.fault}"
        case ScheduleFailed() | ScheduleMissed() | ScheduleRefused():
            level, message = logging.WARNING, _of_a_schedule(event)
        case SettingOverruled():
            message = f"overrides {event.name} = {event.value} from {event.origin} in its own transactions"
        case DatabaseBack():
            message = f"{event.part} reached the database again after {event.seconds:.1f} s"
        case _:
            message = type(event).__name__
    if _log.isEnabledFor(level):
        # Made here, because a logger would look through the stack for its caller, and that is always this place.
        record = logging.getLogRecordFactory()(_log.name, level, __file__, 0, message, (), None, "narrate")
        record.event = event
        _log.handle(record)


def _of_maintenance(
    event: LeaderChanged | Mended | DutyFailed | DutyBack | SweepPostponed | ClockJumped,
) -> tuple[int, str]:
    match event:
        case LeaderChanged():
            return logging.INFO, "leads maintenance" if event.leading else "no longer leads maintenance"
        case Mended():
            return logging.WARNING, f"mended: {event.what}"
        case DutyFailed():
            often = f" ({event.failures} times in a row)" if event.failures > 1 else ""
            return logging.ERROR, f"the maintenance duty {event.duty!r} failed{often}: {event.fault}"
        case DutyBack():
            return logging.INFO, f"the maintenance duty {event.duty!r} succeeded again after {event.failures} failures"
        case SweepPostponed():
            return logging.WARNING, f"{event.leases} lapsed leases are not swept yet: {event.why}"
        case ClockJumped():
            return logging.WARNING, f"{event.what}; no lease is swept until it has had its full length again"


def _of_a_schedule(event: ScheduleFailed | ScheduleMissed | ScheduleRefused) -> str:
    match event:
        case ScheduleFailed():
            return f"schedule {event.name} could not fire: {event.fault}"
        case ScheduleMissed():
            return f"schedule {event.name} missed fire times since {event.since.isoformat()}"
        case ScheduleRefused():
            return f"schedule {event.name} was refused: {event.fault}"


def _of_an_attempt(event: AttemptEnded | LeaseLost | SettlementDelayed) -> tuple[int, str]:
    match event:
        case AttemptEnded():
            became = "" if event.state == event.outcome else f" → {event.state}"
            why = f": {event.error.splitlines()[0][:200]}" if event.error else ""
            level = logging.WARNING if event.outcome in COSTS_ATTEMPT else logging.INFO
            return level, f"{event.type} {event.outcome}{became}{why}"
        case LeaseLost():
            return logging.WARNING, f"{event.type}: lease lost, result dropped"
        case SettlementDelayed():
            waited = f"{event.seconds:.0f} s"
            return logging.WARNING, f"{event.type}: the outcome could not be recorded for {waited}: {event.fault}"


def _message(record: logging.LogRecord) -> str:
    """Its beginning and its end, where a handler logs more than anybody reads."""
    text = record.getMessage()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


class _Json(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record, with the fields of its event."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        line |= {name: getattr(record, name) for name in ("job_id", "attempt") if hasattr(record, name)}
        event = getattr(record, "event", None)
        if event is not None:
            line["event"] = type(event).__name__
            for name in _FIELDS[type(event)]:
                value = getattr(event, name)
                if value is not None:
                    line[name] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return to_json(line, fallback=str).decode()
        except ValueError:  # half of a surrogate pair, which is no UTF-8
            return json.dumps(line, default=str)


class _Readable(logging.Formatter):
    """A line for people, coloured."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, message, and what matters of the event."""
        colour = _COLOURS.get(record.levelname, "") if sys.stderr.isatty() else ""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        event = getattr(record, "event", None)
        detail = ""
        if isinstance(event, AttemptEnded):
            detail = f"  {event.job_id} attempt {event.attempt}, {event.duration_seconds * 1000:.0f} ms"
            if event.error_type:
                detail += f"  {event.error_type}"
        elif isinstance(event, LeaseLost | Mended | SettlementDelayed) and event.job_id:
            detail = f"  {event.job_id}"
        elif hasattr(record, "job_id"):
            detail = f"  {record.job_id} attempt {getattr(record, 'attempt', '?')}"
        # What others wrote may have lines of its own: none of them looks like one of ours.
        message = visible(_message(record)).replace("\n", "\n    ")
        line = f"{moment}  {colour}{message}{chr(27) + '[0m' if colour else ''}{visible(detail, lines=False)}"
        return f"{line}\n{visible(self.formatException(record.exc_info))}" if record.exc_info else line
