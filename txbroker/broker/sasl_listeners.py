"""The connections of listeners with SASL, and what their logins share."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from txbroker.api.registry import Registry
from txbroker.broker.environment import Environment
from txbroker.cluster.tree.interface import Tree
from txbroker.config.listeners import Listener
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import PLAIN, MechanismSettings, has_sasl, sasl_settings
from txbroker.connection.protocol import Connection
from txbroker.connection.sasl import SaslConnection
from txbroker.errors import StartError
from txbroker.security.failed_logins import FailedLogins
from txbroker.security.sasl_exchange import Exchange
from txbroker.security.sasl_login import SaslServer
from txbroker.security.sasl_plain import PlainExchange, plain_users
from txbroker.security.scram import FindToken, ScramExchange
from txbroker.security.scram_credentials import ScramCredentials
from txbroker.security.shared_secret import shared_secret
from txbroker.wire.scram import HASHES

if TYPE_CHECKING:
    from txbroker.broker.oauth_tokens import OauthTokens  # which needs PyJWT

NONCE_BYTES = 24


class SaslListeners:
    """`credentials`: SCRAM's, of all users. `failures`: of all listeners. `servers`: by the names of listeners with SASL."""

    def __init__(self, config: BrokerConfig, environment: Environment, listeners: tuple[Listener, ...]) -> None:
        """ConfigError, StartError."""
        self._oauth: OauthTokens | None = None
        self._random_bytes = environment.random_bytes
        self._secret = b""  # of the cluster: `read_secret`
        self.find_token: FindToken | None = None  # if this broker has delegation tokens
        self.credentials = ScramCredentials()
        self.failures = FailedLogins(environment.reactor)
        self.servers = {
            listener.name: self._server(config, environment, listener.name) for listener in listeners if has_sasl(listener.protocol)
        }

    async def read_secret(self, tree: Tree) -> None:
        """Read the secret of the cluster, of which the salts of missing users are made; TreeError."""
        if any(HASHES.keys() & server.mechanisms.keys() for server in self.servers.values()):
            self._secret = await shared_secret(tree, self._random_bytes)

    async def start(self) -> None:
        """Read what verifies tokens; ends when that was read, or could not be."""
        if self._oauth is not None:
            await self._oauth.start()

    def stop(self) -> None:
        """Read it no more."""
        if self._oauth is not None:
            self._oauth.stop()

    def connection(self, registry: Registry, listener: Listener) -> Connection:
        """The protocol of a new connection."""
        server = self.servers.get(listener.name)
        return Connection(registry) if server is None else SaslConnection(registry, server)

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many logins there were, by listener, mechanism and result; the mechanism is empty if the client has named none."""
        found: dict[tuple[str, str, str], int] = {}
        for name, server in self.servers.items():
            found |= {(name, mechanism, "succeeded"): count for mechanism, count in server.logins.items()}
            found |= {(name, mechanism, "failed"): 0 for mechanism in ("", *server.mechanisms)}
        for (name, mechanism, _), count in self.failures.counts.items():
            found[name, mechanism, "failed"] += count
        return found

    def _server(self, config: BrokerConfig, environment: Environment, listener: str) -> SaslServer:
        settings = sasl_settings(config, listener)
        return SaslServer(
            listener,
            {name: self._exchanges(environment, listener, name, each) for name, each in settings.mechanisms.items()},
            {name: mechanism.lifetime_ms for name, mechanism in settings.mechanisms.items()},
            environment.reactor,
            self.failures,
            failure_delay_s=config.int("connection.failed.authentication.delay.ms") / 1000,
            message_bytes_max=settings.message_bytes_max,
        )

    def _exchanges(self, environment: Environment, listener: str, name: str, settings: MechanismSettings) -> Callable[[], Exchange]:
        if settings.oauth is not None:
            return self._tokens(environment, listener).exchanges(listener, settings.oauth, settings.options)
        if name == PLAIN:
            return partial(PlainExchange, plain_users(settings.options))
        return partial(self._scram, name)

    def _tokens(self, environment: Environment, listener: str) -> OauthTokens:
        if self._oauth is None:
            try:
                from txbroker.broker.oauth_tokens import OauthTokens
            except ImportError as error:
                raise StartError(f"OAUTHBEARER of listener {listener} needs {error.name}: pip install 'txbroker[security]'") from None
            self._oauth = OauthTokens(environment)
        return self._oauth

    def _scram(self, mechanism: str) -> ScramExchange:
        nonce = base64.urlsafe_b64encode(self._random_bytes(NONCE_BYTES)).decode()
        return ScramExchange(mechanism, partial(self.credentials.find, mechanism), nonce, self._secret, self.find_token)
