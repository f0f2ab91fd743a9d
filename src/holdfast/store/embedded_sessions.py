"""Finds out, with psql, who is connected to the embedded server, however they got its URL. The keeper asks this.

The keeper imports this module too, outside its package and without site-packages: standard library only.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .embedded_postmaster import Postmaster

PATIENCE_SECONDS = 5.0
#: The file with the login's name is inside the data folder, because the two belong together.
LOGIN_FILE = "holdfast_login"
#: The login of data folders that were created before there was such a file.
FIRST_LOGIN = "holdfast"
SCRIPTS = Path(__file__).parents[1] / "sql" / "embedded"


class NoAnswerError(Exception):
    """The server could not be asked; the message is psql's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How the server is used: what is open now, and how many sessions there were so far."""

    open: int
    sessions: int


def login_of(data: Path) -> str:
    """The name of the superuser with which the data folder was created."""
    try:
        return (data / LOGIN_FILE).read_text().strip() or FIRST_LOGIN
    except FileNotFoundError:
        return FIRST_LOGIN


def look_at_use(folder: Path, binaries: Path, postmaster: Postmaster) -> Use:
    """Count connections and prepared transactions, without our own."""
    try:
        words = run_script("use", folder, binaries, postmaster).split()
    except NoAnswerError as refusal:
        if "too many clients" in str(refusal):
            return Use(open=1, sessions=-1)
        raise
    return Use(open=int(words[0]), sessions=int(words[1]))


def run_script(
    name: str,
    folder: Path,
    binaries: Path,
    postmaster: Postmaster,
    *,
    database: str = "postgres",
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run a file of `sql/embedded` with psql. Returns its output."""
    command = [str(binaries / "psql"), "-XAtq", "--field-separator= ", "--set=ON_ERROR_STOP=1"]
    command += [f"--set={name}={value}" for name, value in (variables or {}).items()]
    try:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {
            "PGHOST": postmaster.socket_folder,
            "PGPORT": str(postmaster.port),
            "PGUSER": login_of(folder / "data"),
            "PGPASSWORD": (folder / "password").read_text(),
            "PGDATABASE": database,
            "PGAPPNAME": "holdfast keeper",
            "PGCLIENTENCODING": "UTF8",
            "LC_ALL": "C",
        }
        done = subprocess.run(
            [*command, f"--file={SCRIPTS / name}.sql"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=environment,
            timeout=PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswerError(str(error)) from error
    if done.returncode:
        raise NoAnswerError(done.stderr.strip())
    return done.stdout
