"""The broker's listeners: bound early, so that ports are known; they accept connections last."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from twisted.internet.error import CannotListenError

from txbroker.action_queue import ActionQueue
from txbroker.broker import settings
from txbroker.broker.environment import Environment
from txbroker.broker.tls_listeners import TlsListeners
from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.cluster.node_data import RegisteredEndpoint
from txbroker.config.listeners import Listener as ConfiguredListener
from txbroker.config.listeners import Listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.connection.protocol import Connection
from txbroker.errors import StartError
from txbroker.transport.interfaces import Ports
from txbroker.transport.ports import SocketPorts


class Listening:
    """All listeners of one broker, and their advertised addresses."""

    def __init__(self, config: BrokerConfig, environment: Environment, actions: ActionQueue, listeners: Listeners) -> None:
        """StartError if the TLS of a listener cannot be used."""
        self._config = config
        self._environment = environment
        self._listeners = listeners
        make = environment.ports or SocketPorts
        self.tls = TlsListeners(config, listeners, environment.reactor, environment.in_worker, environment.now_ms)
        self.ports: Ports = make(environment.reactor, settings.limits(config), environment.in_worker, actions)
        self.rates = ConnectionRates(
            environment.reactor.seconds,
            sample_count=config.int("quota.window.num"),
            sample_s=config.int("quota.window.size.seconds"),
        )
        self._limit_rates()
        self.ports.limit_rates(self.rates)
        self.bound: dict[str, tuple[str, int]] = {}  # listener name -> host and actual port

    def check(self) -> None:
        """StartError if a port cannot be bound, before anything is written."""
        for configured in self._listeners.bound:
            try:
                self.ports.check("" if configured.wildcard else configured.host, configured.port)
            except CannotListenError as error:
                raise _refused(configured, error.socketError) from error

    def bind(self, build: Callable[[ConfiguredListener], Connection]) -> None:
        """Bind the ports; StartError. Connections wait in the backlog until `accept`. `build` makes a connection of a listener."""
        backlog = self._config.int("socket.listen.backlog.size")
        for configured in self._listeners.bound:
            host, tls = "" if configured.wildcard else configured.host, self.tls.by_name.get(configured.name)
            try:
                port = self.ports.listen(configured.name, host, configured.port, partial(build, configured), backlog=backlog, tls=tls)
            except CannotListenError as error:
                raise _refused(configured, error.socketError) from error
            self.bound[configured.name] = (configured.host or "0.0.0.0", port)

    def accept(self) -> None:
        """Start to accept connections."""
        self.ports.accept()
        self.tls.start()

    def reconfigure(self) -> None:
        """Apply the current limits of connections, and the keys of TLS."""
        self.ports.change(settings.limits(self._config))
        self._limit_rates()
        self.tls.refresh()

    def _limit_rates(self) -> None:
        names = [listener.name for listener in self._listeners.bound]
        protected = self._listeners.inter_broker if len(names) > 1 else None
        self.rates.limit(self._config.int("max.connection.creation.rate"), settings.creation_rates(self._config, names), protected)

    async def close(self) -> None:
        """Close the ports, send the last responses, and close the connections."""
        self.tls.stop()
        await self.ports.close()

    def endpoints(self) -> tuple[RegisteredEndpoint, ...]:
        """The endpoints to register: advertised addresses, else bound ones; a wildcard is replaced by this host's name."""
        endpoints = []
        for configured in self._listeners.bound:
            host, port = configured.host, self.bound[configured.name][1]
            advertised = self._listeners.advertised.get(configured.name)
            if advertised is not None:
                host, port = advertised.host, advertised.port or port
            elif configured.wildcard:
                host = self._environment.host_name()
            endpoints.append(RegisteredEndpoint(configured.name, host, port, configured.protocol))
        return tuple(endpoints)

    def reached(self) -> list[str]:
        """Listeners with a wildcard and no advertised address: each client receives the address that it has connected to."""
        bound, advertised = self._listeners.bound, self._listeners.advertised
        return [listener.name for listener in bound if listener.wildcard and listener.name not in advertised]


def _refused(configured: ConfiguredListener, problem: OSError) -> StartError:
    advice = "stop what uses the port, or choose another in listeners" if problem.errno == errno.EADDRINUSE else "correct listeners"
    place = f"{configured.host or '*'}:{configured.port}"
    return StartError(f"listener {configured.name} cannot listen on {place}: {problem.strerror or problem}; {advice}")
