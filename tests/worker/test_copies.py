"""A copy of a worker, made by code that forks and returns in both processes, does not go on as the worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness import warm

FORKS = """
import asyncio, os, sys
from holdfast.lifecycle.loops import run
from holdfast.worker.copies import alone_in_its_loop

parent, way = os.getpid(), sys.argv[2]

def says(text):
    os.write(1, f"{'worker' if os.getpid() == parent else 'copy'} {text}\\n".encode())

def forks():
    if os.fork() == 0:
        says("works")
        if way == "profiled":
            sys.setprofile(None)
        if way == "traced":
            sys.settrace(None)
        if way == "both":
            sys.setprofile(None), sys.settrace(None)

async def forks_and_waits():
    forks()
    await asyncio.sleep(0.02)
    says("goes on")

async def main():
    loop = asyncio.get_running_loop()
    with alone_in_its_loop():
        if way == "task":
            left = asyncio.create_task(forks_and_waits())
        elif way in ("callback", "profiled", "traced", "both"):
            loop.call_soon(forks)
        elif way == "bare":
            loop.call_soon(os.fork)
        else:
            await forks_and_waits()
        if way != "both":
            loop.call_soon(says, "turns")
        await asyncio.sleep(0.05)
        says("goes on")

run(main(), sys.argv[1])
print(os.wait()[1] >> 8)
"""


@pytest.mark.parametrize("way", ["task", "callback", "profiled", "traced", "both", "bare", "awaited"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_copy_ends_where_it_would_give_the_loop_back(tmp_path: Path, loop: str, way: str) -> None:
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    ran = warm.run([str(script), loop, way], env=os.environ, cwd=tmp_path, timeout=60)
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.splitlines()
    assert [line for line in said if line.startswith("copy")] == ["copy works"] * (way != "bare")
    assert ("worker turns" in said) is (way != "both")
    assert [line for line in said if not line.startswith("copy")][-2:] == ["worker goes on", "1"]
    assert "does not go on as one" in ran.stderr


DEAF = """
import asyncio, multiprocessing, signal, sys, time
from holdfast.lifecycle.loops import run
from holdfast.worker.copies import alone_in_its_loop

async def main():
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)

    def starts_a_program():
        program = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        program.start()
        program.terminate()
        program.join(30)
        print(program.exitcode, heard.is_set())

    with alone_in_its_loop():
        await asyncio.to_thread(starts_a_program)
        starts_a_program()

run(main(), sys.argv[1])
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_that_a_handler_forks_can_be_terminated(tmp_path: Path, loop: str) -> None:
    script = tmp_path / "deaf.py"
    script.write_text(DEAF)
    ran = warm.run([str(script), loop], env=os.environ, cwd=tmp_path, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["-15", "False"] * 2
