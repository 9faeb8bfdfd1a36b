"""What AlterConfigs and IncrementalAlterConfigs make of the configurations that are stored (KIP-133, KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from txbroker.config.keys import Key
from txbroker.config.resolve import BrokerConfig


class Operation(IntEnum):
    """What one incremental change does, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one key; `operation` is the number on the wire, unchecked."""

    name: str
    operation: int
    value: str | None


def alter_topic_configs(config: BrokerConfig, current: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """The overrides of a topic after these changes, checked; BrokerError(INVALID_CONFIG or INVALID_REQUEST, sentence)."""
    raise NotImplementedError


def alter_broker_configs(
    config: BrokerConfig, current: Mapping[str, str], changes: Iterable[Change], *, per_broker: bool
) -> dict[str, str]:
    """The dynamic values of one broker (or of the default for all) after these changes, checked; BrokerError as above."""
    raise NotImplementedError


def validate_broker_configs(config: BrokerConfig, values: Mapping[str, str | None], *, per_broker: bool) -> None:
    """BrokerError(INVALID_CONFIG or INVALID_REQUEST, sentence) unless these may be the dynamic values (AlterConfigs' replacement)."""
    raise NotImplementedError


def apply_incremental(keys: Mapping[str, Key], current: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """`current` with the changes applied: SET, DELETE, and APPEND and SUBTRACT on LIST keys; values are not checked."""
    raise NotImplementedError
