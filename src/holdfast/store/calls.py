"""Calls that wait for the answer about one job that is recorded together with others (`holdfast.store.groups`)."""

from __future__ import annotations

import asyncio
import copy
import threading

from holdfast.errors import DatabaseUnavailable, HoldfastError, NotOpen
from holdfast.lifecycle.answers import accept, refuse
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.database import STATEMENT_SECONDS

__all__ = ["Call", "LoopCall", "ThreadCall", "late", "refuse_all"]


class Call:
    """A call that waits for the answer about one job."""

    __slots__ = ("intent", "sent")

    def __init__(self, intent: Intent) -> None:
        self.intent = intent
        self.sent = False

    @property
    def over(self) -> bool:
        """Whether it was answered, or its caller is gone."""
        raise NotImplementedError

    def accept(self, enqueued: Enqueued) -> None:
        """Answer that the job is recorded."""
        raise NotImplementedError

    def refuse(self, fault: BaseException) -> None:
        """Answer that the job is not recorded, or that this is unknown."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, str]:
        """The tenant and creator for whom the job is recorded."""
        return self.intent.tenant, self.intent.created_by or ""


class LoopCall(Call):
    """A call from a task, in the loop in which the job is recorded."""

    __slots__ = ("answer",)

    def __init__(self, intent: Intent, answer: asyncio.Future[Enqueued]) -> None:
        super().__init__(intent)
        self.answer = answer

    @property
    def over(self) -> bool:
        """Whether it was answered, or its caller is gone."""
        return self.answer.done()

    def accept(self, enqueued: Enqueued) -> None:
        """Answer that the job is recorded."""
        accept(self.answer, enqueued)

    def refuse(self, fault: BaseException) -> None:
        """Answer that it is not, or that this is unknown."""
        refuse(self.answer, fault)


class ThreadCall(Call):
    """A call from a thread. A lock wakes the thread with fewer steps than a future or an event."""

    __slots__ = ("_ended", "_enqueued", "_fault", "_gone")

    def __init__(self, intent: Intent) -> None:
        super().__init__(intent)
        self._enqueued: Enqueued | None = None
        self._fault: BaseException | None = None
        self._gone = False
        self._ended = threading.Lock()
        self._ended.acquire()

    @property
    def over(self) -> bool:
        """Whether it was answered, or its caller is gone."""
        return self._gone or self._enqueued is not None or self._fault is not None

    def accept(self, enqueued: Enqueued) -> None:
        """Answer that the job is recorded."""
        if not self.over:
            self._enqueued = enqueued
            self._ended.release()

    def refuse(self, fault: BaseException) -> None:
        """Answer that it is not, or that this is unknown."""
        if not self.over:
            self._fault = fault if isinstance(fault, Exception) else NotOpen("the app was closed")
            self._ended.release()

    def wait(self) -> Enqueued:
        """Block this thread until it is answered."""
        try:
            ended = self._ended.acquire(timeout=STATEMENT_SECONDS)
        except BaseException:
            self._gone = True
            raise
        if self._enqueued is not None:
            return self._enqueued
        fault, self._fault = self._fault, None
        self._gone = True
        try:
            raise fault if ended and fault is not None else late(self)
        finally:
            del fault  # its traceback refers to this frame


def refuse_all(group: list[Call], fault: BaseException) -> None:
    """Answer each call with its own copy of the error, because raising an error changes it."""
    for call in group:
        own = copy.copy(fault) if isinstance(fault, HoldfastError) else fault  # foreign ones may not be copied
        own.__cause__ = fault.__cause__
        call.refuse(own)


def late(call: Call) -> DatabaseUnavailable:
    """The error of a call that was not answered in time."""
    if call.sent:
        return DatabaseUnavailable("PostgreSQL did not answer in time", reason="slow")
    told = f"all statements under way took longer than {STATEMENT_SECONDS:g} s: nothing was recorded"
    return DatabaseUnavailable(told, reason="slow")
