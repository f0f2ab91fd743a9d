"""The page about a fleet of scrapers, followed word for word with curl and a real server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.test_docs import ROOT
from tests.e2e.test_example_targets import script

PAGE = ROOT / "docs/how-to/migrate-scrapers.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (scripts/system-packages)")
def test_the_page_works_word_for_word(database_url: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = subprocess.run(
        ["bash", "-eu", "-c", script(PAGE).replace("8080", port)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env={
            **os.environ,
            "HOLDFAST_DATABASE_URL": database_url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
