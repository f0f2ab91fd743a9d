"""One structured log line per attempt."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator

import pytest

from holdfast import Context, Holdfast, RetryPolicy, Snooze
from holdfast.telemetry.log_writer import LogWriter
from holdfast.telemetry.narrator import set_up_logging


@pytest.fixture
def quiet_end() -> Iterator[None]:
    """Logging as it was."""
    logger = logging.getLogger("holdfast")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


async def test_one_line_of_json_per_attempt(hf: Holdfast, capsys: pytest.CaptureFixture[str], quiet_end: None) -> None:
    set_up_logging("json", "INFO")

    @hf.job("act", queue="mail", retry=RetryPolicy(base=0.01, max_attempts=2))
    async def act(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Snooze(0)
        raise ValueError("refused")

    job = await act.options(tenant="acme").enqueue()
    await hf.run_worker(burst=True)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [line for line in lines if line.get("event") == "AttemptEnded"]
    assert [(line["attempt"], line["outcome"], line["state"], line["failures"]) for line in told] == [
        (1, "snoozed", "queued", 0),
        (2, "failed", "retry", 1),
        (3, "failed", "dead", 2),
    ]
    for line in told:
        assert (line["job_id"], line["type"], line["queue"], line["tenant"]) == (str(job.id), "act", "mail", "acme")
        assert 0 <= line["duration_seconds"] < 30
        assert 0 <= line["queue_seconds"] < 60
    assert [(line["level"], line.get("error_type"), line.get("error")) for line in told] == [
        ("info", None, None),
        ("warning", "ValueError", "refused"),
        ("warning", "ValueError", "refused"),
    ]


async def test_the_readable_form_says_the_same_in_a_line(
    hf: Holdfast, capsys: pytest.CaptureFixture[str], quiet_end: None
) -> None:
    set_up_logging("text", "INFO")

    @hf.job("act", retry=RetryPolicy(max_attempts=1))
    async def act(ctx: Context) -> None:
        raise ValueError("refused\nand more")

    job = await act.enqueue()
    await hf.run_worker(burst=True)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "act failed" in line]
    assert "act failed → dead: refused" in line
    assert f"{job.id} attempt 1" in line
    assert line.endswith("ValueError")


def _record(text: str) -> logging.LogRecord:
    return logging.LogRecord("holdfast", logging.INFO, __file__, 0, text, (), None)


def _read(descriptor: int, *, until: str) -> list[str]:
    text = b""
    while until.encode() not in text:
        text += os.read(descriptor, 65536)
    return text.decode().splitlines()


@pytest.mark.parametrize("form", ["json", "text"])
def test_of_a_very_long_message_the_beginning_and_the_end_are_written(
    capsys: pytest.CaptureFixture[str], quiet_end: None, form: str
) -> None:
    set_up_logging(form, "INFO")
    logging.getLogger("holdfast").info("begins %s ends", "x" * 10_000_000)
    written = capsys.readouterr().err
    assert 60_000 < len(written) < 70_000
    assert "begins xxx" in written
    assert "xxx ends" in written


def test_a_log_that_nobody_reads_keeps_nobody_waiting_and_tells_what_is_missing() -> None:
    reading, writing = os.pipe()
    log = LogWriter(writing, most=100_000)
    written = [f"{number} {'x' * (number * 37 % 5000)}" for number in range(500)]
    for line in written:
        log.handle(_record(line))
    began = time.monotonic()
    log.flush()
    assert time.monotonic() - began < 5, "a process that ends does not wait for its log"
    *lines, told = _read(reading, until="dropped")
    assert lines == written[: len(lines)]
    assert told.startswith(f"{500 - len(lines)} log lines were dropped")
    assert 0 < len(lines) < 500
    log.handle(_record("after that"))
    assert _read(reading, until="after that\n") == ["after that"]
    os.close(reading)
    log.handle(_record("to nobody"))
    log.flush()
    log.close()
    log.handle(_record("to nobody"))
    os.close(writing)


def test_a_copy_of_a_process_writes_its_log_lines_itself() -> None:
    reading, writing = os.pipe()
    log = LogWriter(writing)
    log.handle(_record("the process"))
    log.flush()
    copy = os.fork()
    if copy == 0:
        log.handle(_record("its copy"))
        os._exit(0)
    os.waitpid(copy, 0)
    os.close(writing)
    assert os.read(reading, 1000) == b"the process\nits copy\n"
    os.close(reading)
