"""Logins of this broker's listeners. Without a listener that has SASL, the modules of mechanisms are not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbroker.api.registry import Registry
from txbroker.broker.environment import Environment
from txbroker.cluster.tree.interface import Tree
from txbroker.config.listeners import Listener
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import has_sasl
from txbroker.connection.protocol import Connection
from txbroker.security.failed_logins import FailedLogins
from txbroker.security.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from txbroker.broker.sasl_servers import SaslServers
    from txbroker.security.scram import FindToken


class SaslListeners:
    """`credentials`: SCRAM's, of all users. `failures`: of all listeners."""

    def __init__(self, config: BrokerConfig, environment: Environment, listeners: tuple[Listener, ...]) -> None:
        """ConfigError, StartError."""
        self.credentials = ScramCredentials()
        self.failures = FailedLogins(environment.reactor)
        self._names = tuple(listener.name for listener in listeners if has_sasl(listener.protocol))
        self._servers: SaslServers | None = None
        if self._names:
            from txbroker.broker.sasl_servers import SaslServers

            self._servers = SaslServers(config, environment, self._names, self.credentials, self.failures)

    async def read_secret(self, tree: Tree) -> None:
        """Read the secret of the cluster; TreeError."""
        if self._servers is not None:
            await self._servers.read_secret(tree)

    async def start(self) -> None:
        """Read what verifies tokens; ends when that was read, or could not be."""
        if self._servers is not None:
            await self._servers.start()

    def stop(self) -> None:
        """Read it no more."""
        if self._servers is not None:
            self._servers.stop()

    def use_tokens(self, find_token: FindToken | None) -> None:
        """Let clients log in with delegation tokens, if this broker has them."""
        if self._servers is not None:
            self._servers.find_token = find_token

    def connection(self, registry: Registry, listener: Listener) -> Connection:
        """The protocol of a new connection."""
        if self._servers is None or listener.name not in self._names:
            return Connection(registry)
        return self._servers.connection(registry, listener.name)

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many logins there were, by listener, mechanism and result; the mechanism is empty if the client has named none."""
        found: dict[tuple[str, str, str], int] = {}
        for name, server in () if self._servers is None else self._servers.by_name.items():
            found |= {(name, mechanism, "succeeded"): count for mechanism, count in server.logins.items()}
            found |= {(name, mechanism, "failed"): 0 for mechanism in ("", *server.mechanisms)}
        for (name, mechanism, _), count in self.failures.counts.items():
            found[name, mechanism, "failed"] += count
        return found
