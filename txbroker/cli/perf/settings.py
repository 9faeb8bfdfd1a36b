"""The properties of Kafka's Java clients that the perf tools support. An unknown property is an error.

A load generator that ignored a property would measure something else than was requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli.own_connections import security_of
from txbroker.client.client_security import ClientSecurity
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.console.failures import BadUsage

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Property(NamedTuple):
    """A property's default, and its valid values: a number from `low` to `high`, one of `choices`, or any text."""

    default: int | str | bool | None
    low: int = 0
    high: int = INT32_MAX
    choices: Sequence[str] = ()


Known = Mapping[str, Property]

COMMON: Known = {
    "bootstrap.servers": Property(None),
    "client.id": Property(""),
    "request.timeout.ms": Property(30_000, 1),
    "retry.backoff.ms": Property(100, 0),
    "send.buffer.bytes": Property(131_072, -1),
    "receive.buffer.bytes": Property(-1, -1),
}
PRODUCER: Known = {
    **COMMON,
    "acks": Property("all", choices=("all", "-1", "1", "0")),
    "batch.size": Property(16_384, 0),
    "buffer.memory": Property(33_554_432, 0, INT64_MAX),
    "client.id": Property("perf-producer-client"),
    "compression.type": Property("none", choices=("none", "gzip", "snappy", "lz4", "zstd")),
    "compression.gzip.level": Property(-1, -1, 9),
    "compression.lz4.level": Property(9, 1, 17),
    "compression.zstd.level": Property(3, -131_072, 22),
    "delivery.timeout.ms": Property(120_000, 0),
    "enable.idempotence": Property(True),
    "linger.ms": Property(5, 0, INT64_MAX),
    "max.in.flight.requests.per.connection": Property(5, 1),
    "max.request.size": Property(1_048_576, 0),
    "receive.buffer.bytes": Property(32_768, -1),
    "transaction.timeout.ms": Property(60_000, 1),
    "transactional.id": Property(None),
}
CONSUMER: Known = {
    **COMMON,
    "auto.offset.reset": Property("earliest", choices=("earliest", "latest")),
    "check.crcs": Property(True),
    "client.id": Property("perf-consumer-client"),
    "fetch.max.bytes": Property(52_428_800, 0),
    "fetch.max.wait.ms": Property(500, 0),
    "fetch.min.bytes": Property(1, 0),
    "group.id": Property(None),
    "isolation.level": Property("read_uncommitted", choices=("read_uncommitted",)),
    "max.partition.fetch.bytes": Property(1_048_576, 0),
    "receive.buffer.bytes": Property(2_097_152, -1),
}
_SECURITY = ("security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url",
             "sasl.login.callback.handler.class")  # fmt: skip
# Why a known property, or another value of it, is not supported.
_REFUSED = {
    "isolation.level": "perf-consume counts all records, also those of aborted transactions",
}


def read(properties: Mapping[str, str], known: Known) -> dict[str, Any]:
    """The value or default of every supported property; BadUsage for an unknown property or an invalid value."""
    values: dict[str, Any] = {key: known_.default for key, known_ in known.items()}
    for key, text in properties.items():
        if is_security(key):
            continue
        if key not in known:
            why = _REFUSED.get(key, "the property is not supported")
            raise BadUsage(f"{key}: {why}; supported are {', '.join(sorted(known))}")
        values[key] = _value(key, text.strip(), known[key])
    return values


def is_security(key: str) -> bool:
    """Whether it is a property of TLS and SASL, which `security_of` reads."""
    return key in _SECURITY or (key.startswith("ssl.") and key in BROKER_KEYS)


def _value(key: str, text: str, known: Property) -> int | str | bool:
    if isinstance(known.default, bool):
        if text.lower() not in ("true", "false"):
            raise BadUsage(f"{key} is {text!r}; it must be true or false")
        return text.lower() == "true"
    if isinstance(known.default, int):
        try:
            value = int(text)
        except ValueError:
            raise BadUsage(f"{key} is {text!r}; it must be a whole number") from None
        if not known.low <= value <= known.high:
            raise BadUsage(f"{key} is {text}; it must be {known.low} to {known.high}")
        return value
    if known.choices and text not in known.choices:
        why = f" ({_REFUSED[key]})" if key in _REFUSED else ""
        raise BadUsage(f"{key} is {text!r}; it must be {' or '.join(known.choices)}{why}")
    return text


