"""`python -m bench`: measure, print the table, keep all samples as JSON, and draw the plot. See `bench.options`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import asyncpg

import bench.options
from bench import cells, report, venvs
from bench.field import HOLDFAST, LIMITS, Contestant, chosen
from bench.meters import PostgresMeter
from bench.options import CONCURRENCY, Options
from bench.results import Result, machine, now
from bench.runner import Runner
from bench.servers import HOME, PostgresServer, RedisServer, postgres, redis
from bench.stage import Stage
from holdfast.lifecycle import loops


def main() -> None:
    """Run what the environment asks for; with any argument, say what that can be."""
    if len(sys.argv) > 1:
        print(bench.options.__doc__)
        return
    options = Options.load(os.environ)
    cells.chosen(options)
    started = now()
    result = Result(about={"date": started, "machine": dict(machine())}, systems={})
    contestants = (HOLDFAST, *chosen(options.peers))
    path = HOME / "results" / f"{started}.json"
    # Told to end, this cleans up as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as servers:
        servers.callback(result.save, path)
        server = servers.enter_context(postgres(options.database_url))
        store = _redis(servers, contestants, result)
        runners = _install(contestants, options, result, store)
        try:
            loops.run(_measure(options, result, server, store, runners))
        except KeyboardInterrupt:
            print("Stopped: what follows is what was measured so far.", file=sys.stderr)
    report.show(result, path)


async def _measure(
    options: Options,
    result: Result,
    server: PostgresServer,
    store: RedisServer | None,
    runners: dict[str, Runner],
) -> None:
    admin = await asyncpg.connect(server.url)
    try:
        has_statements = await _statistics(admin)
        result.about |= {
            "settings": await server.settings(),
            "run": {
                "full": options.full,
                "scale": options.scale,
                "rounds": options.rounds,
                "concurrency": CONCURRENCY,
                "server": "the harness's own" if server.pid else "BENCH_DATABASE_URL",
            },
        }
        meter = PostgresMeter(server, admin, has_statements=has_statements)
        stage = Stage(
            options=options,
            result=result,
            server=server,
            redis=store,
            admin=admin,
            meter=meter,
            runners=runners,
        )
        await cells.measure(stage)
    finally:
        await admin.close()


async def _statistics(admin: asyncpg.Connection) -> bool:
    try:
        await admin.execute("create extension if not exists pg_stat_statements")
        await admin.fetchval("select count(*) from pg_stat_statements")
    except asyncpg.PostgresError as error:
        print(f"No statements are counted: {error}", file=sys.stderr)
        return False
    return True


def _redis(servers: contextlib.ExitStack, contestants: tuple[Contestant, ...], result: Result) -> RedisServer | None:
    if all(contestant.store == "postgres" for contestant in contestants):
        return None
    try:
        store = servers.enter_context(redis())
    except OSError as error:
        result.about["redis"] = f"none: {error}"
        return None
    result.about["redis"] = f"{store.version()}, appendonly, appendfsync everysec"
    return store


def _install(
    contestants: tuple[Contestant, ...], options: Options, result: Result, store: RedisServer | None
) -> dict[str, Runner]:
    runners = {}
    for contestant in contestants:
        about = {"title": contestant.title, "store": contestant.store, "kind": contestant.kind}
        try:
            if contestant.store == "redis" and store is None:
                raise venvs.NotInstalled(result.about["redis"].replace("none", "no Redis"))
            python = venvs.python_of(contestant, options.venvs)
            about["versions"] = venvs.versions(python, contestant)
            runners[contestant.name] = Runner(contestant, python)
        except venvs.NotInstalled as error:
            about["missing"] = str(error)
        result.systems[contestant.name] = about
    result.systems |= {name: {"title": title, "kind": "limit"} for name, title in LIMITS.items()}
    return runners


if __name__ == "__main__":
    main()
