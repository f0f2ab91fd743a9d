"""What clients wrote reaches an operator's terminal as text: no title is set, no screen cleared, no row forged."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.model.visible import visible, visible_json
from holdfast.telemetry.narrator import _Readable
from tests.cli.conftest import Cli
from tests.sql.factories import enqueue

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31mred\x7f \u202etxt.exe\u2028\r\nforged row\x00"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
NAMES = ["\x1b[2J", "a\nb", "a\tb", "\x9b", "\x7f", "\u202e", "\u2028"]


async def test_names_with_control_characters_are_refused(hf: Holdfast, conn: asyncpg.Connection) -> None:
    for name in NAMES:
        with pytest.raises(InvalidInput, match="control characters"):
            await hf.enqueue(name, {})
        for option in ("queue", "target", "correlation_id", "dedup_key"):
            with pytest.raises(InvalidInput, match="control characters"):
                await hf.enqueue("work", {}, **{option: name})  # type: ignore[arg-type]
        with pytest.raises(asyncpg.PostgresError, match="a tenant must not contain control characters"):
            await enqueue(conn, tenant=name)
        with pytest.raises(asyncpg.PostgresError, match="control characters"):
            await conn.execute("select set_weight($1, 2, 'me')", name)
    assert await hf.find() == []


async def test_names_in_any_script_are_taken(hf: Holdfast) -> None:
    job = await hf.enqueue("größe.訊息", {}, queue="очередь", target="שלום 👩‍👧 / é")
    assert (await hf.get(job.id)).target == "שלום 👩‍👧 / é"


async def test_no_command_prints_what_would_control_the_terminal(
    cli: Cli, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    job = await hf.enqueue("work", {"text": HOSTILE.replace("\x00", "")}, target="t")
    reason = HOSTILE.replace("\x00", "")
    await hf.pause(job.id, by=reason, reason=reason)
    # As earlier releases stored it.
    await conn.execute("alter table jobs disable trigger user")
    await conn.execute("update jobs set last_error = $1, target = $1", reason)
    for command in (("jobs", "list"), ("jobs", "show", job.id), ("jobs", "explain", job.id), ("targets", "list")):
        for output in ("table", "json", "ndjson"):
            result = await cli(*command, "-o", output, code=None)
            assert not CONTROL.search(result.output.replace("\t", "")), (command, output)
            assert not any(line.startswith("forged row") for line in result.output.splitlines())


def test_log_lines_for_people_are_harmless() -> None:
    record = logging.LogRecord("holdfast", logging.WARNING, "", 0, "failed: %s", (HOSTILE,), None)
    record.job_id = HOSTILE
    line = _Readable().format(record)
    assert not CONTROL.search(line)
    assert [part.startswith("    ") for part in line.split("\n")[1:]] == [True]


def test_json_says_the_same() -> None:
    text = json.dumps({"a": HOSTILE}, ensure_ascii=False)
    assert not CONTROL.search(visible_json(text))
    assert json.loads(visible_json(text)) == {"a": HOSTILE}
    assert visible("plain ümlaut\n") == "plain ümlaut\n"


def test_commands_print_through_one_place() -> None:
    folder = Path(__file__).parents[2] / "src/holdfast/cli"
    found = {
        (path.name, line.strip())
        for path in folder.glob("*.py")
        for line in path.read_text().splitlines()
        if "click.echo(" in line and path.name != "output.py"
    }
    # Constant text, numbers and styles.
    assert {name for name, _ in found} <= {"enqueue.py", "exits.py"}, found
