"""A worker that cannot work as it is started says so in one line, and ends with the code 2."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from holdfast import Holdfast
from tests.remote.test_conformance import ROOT, command

KINDS = ("python", "module", "node", "shell")


def started(kind: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a worker that ends by itself."""
    left = {name: value for name, value in os.environ.items() if name not in ("HOLDFAST_URL", "HOLDFAST_KEY")}
    module = [sys.executable, "-m", "holdfast.remote", "examples.workers.conforming"]
    return subprocess.run(
        module if kind == "module" else command(kind),
        env={**left, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_without_an_address_says_so(kind: str) -> None:
    done = started(kind)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "HOLDFAST_URL is not set" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_whose_key_is_refused_says_so(kind: str, app: Holdfast, served: str) -> None:
    await (await app.operations()).keys.create("fleet", scopes=["work"], by="a test")
    done = await asyncio.to_thread(started, kind, HOLDFAST_URL=served, HOLDFAST_KEY="hf_wrong")
    start, refused = done.stderr.splitlines()
    assert done.returncode == 2
    assert "conform.slow" in start
    assert served in start
    assert "key" in refused
