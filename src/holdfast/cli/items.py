"""`holdfast jobs items`: what a job has stored, as a table, or all of it for a program.

Items are read page by page and written at once, so that any number of them takes little memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.numbers import Whole
from holdfast.cli.output import as_dict, echo, echo_json, json_text, output_option, print_records
from holdfast.model.progress import Item

__all__ = ["items"]

_PAGE, _TABLE = 500, 100
#: A table has as many of the data's members as columns.
_MOST_COLUMNS = 8
_LARGEST_ID = 2**63 - 1


@click.command()
@click.argument("job_id", metavar="ID", type=click.UUID)
@click.option("--collection", help="Only items of this collection.")
@click.option("--limit", type=Whole(1, 10**9), help="How many at most; if not given, 100 in a table, else all.")
@click.option("--after", type=Whole(0, _LARGEST_ID), metavar="NUMBER", help="Start after this item, for the next page.")
@output_option
def items(job_id: UUID, collection: str | None, limit: int | None, after: int | None, output: str) -> None:
    """Show the items that a job has stored, in that order.

    `-o ndjson` exports all of them, one per line.
    """
    asyncio.run(_show(job_id, collection, limit or (_TABLE if output == "table" else None), after, output))


async def _show(job_id: UUID, collection: str | None, limit: int | None, after: int | None, output: str) -> None:
    async with Holdfast() as hf, aclosing(_items(hf, job_id, collection, after)) as found:
        if output == "table":
            shown = [item async for item in _at_most(found, (limit or 0) + 1)]
            _print_table(shown[:limit])
            if limit is not None and len(shown) > limit:
                echo(f"more: --after {shown[limit - 1].id}", err=True)
        elif output == "ndjson":
            async for item in _at_most(found, limit):
                echo_json(as_dict(item))
        else:
            echo("[")
            last: str | None = None
            async for item in _at_most(found, limit):
                if last is not None:
                    echo(f"  {last},")
                last = json_text(as_dict(item))
            if last is not None:
                echo(f"  {last}")
            echo("]")


async def _items(hf: Holdfast, job_id: UUID, collection: str | None, after: int | None) -> AsyncGenerator[Item]:
    while page := await hf.items(job_id, limit=_PAGE, after=after):
        for item in page:
            if collection in (None, item.collection):
                yield item
        after = page[-1].id


async def _at_most(found: AsyncGenerator[Item], limit: int | None) -> AsyncGenerator[Item]:
    number = 0
    async for item in found:
        yield item
        number += 1
        if number == limit:
            return


def _print_table(found: Sequence[Item]) -> None:
    """A row for each item; members of its data are columns, if all data are objects."""
    names = dict.fromkeys(name for item in found if isinstance(item.data, dict) for name in item.data)
    spread = 0 < len(names) <= _MOST_COLUMNS and all(isinstance(item.data, dict) for item in found)
    several = len({item.collection for item in found}) > 1
    columns = {"key": "KEY"} | ({"collection": "COLLECTION"} if several else {})
    columns |= {f".{name}": name.upper() for name in names} if spread else {"data": "DATA"}
    print_records([_row(item) for item in found], columns, "table")
    if not found:
        echo("no items", err=True)


def _row(item: Item) -> dict[str, Any]:
    members = item.data if isinstance(item.data, dict) else {}
    return as_dict(item) | {f".{name}": value for name, value in members.items()}
