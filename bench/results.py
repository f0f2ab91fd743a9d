"""What a run found: every sample of every system, the machine and the settings; kept as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["Figures", "Result", "Sample", "Spread", "machine", "now"]

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement of one system in one cell; `note` says what went wrong, or what to know."""

    cell: str
    system: str
    round: int
    figures: Figures
    note: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """The samples of one figure."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest."""
        return max(self.values)


@dataclass(slots=True, kw_only=True)
class Result:
    """A whole run."""

    about: dict[str, Any]
    systems: dict[str, dict[str, str]]
    samples: list[Sample] = field(default_factory=list)

    def spread(self, cell: str, system: str, figure: str) -> Spread | None:
        """A figure over the rounds; nothing where it was never measured."""
        values = [s.figures[figure] for s in self.of(cell, system) if figure in s.figures]
        return Spread(tuple(values)) if values else None

    def ratio(self, one: tuple[str, str], other: tuple[str, str], figure: str) -> float | None:
        """The median of the ratios within each round: what slowed both of a pair down cancels out."""
        values, beside = (
            {s.round: s.figures[figure] for s in self.of(*whose) if s.figures.get(figure)} for whose in (one, other)
        )
        ratios = [values[number] / beside[number] for number in values.keys() & beside.keys()]
        return statistics.median(ratios) if ratios else None

    def of(self, cell: str, system: str) -> Iterator[Sample]:
        """The samples of one system in one cell."""
        return (s for s in self.samples if s.cell == cell and s.system == system)

    def notes(self) -> Iterator[tuple[str, str, str]]:
        """(system, cell, note), each once."""
        return iter(dict.fromkeys((s.system, s.cell, s.note) for s in self.samples if s.note))

    def cells(self) -> Iterable[str]:
        """What was measured, in order."""
        return dict.fromkeys(s.cell for s in self.samples)

    def save(self, path: Path) -> None:
        """Write it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read one that was saved."""
        data = json.loads(path.read_text())
        return cls(about=data["about"], systems=data["systems"], samples=[Sample(**s) for s in data["samples"]])


def now() -> str:
    """The time of the run."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")


def machine() -> Mapping[str, str]:
    """What the figures were measured on."""
    cpu = _line_of("/proc/cpuinfo", "model name") or platform.processor()
    memory = (_line_of("/proc/meminfo", "MemTotal") or "0 kB").split()[0]
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory) / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _line_of(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
