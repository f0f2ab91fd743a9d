"""Tables as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Table", "number"]


@dataclass(slots=True)
class Table:
    """A title, names of columns, and rows of texts; all columns but the first `left` ones are numbers."""

    title: str
    columns: Sequence[str]
    left: int = 2
    rows: list[Sequence[str]] = field(default_factory=list)
    remark: str = ""

    def text(self) -> str:
        """For a terminal."""
        widths = [max(len(row[n]) for row in [self.columns, *self.rows]) for n in range(len(self.columns))]
        lines = [self._line(row, widths) for row in [self.columns, ["─" * w for w in widths], *self.rows]]
        return "\n".join(["", self.title, *([self.remark] if self.remark else []), "", *lines])

    def markdown(self) -> str:
        """For a page."""
        marks = ["---" if n < self.left else "---:" for n in range(len(self.columns))]
        lines = ["| " + " | ".join(row) + " |" for row in [self.columns, marks, *self.rows]]
        return "\n".join(["", f"### {self.title}", "", *([self.remark, ""] if self.remark else []), *lines])

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        parts = [
            text.ljust(width) if n < self.left else text.rjust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()


def number(value: float) -> str:
    """Three digits that count, thousands apart."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
