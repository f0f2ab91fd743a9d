"""Builds the documentation's site: `build.py [FOLDER]` leaves it in FOLDER (by default `site`).

The pages of `docs`, README, CONTRIBUTING and CHANGELOG are put together in a folder for the time of the build,
beside the pages that are made from the code, with a navigation that finds new pages by itself. Zensical then
builds them strictly: a link that leads nowhere and a name that is not found fail the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from generated import pages

ROOT = Path(__file__).resolve().parents[2]

#: Pages from outside `docs`, and where they stand in the site.
ADOPTED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Build, and answer the exit code."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()
    with tempfile.TemporaryDirectory(prefix="holdfast-docs-") as folder:
        work = Path(folder)
        assemble(work / "docs")
        shutil.copy(ROOT / "zensical.toml", work)
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"],
            cwd=work,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        sys.stdout.write(plain(done.stdout))
        if done.returncode == 0:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(work / "site", target)
    return done.returncode


def plain(said: str) -> str:
    """What Zensical said, without colours, nor the traceback by which it ends when pages are at fault."""
    said = COLOUR.sub("", said)
    return said.partition("Traceback")[0] if "--strict flag is set" in said else said


def assemble(docs: Path) -> None:
    """Put every page into the folder, and the navigation."""
    shutil.copytree(ROOT / "docs", docs)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        (docs / page.relative_to(ROOT / "docs")).write_text(moved(page))
    for source, place in ADOPTED.items():
        (docs / place).write_text(moved(ROOT / source))
    made = []
    for path, text in pages():
        (docs / path).parent.mkdir(exist_ok=True)
        (docs / path).write_text(text)
        made.append(docs / path)
    for folder, title in (("how-to", "How-to guides"), ("decisions", "Decisions")):
        index = docs / folder / "index.md"
        text = index.read_text() if index.exists() else f"# {title}\n"
        index.write_text(text + "\n" + "\n".join(f"- [{title_of(page)}]({page.name})" for page in beside(index)) + "\n")
    (docs / "SUMMARY.md").write_text(navigation(docs, made))


def moved(page: Path) -> str:
    """The page's text with its links as they are in the site; of a link to what is not part of it, the words stay.

    A diagram is shown as its text: to draw it, a page would fetch a program from another server.
    """

    def link(match: re.Match[str]) -> str:
        words, path, anchor = match[1], match[2], match[3] or ""
        found = (page.parent / path).resolve()
        if not found.exists():
            return match[0]  # the build names it
        inside = found.relative_to(ROOT)
        here = ROOT / "docs" / ADOPTED.get(page.name, page.name) if page.parent == ROOT else page
        if str(inside) in ADOPTED:
            place = ROOT / "docs" / ADOPTED[str(inside)]
        elif inside.parts[0] == "docs":
            place = found / "index.md" if found.is_dir() else found
        else:
            return words
        return f"[{words}]({os.path.relpath(place, here.parent)}{anchor})"

    parts = CODE.split(page.read_text())
    return "".join(
        part.replace("```mermaid", "```text", 1) if part.startswith("```") else LINK.sub(link, part) for part in parts
    )


def navigation(docs: Path, made: Iterable[Path]) -> str:
    """Introduction, tutorial, how-to guides, reference, explanation; whatever else lies in `docs` is explained."""

    def entry(page: Path, indent: int = 0) -> str:
        return f"{' ' * indent}* [{title_of(page)}]({page.relative_to(docs)})"

    def section(title: str, pages: Iterable[Path]) -> list[str]:
        return [f"* {title}", *(entry(page, 4) for page in pages)]

    how_to, decisions = docs / "how-to/index.md", docs / "decisions/index.md"
    placed = {"index.md", "tutorial.md", "reference.md", "contributing.md", "changelog.md"}
    explained = sorted(page for page in docs.glob("*.md") if page.name not in placed)
    lines = [
        "* [Introduction](index.md)",
        "* [Tutorial](tutorial.md)",
        *section("How-to guides", [how_to, *beside(how_to)]),
        *section("Reference", [docs / "reference.md", *made]),
        *section("Explanation", explained),
        "    * Decisions",
        *(entry(page, 8) for page in [decisions, *beside(decisions)]),
        *section("Project", [docs / "contributing.md", docs / "changelog.md"]),
    ]
    return "\n".join(lines) + "\n"


def beside(index: Path) -> list[Path]:
    """The other pages of a folder."""
    return sorted(page for page in index.parent.glob("*.md") if page != index)


def title_of(page: Path) -> str:
    """Its first heading."""
    found = re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{page.name} has no title")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
