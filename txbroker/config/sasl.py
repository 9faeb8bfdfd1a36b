"""SASL of a listener: its mechanisms and what they need, checked before the broker starts.

`listener.name.<listener>.<mechanism>.sasl.jaas.config` has the users of PLAIN, and on the listener between brokers this broker's own user.
OAUTHBEARER has keys of its own (`oauthbearer.py`).
A `sasl.jaas.config` without listener and mechanism is ignored, as by Kafka's brokers (JaasContext).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txbroker.config.jaas import PLAIN_MODULE, SCRAM_MODULE, InvalidJaas, LoginModule, parse_jaas
from txbroker.config.listeners import Listener, Listeners
from txbroker.config.oauthbearer import (
    LOGIN_HANDLERS,
    OAUTH_MODULE,
    OAUTHBEARER,
    TOKEN_KEY,
    VALIDATOR_HANDLERS,
    InvalidUrl,
    OauthSettings,
    oauth_settings,
    token_file,
)
from txbroker.config.resolve import BrokerConfig, ListenerConfig
from txbroker.errors import ConfigError

PLAIN = "PLAIN"
MODULES = {PLAIN: PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE, "SCRAM-SHA-512": SCRAM_MODULE, OAUTHBEARER: OAUTH_MODULE}

JAAS_KEY = "sasl.jaas.config"
MECHANISMS_KEY = "sasl.enabled.mechanisms"
# Java code that decides who may log in, and as whom: without it, others could.
_CODE_KEYS = ("sasl.server.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")
# What these keys may name: classes whose work this broker does itself.
_OWN_WORK = {OAUTHBEARER: {_CODE_KEYS[0]: VALIDATOR_HANDLERS, _CODE_KEYS[1]: LOGIN_HANDLERS}}
_UNSECURED = "unsecured"  # options of Kafka's tokens without a signature begin with it


class Credentials(NamedTuple):
    """This broker's own user; for OAUTHBEARER only the file with its token."""

    mechanism: str
    user: str
    password: str
    token_file: str | None = None


class MechanismSettings(NamedTuple):
    """`options`: of the login module; none if it is not configured. `lifetime_ms`: of a session; 0 for ever. `oauth`: of OAUTHBEARER."""

    options: Mapping[str, str]
    lifetime_ms: int
    oauth: OauthSettings | None = None


class SaslSettings(NamedTuple):
    """The mechanisms of a listener in the order of sasl.enabled.mechanisms. `message_bytes_max`: of a request before the login."""

    mechanisms: Mapping[str, MechanismSettings]
    message_bytes_max: int


def check_sasl(config: BrokerConfig, listeners: Listeners) -> None:
    """ConfigError if clients could not log in on one of the listeners, or this broker not at others."""
    for listener in listeners.bound:
        if has_sasl(listener.protocol):
            sasl_settings(config, listener.name)
    if has_sasl(between_brokers(listeners).protocol) and _is_clustered(config):
        own_credentials(config, listeners.inter_broker)


def between_brokers(listeners: Listeners) -> Listener:
    """The listener for requests between brokers."""
    return next(listener for listener in listeners.bound if listener.name == listeners.inter_broker)


def _is_clustered(config: BrokerConfig) -> bool:
    return bool(config.optional_text("zookeeper.connect") or config.optional_text("txbroker.metadata.socket"))


def has_sasl(protocol: str) -> bool:
    """Whether clients of a listener with this security protocol log in."""
    return protocol.startswith("SASL_")


