"""Doors between blocking code and coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NoReturn

import pytest

from holdfast.lifecycle.portal import Portal


@pytest.fixture
def portal() -> Iterator[Portal]:
    """One that is open."""
    portal = Portal()
    yield portal
    portal.stop()


async def _leave(fault: BaseException) -> NoReturn:
    raise fault


@pytest.mark.parametrize("fault", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_a_portal_goes_on_whatever_a_coroutine_raises(portal: Portal, fault: BaseException) -> None:
    with pytest.raises(type(fault)):
        portal.run(_leave(fault))
    assert portal.run(asyncio.sleep(0, "alive")) == "alive"
