"""What accepting a job over HTTP costs the API process, beside a bare FastAPI handler that parses the same body.

64 connections, one process, one key, every job committed with fsync. Holdfast only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from functools import partial

from bench.meters import cpu_seconds
from bench.options import SMALL
from bench.results import Figures
from bench.servers import ROOT
from bench.stage import Stage

__all__ = ["free_port", "run", "run_python", "serving"]

_CONNECTIONS = 64


async def run(stage: Stage) -> None:
    """Both in turn."""
    await stage.interleave("api", {"holdfast": partial(_ours, stage), "fastapi": partial(_bare, stage)})


async def _ours(stage: Stage, _round: int) -> Figures:
    async with stage.fresh(stage.holdfast.contestant) as database:
        environment = {"HOLDFAST_DATABASE_URL": database.url, "HOLDFAST_LOG_LEVEL": "WARNING"}
        key = await run_python(["-m", "holdfast", "keys", "create", "bench"], environment)
        port = free_port()
        command = ["-m", "holdfast", "serve", "--port", str(port), "--no-maintenance"]
        async with serving(command, port, environment) as pid:
            figures = await _measure(stage, pid, port, [key.strip()])
        figures["left"] = stage.options.api_jobs + _WARM - await stage.holdfast.unfinished(database.url)
        return figures


async def _bare(stage: Stage, _round: int) -> Figures:
    port = free_port()
    async with serving(["-m", "bench.limits.fastapi_bare", str(port)], port, {}) as pid:
        return await _measure(stage, pid, port, [])


_WARM = 500


async def _measure(stage: Stage, pid: int, port: int, key: list[str]) -> Figures:
    count = stage.options.api_jobs
    await _load(port, _WARM, key)
    before = cpu_seconds([pid])
    answer = await _load(port, count, key)
    spent = cpu_seconds([pid]) - before
    return {"cpu_us": spent / count * 1e6, "per_second": count / float(answer["seconds"])}


async def _load(port: int, count: int, key: list[str]) -> Mapping[str, float]:
    arguments = ["127.0.0.1", str(port), str(_CONNECTIONS), str(count), str(SMALL), *key]
    answer: Mapping[str, float] = json.loads(await run_python(["-m", "bench.load", *arguments], {}))
    return answer


async def run_python(arguments: list[str], environment: Mapping[str, str]) -> str:
    """What a command of Python writes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, wrong = await process.communicate()
    if process.returncode:
        raise OSError(wrong.decode()[-300:])
    return told.decode()


@contextlib.asynccontextmanager
async def serving(
    arguments: list[str], port: int, environment: Mapping[str, str], *, program: str | None = None
) -> AsyncIterator[int]:
    """A server process of Python, or of another program, up; its number."""
    process = await asyncio.create_subprocess_exec(
        program or sys.executable,
        *arguments,
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await asyncio.to_thread(_await_ready, port)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _await_ready(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
