"""`holdfast init`: a first app, a test for it, and a compose file that runs it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from holdfast.cli.output import echo
from holdfast.errors import Conflict
from holdfast.version import __version__

__all__ = ["init"]

#: What is written, in this order. The texts are in the package, and end in `.txt` there, so that tools pass them over.
_FILES = {
    "app.py": "a job, and a program that enqueues and runs it",
    "test_app.py": "a test of that job",
    "pytest.ini": "settings for pytest: which app to test, and that tests may be coroutines",
    "compose.yaml": "PostgreSQL, a worker and the HTTP server, in containers",
}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def init(folder: Path) -> None:
    """Write a first app, a test and a compose file into FOLDER (the working folder if not given).

    If one of the files exists, nothing is written.
    """
    there = [name for name in _FILES if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise Conflict(f"{', '.join(there)} {'are' if len(there) > 1 else 'is'} already there; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in _FILES.items():
        text = files("holdfast.cli").joinpath("first", f"{name}.txt").read_text(encoding="utf-8")
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text.replace("VERSION", __version__))
        echo(f"{folder / name}  {what}")
    echo("\nNext, in that folder:")
    echo("  python app.py                 runs a job on its own PostgreSQL, in .holdfast")
    echo("  holdfast up --app app:hf      runs PostgreSQL, the HTTP API and a worker for it")
    echo("  pytest                        tests the job (pip install 'holdfast[testing]' pytest-asyncio)")
    echo("  docker compose up --build     PostgreSQL and a worker in containers")
