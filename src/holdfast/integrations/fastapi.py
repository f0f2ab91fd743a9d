"""Holdfast in a FastAPI application: what `holdfast.integrations.starlette` has, and a dependency.

`FastAPI(lifespan=lifespan(hf))` opens the app; a path operation with a parameter `hf: CurrentHoldfast` gets it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from holdfast.app import Holdfast
from holdfast.integrations.starlette import current, lifespan, loopback_only, mount_control_plane

__all__ = ["CurrentHoldfast", "current", "lifespan", "loopback_only", "mount_control_plane"]

#: The open app, as a parameter of a path operation.
CurrentHoldfast = Annotated[Holdfast, Depends(current)]
