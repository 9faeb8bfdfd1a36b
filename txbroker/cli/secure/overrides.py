"""Whether a broker with the values of `secure init --override` starts, and is what the files of its clients are for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from txbroker.cli.secure import secured_files
from txbroker.cli.secure.secured_files import ADMIN, MECHANISM, Place
from txbroker.config.listeners import Listener, Listeners, parse_listeners
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_properties
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import MECHANISMS_KEY, between_brokers, has_sasl, own_credentials
from txbroker.console.failures import BadUsage
from txbroker.errors import ConfigError
from txbroker.security.principals import super_users

AUTHORIZER_KEY = "authorizer.class.name"
_OF_ONE_BROKER = ("broker.id", "node.id", "advertised.listeners")


def check_overrides(overrides: Mapping[str, str], places: Sequence[Place], zookeeper: str | None) -> None:
    """BadUsage with what to specify. Values with variables, which the broker expands on its machine, are not checked."""
    for key in _OF_ONE_BROKER if len(places) > 1 else ():
        if key in overrides:
            raise BadUsage(f"--override {key} would be the same for all brokers; specify it with --broker ID=HOST:PORT")
    _check_ports(overrides, places)
    known = {key: value for key, value in overrides.items() if "${" not in value}
    for place in places:
        passwords = secured_files.random_passwords()
        text = secured_files.broker_properties(place, passwords, known, zookeeper=zookeeper, brokers=len(places))
        try:
            config = load_broker_config(parse_properties(text.encode(), "broker.properties", {}))
            _check_for_clients(config, parse_listeners(config), place)
        except ConfigError as error:
            raise BadUsage(f"with these --override the broker would not start: {error}") from None


def _check_ports(overrides: Mapping[str, str], places: Sequence[Place]) -> None:
    """BadUsage if the brokers would not listen where the files of the clients say."""
    for key in ("listeners", "advertised.listeners"):
        ports = {int(port) for port in re.findall(r":([0-9]{1,5})\s*(?:,|$)", overrides.get(key, ""), re.ASCII)}
        missing = [str(place.port) for place in places if key in overrides and place.port not in ports]
        if missing:
            problem = f"has no port {', '.join(missing)}, at which the files of the clients expect a broker"
            raise BadUsage(f"--override {key}={overrides[key]} {problem}; specify the port with --port, or in --broker")


def _check_for_clients(config: BrokerConfig, listeners: Listeners, place: Place) -> None:
    """BadUsage, ConfigError."""
    listener = next((each for each in listeners.bound if _is_for_clients(each, listeners, place)), None)
    if listener is None:
        raise BadUsage(f"the files of the clients are for SASL_SSL at port {place.port}: give the listener with this port that protocol")
    if MECHANISM not in config.listener(listener.name).list(MECHANISMS_KEY):
        raise BadUsage(f"the files of the clients are for {MECHANISM}: add it to {MECHANISMS_KEY} of listener {listener.name}")
    if not config.optional_text("txbroker.scram.users.file"):
        raise BadUsage("without txbroker.scram.users.file no user could log in: leave out that --override")
    if not config.text(AUTHORIZER_KEY):
        return
    needed = [ADMIN]
    if config.optional_text("zookeeper.connect") and has_sasl(between_brokers(listeners).protocol):
        needed.append(own_credentials(config, listeners.inter_broker).user)
    missing = [f"User:{user}" for user in needed if f"User:{user}" not in super_users(config.optional_text("super.users"))]
    if missing:
        raise BadUsage(
            f"--override super.users must have {';'.join(missing)}, too: otherwise no user could create the first ACLs, and brokers could "
            "not send each other requests"
        )


def _is_for_clients(listener: Listener, listeners: Listeners, place: Place) -> bool:
    shown = listeners.advertised.get(listener.name, listener)
    return listener.protocol == "SASL_SSL" and place.port in (listener.port, shown.port)
