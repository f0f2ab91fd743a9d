"""Where a URL leads: one server or several, in both of the forms that libpq knows."""

from __future__ import annotations

import pytest

from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.model.addresses import addresses_of, without_parameters


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h1:5433,h2:5434/db", ["h1:5433", "h2:5434"]),
        ("postgresql://u:p%40w@h1,h2:5434/db", ["h1:5432", "h2:5434"]),
        ("postgresql:///db?host=h1,h2&port=5433,5434", ["h1:5433", "h2:5434"]),
        ("postgresql:///db?host=h1,h2&port=5433", ["h1:5433", "h2:5433"]),
        ("postgresql://[::1]:5433,[fe80::1]/db", ["[::1]:5433", "[fe80::1]:5432"]),
        ("postgresql:///db?host=/run/one", ["/run/one/.s.PGSQL.5432"]),
        ("postgresql://%2Frun%2Fone:5433/db", ["/run/one/.s.PGSQL.5433"]),
        ("postgresql:///db", []),
    ],
)
def test_every_form_is_read(url: str, expected: list[str]) -> None:
    assert [str(address) for address in addresses_of(url)] == expected
    assert Config.load(environment={}, database_url=url).database_url == url


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("postgresql://h1:5432,h2:many/db", "not a port"),
        ("postgresql:///db?host=h1,h2&port=1,2,3", "2 hosts and 3 ports"),
        ("postgresql://h1,h2/db?target_session_attrs=standby", "Holdfast writes"),
    ],
)
def test_invalid_database_urls_are_refused_at_once(url: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        Config.load(environment={}, database_url=url)


def test_parameters_of_other_drivers_are_left_out() -> None:
    url = "postgresql://h1,h2/db?connect_timeout=3&sslmode=require"
    assert without_parameters(url, "connect_timeout") == "postgresql://h1,h2/db?sslmode=require"
    assert without_parameters(url, "keepalives") == url
