"""The embedded server's login: its name must never equal the name of the engine's schema.

PostgreSQL first looks for tables in the schema that is named like the login, and creates new ones there. New data
folders have the login `postgres`, so users' tables are created in `public`. The first ones had `holdfast`, like the
engine's schema: they keep it, because programs may have its URL, and get a search_path without that schema.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from holdfast.store.embedded_locks import open_file
from holdfast.store.embedded_postmaster import Postmaster
from holdfast.store.embedded_sessions import LOGIN_FILE, NoAnswerError, login_of, run_script

LOGIN = "postgres"

logger = logging.getLogger(__name__)


def is_mended(data: Path) -> bool:
    """Whether the data folder was created with a safe login, or was repaired."""
    return (data / LOGIN_FILE).exists()


def record(data: Path, login: str) -> None:
    """Store the login's name in its data folder."""
    with os.fdopen(open_file(data / LOGIN_FILE, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(login)
        file.flush()
        os.fsync(file.fileno())


def mend(folder: Path, binaries: Path, postmaster: Postmaster) -> None:
    """Let users' tables be created in `public` from now on; if that fails, it is tried again at the next start."""
    login = login_of(folder / "data")
    try:
        databases = run_script("databases", folder, binaries, postmaster).splitlines()
        for database in databases:
            variables = {"login": login}
            run_script("mend_login", folder, binaries, postmaster, database=database, variables=variables)
        run_script("mend_new_databases", folder, binaries, postmaster, variables={"login": login})
        record(folder / "data", login)
    except (NoAnswerError, OSError) as fault:
        logger.warning("The search_path of the login %s could not be set: %s", login, fault)
