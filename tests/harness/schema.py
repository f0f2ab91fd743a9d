"""The schema of this release as pg_dump sees it, for review in diffs and for comparison in tests."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from holdfast.config import Config
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.embedded_binaries import find_binaries
from holdfast.store.migrate import migrate

__all__ = ["dump", "dumped_schema"]


async def dumped_schema(home: Path) -> str:
    """Migrate a new embedded database in `home` and dump it."""
    with EmbeddedPostgres(home) as server:
        await migrate(Config.load(environment={}, database_url=server.url))
        return await dump(server.url)


async def dump(url: str, schema: str = "holdfast") -> str:
    """The definition of a schema, without what differs from run to run."""
    process = await asyncio.create_subprocess_exec(
        find_binaries() / "pg_dump",
        "--schema-only",
        f"--schema={schema}",
        f"--schema={schema}_views",
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"pg_dump failed: {errors.decode()}")
    noise = re.compile(r"--|\\(un)?restrict|$|SET |SELECT pg_cat")
    lines = [line for line in out.decode().splitlines() if not noise.match(line)]
    return "\n".join(lines) + "\n"
