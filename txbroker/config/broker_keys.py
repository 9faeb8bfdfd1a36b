"""Every broker key: those of Kafka 3.9 with their synonyms, and those of txbroker (`txbroker.…`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txbroker.config import (
    audit_keys,
    cluster_keys,
    general_keys,
    group_keys,
    log_keys,
    metrics_keys,
    network_keys,
    replication_keys,
    security_keys,
    tiered_keys,
    transaction_keys,
)
from txbroker.config.keys import Key, by_name

BROKER_KEYS: Mapping[str, Key] = by_name(
    (
        *general_keys.KEYS,
        *network_keys.KEYS,
        *log_keys.KEYS,
        *replication_keys.KEYS,
        *group_keys.KEYS,
        *transaction_keys.KEYS,
        *security_keys.KEYS,
        *cluster_keys.KEYS,
        *tiered_keys.KEYS,
        *metrics_keys.KEYS,
        *audit_keys.KEYS,
    )
)


class SynonymKey(NamedTuple):
    """A synonym of a key; one of its units is `unit` units of the first key of the chain."""

    name: str
    unit: int = 1


_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS

# The first key of a chain that is set is used (KafkaConfig and DynamicBrokerConfig.brokerConfigSynonyms).
SYNONYMS: Mapping[str, tuple[SynonymKey, ...]] = {
    "log.retention.ms": (
        SynonymKey("log.retention.ms"),
        SynonymKey("log.retention.minutes", _MINUTE_MS),
        SynonymKey("log.retention.hours", _HOUR_MS),
    ),
    "log.roll.ms": (SynonymKey("log.roll.ms"), SynonymKey("log.roll.hours", _HOUR_MS)),
    "log.roll.jitter.ms": (SynonymKey("log.roll.jitter.ms"), SynonymKey("log.roll.jitter.hours", _HOUR_MS)),
    "log.flush.interval.ms": (SynonymKey("log.flush.interval.ms"), SynonymKey("log.flush.scheduler.interval.ms")),
    "log.dirs": (SynonymKey("log.dirs"), SynonymKey("log.dir")),
}


def synonyms(name: str) -> tuple[SynonymKey, ...]:
    """The keys that can set the value of `name`, in order; the first is `name` itself."""
    return SYNONYMS.get(name) or (SynonymKey(name),)
