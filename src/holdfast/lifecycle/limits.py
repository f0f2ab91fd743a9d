"""The system's limits of memory, files, processes and time for this process. They concern all code in it."""

from __future__ import annotations

import contextlib

try:
    import resource
except ImportError:  # not on every system
    resource = None  # type: ignore[assignment]

__all__ = ["SoftLimits", "current_limits"]

#: The limits that would keep a worker from working; and all that there are.
_NAMES = ("AS", "DATA", "STACK", "NOFILE", "NPROC", "FSIZE", "CPU")
_NUMBERS = [getattr(resource, f"RLIMIT_{name}") for name in _NAMES if hasattr(resource, f"RLIMIT_{name}")]
_ALL = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def current_limits() -> list[tuple[int, int, int]]:
    """The number of each limit, its value, and the value up to which it may be raised."""
    return [(number, *resource.getrlimit(number)) for number in _ALL]


class SoftLimits:
    """The limits that this process has when this object is created."""

    def __init__(self) -> None:
        self._soft = [resource.getrlimit(number)[0] for number in _NUMBERS]

    @property
    def processor_time_is_lower(self) -> bool:
        """Whether the limit of processor time was lowered since."""
        number = getattr(resource, "RLIMIT_CPU", None)
        if number is None:
            return False
        return _is_lower(resource.getrlimit(number)[0], self._soft[_NUMBERS.index(number)])

    def restore(self) -> None:
        """Raise limits that were lowered since, as far as that is allowed."""
        for number, soft in zip(_NUMBERS, self._soft, strict=True):
            now, hard = resource.getrlimit(number)
            if now != soft and _is_lower(now, soft):
                with contextlib.suppress(ValueError, OSError):
                    resource.setrlimit(number, (hard if _is_lower(hard, soft) else soft, hard))


def _is_lower(value: int, than: int) -> bool:
    return value != resource.RLIM_INFINITY and (than == resource.RLIM_INFINITY or value < than)
