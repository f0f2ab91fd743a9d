"""How reads are printed: a table for people, JSON or a line of JSON per entry for programs.

What draws tables is imported when one is drawn: programs that ask for JSON do not wait for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from holdfast.model.visible import visible, visible_json

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "age",
    "as_dict",
    "echo",
    "echo_json",
    "indented",
    "json_text",
    "output_option",
    "print_record",
    "print_records",
    "shortened",
    "styled",
]

#: How much of an error or a reason a table shows.
_SHORT = 60

#: Wide enough that nothing is cut if the output is not a terminal.
_PIPE_WIDTH = 10_000

_STYLES = {
    "success": "green", "ok": "green", "running": "cyan", "queued": "blue", "retry": "yellow", "warn": "yellow",
    "paused": "yellow", "error": "red", "dead": "red", "fail": "red", "failed": "red", "canceled": "dim",
}  # fmt: skip

Command = Callable[..., Any]


def output_option(command: Command) -> Command:
    """Give a command the option `-o table|json|ndjson`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "ndjson"]),
        default="table",
        show_default=True,
        help="Output format.",
    )(command)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text that may have parts that others wrote."""
    click.echo(visible(text), err=err)


def echo_json(value: Any) -> None:
    """Print a value as a line of JSON."""
    click.echo(json_text(value))


def print_records(records: Sequence[Mapping[str, Any]], columns: Mapping[str, str], output: str) -> None:
    """Print many records; `columns` are the table's: key and heading. JSON has every key."""
    if output == "json":
        click.echo(json_text(list(records), indent=2))
    elif output == "ndjson":
        for record in records:
            click.echo(json_text(record))
    elif records:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for heading in columns.values():
            table.add_column(heading, no_wrap=not sys.stdout.isatty())
        for record in records:
            table.add_row(*(styled(record.get(key), lines=False) for key in columns))
        _print(table)


def print_record(record: Mapping[str, Any], output: str) -> None:
    """Print one record: a line per field, without those that are empty."""
    if output != "table":
        click.echo(json_text(record, indent=2 if output == "json" else None))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in record.items():
        if value is not None and value != []:
            table.add_row(key, styled(value))
    _print(table)


def as_dict(value: Any) -> dict[str, Any]:
    """A dataclass as a record, with its public status if it has one."""
    record = {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(value, "status"):
        record["status"] = value.status
    return record


def age(moment: datetime | None) -> str:
    """How long ago something was, or how far ahead it is, in one unit."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if abs(seconds) >= 2 * length:
            return f"{'in ' if seconds < 0 else ''}{abs(seconds) / length:.0f}{unit}"
    return f"{'in ' if seconds < 0 else ''}{abs(seconds):.0f}s"


def shortened(text: str | None) -> str:
    """The first line of a text, cut to what fits into a table."""
    line = (text or "").partition("\n")[0]
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def indented(text: str) -> str:
    """A text that others wrote, indented, so that no line of it looks like one of ours."""
    return indent(text.rstrip(), "  ")


def styled(value: Any, *, lines: bool = True) -> Text:
    """A value as a cell."""
    from rich.text import Text

    if value is None:
        return Text("")
    if isinstance(value, dict | list):
        return Text(json_text(value))
    text = _plain(value) if not isinstance(value, str) else value
    return Text(visible(str(text), lines=lines), style=_STYLES.get(str(text), ""))


def _print(table: Table) -> None:
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    console = Console(width=_PIPE_WIDTH, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON."""
    return visible_json(json.dumps(value, default=_plain, ensure_ascii=False, indent=indent))


def _plain(value: Any) -> Any:
    """What JSON does not know, as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(getattr(value, "value", value))
