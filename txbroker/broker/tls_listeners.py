"""TLS of the listeners: read from the configuration at the start."""

from __future__ import annotations

from collections.abc import Mapping

from txbroker.broker.identity import is_clustered
from txbroker.config.listener_keys import known_key
from txbroker.config.listeners import Listener, Listeners
from txbroker.config.resolve import BrokerConfig, ListenerConfig
from txbroker.errors import StartError
from txbroker.tls.listener_tls import RULES_KEY, ListenerTls
from txbroker.tls.settings import TlsProblem, TlsSettings, read_settings

WITH_TLS = ("SSL", "SASL_SSL")
CLIENT_AUTH_KEY = "ssl.client.auth"


def open_listeners(config: BrokerConfig, listeners: Listeners) -> Mapping[str, ListenerTls]:
    """TLS of each listener that has it, by its name; StartError with file, line and key."""
    between = next(listener for listener in listeners.bound if listener.name == listeners.inter_broker)
    if is_clustered(config) and between.protocol in WITH_TLS:
        place = config.static.place(("inter.broker.listener.name", "security.inter.broker.protocol", "listeners"))
        raise StartError(f"{place}brokers connect to each other without TLS yet, but the listener {between.name} for them has it; name "
                         "one of PLAINTEXT in inter.broker.listener.name, in a network that you trust")  # fmt: skip
    return {listener.name: _open(config, listener) for listener in listeners.bound if listener.protocol in WITH_TLS}


def listener_settings(config: BrokerConfig, listener: Listener) -> TlsSettings:
    """The keys of a listener; TlsProblem."""
    values = config.listener(listener.name)
    settings = read_settings(lambda key: text_of(values, key))
    if listener.protocol == "SASL_SSL" and config.prefixed(values.prefix + CLIENT_AUTH_KEY) is None:
        return settings._replace(client_auth="none")  # as Kafka's ChannelBuilders
    return settings


def text_of(values: ListenerConfig, name: str) -> str | None:
    """The value of a key as text; None if it is not set."""
    key = known_key(name)
    return None if key is None else key.format(values.value(name))


def _open(config: BrokerConfig, listener: Listener) -> ListenerTls:
    values = config.listener(listener.name)
    try:
        settings = listener_settings(config, listener)
        return ListenerTls(settings, values.text(RULES_KEY), names_clients=listener.protocol == "SSL")
    except TlsProblem as problem:
        names = [name for name in values.names(problem.key) if name in config.static.values]
        shown = names[0] if names else problem.key
        raise StartError(f"{config.static.place(names)}{shown} {problem.problem} (listener {listener.name})") from None
