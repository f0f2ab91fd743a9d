"""Every snippet of README, docs and examples is run, as a reader would run it.

A python snippet that the text before it puts "into `x.py`" gets that name, and others on the page may import it. It is
run with python; `test_x.py` is run with pytest; `conftest.py`, and what is put into a folder, is there for the others,
as is a toml or ini snippet that is put into a file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner

from holdfast.cli.root import holdfast
from tests.harness import warm
from tests.harness.plugins import WITHOUT_OURS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
FILE = re.compile(r"`([\w/]+\.(?:py|toml|ini|mjs|sh))`")
PYTEST = ("-q", "-p", "no:cacheprovider", *WITHOUT_OURS, "-W", "error")
#: What a snippet may be. The first three are run or looked up, the next two by tests/e2e/test_remote_page.py; the
#: others are only read.
LANGUAGES = {"python", "sql", "console", "javascript", "sh", "toml", "ini", "json", "text", "mermaid"}


def snippets(page: Path, language: str) -> list[tuple[str, str]]:
    """(file name, text) of the page's snippets; a snippet that is to be put into a file is named by the text before."""
    text = page.read_text()
    found = []
    for number, match in enumerate(BLOCK.finditer(text)):
        if match.group(1) == language:
            before = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
            named = FILE.search(before) if "into" in before else None
            found.append((named.group(1) if named else f"snippet_{number}.py", match.group(2)))
    return found


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if snippets(page, language)]


def is_run(name: str) -> bool:
    """Whether a reader runs a file with python."""
    file = Path(name)
    return not (is_test(name) or len(file.parts) > 1 or name == "conftest.py")


def is_test(name: str) -> bool:
    """Whether a reader runs a file with pytest."""
    return Path(name).name.startswith("test_")


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda p: p.name)
def test_python_snippets_run(page: Path, database_url: str, tmp_path: Path) -> None:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PYTEST_"))},
        "HOLDFAST_DATABASE_URL": database_url,
        "HOLDFAST_POLL_INTERVAL": "0.1",
    }
    for name, text in [*snippets(page, "toml"), *snippets(page, "ini")]:
        if not name.endswith(".py"):
            (tmp_path / name).write_text(text)
    runs, tests = 0, list[str]()
    for name, text in snippets(page, "python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        tests += [name] * is_test(name)
        if not is_run(name):
            continue
        runs += 1
        arguments = ["-W", "error", name]
        # The first page is tried as one does it first.
        run = coldly if page.name == "README.md" else warm.run
        done = run(arguments, cwd=tmp_path, env=environment, timeout=60)
        assert done.returncode == 0, f"{page.name}: {name}\n{done.stdout}{done.stderr}"
        if page.name == "README.md":
            assert done.stdout == "{'sent_to': 'ada@example.com'}\n"
    if tests:
        # All tests of a page at once, as one runs them. pytest wants to import its plugins itself.
        done = coldly(["-m", "pytest", *PYTEST, *tests], cwd=tmp_path, env=environment, timeout=60)
        assert done.returncode == 0, f"{page.name}: {tests}\n{done.stdout}{done.stderr}"
    assert runs or tests, f"nothing on {page.name} can be run"


def coldly(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run an interpreter of its own."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_snippet_goes_unseen(page: Path) -> None:
    text = page.read_text()
    blocks = BLOCK.findall(text)
    assert len(FENCE.findall(text)) == 2 * len(blocks), "a fence stands at the line's beginning and names a language"
    assert {language for language, _ in blocks} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_commands_name_are_on_the_page(page: Path) -> None:
    files = {name for name, _ in snippets(page, "python")}
    for _, text in snippets(page, "console"):
        for command in re.findall(r"^\$ (?:python|pytest)\b(.*)$", text, re.MULTILINE):
            named = re.findall(r"(?<=\s)[\w/]+\.py\b", command)
            assert set(named) <= files, command
        if re.search(r"^\$ pytest\b", text, re.MULTILINE):
            assert any(Path(name).name.startswith("test_") for name in files), f"{page.name} has no test to run"


@pytest.mark.parametrize("page", pages_with("sql"), ids=lambda p: p.name)
async def test_sql_snippets_run(page: Path, conn: asyncpg.Connection) -> None:
    await conn.execute("create table public.orders (customer text)")
    await conn.execute("set search_path = public")
    texts = [text for _, text in snippets(page, "sql")]
    for text in texts:
        await conn.execute(text)
    recorded = await conn.fetchval("select count(*) from holdfast.jobs")
    assert (recorded > 0) == any("enqueue" in text for text in texts)


def test_every_command_shown_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    told: dict[tuple[str, ...], str] = {}
    for page in PAGES:
        for _, text in snippets(page, "console"):
            for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                words = line.split("#")[0].split()
                if words[0] == "make":
                    assert f"\n{words[1]}:" in makefile, line
                elif words[0].endswith("holdfast"):
                    names = tuple(word for word in words[1:3] if re.fullmatch(r"[a-z]+(-[a-z]+)*", word))
                    if names not in told:
                        done = CliRunner().invoke(holdfast, [*names, "--help"])
                        assert done.exit_code == 0, f"{line}: {done.output}"
                        told[names] = done.output
                    for option in re.findall(r"(?<= )--[a-z-]+", line):
                        assert option in told[names], line


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} → {link}"


def test_files_that_the_architecture_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|sql))`", (ROOT / "docs/architecture.md").read_text()))
    assert named
    assert not [name for name in named if not (ROOT / "src/holdfast" / name).exists()]
