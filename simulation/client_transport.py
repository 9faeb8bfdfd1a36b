"""Connections of Twisted clients on the simulated network: what `reactor.connectTCP` returns, and the transport of its protocol."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError, TimeoutError, UserError
from twisted.python.failure import Failure

from simulation.network import End, Network, NetworkProcess


class Connector:
    """An attempt to connect of a Twisted client: IConnector."""

    def __init__(self, network: Network, process: NetworkProcess, host: str, port: int, factory: Any, timeout_s: float) -> None:
        self._network = network
        self._process = process
        self._address = IPv4Address("TCP", host, port)
        self._factory = factory
        self._timeout_s = timeout_s
        self._local_port = network.new_local_port()
        self._end: End | None = None
        self._timer: Any = None

    def begin(self) -> None:
        """Connect."""
        self._factory.doStart()
        self._factory.startedConnecting(self)
        self._timer = self._process.callLater(self._timeout_s, self._failed, TimeoutError())
        self._end = self._network.dial(
            self._process, self._address.host, self._address.port, self._connected, lambda: self._failed(ConnectionRefusedError())
        )

    def getDestination(self) -> IPv4Address:
        """The address."""
        return self._address

    def stopConnecting(self) -> None:
        """Give the attempt up."""
        self._failed(UserError())

    def disconnect(self) -> None:
        """The same; a connection is closed by its transport."""
        self.stopConnecting()

    def _failed(self, reason: Exception) -> None:
        if self._timer is not None:
            if self._timer.active():
                self._timer.cancel()
            self._timer = None
            if self._end is not None:
                self._end.close()
            self._factory.clientConnectionFailed(self, Failure(reason))
            self._factory.doStop()

    def _connected(self, end: End) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        protocol = self._factory.buildProtocol(self._address)
        if protocol is None:
            end.close()
            return
        ClientTransport(end, protocol, self._address, self._local_port)


class ClientTransport:
    """The transport of a Twisted client: ITCPTransport, as far as the project's clients use it."""

    disconnecting = False

    def __init__(self, end: End, protocol: Any, peer: IPv4Address, local_port: int) -> None:
        self._end = end
        self._protocol = protocol
        self._peer = peer
        self._local_port = local_port
        protocol.makeConnection(self)
        end.own(protocol.dataReceived, self._lost)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._end.write(data)

    def writeSequence(self, data: list[bytes]) -> None:
        """Send bytes."""
        self._end.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close after what was written."""
        self._close(ConnectionDone(), reset=False)

    def abortConnection(self) -> None:
        """Close at once."""
        self._close(ConnectionLost(), reset=True)

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing is delayed."""

    def getPeer(self) -> IPv4Address:
        """The server's address."""
        return self._peer

    def getHost(self) -> IPv4Address:
        """This side's address."""
        return IPv4Address("TCP", self._end.process.host, self._local_port)

    def _close(self, reason: Exception, *, reset: bool) -> None:
        if self._end.open:
            self.disconnecting = True
            self._end.close(reset=reset)
            self._end.process.callLater(0, self._lost, reason)

    def _lost(self, reason: Exception) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connectionLost(Failure(reason))
