"""The composition root: an app, its handlers, and its blocking face."""

from holdfast.app.handler import Handler, SyncHandler
from holdfast.app.holdfast import Holdfast
from holdfast.app.sync import Sync

__all__ = ["Handler", "Holdfast", "Sync", "SyncHandler"]
