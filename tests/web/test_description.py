"""The description of the API is true: whatever it allows is answered as it says, and nothing breaks the server."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.web.description import describe
from holdfast.web.server import address, create_app, listen
from tests.conftest import CHAOS_SECONDS
from tests.faults.test_intake import servers

EXAMPLES = 50 if CHAOS_SECONDS else 1
#: What is the same for everybody is tried as administrator, on some of the routes, other ones each time; chaos goes
#: through all of it.
SHORT, FULL = "examples,fuzzing", "examples,coverage,fuzzing"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scopes", [(), ("submit", "read"), ("admin",)], ids=["no key", "client", "admin"])
async def test_whatever_the_description_allows_is_answered_as_it_says(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chance: random.Random, scopes: tuple[str, ...]
) -> None:
    async with Holdfast(database_url) as hf:
        routes = [] if CHAOS_SECONDS else _some_routes(hf, chance)
        keys = (await hf.operations()).keys
        _, secret = await keys.create("fuzz", scopes=scopes or ("read",), by="a test")
    monkeypatch.setenv("IMPATIENT", "1")
    key = ["--header", f"Authorization: Bearer {secret}"] if scopes else []
    with listen("127.0.0.1", 0) as listener:
        async with servers(listener, database_url, [0]) as (server,):
            fuzz = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("schemathesis")),
                "run",
                f"{address(listener)}/openapi.json",
                *key,
                *("--checks", CHECKS if scopes else CHECKS.removesuffix(",ignored_auth")),
                *("--phases", FULL if CHAOS_SECONDS or "admin" in scopes else SHORT),
                *("--max-examples", str(EXAMPLES)),
                *routes,
                *("--generation-database", "none", "--request-timeout", "20", "--no-color"),
                cwd=tmp_path,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            told, _ = await fuzz.communicate()
            assert server.poll() is None
    assert fuzz.returncode == 0, told.decode()[-6000:]


def _some_routes(hf: Holdfast, chance: random.Random) -> list[str]:
    """A sixth of the routes, and those that submit jobs, which the others need."""
    document = describe(create_app(hf))["paths"].values()
    names = [operation["operationId"] for path in document for operation in path.values()]
    chosen = [*chance.sample(names, len(names) // 6), "jobs_submit"]
    return [word for name in sorted(set(chosen)) for word in ("--include-operation-id", name)]
