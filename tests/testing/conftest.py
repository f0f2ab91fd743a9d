"""The kit's own fixtures, on the server of this suite, with an app whose own database does not exist."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.testing import app


@pytest.fixture(scope="session")
def holdfast_server_url(server_url: str) -> str:
    return server_url


@pytest.fixture(scope="session")
def holdfast_app() -> Holdfast:
    return app.hf


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    app.ran.clear()
    app.mailers.clear()
