"""How this broker logs in at others, on the listener between brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbroker.broker.identity import is_clustered
from txbroker.config.listeners import parse_listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import between_brokers, has_sasl, own_credentials

if TYPE_CHECKING:
    from txbroker.client.client_security import ClientSecurity


def own_user(config: BrokerConfig) -> str | None:
    """The user as whom brokers log in; None as `own_login`. ConfigError."""
    listener = between_brokers(parse_listeners(config))
    return own_credentials(config, listener.name).user if has_sasl(listener.protocol) and is_clustered(config) else None


def own_login(config: BrokerConfig) -> ClientSecurity | None:
    """None without SASL, and for a broker alone. ConfigError."""
    listener = between_brokers(parse_listeners(config))
    if not has_sasl(listener.protocol) or not is_clustered(config):
        return None
    from txbroker.client.client_security import ClientSecurity, Sasl  # a broker alone does not import them
    from txbroker.client.oauth_token import TokenSource

    mechanism, user, password, path = own_credentials(config, listener.name)
    return ClientSecurity(listener.protocol, None, Sasl(mechanism, user, password, None if path is None else TokenSource(path)))
