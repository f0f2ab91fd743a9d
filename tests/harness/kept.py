"""What tests build from the same input again and again, made once per process."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from ssl import SSLContext
from typing import Any, get_args

import httpx
from fastapi._compat import v2
from httpx._transports import default as transports
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

__all__ = ["keep_certificates", "keep_validators"]


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


def keep_validators() -> None:
    """What is annotated alike has the same validator in all apps of FastAPI: each has 160, and makes them anew."""
    kept: dict[Hashable, tuple[Any, TypeAdapter[Any]]] = {}

    def validator(annotated: Any, *, config: Any = None) -> TypeAdapter[Any]:
        key = (*map(_key, get_args(annotated)), repr(config))
        if key not in kept:
            # With the annotation: what it names is not to be collected, for another could then get its number.
            kept[key] = annotated, TypeAdapter(annotated, config=config)
        return kept[key][1]

    v2.TypeAdapter = validator  # type: ignore[assignment, attr-defined]


def _key(part: Any) -> Hashable:
    """Equal for what is alike; fields tell what they are, but compare by identity."""
    is_comparable = isinstance(part, Hashable) and not isinstance(part, FieldInfo)
    return type(part), part if is_comparable else repr(part)
