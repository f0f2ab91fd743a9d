"""Says on standard error that the name of a job type or a queue may be misspelt.

A name that nobody knows is taken all the same: a job may come before its worker, and a limit before its first job.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.app import Holdfast
from holdfast.cli.output import echo
from holdfast.errors import HoldfastError
from holdfast.model.names import Named, did_you_mean

__all__ = ["tell_if_unknown"]

_UNKNOWN: dict[Named, str] = {
    "type": "no worker has published the job type {}",
    "queue": "the queue {} has no jobs, and no job type or worker uses it",
}


async def tell_if_unknown(hf: Holdfast, kind: Named, name: str) -> None:
    """Warn if the name is unknown, and suggest a similar one. The command does its work in any case."""
    with suppress(HoldfastError):
        others = await hf.client.other_names(kind, name)
        if others is not None:
            echo(f"{_UNKNOWN[kind].format(name)}{did_you_mean(name, others)}", err=True)
