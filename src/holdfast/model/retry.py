"""How a job type retries."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.bounds import BOUNDS, shown
from holdfast.errors import InvalidInput

__all__ = ["RetryPolicy"]

#: Seconds, or a part: the engine keeps these numbers in single precision, and less would be of no use.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The delay before retry n, in seconds: min(max, base × factor^(n-1)), plus a random part of up to `jitter` of it.

    `max_attempts` counts failures and lost leases. What is None follows the settings, whenever an attempt has failed:
    MAX_ATTEMPTS_DEFAULT, RETRY_BASE_SECONDS, RETRY_FACTOR, RETRY_MAX_SECONDS and RETRY_JITTER.
    """

    max_attempts: int | None = None
    base: float | None = None
    factor: float | None = None
    max: float | None = None
    jitter: float | None = None

    def __post_init__(self) -> None:
        given = {
            "max_attempts": self.max_attempts,
            "backoff_base": self.base,
            "backoff_factor": self.factor,
            "backoff_max": self.max,
            "backoff_jitter": self.jitter,
        }
        for name, value in given.items():
            if value is None:
                continue
            if not BOUNDS[name].holds(value):
                option = f"RetryPolicy.{name.removeprefix('backoff_')}"
                raise InvalidInput(f"{option} must be {BOUNDS[name]}, not {shown(value)}")
            if 0 < value < _LEAST:  # the engine could not store it
                option = f"RetryPolicy.{name.removeprefix('backoff_')}"
                raise InvalidInput(f"{option} must be 0, or {_LEAST} at least, not {shown(value)}")
