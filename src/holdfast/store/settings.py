"""Settings of the installation, as statements of the engine."""

from __future__ import annotations

from uuid import UUID

from holdfast.model.provenance import provenance
from holdfast.model.setting import Setting
from holdfast.store.database import Session

__all__ = ["SettingStore"]


class SettingStore:
    """Reads and changes settings, in the role `operator`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, name: str | None) -> list[Setting]:
        """All settings by name, or one."""
        return [Setting(**dict(row)) for row in await self._session.rows("list_settings", name)]

    async def change(
        self, name: str, value: str | None, *, by: str, note: str | None, by_key: UUID | None
    ) -> bool | None:
        """Set it, or return it to environment and default; whether anything changed, None if it is unknown."""
        (row,) = await self._session.rows("change_setting", name, value, by, note, by_key, *provenance.get())
        return None if row[0] is None else bool(row[0])
