"""What an app declares: job types, schedules, and who observes it."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from holdfast.app.handler import Handler
from holdfast.definitions.job_type import Executor, OnFailure, declare
from holdfast.definitions.json_text import encode_plain
from holdfast.definitions.registry import Registry
from holdfast.errors import InvalidInput
from holdfast.model.circuit import Circuit
from holdfast.model.limits import Limit, Rate
from holdfast.model.retry import RetryPolicy
from holdfast.model.schedule import CATCH_UP_SECONDS, Overlap
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import Event
from holdfast.worker.context import Context

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast

__all__ = ["Declaring"]

C = TypeVar("C", bound=Context)
E = TypeVar("E", bound=Event)
P = ParamSpec("P")
R = TypeVar("R")


class Declaring:
    """Declare job types and schedules, and subscribe to events."""

    registry: Registry
    events: Bus

    def job(
        self,
        name: str,
        *,
        queue: str = "default",
        lane: str = "general",
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        lease: float | None = None,
        on_failure: OnFailure = "retry",
        executor: Executor | None = None,
        version: int = 1,
        limit: Limit | int | None = None,
        rate: Rate | str | None = None,
        circuit: Circuit | str | None = None,
        schedule: str | float | timedelta | Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[Concatenate[C, P], R]], Handler[P, R]]:
        """Declare a job type: an `async def` (runs in the event loop) or a `def` (runs in a thread, or in a separate
        process with `executor="process"`).

        `limit` is how many run at once on all workers; `rate` is how many start per time, such as "10/s". Both can
        apply per value of a payload field: `limit=Limit(2, key="customer")`. While the circuit breaker `circuit` is
        open, no job of this type is started, except for those that try the service again.

        `schedule` runs it regularly, under the name of the job type: a cron expression, a number of seconds, or the
        arguments of `Holdfast.schedule` as a mapping: `schedule={"cron": "0 2 * * *", "tz": "Europe/Berlin"}`.
        """

        if not isinstance(name, str):
            raise InvalidInput('a job type needs a name: `@hf.job("email.send")`')

        def decorate(function: Callable[Concatenate[C, P], R]) -> Handler[P, R]:
            job_type = declare(
                name,
                function,
                queue=queue,
                lane=lane,
                retry=retry,
                timeout=timeout,
                lease=lease,
                on_failure=on_failure,
                executor=executor,
                version=version,
                limit=limit,
                rate=rate,
                circuit=circuit,
            )
            _refuse_missing_context(name, function)
            self.registry.add(job_type)
            if schedule is not None:
                self.schedule(**{"name": name, "job": name, **_spelled_out(schedule)})
            return Handler(cast("Holdfast", self), job_type, function)

        return decorate

    def schedule(
        self,
        name: str,
        *,
        job: Handler[..., Any] | str,
        cron: str | None = None,
        every: float | timedelta | None = None,
        payload: Any = None,
        tz: str = "UTC",
        overlap: Overlap = "skip",
        catch_up: float | timedelta = CATCH_UP_SECONDS,
        jitter: float | timedelta = 0,
        **options: Any,
    ) -> None:
        """Declare a schedule: at the times of a cron expression in a time zone, or at a fixed interval, a job is
        recorded, exactly one for each time. Every worker of the app declares it when it starts.

        `overlap` says what happens while the job of an earlier time is open: the time is skipped, the new job waits for
        the earlier one (`queue`), or both run (`allow`). Times that are late, because nothing ran, are made up for if
        they are not older than `catch_up`. `jitter` delays each job by up to that much. `options` are those of the
        jobs: priority, queue, target, tenant, ….
        """
        from holdfast.definitions.schedule import schedule_definition

        kind = job.name if isinstance(job, Handler) else job
        known = self.registry.get(kind) if isinstance(kind, str) else None
        given = {} if payload is None else payload
        self.registry.add_schedule(
            schedule_definition(
                name,
                job=kind,
                cron=cron,
                every=every,
                payload=encode_plain(kind, given) if known is None else known.payload.encode(given),
                tz=tz,
                overlap=overlap,
                catch_up=catch_up,
                jitter=jitter,
                options=options,
            )
        )

    def on(self, *kinds: type[E]) -> Callable[[Callable[[E], None]], Callable[[E], None]]:
        """Subscribe to events of this process: `@hf.on(events.AttemptEnded)` on a function that takes the event."""

        if not all(isinstance(kind, type) and issubclass(kind, Event) for kind in kinds):
            raise InvalidInput("name the events: `@hf.on(events.AttemptEnded)`, or `@hf.on()` for all")

        def subscribe(subscriber: Callable[[E], None]) -> Callable[[E], None]:
            self.events.subscribe(subscriber, *kinds)
            return subscriber

        return subscribe


def _spelled_out(schedule: str | float | timedelta | Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of `Holdfast.schedule` that `@hf.job(schedule=...)` stands for."""
    if isinstance(schedule, Mapping):
        return schedule
    return {"cron": schedule} if isinstance(schedule, str) else {"every": schedule}


def _refuse_missing_context(name: str, function: Callable[..., Any]) -> None:
    """Refuse a first parameter with another annotation: it would get the context anyway."""
    first = next(iter(inspect.signature(function).parameters), None)
    if first is None:
        return
    unwrapped = inspect.unwrap(function)
    annotation = getattr(unwrapped, "__annotations__", {}).get(first)
    if isinstance(annotation, str):
        annotation = getattr(unwrapped, "__globals__", {}).get(annotation, getattr(builtins, annotation, None))
    if not isinstance(annotation, type) or annotation in (Any, object) or getattr(annotation, "_is_protocol", False):
        return
    if not issubclass(annotation, Context):
        raise InvalidInput(
            f"job type {name!r}: the first parameter is the context, but {first!r} is a {annotation.__name__}; "
            "put `ctx: Context` before it"
        )
