"""Warns on standard error about variables that look like settings but are not: a misspelt one has no effect."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from holdfast.cli.output import echo
from holdfast.cli.shutdown import LEASH
from holdfast.config import ENTRIES
from holdfast.model.names import did_you_mean

__all__ = ["tell_unknown_variables"]

_PREFIX = "HOLDFAST_"
_SETTINGS = frozenset(entry.variable.removeprefix(_PREFIX) for entry in ENTRIES)
#: Variables of remote workers and clients, of Holdfast's own processes, of the setup, and of tests.
_OTHERS = re.compile(r"HOLDFAST_(KEY|URL|ANSWERS|LEASH|METRICS|REMAINS|SETUP|(TEST|CHAOS)_\w+)")
#: Variables that Kubernetes and Docker set in every container for a service whose name begins with "holdfast".
_SERVICES = re.compile(r"HOLDFAST_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?=|PORT_\d+_(TCP|UDP)(_\w+)?=|PORT=(tcp|udp)://)")


def tell_unknown_variables(environment: Mapping[str, str] | None = None) -> None:
    """Name each of them, and suggest the setting that may be meant. A child leaves this to its parent."""
    environment = os.environ if environment is None else environment
    if LEASH in environment:
        return
    for name, value in sorted(environment.items()):
        if name.startswith(_PREFIX) and not _is_known(name, value):
            advice = did_you_mean(name.removeprefix(_PREFIX), _SETTINGS, prefix=_PREFIX)
            echo(f"{name} is not a setting{advice}", err=True)


def _is_known(name: str, value: str) -> bool:
    if name.removeprefix(_PREFIX) in _SETTINGS or _OTHERS.fullmatch(name):
        return True
    return _SERVICES.match(f"{name}={value}") is not None
