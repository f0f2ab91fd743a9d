"""The worker in shell, killed: what it has started must not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from holdfast.remote import RemoteWorker
from tests.harness.waiting import until
from tests.remote.conftest import running
from tests.remote.test_conformance import command

LEASE_SECONDS = 3


@pytest.mark.usefixtures("maintained")
async def test_another_worker_takes_over_when_the_one_in_shell_is_killed(
    app: Holdfast, served: str, tmp_path: Path
) -> None:
    await (await app.operations()).settings.set("LEASE_SEC_DEFAULT", str(LEASE_SECONDS), by="a test")
    script = tmp_path / "long.sh"
    script.write_text(
        f"trap 'echo stopped >{tmp_path}/stopped; exit 1' TERM\necho $$ >{tmp_path}/pid\nwhile :; do sleep 0.1; done\n"
    )
    shell = [command("shell")[0], f"long=sh {script}"]
    left = {**os.environ, "HOLDFAST_URL": served, "TMPDIR": str(tmp_path)}
    job = await app.enqueue("long")
    process = subprocess.Popen(shell, env=left, start_new_session=True)
    try:
        await until((tmp_path / "pid").exists, seconds=20)
    finally:
        process.kill()
        process.wait()
    worker = RemoteWorker(served)

    @worker.job("long")
    async def other(ctx: Context) -> int:
        return ctx.attempt

    try:
        async with running(worker):
            assert (await app.wait(job, timeout=30)).result == 2
        await until((tmp_path / "stopped").exists, seconds=20, what="the handler of the killed worker is stopped")
        await until(lambda: _of_session(process.pid) == [], seconds=20, what="nothing of the killed worker is left")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert not list(tmp_path.glob("tmp.*")), "its folder is removed"


def _of_session(leader: int) -> list[str]:
    """The processes of a session that run."""
    told = subprocess.run(["ps", "-o", "stat=,args=", "-s", str(leader)], capture_output=True, text=True, check=False)
    return [line for line in told.stdout.splitlines() if not line.startswith("Z")]
