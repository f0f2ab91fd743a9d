"""How requests see their connection: when it is read, and how it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from holdfast.web.bounded import Bounded

__all__ = ["Flow", "GentleTransport"]


class Flow(FlowControl):
    """Reading and writing. Where a request asks for more, the protocol decides whether more is read."""

    def __init__(self, protocol: Bounded) -> None:
        super().__init__(protocol.transport)
        self._protocol = protocol

    def pause_reading(self) -> None:
        """Read nothing more for now."""
        if not self.read_paused:
            super().pause_reading()
            self._protocol.hangups.watch(self._transport)

    def resume_reading(self) -> None:
        """A request asks for its body, or was answered."""
        self._protocol.ask()

    def read_on(self) -> None:
        """Let the loop read again."""
        if self.read_paused:
            self._protocol.hangups.leave(self._transport)
            super().resume_reading()


class GentleTransport:
    """The transport as one request has it. Closed while the body is still under way, it lingers."""

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: Bounded, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle

    def close(self) -> None:
        """The answer is complete, and is the last one."""
        transport = self._protocol.transport
        if self._cycle.more_body and self._cycle.response_complete and not transport.is_closing():
            self._protocol.linger()
        else:
            transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol.transport, name)
