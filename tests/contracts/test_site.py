"""The documentation's site: it builds strictly, everything public is in it, and it needs nobody else's server."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import holdfast
from holdfast.cli.root import holdfast as command_line
from holdfast.config import ENTRIES
from tests.contracts.once import once

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "site", build)


def build(folder: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts/docs-site/build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = {anchor for page in site.glob("reference/*.html") for anchor in ids(page)}
    names = {name: getattr(holdfast, name) for name in holdfast.__all__ if name != "__version__"}
    missing = [
        name
        for name, found in names.items()
        if (found.__name__ if isinstance(found, ModuleType) else f"holdfast.{name}") not in anchors
    ]
    assert not missing
    assert "holdfast.Holdfast.enqueue" in anchors, "what an app inherits belongs to it"


def test_every_command_is_in_the_reference(site: Path) -> None:
    anchors = ids(site / "reference/command-line.html")
    missing = [path for path in commands(command_line, "holdfast") if path.replace(" ", "-") not in anchors]
    assert not missing


def test_every_setting_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/settings.html").read_text()
    missing = [entry.variable for entry in ENTRIES if f"<code>{entry.variable}</code>" not in text]
    assert not missing


def test_functions_for_callers_are_in_the_reference_and_the_engines_own_are_not(site: Path) -> None:
    anchors = ids(site / "reference/sql.html")
    assert {"enqueue", "enqueue_many", "get_jobs", "request", "claim", "complete", "verify"} <= anchors
    assert not {"settle", "seat", "next_state", "record_jobs"} & anchors


def test_every_page_is_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text()
    navigation = front[front.index("md-nav--primary") : front.index('class="md-content"')]
    linked = {link.removeprefix("./") for link in re.findall(r'href="([^"#]+)', navigation)}
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")} - {"404.html"}
    sources = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    assert sources <= pages
    assert pages - {"index.html"} <= linked


def test_built_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//([^"]+)"|url\((?:https?:)?//')
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not fetched.search(page.read_text()), page.name
        assert 'class="mermaid"' not in page.read_text(), f"{page.name}: drawing it fetches a program"


def ids(page: Path) -> set[str]:
    return {html.unescape(found) for found in re.findall(r'\bid="?([^"\s>]+)', page.read_text())}


def commands(command: click.Command, path: str) -> Iterator[str]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from commands(inner, f"{path} {name}")