class ProducerSettings(NamedTuple):
    """The settings of a producer (`ProducerConfig`)."""

    acks: int
    batch_bytes: int
    linger_s: float
    codec: str
    level: int | None
    in_flight: int
    request_bytes: int
    request_timeout_s: float
    delivery_timeout_s: float
    backoff_s: float
    idempotent: bool
    client_id: str
    send_buffer: int
    receive_buffer: int
    transactional_id: str | None
    transaction_timeout_ms: int
    security: ClientSecurity | None = None


def producer_settings(properties: Mapping[str, str]) -> ProducerSettings:
    """By Java's property names; BadUsage.

    Idempotence is on unless other properties exclude it; if it is requested explicitly, or by a transactional id, that is an error.
    """
    values = read(properties, PRODUCER)
    acks = -1 if values["acks"] in ("all", "-1") else int(values["acks"])
    in_flight = values["max.in.flight.requests.per.connection"]
    transactional_id = values["transactional.id"]
    if transactional_id == "":
        raise BadUsage("the transactional id is empty; leave it out to write without transactions")
    who = "a transactional id" if transactional_id is not None else "enable.idempotence=true"
    if transactional_id is not None or ("enable.idempotence" in properties and values["enable.idempotence"]):
        if acks != -1:
            raise BadUsage(f"{who} needs acks=all")
        if in_flight > 5:
            raise BadUsage(f"{who} needs max.in.flight.requests.per.connection of at most 5")
        if not values["enable.idempotence"]:
            raise BadUsage(f"{who} needs enable.idempotence=true")
    codec = values["compression.type"]
    return ProducerSettings(
        acks=acks,
        batch_bytes=values["batch.size"],
        linger_s=values["linger.ms"] / 1000,
        codec=codec,
        level=values[f"compression.{codec}.level"] if f"compression.{codec}.level" in properties else None,
        in_flight=in_flight,
        request_bytes=values["max.request.size"],
        request_timeout_s=values["request.timeout.ms"] / 1000,
        delivery_timeout_s=values["delivery.timeout.ms"] / 1000,
        backoff_s=values["retry.backoff.ms"] / 1000,
        idempotent=values["enable.idempotence"] and acks == -1 and in_flight <= 5,
        client_id=values["client.id"],
        send_buffer=values["send.buffer.bytes"],
        receive_buffer=values["receive.buffer.bytes"],
        transactional_id=transactional_id,
        transaction_timeout_ms=values["transaction.timeout.ms"],
        security=security_of(properties),
    )


class ConsumerSettings(NamedTuple):
    """The settings of a consumer (`ConsumerConfig`)."""

    group: str | None
    from_latest: bool
    check_crcs: bool
    fetch_bytes: int
    partition_bytes: int
    min_bytes: int
    max_wait_ms: int
    request_timeout_s: float
    backoff_s: float
    client_id: str
    send_buffer: int
    receive_buffer: int
    security: ClientSecurity | None = None


def consumer_settings(properties: Mapping[str, str]) -> ConsumerSettings:
    """By Java's property names; BadUsage."""
    values = read(properties, CONSUMER)
    return ConsumerSettings(
        group=values["group.id"],
        from_latest=values["auto.offset.reset"] == "latest",
        check_crcs=values["check.crcs"],
        fetch_bytes=values["fetch.max.bytes"],
        partition_bytes=values["max.partition.fetch.bytes"],
        min_bytes=values["fetch.min.bytes"],
        max_wait_ms=values["fetch.max.wait.ms"],
        request_timeout_s=values["request.timeout.ms"] / 1000,
        backoff_s=values["retry.backoff.ms"] / 1000,
        client_id=values["client.id"],
        send_buffer=values["send.buffer.bytes"],
        receive_buffer=values["receive.buffer.bytes"],
        security=security_of(properties),
    )
