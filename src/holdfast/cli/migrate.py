"""`holdfast migrate`: bring the database's schema to this release, or show what is missing."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.findings import examine_names
from holdfast.cli.output import echo, output_option, print_records
from holdfast.config import Config
from holdfast.store.doctor import examination
from holdfast.store.migrate import Plan, migration_sql, plan
from holdfast.store.migrate import migrate as apply

__all__ = ["migrate"]


@click.command()
@click.option("--check", "mode", flag_value="check", help="Change nothing; exit 1 unless the schema is current.")
@click.option("--sql", "mode", flag_value="sql", help="Print the whole schema as a script for psql.")
@click.option("--status", "mode", flag_value="status", help="List the steps that were applied and those that were not.")
@output_option
def migrate(mode: str | None, output: str) -> int:
    """Create or upgrade the schema. This is safe while workers run, and from many processes at once."""
    match mode:
        case "sql":
            echo(migration_sql(Config.load()))
        case "check":
            found = asyncio.run(_plan(carry_out=False))
            if not found.current:
                echo(f"not current: {_missing(found)}; run `holdfast migrate`", err=True)
                return Exit.FAILED
            echo("the schema is current")
        case "status":
            _print_status(asyncio.run(_plan(carry_out=False)), output)
        case _:
            done = asyncio.run(_plan(carry_out=True))
            echo("nothing to do: the schema is current" if done.current else f"applied {_missing(done)}")
    return Exit.OK


async def _plan(*, carry_out: bool) -> Plan:
    hf = Holdfast()
    await hf.use_database()
    if not carry_out:
        return await plan(hf.config)
    done = await apply(hf.config)
    async with examination(hf.config) as look:
        for finding in await examine_names(look, hf.config):
            if finding.level != "ok":
                echo(f"warning: {finding.check}: {finding.detail}; {finding.advice}", err=True)
    return done


def _missing(found: Plan) -> str:
    steps = [name for _, name in found.pending]
    functions = [f"{len(found.changed_functions)} function files"] if found.changed_functions else []
    rights = [f"rights that were missing ({'; '.join(found.missing_rights)})"] if found.missing_rights else []
    return ", ".join([*steps, *functions, *rights])


def _print_status(found: Plan, output: str) -> None:
    records = [{"name": name, "state": "applied"} for _, name in found.applied]
    records += [{"name": name, "state": "pending"} for _, name in found.pending]
    records += [{"name": f"functions/{name}", "state": "changed"} for name in found.changed_functions]
    print_records(records, {"name": "NAME", "state": "STATE"}, output)
    for missing in found.missing_rights:
        echo(f"rights are missing: {missing}", err=True)
    if found.newer_release is not None:
        echo(f"migrated by the newer release {found.newer_release}: this one changes nothing", err=True)
