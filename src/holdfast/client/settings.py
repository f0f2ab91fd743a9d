"""Settings of the installation: what is in force, and changing it while everything runs.

A value is given as in the environment ("15m", "refuse"). The database checks it as well, whoever changes it.
"""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import shown
from holdfast.config import ENTRIES
from holdfast.errors import InvalidInput, NotFound
from holdfast.model.names import did_you_mean
from holdfast.model.setting import Setting
from holdfast.store.settings import SettingStore

__all__ = ["EngineSettings"]

_PREFIX = "HOLDFAST_"
_ENTRIES = {entry.name.upper(): entry for entry in ENTRIES}


class EngineSettings:
    """Look at settings and change them. `by`, `by_key` and `note` say who does, and why."""

    def __init__(self, store: SettingStore) -> None:
        self._store = store

    async def list(self) -> list[Setting]:
        """All settings by name."""
        return await self._store.list(None)

    async def get(self, name: str) -> Setting:
        """One setting; NotFound if there is none of that name."""
        name = _name_of(name)
        for found in await self._store.list(name):
            return found
        raise await self._unknown(name)

    async def set(
        self, name: str, value: str | float, *, by: str, note: str | None = None, by_key: UUID | None = None
    ) -> Setting:
        """Set it for all processes; InvalidInput if the engine cannot use the value."""
        name = _name_of(name)
        return await self._change(name, _written(name, value), by=by, note=note, by_key=by_key)

    async def reset(self, name: str, *, by: str, note: str | None = None, by_key: UUID | None = None) -> Setting:
        """Return it to the environment of each process, and to the default."""
        return await self._change(_name_of(name), None, by=by, note=note, by_key=by_key)

    async def _change(self, name: str, value: str | None, *, by: str, note: str | None, by_key: UUID | None) -> Setting:
        if await self._store.change(name, value, by=by, note=note, by_key=by_key) is None:
            raise await self._unknown(name)
        return await self.get(name)

    async def _unknown(self, name: str) -> NotFound:
        if name in _ENTRIES:
            return NotFound(f"{name} is set for each process by itself, in its environment: {_PREFIX}{name}")
        known = [setting.name for setting in await self.list()]
        return NotFound(f"there is no setting {shown(name)}{did_you_mean(name, known)}")


def _name_of(name: str) -> str:
    """The name in the table: the environment's and lower case are understood, too."""
    return name.upper().removeprefix(_PREFIX)


def _written(name: str, value: str | float) -> str:
    """A value as the table has it: a length in seconds, a number without needless zeros."""
    text = str(value).strip()
    if name not in _ENTRIES:
        return text
    if not text:
        raise InvalidInput(f"{name} must not be empty; to return it to its default, reset it")
    try:
        parsed = _ENTRIES[name].parse(text)
    except ValueError as fault:
        raise InvalidInput(f"{name} {fault}, not {shown(value)}") from None
    return f"{parsed:.15g}" if isinstance(parsed, float) else str(parsed)
