"""`holdfast conform`: try a remote worker, in any language, against a server that makes trouble."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.exits import Exit
from holdfast.cli.output import echo, echo_json, output_option
from holdfast.remote.conformance.judging import Judgement
from holdfast.remote.conformance.judging import conform as try_worker

__all__ = ["conform"]


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Where to be the server.")
@click.option("--key", help="The key that the worker must send; one is made if none is given.")
@click.option("--trial", "trials", multiple=True, metavar="NAME", help="Only this trial; may be repeated.")
@output_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def conform(listen: str, key: str | None, trials: tuple[str, ...], output: str, command: tuple[str, ...]) -> int:
    """Try a remote worker: play its server, lose answers, take leases away, and say what it did wrong.

    COMMAND starts the worker; it finds the server in HOLDFAST_URL and HOLDFAST_KEY. Without a command, start it by
    hand. It must have handlers for conform.echo, conform.items, conform.slow and conform.fail. Exits with 1 if anything
    was wrong.
    """
    host, port = _place(listen)
    judgements = asyncio.run(
        try_worker(
            command,
            host=host,
            port=port,
            key=key,
            only=trials,
            tell=_tell if output == "table" else lambda one: echo_json(one.as_dict()) if output == "ndjson" else None,
            ready=lambda url, secret: None if command else echo(f"HOLDFAST_URL={url} HOLDFAST_KEY={secret}", err=True),
        )
    )
    failed = sum(one.mark == "failed" for one in judgements)
    if output == "json":
        echo_json({"passed": not failed, "trials": [one.as_dict() for one in judgements]})
    elif output == "table":
        echo(f"{failed} of {len(judgements)} trials failed" if failed else f"all {len(judgements)} trials passed")
    return Exit.FAILED if failed else Exit.OK


def _tell(judgement: Judgement) -> None:
    mark = {"passed": "ok", "failed": "WRONG"}.get(judgement.mark, "-")
    echo(f"{mark:<6} {judgement.trial:<17} {judgement.rule}")
    for fault in judgement.wrong:
        echo(f"{'':<7}{fault}")


def _place(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen must look like HOST:PORT, such as 127.0.0.1:0, not {listen!r}")
    return host.strip("[]"), int(port)
