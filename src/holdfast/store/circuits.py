"""Circuit breakers, as statements of the engine. Roles: worker, operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.model.circuit import CircuitState, Ending
from holdfast.model.provenance import provenance
from holdfast.store.database import Session

__all__ = ["CircuitAnswer", "CircuitDesk", "CircuitStore", "Key", "Owner"]

#: The tenant (empty for all) and the name of a circuit.
Key = tuple[str, str]
#: The job and the attempt that make a call.
Owner = tuple[UUID, int]

_SUCCEEDED: Mapping[Ending, bool | None] = {"success": True, "failure": False, "neither": None}


class CircuitAnswer(NamedTuple):
    """How a circuit is. A job that may not call waits for `wait_seconds`, and up to `spread_seconds` more."""

    state: str
    generation: int
    wait_seconds: float
    spread_seconds: float
    granted: bool = False
    troubled: bool = False
    fault: str | None = None


def _answer(row: Mapping[str, Any], **more: Any) -> CircuitAnswer:
    return CircuitAnswer(row["state"], row["generation"], row["wait_seconds"], row["spread_seconds"], **more)


class CircuitStore:
    """What a worker tells and asks, in the role `worker`."""

    def __init__(self, session: Session, worker: str) -> None:
        self._session, self._worker = session, worker

    async def sync(self, reports: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], CircuitAnswer]:
        """Report what was counted, and learn how these circuits (tenant, name) are."""
        rows = await self._session.rows("sync_circuits", self._worker, json.dumps(list(reports)))
        return {
            (row["tenant"], row["name"]): _answer(row, troubled=row["troubled"], fault=row["fault"]) for row in rows
        }

    async def try_probe(self, owner: Owner, circuit: Key) -> CircuitAnswer:
        """Whether an attempt may call while the circuit is not closed."""
        (row,) = await self._session.rows("try_probe", self._worker, *owner, *circuit)
        return _answer(row, granted=row["granted"])

    async def end_probe(
        self, owner: Owner, circuit: Key, generation: int, ending: Ending, error: str | None
    ) -> CircuitAnswer | None:
        """Record how a probe ended; None if the circuit is gone."""
        told = *owner, *circuit, generation, _SUCCEEDED[ending], error
        for row in await self._session.rows("end_probe", self._worker, *told):
            return _answer(row)
        return None


class CircuitDesk:
    """What operators see and decide, in the role `operator`. An empty tenant stands for all tenants together."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, *, tenant: str | None, name: str | None, after: tuple[str, str] | None, limit: int
    ) -> list[CircuitState]:
        """Circuits by name and tenant, after the given ones."""
        rows = await self._session.rows("list_circuits", tenant, name, *(after or (None, None)), limit)
        return [CircuitState(**dict(row)) for row in rows]

    async def reset(self, name: str, tenant: str, *, by: str, reason: str | None, by_key: UUID | None) -> bool:
        """Close a circuit. Returns whether there was one."""
        (row,) = await self._session.rows("reset_circuit", name, tenant, by, reason, by_key, *provenance.get())
        return bool(row[0])

    async def open(
        self, name: str, tenant: str, *, seconds: float | None, by: str, reason: str | None, by_key: UUID | None
    ) -> None:
        """Open a circuit by hand."""
        await self._session.rows("open_circuit", name, tenant, seconds, by, reason, by_key, *provenance.get())
