"""`holdfast worker`: run the jobs of an app, in one process or several."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import app_option, load_app
from holdfast.cli.children import ChildCommand
from holdfast.cli.durations import Duration
from holdfast.cli.exits import Exit
from holdfast.cli.health import METRICS, HealthAddress, HealthPort, Place, measure, place_given
from holdfast.cli.numbers import Number, Whole
from holdfast.cli.replacement import Origin, become_anew, import_again, settle, take_over
from holdfast.cli.shutdown import LEASH, Shutdown, asked_early, in_time, run_until_told, tell_imported
from holdfast.cli.variables import tell_unknown_variables
from holdfast.telemetry.narrator import set_up_logging
from holdfast.worker.slots import parse_lanes
from holdfast.worker.worker import Worker

__all__ = ["worker"]

_log = logging.getLogger("holdfast")


def _names(_context: click.Context, _parameter: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


@click.command()
@app_option(required=True, description="The app whose jobs to run.")
@click.option("--lanes", metavar="fast=3,general=5", help="Slots per lane, in each process.")
@click.option("--queues", metavar="A,B", callback=_names, help="Only these queues.")
@click.option("--types", metavar="A,B", callback=_names, help="Only these job types.")
@click.option("--tenants", metavar="A,B", callback=_names, help="Only these tenants.")
@click.option("--processes", type=Whole(1, 256), default=1, show_default=True, help="Number of processes.")
@click.option(
    "--batch-size",
    type=Whole(1, 1000),
    help="Jobs per claim ahead of the slots; 20 if not given. Very short jobs are claimed up to 40 batches ahead.",
)
@click.option("--poll-interval", type=Duration(), metavar="1s", help="Time between polls for work; 1s if not given.")
@click.option(
    "--health-port",
    type=HealthAddress(),
    metavar="[HOST:]PORT",
    help="Serve /livez, /readyz and /metrics here; on 127.0.0.1 if only a port is given, and 0 for a free one.",
)
@click.option("--burst", is_flag=True, help="Exit when nothing is left to do.")
@click.option("--no-maintenance", is_flag=True, help="Leave maintenance to other processes.")
@click.option("--stuck-after", type=Number(0), hidden=True)
def worker(
    app_name: str,
    processes: int,
    *,
    poll_interval: timedelta | None,
    no_maintenance: bool,
    stuck_after: float | None,
    health_port: tuple[str, int] | None,
    **options: Any,
) -> int:
    """Run the jobs of an app until told to stop.

    SIGTERM or Ctrl-C drains: running jobs may finish. A second signal interrupts them.
    """
    origin, remains, place = Origin(), take_over(), place_given()
    if remains is not None:
        settle(remains)
        if remains.stopping or asked_early():
            return Exit.OK
    else:
        tell_unknown_variables()
    if options["lanes"] is not None:
        parse_lanes(options["lanes"])
    hf = load_app(app_name) if remains is None else import_again(lambda: load_app(app_name), origin, remains)
    if hf is None:
        return Exit.OK
    tell_imported()
    origin.remember(hf.config)
    set_up_logging(hf.config.log_format, hf.config.log_level)
    options |= {"maintenance": not no_maintenance, "stuck_after_seconds": stuck_after}
    if poll_interval is not None:
        options["poll_interval"] = max(0.01, poll_interval.total_seconds())
    with ExitStack() as stack:
        health = None
        if health_port is not None and LEASH not in os.environ:
            health = HealthPort(health_port, None if place is None else place[1])
            stack.enter_context(health.open())
            _log.info("probes and metrics are on port %d", health.port)
            place = (1, health.folder)
            origin.environment[METRICS] = health.variable(1)
        if processes > 1:
            grace = hf.config.shutdown_grace_period_seconds
            return run_until_told(
                lambda shutdown: _supervise(shutdown, processes, grace, health, burst=options["burst"])
            )
        suspects = {} if remains is None else remains.suspects
        return run_until_told(
            lambda shutdown: _work(hf, shutdown, origin, options, suspects=suspects, place=place), hf.config.event_loop
        )


async def _work(
    hf: Holdfast,
    shutdown: Shutdown,
    origin: Origin,
    options: dict[str, Any],
    *,
    suspects: dict[UUID, int],
    place: Place | None,
) -> int:
    started: list[Worker] = []

    async def begin(new: Worker) -> None:
        started.append(new)
        new.suspects = suspects
        shutdown.attach(new.drain)
        new.replace = lambda: become_anew(new, origin, stopping=lambda: shutdown.noticed)
        new.abandon = lambda: _abandon(new, origin, shutdown)
        new.fail = _fail
        new.told_to_stop = lambda: shutdown.noticed
        new.is_alone = True
        new.tell_grace = shutdown.tell_grace
        if place is not None:
            measure(new, place)
        await hf.tell_overruled()

    with _progress(hf) if options["burst"] and sys.stderr.isatty() else nullcontext():
        await hf.run_worker(started=begin, **options)
    if _is_to_go_on(started[0], shutdown):
        _replace(started[0], origin, shutdown)
    return Exit.OK


def _is_to_go_on(worker: Worker, shutdown: Shutdown) -> bool:
    """Whether this process has something left to settle, or was not asked to stop."""
    return bool(worker.stuck) or (worker.to_be_replaced and not shutdown.noticed)


def _abandon(worker: Worker, origin: Origin, shutdown: Shutdown) -> NoReturn:
    """In another thread: the event loop is blocked, and all jobs are settled except the stuck ones."""
    if _is_to_go_on(worker, shutdown):
        _replace(worker, origin, shutdown)
    in_time(logging.shutdown)
    os._exit(Exit.OK)


def _replace(worker: Worker, origin: Origin, shutdown: Shutdown) -> NoReturn:
    try:
        become_anew(worker, origin, stopping=lambda: shutdown.noticed)
    except Exception as fault:  # noqa: BLE001 - whatever it was, only the end of the process is left
        _fail(fault)


def _fail(fault: Exception) -> NoReturn:
    """From any thread: this process can neither continue nor be replaced; a deployment may have removed its Python.

    Stuck jobs end with it, and are found by their leases. A service manager can start another process.
    """
    in_time(lambda: _log.error("the worker process cannot be replaced, and ends: %s", fault))
    in_time(logging.shutdown)
    os._exit(Exit.FAILED)


def _progress(hf: Holdfast) -> AbstractContextManager[None]:
    from holdfast.cli.burst import burst_progress  # what draws it takes long to import

    return burst_progress(hf)


async def _supervise(
    shutdown: Shutdown, processes: int, grace: float, health: HealthPort | None, *, burst: bool
) -> int:
    """Keep this number of children alive. Each runs this command with one process."""
    # In a burst a child that ended in good order is done, and one without database will not find any.
    final_codes = (Exit.OK, Exit.USAGE, Exit.UNREACHABLE) if burst else (Exit.USAGE,)
    arguments = [*sys.argv[1:], "--processes", "1"]
    children: list[ChildCommand] = []
    for n in range(1, processes + 1):
        child = ChildCommand(
            f"worker {n}",
            arguments,
            environment={} if health is None else {METRICS: health.variable(n)},
            final_codes=final_codes,
            grace_seconds=grace,
            siblings=children,
        )
        children.append(child)
    if health is not None:
        health.watch({n: child.process_id for n, child in enumerate(children, 1)})
    shutdown.at_last.extend(child.kill for child in children)

    def stop() -> None:
        for child in children:
            child.hurry() if shutdown.level > 1 else child.drain()

    shutdown.attach(stop)
    codes: list[int] = []
    for ended in asyncio.as_completed([asyncio.create_task(child.run()) for child in children]):
        codes.append(await ended)
        if codes[-1] in (Exit.USAGE, Exit.UNREACHABLE):
            stop()
    return next((code if code > 0 else Exit.FAILED for code in codes if code), Exit.OK)
