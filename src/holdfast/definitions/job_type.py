"""A job type: a handler and its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.bounds import BOUNDS, shown
from holdfast.definitions.payload import Payload
from holdfast.errors import InvalidInput
from holdfast.model.circuit import Circuit
from holdfast.model.lanes import lane_fault
from holdfast.model.limits import Limit, Rate
from holdfast.model.retry import RetryPolicy
from holdfast.model.visible import is_printable

__all__ = ["JobType", "declare"]

Executor = Literal["async", "thread", "process"]
OnFailure = Literal["retry", "hold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """What `@hf.job` declares. Workers publish it, so that the engine knows it too."""

    name: str
    handler: Callable[..., Any]
    payload: Payload
    queue: str
    lane: str
    retry: RetryPolicy
    timeout_seconds: float | None
    lease_seconds: float | None
    on_failure: OnFailure
    executor: Executor
    version: int
    limit: Limit | None
    rate: Rate | None
    circuit: Circuit | None = None

    def published(self) -> dict[str, Any]:
        """The row that workers publish."""
        return {
            "name": self.name,
            "queue": self.queue,
            "lane": self.lane,
            "max_attempts": self.retry.max_attempts,
            "backoff_base": self.retry.base,
            "backoff_factor": self.retry.factor,
            "backoff_max": self.retry.max,
            "backoff_jitter": self.retry.jitter,
            "timeout_seconds": self.timeout_seconds,
            "lease_seconds": self.lease_seconds,
            "on_failure": self.on_failure,
            "version": self.version,
            "payload_schema": self.payload.schema(),
            "payload_shape": self.payload.shape(),
            "limit_count": self.limit and self.limit.count,
            "limit_key": self.limit and self.limit.key,
            "rate_count": self.rate and self.rate.count,
            "rate_seconds": self.rate and self.rate.per,
            "rate_key": self.rate and self.rate.key,
            "circuit": self.circuit and self.circuit.name,
            "circuit_per_tenant": self.circuit and self.circuit.per_tenant,
        }


def declare(
    name: str,
    handler: Callable[..., Any],
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
) -> JobType:
    """Create a job type from its declaration. Raises InvalidInput with all faults at once."""
    _refuse_unfit(name, handler)
    asynchronous = inspect.iscoroutinefunction(handler)
    executor = executor or ("async" if asynchronous else "thread")
    faults = [
        fault
        for wrong, fault in (
            (not _is_name(name), "a name must have 1 to 200 characters, and no control characters"),
            (name.startswith("holdfast."), 'names beginning with "holdfast." are reserved'),
            (
                not _is_name(queue) or queue == "holdfast",
                'queue must have 1 to 200 characters, no control characters, and not be "holdfast"',
            ),
            (lane_fault(lane) is not None, f"lane is {shown(lane)}: {lane_fault(lane)}"),
            (on_failure not in ("retry", "hold"), f"on_failure must be retry or hold, not {shown(on_failure)}"),
            (
                executor not in ("async", "thread", "process"),
                f"executor must be async, thread or process, not {shown(executor)}",
            ),
            (executor == "async" and not asynchronous, "executor async needs an `async def` handler"),
            (
                executor in ("thread", "process") and asynchronous,
                f"executor {executor} needs a plain `def` handler",
            ),
            (
                executor == "process" and "<locals>" in getattr(handler, "__qualname__", ""),
                "executor process needs a handler at the top level of a module (a decorator must use functools.wraps)",
            ),
            (
                not _fits("timeout", timeout),
                f"timeout must be a number of seconds {BOUNDS['timeout']}, not {shown(timeout)}",
            ),
            (not _fits("lease", lease), f"lease must be a number of seconds {BOUNDS['lease']}, not {shown(lease)}"),
            (not _fits("version", version), f"version must be {BOUNDS['version']}, not {shown(version)}"),
            (
                retry is not None and not isinstance(retry, RetryPolicy),
                f"retry must be a RetryPolicy, such as RetryPolicy(max_attempts=5), not {shown(retry)}",
            ),
            (not inspect.signature(handler).parameters, "the handler must take the context as its first parameter"),
        )
        if wrong
    ]
    if faults:
        raise InvalidInput(f"job type {shown(name)}: {'; '.join(faults)}")
    payload, concurrency, starts = Payload(name, handler), Limit.of(limit), Rate.of(rate)
    for what, rule in (("limit", concurrency), ("rate", starts)):
        if rule is not None and rule.key is not None:
            payload.refuse_missing(what, rule.key)
    return JobType(
        name=name,
        handler=handler,
        payload=payload,
        queue=queue,
        lane=lane,
        retry=retry or RetryPolicy(),
        timeout_seconds=timeout,
        lease_seconds=lease,
        on_failure=on_failure,
        executor=executor,
        version=version,
        limit=concurrency,
        rate=starts,
        circuit=Circuit.of(circuit),
    )


def _refuse_unfit(name: str, handler: object) -> None:
    """Refuse what is not a function, or does not return when it is called."""
    if not callable(handler) or inspect.isclass(handler) or not hasattr(handler, "__qualname__"):
        raise InvalidInput(
            f"job type {shown(name)}: a handler must be a function, not {shown(handler)}; "
            "write a `def` or an `async def` that calls it"
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidInput(
            f"job type {shown(name)}: a handler must not be a generator function: calling it would run nothing; "
            "return the result instead of yielding it"
        )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= 200 and is_printable(name)


def _fits(bound: str, value: object) -> bool:
    return value is None or BOUNDS[bound].holds(value)
