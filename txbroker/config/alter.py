"""Computes the new configurations for AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-226, KIP-339).

Each function returns the new texts to store, validated together, and changes nothing. Errors are those of Kafka's
ConfigAdminManager: INVALID_CONFIG for an invalid value of a topic, INVALID_REQUEST for one of a broker and for malformed requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import InvalidValue, Key, Type, Update, split_list
from txbroker.config.listener_keys import CREATION_RATE, LISTENER_PREFIX, known_key, listener_base
from txbroker.config.load import broker_problem
from txbroker.config.password_encoder import RandomBytes, Unavailable
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS
from txbroker.config.topics import validate_topic_configs
from txbroker.errors import BrokerError, ErrorCode


class Operation(IntEnum):
    """The operation of an incremental change, with its number in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one key; `operation` is the unchecked number of the request."""

    name: str
    operation: int
    value: str | None


def alter_topic_configs(config: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The overrides of a topic after these changes (IncrementalAlterConfigs)."""
    altered = apply_incremental(TOPIC_KEYS, lambda name: _topic_inherits(config, name), current, changes)
    validate_topic_configs(config, altered)
    return altered


def replace_topic_configs(config: BrokerConfig, entries: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """The overrides of a topic, replaced by these (AlterConfigs)."""
    replaced = _replacement(entries)
    validate_topic_configs(config, replaced)
    return replaced


def alter_broker_configs(
    config: BrokerConfig, current: Mapping[str, str], changes: Sequence[Change], *, per_broker: bool
) -> dict[str, str]:
    """The dynamic values of this broker, or the default of all brokers if not `per_broker`, after these changes."""
    below = config.candidate(broker={}) if per_broker else config.candidate(broker={}, default={})
    altered = apply_incremental(BROKER_KEYS, lambda name: _text(BROKER_KEYS[name], below, name), current, changes)
    _check_broker_configs(config, altered, {change.name for change in changes}, per_broker=per_broker)
    return altered


def replace_broker_configs(config: BrokerConfig, entries: Sequence[tuple[str, str | None]], *, per_broker: bool) -> dict[str, str]:
    """The dynamic values of this broker, or the default of all brokers, replaced by these (AlterConfigs)."""
    replaced = _replacement(entries)
    _check_broker_configs(config, replaced, replaced.keys(), per_broker=per_broker)
    return replaced


def encrypted(config: BrokerConfig, changes: Sequence[Change], random_bytes: RandomBytes, *, per_broker: bool) -> list[Change]:
    """Changes of a broker, with the passwords in the form in which they are stored; INVALID_REQUEST if they cannot be stored."""
    return [change._replace(value=_encrypted(config, change.name, change.value, random_bytes, per_broker)) for change in changes]


def _encrypted(config: BrokerConfig, name: str, value: str | None, random_bytes: RandomBytes, per_broker: bool) -> str | None:
    key = known_key(name)
    if value is None or key is None or not key.sensitive:
        return value
    _check_key(name, key, per_broker=per_broker)
    if config.passwords is None:
        raise _bad_request(f"{name} cannot be stored: Password encoder secret not configured; set password.encoder.secret in the file of "
                           "the broker, and start it again")  # fmt: skip
    try:
        return config.passwords.encode(value, random_bytes)
    except Unavailable as error:
        raise _bad_request(f"{name} cannot be stored: {error}") from None


def apply_incremental(
    keys: Mapping[str, Key], inherited: Callable[[str], str], current: Mapping[str, str], changes: Sequence[Change]
) -> dict[str, str]:
    """`current` with the changes applied; values are not checked.

    APPEND and SUBTRACT are for LIST keys. If the key has no value in `current`, they change the value that `inherited` returns.
    """
    _refuse_repeated(change.name for change in changes)
    altered = dict(current)
    for name, number, value in changes:
        operation = _operation(number)
        if operation is Operation.DELETE:
            altered.pop(name, None)
            continue
        if value is None:
            raise _bad_request(f"{name} must not be null")
        if operation is Operation.SET:
            altered[name] = value
            continue
        _need_list(keys, name, operation)
        before = split_list(altered[name] if name in altered else inherited(name))
        altered[name] = ",".join(_combine(operation, before, split_list(value)))
    return altered


def _combine(operation: Operation, before: tuple[str, ...], parts: tuple[str, ...]) -> list[str]:
    if operation is Operation.SUBTRACT:
        return [part for part in before if part not in parts]
    parts = parts or ("",)  # Kafka appends an empty part; many keys refuse it
    while len(parts) > 1 and not parts[-1]:
        parts = parts[:-1]  # as Java's String.split
    return list(dict.fromkeys((*before, *parts)))


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise _bad_request(f"unknown operation {number} on a configuration") from None


def _need_list(keys: Mapping[str, Key], name: str, operation: Operation) -> None:
    key = keys.get(name)
    if key is None:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Unknown configuration {name[:200]!r}")
    if key.type is not Type.LIST:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{operation.name} is not allowed: {name} is not a list")


def _replacement(entries: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    _refuse_repeated(name for name, _ in entries)
    replaced = {}
    for name, value in entries:
        if value is None:
            raise _bad_request(f"{name} must not be null")
        replaced[name] = value
    return replaced


def _refuse_repeated(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise _bad_request("A configuration key must not be empty")
        if name in seen:
            raise _bad_request(f"{name} is given twice")
        seen.add(name)


def _topic_inherits(config: BrokerConfig, name: str) -> str:
    server = SERVER_KEYS.get(name)
    return _text(TOPIC_KEYS[name], config, server) if server is not None else ""


def _text(key: Key, config: BrokerConfig, name: str) -> str:
    return key.format(config.value(name)) or ""


# In Kafka these can change only with the prefix `listener.name.<listener>.` (DynamicBrokerConfig).
_SECURITY_PREFIXES = ("ssl.", "sasl.", "principal.builder.", LISTENER_PREFIX)


def _check_broker_configs(config: BrokerConfig, values: Mapping[str, str], changed: Collection[str], *, per_broker: bool) -> None:
    """Unknown keys are valid, as in Kafka, where plugins may have them. All values together must pass the checks of a start.

    Single values are checked of what changes only: one that Kafka has stored, and this broker does not use, prevents no other change.
    """
    for name, text in values.items():
        if name not in changed:
            continue
        key = known_key(name)
        _check_key(name, key, per_broker=per_broker)
        if key is None:
            continue
        try:
            key.parse(text)
        except InvalidValue as error:
            raise _bad_request(str(error)) from None
    candidate = config.candidate(broker=values) if per_broker else config.candidate(default=values)
    problem = broker_problem(candidate)
    if problem is not None:
        raise _bad_request(problem.text)
    _check_cleaner_threads(config.int("log.cleaner.threads"), candidate.int("log.cleaner.threads"))
    refused = config.refuses(candidate, changed)
    if refused is not None:
        raise _bad_request(refused)


def _check_key(name: str, key: Key | None, *, per_broker: bool) -> None:
    """Whether it can be changed at all, whatever its value is."""
    if name.startswith(_SECURITY_PREFIXES) and listener_base(name) != CREATION_RATE:
        _check_security_key(name, key)
    if key is None:
        return
    if key.update is Update.READ_ONLY:
        raise _bad_request(f"{name} cannot be changed while the broker runs")
    if key.update is Update.PER_BROKER and not per_broker:
        raise _bad_request(f"{name} can be set only for a single broker, not as the default of all brokers")


def _check_security_key(name: str, key: Key | None) -> None:
    """Only keys of TLS that have an effect at once, of single listeners, can be changed."""
    if not name.startswith(LISTENER_PREFIX):
        advice = f": set {LISTENER_PREFIX}<listener>.{name}" if name.startswith("ssl.") else ""
        raise _bad_request(f"{name} cannot be changed while the broker runs{advice}")
    if key is None:
        raise _bad_request(f"{name} is not a key that single listeners can have")
    if not listener_base(name).startswith("ssl.") or not key.effective:
        raise _bad_request(f"{name} cannot be changed while the broker runs")


def _check_cleaner_threads(current: int, requested: int) -> None:
    """Kafka's LogCleaner.validateReconfiguration."""
    low, high = max(1, current // 2), current * 2
    if requested != current and not low <= requested <= high:
        raise _bad_request(f"log.cleaner.threads is {requested}; one change can set it from {low} to {high} (half to twice of {current})")


def _bad_request(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
