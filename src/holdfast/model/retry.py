"""How a job type retries."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import InvalidInput

__all__ = ["RetryPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The delay before retry n is min(max, base × factor^(n-1)), plus up to `jitter` of it; in seconds.

    `max_attempts` counts failures and lost leases; None leaves it to the setting MAX_ATTEMPTS_DEFAULT.
    """

    max_attempts: int | None = None
    base: float = 1.0
    factor: float = 2.0
    max: float = 300.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidInput("RetryPolicy.max_attempts must be 1 or more")
        if self.base < 0 or self.max < 0 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise InvalidInput("RetryPolicy needs base ≥ 0, max ≥ 0, factor ≥ 1 and jitter from 0 to 1")
