"""Circuit breakers: what code declares about one, and what operators see of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from holdfast.bounds import BOUNDS, shown
from holdfast.errors import HandlerSignal, HoldfastError, InvalidInput
from holdfast.model.visible import is_printable

__all__ = ["Circuit", "CircuitState", "Counts", "Ending", "Policy"]

#: How a call ended, as far as the service is concerned.
Ending = Literal["success", "failure", "neither"]
#: Which exceptions are failures of the service.
Counts = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]

_log = logging.getLogger("holdfast")


class Policy(TypedDict, total=False):
    """What may be said about a circuit besides its name; see Circuit."""

    failure_threshold: int | None
    open_for: float | timedelta | None
    window: float | timedelta
    failure_share: float
    probes: int
    success_threshold: int
    per_tenant: bool
    counts: Counts


@dataclass(frozen=True, slots=True)
class Circuit:
    """When calls of a service stop because it fails, and how it is tried again.

    It opens when at least `failure_threshold` calls failed within `window` seconds, and these are at least
    `failure_share` of all calls. After `open_for` seconds, `probes` jobs at a time may try; `success_threshold`
    successes close it, a failure opens it again for twice as long, up to 15 minutes. `counts` says which exceptions are
    failures: a type, a tuple of types, or a function. Signals such as `Retry` and errors of Holdfast are not, unless a
    type names them. With `per_tenant`, each tenant has a circuit of its own. What is None follows the settings
    CIRCUIT_FAILURE_THRESHOLD (5) and CIRCUIT_OPEN_SECONDS (60).
    """

    name: str
    failure_threshold: int | None = None
    open_for: float | timedelta | None = None
    window: float | timedelta = 60.0
    failure_share: float = 0.5
    probes: int = 1
    success_threshold: int = 1
    per_tenant: bool = False
    counts: Counts = Exception

    def __post_init__(self) -> None:
        """Refuse what the engine would refuse, all faults at once."""
        for name in ("open_for", "window"):
            object.__setattr__(self, name, _seconds(getattr(self, name)))
        faults = [
            f"{name} must be {BOUNDS[name]}, not {shown(getattr(self, name))}"
            for name in _POLICY
            if not BOUNDS[name].holds(getattr(self, name)) and not (name in _SETTINGS and getattr(self, name) is None)
        ]
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 200 or not is_printable(self.name):
            faults.insert(0, "its name must have 1 to 200 characters, and no control characters")
        per_tenant: object = self.per_tenant
        if not isinstance(per_tenant, bool):
            faults.append(f"per_tenant must be true or false, not {shown(per_tenant)}")
        if not _is_criterion(self.counts):
            faults.append(f"counts must be exception types or a function, not {shown(self.counts)}")
        if faults:
            raise InvalidInput(f"circuit {shown(self.name)}: {'; '.join(faults)}")

    @classmethod
    def of(cls, value: Circuit | str | None) -> Circuit | None:
        """What `circuit=` may be given as."""
        if value is None or isinstance(value, Circuit):
            return value
        return cls(value)

    @property
    def policy(self) -> dict[str, float]:
        """The numbers, as the engine names them; without those that follow the settings."""
        return {name: value for name in _POLICY if (value := getattr(self, name)) is not None}

    def tenant(self, tenant: str) -> str:
        """Whose circuit it is for a job of this tenant; empty for all tenants."""
        return tenant if self.per_tenant else ""

    def ending(self, error: BaseException | None) -> Ending:
        """How a call that raised this ended."""
        if error is None:
            return "success"
        if not isinstance(error, Exception) or isinstance(error, HandlerSignal):
            return "neither"
        kinds = self.counts if isinstance(self.counts, tuple) else (self.counts,)
        if isinstance(error, HoldfastError):
            # It says something of the job or of Holdfast, unless somebody calls it a failure by its own name.
            named = any(kind in type(error).__mro__ for kind in kinds if kind not in _GENERAL)
            return "failure" if named else "neither"
        return "failure" if self._counted(error) else "neither"

    def _counted(self, error: Exception) -> bool:
        if isinstance(self.counts, tuple | type):
            return isinstance(error, self.counts)
        try:
            return self.counts(error)
        except Exception:  # noqa: BLE001 - foreign code
            _log.warning("circuit %s: `counts` itself failed; the call counts as failed", self.name, exc_info=True)
            return True


_GENERAL = (Exception, HoldfastError)
#: The numbers of a policy; each has the bound of the same name.
_POLICY = ("failure_threshold", "open_for", "window", "failure_share", "probes", "success_threshold")
#: What follows a setting if it is None.
_SETTINGS = ("failure_threshold", "open_for")
assert set(_POLICY) < {field.name for field in fields(Circuit)}  # noqa: S101 - guards the line above


def _seconds(length: Any) -> Any:
    return length.total_seconds() if isinstance(length, timedelta) else length


def _is_criterion(counts: Any) -> bool:
    kinds = counts if isinstance(counts, tuple) and counts else (counts,)
    if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        return True
    return callable(counts) and not isinstance(counts, type)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitState:
    """A circuit as operators see it. The counts are those of all workers within the window.

    `tenant` is None for a circuit that all tenants share; `forced_by` opened it by hand, `next_probe_at` is None
    if it stays open until somebody resets it.
    """

    name: str
    tenant: str | None
    state: Literal["closed", "open", "half_open"]
    failure_count: int
    success_count: int
    opened_at: datetime | None
    half_opened_at: datetime | None
    next_probe_at: datetime | None
    last_failure_at: datetime | None
    last_error: str | None
    forced_by: str | None
    forced_note: str | None
    failure_threshold: int
    failure_share: float
    window_seconds: float
    open_seconds: float
    probes: int
    success_threshold: int
    updated_at: datetime
