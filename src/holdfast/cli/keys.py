"""`holdfast keys`: who may use the HTTP API, for which tenant, and for what."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click

from holdfast.cli.asking import asked, confirm, yes_option
from holdfast.cli.audit import audit
from holdfast.cli.durations import Duration
from holdfast.cli.exits import Exit
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import as_dict, echo, output_option, print_record, print_records
from holdfast.cli.rates import RequestRate
from holdfast.client.keyring import Keys
from holdfast.client.operations import Operations
from holdfast.errors import Conflict, NotFound
from holdfast.model.key import SCOPES, Key

__all__ = ["keys"]

_COLUMNS = {
    "id": "ID", "name": "NAME", "tenant": "TENANT", "prefix": "KEY", "scopes": "SCOPES", "state": "STATE",
    "last_used_at": "LAST USED", "expires_at": "EXPIRES",
}  # fmt: skip


@click.group()
def keys() -> None:
    """Manage API keys: who may use the HTTP API, for which tenant, and for what."""


@keys.command()
@click.argument("name")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the key.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    help="What the key may do; may be repeated. submit and read if not given.",
)
@click.option("--expires", type=Duration(), metavar="90d", help="How long the key is valid; without end if not given.")
@click.option("--rate", type=RequestRate(), metavar="50/s", help="How many requests per time, in each server process.")
@click.option("--max-waiting", type=Whole(min=0), help="Refuse submissions while this many jobs of the tenant wait.")
@output_option
def create(output: str, **wishes: Any) -> None:
    """Make a key and show its secret. The secret is not stored, so it is shown only once."""
    made = asked(
        lambda ops: ops.keys.create(
            wishes["name"],
            scopes=wishes["scopes"] or ("submit", "read"),
            tenant=wishes["tenant"],
            lifetime=wishes["expires"],
            requests_per_second=wishes["rate"],
            max_waiting=wishes["max_waiting"],
            by=operator(),
        )
    )
    _show_secret(*made, output)


@keys.command("list")
@click.option("--tenant", help="Only this tenant's.")
@output_option
def list_(tenant: str | None, output: str) -> None:
    """List keys, including revoked and expired ones."""
    found = asked(lambda ops: ops.keys.list(tenant))
    records = [_record(key) for key in found]
    if output == "table":
        records = [{**record, "scopes": ", ".join(record["scopes"])} for record in records]
    print_records(records, _COLUMNS, output)
    if not found and output == "table":
        echo("no keys: the server answers every caller, but only on loopback addresses", err=True)


@keys.command()
@click.argument("wanted", metavar="KEY")
@click.option("--overlap", type=Duration(), default="1d", show_default=True, help="How long the old key stays valid.")
@output_option
def rotate(wanted: str, overlap: timedelta, output: str) -> None:
    """Replace a key by a new one. The old one stays valid for a while. KEY is its id or its name."""

    async def turn(ops: Operations) -> tuple[Key, str]:
        return await ops.keys.rotate(await _named(ops.keys, wanted), overlap=overlap, by=operator())

    _show_secret(*asked(turn), output)


@keys.command()
@click.argument("wanted", metavar="KEY")
@yes_option
def revoke(wanted: str, yes: bool) -> int:
    """Revoke a key. KEY is its id or its name. This cannot be undone.

    Within a second the key is refused, and its open streams and waits end.
    """
    if not yes:
        confirm("revoke cannot be undone", f"Revoke key {wanted}? This cannot be undone.")

    async def end(ops: Operations) -> Key:
        return await ops.keys.revoke(await _named(ops.keys, wanted), by=operator())

    key = asked(end)
    echo(f"revoked {key.name} ({key.prefix}…)")
    return Exit.OK


keys.add_command(audit)


async def _named(ring: Keys, wanted: str) -> UUID:
    """The id of a key that is given by its id or by its name."""
    with contextlib.suppress(ValueError):
        return UUID(wanted)
    named = [key for key in await ring.list(None) if key.name == wanted]
    found = [key for key in named if _record(key)["state"] in ("good", "replaced")]
    if not found:
        raise NotFound(f"no key is called {wanted!r}, or it is no longer valid; `holdfast keys list` shows all")
    if len(found) > 1:
        raise Conflict(f"{len(found)} keys are called {wanted!r}: give the id, {' or '.join(str(k.id) for k in found)}")
    return found[0].id


def _show_secret(key: Key, secret: str, output: str) -> None:
    if output == "table":
        echo(secret)
        echo(f"key {key.id} ({key.name}) for tenant {key.tenant}: {', '.join(key.scopes)}", err=True)
        echo("Store it now: it is not shown again.", err=True)
    else:
        print_record({**_record(key), "secret": secret}, output)


def _record(key: Key) -> dict[str, Any]:
    if key.revoked_at is not None:
        state = "revoked"
    elif key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        state = "expired"
    else:
        state = "good" if key.replaced_by is None else "replaced"
    return {**as_dict(key), "state": state}
