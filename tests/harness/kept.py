"""What tests build from the same input again and again, made once per process."""

from __future__ import annotations

from functools import cache
from ssl import SSLContext
from typing import Any

import httpx
from httpx._transports import default as transports

__all__ = ["keep_certificates"]


def keep_certificates() -> None:
    """All clients of httpx share what they trust by default: each reads all authorities, though tests speak HTTP."""

    @cache
    def trusted(trust_env: bool) -> SSLContext:
        return httpx.create_ssl_context(trust_env=trust_env)

    def create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> SSLContext:
        if verify is True and cert is None:
            return trusted(trust_env)
        return httpx.create_ssl_context(verify=verify, cert=cert, trust_env=trust_env)

    transports.create_ssl_context = create  # type: ignore[attr-defined]
