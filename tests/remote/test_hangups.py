"""A worker that hangs up while it waits keeps no job, whether it closes its connection or only says no more."""

from __future__ import annotations

import asyncio
import json
import socket

import httpx
import pytest

from holdfast import Holdfast, State


@pytest.mark.parametrize("how", ["close", "shutdown"])
async def test_a_waiting_pull_whose_caller_hangs_up_keeps_no_job(app: Holdfast, served: str, how: str) -> None:
    host, port = served.removeprefix("http://").split(":")
    body = json.dumps({"worker_id": "gone", "types": ["x"], "wait_sec": 20, "request_id": "b"}).encode()
    head = (
        f"POST /worker/pull HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}\r\n\r\n".encode() + body)
    await writer.drain()
    first = await app.enqueue("y")  # answered by the same loop, after the pull has arrived
    assert first.state is State.QUEUED
    if how == "close":
        writer.close()
    else:
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        assert await asyncio.wait_for(reader.read(), 10) == b"", "the connection is closed without an answer"
        writer.close()
    job = await app.enqueue("x")
    assert await asyncio.to_thread(_pull, host, int(port)) == [str(job.id)], (
        "handed back at once, if it was taken at all"
    )
    assert (await app.get(job)).failures == 0


def _pull(host: str, port: int) -> list[str]:
    ask = {"worker_id": "there", "types": ["x"], "wait_sec": 10}
    answer = httpx.post(f"http://{host}:{port}/worker/pull", json=ask, timeout=20)
    return [job["job_id"] for job in answer.json()["jobs"]]