def sasl_settings(config: BrokerConfig, listener: str) -> SaslSettings:
    """Of the listener with this name; ConfigError."""
    values = config.listener(listener)
    names = values.list(MECHANISMS_KEY)
    where = values.names(MECHANISMS_KEY)
    if not names:
        raise config.static.error(where, f"{MECHANISMS_KEY} is empty, so that no client could log in on listener {listener}")
    mechanisms = {}
    for name in names:
        if name not in MODULES:
            raise config.static.error(
                where, f"{MECHANISMS_KEY} of listener {listener} has {name}, which is not supported; use {', '.join(MODULES)}"
            )
        of_mechanism = values.mechanism(name)
        _refuse_code(config, values, of_mechanism, name)
        module = _module(config, listener, name)
        if module is None and name == PLAIN:
            raise config.static.error(where, f"{_jaas_key(config, listener, name)} is not set, so that no user could log in with PLAIN: "
                                             f'set it to `{PLAIN_MODULE} required user_NAME="PASSWORD";`')  # fmt: skip
        options = {} if module is None else module.options
        oauth = _oauth(config, of_mechanism, listener, options) if name == OAUTHBEARER else None
        mechanisms[name] = MechanismSettings(options, of_mechanism.int("connections.max.reauth.ms"), oauth)
    return SaslSettings(mechanisms, values.int("sasl.server.max.receive.size"))


def _refuse_code(config: BrokerConfig, values: ListenerConfig, of_mechanism: ListenerConfig, mechanism: str) -> None:
    for key in _CODE_KEYS:
        named = of_mechanism.optional_text(key)
        allowed = _OWN_WORK.get(mechanism, {}).get(key, ())
        if named is not None and named not in allowed:
            advice = f"set it to {allowed[0]}, or remove it" if allowed else "remove it, and use the mechanism's own users"
            raise config.static.error(
                (*of_mechanism.names(key), values.prefix + key), f"{key} names code of Java, which this broker cannot run; {advice}"
            )


def _oauth(config: BrokerConfig, values: ListenerConfig, listener: str, options: Mapping[str, str]) -> OauthSettings:
    unsecured = next((option for option in options if option.lower().startswith(_UNSECURED)), None)
    if unsecured is not None:
        key = values.prefix + JAAS_KEY
        raise config.static.error((key,), f"{key} has the option {unsecured[:100]}; tokens without a signature are not supported")
    return oauth_settings(config, values, listener)


def own_credentials(config: BrokerConfig, listener: str) -> Credentials:
    """With which this broker logs in on the listener between brokers; ConfigError."""
    values = config.listener(listener)
    key = "sasl.mechanism.inter.broker.protocol"
    mechanism = values.text(key)
    enabled = values.list(MECHANISMS_KEY)
    if mechanism not in enabled:
        raise config.static.error(
            (*values.names(key), MECHANISMS_KEY),
            f"{key} is {mechanism}, which is not in {MECHANISMS_KEY} of listener {listener} ({', '.join(enabled)}); correct one of them",
        )
    if mechanism == OAUTHBEARER:
        return _own_token(config, values.mechanism(mechanism))
    module = _module(config, listener, mechanism)
    user, password = (None, None) if module is None else (module.options.get("username"), module.options.get("password"))
    if user is None or password is None:
        jaas = _jaas_key(config, listener, mechanism)
        raise config.static.error((jaas, key), f"{jaas} has no username and password, with which this broker logs in at other brokers")
    return Credentials(mechanism, user, password)


def _own_token(config: BrokerConfig, values: ListenerConfig) -> Credentials:
    try:
        return Credentials(OAUTHBEARER, "", "", token_file(values.optional_text(TOKEN_KEY)))
    except InvalidUrl as error:
        text = f"{values.prefix}{TOKEN_KEY}, with whose token this broker logs in at other brokers, {error}"
        raise config.static.error(values.names(TOKEN_KEY), text) from None


def _module(config: BrokerConfig, listener: str, mechanism: str) -> LoginModule | None:
    key = _jaas_key(config, listener, mechanism)
    text = config.prefixed(key)
    if text is None:
        return None
    try:
        module = parse_jaas(str(text))
    except InvalidJaas as error:
        raise config.static.error((key,), f"{key} {error}") from None
    if module.name != MODULES[mechanism]:
        raise _wrong_module(config, key, module.name[:200], mechanism)
    return module


def _wrong_module(config: BrokerConfig, key: str, name: str, mechanism: str) -> ConfigError:
    return config.static.error((key,), f"{key} has the login module {name}; with {mechanism} only {MODULES[mechanism]} is supported")


def _jaas_key(config: BrokerConfig, listener: str, mechanism: str) -> str:
    return config.listener(listener).mechanism(mechanism).prefix + JAAS_KEY
