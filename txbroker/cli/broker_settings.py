"""Values of the configurations of brokers, as these describe them, in kafka-python's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.console.failures import broker_error


def broker_ids(admin: Any) -> list[int]:
    """The brokers of the cluster, sorted."""
    return sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"])


def settings(admin: Any, broker_id: int, keys: Sequence[str]) -> dict[str, str | None]:
    """The values of these keys on one broker; those that it does not have or show are missing. CommandFailed."""
    from kafka.protocol.admin import DescribeConfigsRequest

    response = clients.send(admin, DescribeConfigsRequest(resources=[(4, str(broker_id), list(keys))], min_version=1), broker_id)
    (result,) = response.results
    if result.error_code:
        raise broker_error(f"the configuration of broker {broker_id} cannot be described", result.error_code, result.error_message)
    return {entry.name: entry.value for entry in result.configs}
