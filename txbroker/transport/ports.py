"""The listening sockets of one broker: implements `Ports`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.action_queue import ActionQueue
from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.transport.hub import Hub, RunInWorker
from txbroker.transport.interfaces import FrameProtocol, ListenerTls
from txbroker.transport.limits import Limits
from txbroker.transport.listener import Listener


class SocketPorts:
    """`hub` has all connections."""

    def __init__(self, reactor: Any, limits: Limits, run_in_worker: RunInWorker, actions: ActionQueue) -> None:
        self.hub = Hub(reactor, limits, run_in_worker, actions)
        self._listeners: list[Listener] = []

    def listen(
        self, name: str, host: str, port: int, build: Callable[[], FrameProtocol], *, backlog: int, tls: ListenerTls | None = None
    ) -> int:
        """See `Ports`."""
        listener = Listener(self.hub, name, host, port, build, backlog=backlog, tls=tls)
        listener.startListening()
        listener.stopReading()
        self._listeners.append(listener)
        bound: int = listener.getHost().port
        return bound

    def check(self, host: str, port: int) -> None:
        """See `Ports`."""
        Listener(self.hub, "", host, port, _no_connection, backlog=1).check()

    def accept(self) -> None:
        """See `Ports`."""
        self.hub.start()
        for listener in self._listeners:
            listener.startReading()

    def file_gone(self, report: Callable[[str], None]) -> None:
        """See `Ports`."""
        self.hub.file_gone = report

    def change(self, limits: Limits) -> None:
        """See `Ports`."""
        self.hub.quotas.change(limits)

    def limit_rates(self, rates: ConnectionRates) -> None:
        """See `Ports`."""
        self.hub.quotas.rates = rates

    async def close(self) -> None:
        """See `Ports`."""
        for listener in self._listeners:
            done = listener.stopListening()
            if isinstance(done, Deferred):
                await done
        await self.hub.stop()


def _no_connection() -> FrameProtocol:
    raise AssertionError("a port that is only checked accepts no connection")
