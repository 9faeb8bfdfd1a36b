"""The logins of listeners with SASL: their mechanisms, by their settings."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from txbroker.api.registry import Registry
from txbroker.broker.environment import Environment
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import PLAIN, MechanismSettings, sasl_settings
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


class SaslServers:
    """`by_name`: by the names of the listeners. `find_token`: if this broker has delegation tokens."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, names: Iterable[str], credentials: ScramCredentials, failures: FailedLogins
    ) -> None:
        """ConfigError, StartError."""
        self._oauth: OauthTokens | None = None
        self._random_bytes = environment.random_bytes
        self._secret = b""  # of the cluster: `read_secret`
        self._credentials = credentials
        self._failures = failures
        self.find_token: FindToken | None = None
        self.by_name = {name: self._server(config, environment, name) for name in names}

    async def read_secret(self, tree: Tree) -> None:
        """Read the secret of the cluster, of which the salts of missing users are made; TreeError."""
        if any(HASHES.keys() & server.mechanisms.keys() for server in self.by_name.values()):
            self._secret = await shared_secret(tree, self._random_bytes)

    async def start(self) -> None:
        """Read what verifies tokens; ends when that was read, or could not be."""
        if self._oauth is not None:
            await self._oauth.start()

    def stop(self) -> None:
        """Read it no more."""
        if self._oauth is not None:
            self._oauth.stop()

    def connection(self, registry: Registry, name: str) -> SaslConnection:
        """The protocol of a new connection."""
        return SaslConnection(registry, self.by_name[name])

    def _server(self, config: BrokerConfig, environment: Environment, listener: str) -> SaslServer:
        settings = sasl_settings(config, listener)
        return SaslServer(
            listener,
            {name: self._exchanges(environment, listener, name, each) for name, each in settings.mechanisms.items()},
            {name: mechanism.lifetime_ms for name, mechanism in settings.mechanisms.items()},
            environment.reactor,
            self._failures,
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
        return ScramExchange(mechanism, partial(self._credentials.find, mechanism), nonce, self._secret, self.find_token)
