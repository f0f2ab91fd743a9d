"""`holdfast doctor`: what is wrong with this installation, and how to fix it."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.findings import Finding, examine, examine_extras
from holdfast.cli.output import as_dict, output_option, print_records
from holdfast.errors import HoldfastError

__all__ = ["doctor"]


@click.command()
@output_option
def doctor(output: str) -> int:
    """Report what is wrong with this installation, and how to fix it. Exits 1 if a check fails."""
    findings = asyncio.run(_examine())
    columns = {"level": "", "check": "CHECK", "detail": "FOUND", "advice": "WHAT TO DO"}
    if output == "table":
        print_records([as_dict(f) for f in findings], columns, output)
    else:
        print_records([as_dict(f) for f in findings], {}, output)
    return Exit.FAILED if any(f.level == "fail" for f in findings) else Exit.OK


async def _examine() -> list[Finding]:
    hf = Holdfast()
    findings = examine_extras(hf.config)
    try:
        await hf.use_database()
    except HoldfastError as fault:
        return [*findings, Finding(check="embedded", level="fail", detail=str(fault), advice="see what was found")]
    return [*findings, *[finding async for finding in examine(hf.config)]]
