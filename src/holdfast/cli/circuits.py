"""`holdfast circuits`: circuit breakers of services, and how to close and open them by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from holdfast.cli.asking import asked
from holdfast.cli.durations import Duration
from holdfast.cli.operator import operator
from holdfast.cli.output import age, as_dict, echo, output_option, print_records, shortened
from holdfast.client.operations import Operations
from holdfast.model.circuit import CircuitState

__all__ = ["circuits"]

_COLUMNS = {
    "name": "NAME", "tenant": "TENANT", "state": "STATE", "failure_count": "FAILURES", "success_count": "SUCCESSES",
    "since": "SINCE", "next": "NEXT PROBE", "forced_by": "FORCED BY", "error": "LAST ERROR",
}  # fmt: skip
_PAGE = 500

_tenant = click.option("--tenant", help="The tenant, of a circuit that is per tenant.")


@click.group()
def circuits() -> None:
    """Show circuit breakers, close them and open them by hand."""


@circuits.command("list")
@click.option("--tenant", help="Only circuits that are this tenant's own.")
@output_option
def list_(tenant: str | None, output: str) -> None:
    """List circuits by name."""

    async def find(ops: Operations) -> list[CircuitState]:
        found: list[CircuitState] = []
        page: list[CircuitState] | None = None
        while page is None or len(page) == _PAGE:
            after = (found[-1].name, found[-1].tenant) if found else None
            found += (page := await ops.circuits.list(tenant=tenant, after=after, limit=_PAGE))
        return found

    found = asked(find)
    rows = [_row(each) if output == "table" else as_dict(each) for each in found]
    print_records(rows, _COLUMNS, output)
    if not found and output == "table":
        echo("no circuits yet: one is made when a handler first uses it", err=True)


@circuits.command()
@click.argument("name")
@_tenant
@click.option("--reason", help="Reason; stored in the audit log.")
def reset(name: str, tenant: str | None, reason: str | None) -> None:
    """Close a circuit, whatever its state, and reset its counts."""
    asked(lambda ops: ops.circuits.reset(name, tenant=tenant, by=operator(), reason=reason))
    echo(f"circuit {name} closed")


@circuits.command("open")
@click.argument("name")
@_tenant
@click.option("--for", "length", type=Duration(), help="For how long; without it, until somebody resets it.")
@click.option("--reason", help="Reason; shown with the circuit and stored in the audit log.")
def open_(name: str, tenant: str | None, length: timedelta | None, reason: str | None) -> None:
    """Open a circuit by hand: its jobs wait until the service is tried again. Creates the circuit if needed."""
    found = asked(lambda ops: ops.circuits.open(name, tenant=tenant, seconds=length, by=operator(), reason=reason))
    probe = found.next_probe_at
    echo(f"circuit {name} open until {'somebody resets it' if probe is None else f'{probe:%Y-%m-%d %H:%M:%S %Z}'}")


def _row(circuit: CircuitState) -> dict[str, Any]:
    since = circuit.half_opened_at or circuit.opened_at
    return as_dict(circuit) | {
        "since": "" if since is None else f"{age(since)} ago",
        "next": "" if circuit.next_probe_at is None else f"{circuit.next_probe_at:%Y-%m-%d %H:%M:%S}",
        "error": shortened(circuit.last_error or ""),
    }
