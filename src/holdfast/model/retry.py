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

    `max_attempts` counts failures and lost leases. None means the setting MAX_ATTEMPTS_DEFAULT.
    """

    max_attempts: int | None = None
    base: float = 1.0
    factor: float = 2.0
    max: float = 300.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        given = {
            "max_attempts": 1 if self.max_attempts is None else self.max_attempts,
            "backoff_base": self.base,
            "backoff_factor": self.factor,
            "backoff_max": self.max,
            "backoff_jitter": self.jitter,
        }
        for name, value in given.items():
            if not BOUNDS[name].holds(value):
                option = f"RetryPolicy.{name.removeprefix('backoff_')}"
                raise InvalidInput(f"{option} must be {BOUNDS[name]}, not {shown(value)}")
            if 0 < value < _LEAST:  # the engine could not store it
                option = f"RetryPolicy.{name.removeprefix('backoff_')}"
                raise InvalidInput(f"{option} must be 0, or {_LEAST} at least, not {shown(value)}")
