"""What is kept for all tests of a process is the same as what would be made anew."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import pytest
from fastapi._compat import v2
from httpx._transports import default as transports
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import Field

from tests.harness.kept import keep_certificates, keep_validators


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes validators as FastAPI does."""
    monkeypatch.setattr(v2, "TypeAdapter", TypeAdapter)
    keep_validators()
    return v2.TypeAdapter  # type: ignore[attr-defined]


def test_what_is_annotated_alike_has_one_validator(make: Any) -> None:
    alike = [make(Annotated[int, Field(ge=1, title="A")]) for _ in range(2)]
    assert alike[0] is alike[1]
    assert alike[0].validate_python(1) == 1
    with pytest.raises(ValidationError):
        alike[0].validate_python(0)


@pytest.mark.parametrize(
    "other",
    [
        Annotated[int, Field(ge=2)],
        Annotated[str, Field(ge=1)],
        Annotated[int, Field(ge=1, title="another")],
        Annotated[int, Field(ge=1), Field(le=5)],
        Annotated[list[int], Field(ge=1)],
        Annotated[int, Field(ge=True)],
    ],
)
def test_what_is_annotated_otherwise_has_another(make: Any, other: Any) -> None:
    assert make(other) is not make(Annotated[int, Field(ge=1)])


def test_clients_share_what_they_trust_unless_they_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "create_ssl_context", httpx.create_ssl_context)
    keep_certificates()
    create = transports.create_ssl_context  # type: ignore[attr-defined]
    assert create() is create(trust_env=True)
    assert create(verify=False) is not create()
