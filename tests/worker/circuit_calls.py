"""Handlers in processes that call a service which is down as long as a file says so."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import Circuit, Holdfast, RetryPolicy, SyncContext

hf = Holdfast(os.environ.get("HOLDFAST_DATABASE_URL"))
PATIENT = RetryPolicy(max_attempts=100, base=0.01, max=0.05)


class Down(Exception):
    """The service does not answer."""


def call(place: str) -> None:
    """Call the service."""
    if Path(place).exists():
        raise Down("no answer")


@hf.job("send", retry=PATIENT, executor="process")
def send(ctx: SyncContext, place: str) -> None:
    """Call it in a block."""
    with ctx.circuit("mail", failure_threshold=3, open_for=0.5):
        call(place)


@hf.job("declared", retry=PATIENT, executor="process", circuit=Circuit("mail", 3, 0.5, counts=Down))
def declared(ctx: SyncContext, place: str) -> None:
    """The whole handler is the call."""
    call(place)
