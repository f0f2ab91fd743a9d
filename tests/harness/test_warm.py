"""A process that was forked from a warm one is like any other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import warm

SCRIPT = """
import atexit, os, sys, threading, time, random
from holdfast import Holdfast
print(__name__, sys.argv[1:], os.environ["NAME"], os.getcwd(), 'HOME' in os.environ, threading.active_count())
print(sys.stdin.read(), end="")
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def test_it_does_what_an_interpreter_does(script: Path, tmp_path: Path) -> None:
    environment = {"NAME": "ada"}
    warmly = warm.run([str(script), "a", "b"], env=environment, cwd=tmp_path, timeout=60)
    coldly = subprocess.run(
        [sys.executable, str(script), "a", "b"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert warmly.returncode == coldly.returncode == 3
    assert warmly.stdout == coldly.stdout
    assert warmly.stdout.endswith("thread\nat exit\n")
    assert warmly.stderr == coldly.stderr == "to stderr\n"


def test_an_error_is_an_end_with_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import warnings\nwarnings.warn('careful')\n")
    for arguments, code in ((["wrong.py"], 0), (["-W", "error", "wrong.py"], 1)):
        done = warm.run(arguments, env={}, cwd=tmp_path, timeout=60)
        assert done.returncode == code
        assert "UserWarning: careful" in done.stderr


def test_it_is_killed_and_waited_for(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("import time\ntime.sleep(600)\n")
    with (tmp_path / "out").open("wb") as out:
        process = warm.Process(["long.py"], env={}, cwd=tmp_path, stdout=out)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(30) == process.poll() == -signal.SIGKILL
    process.kill()
