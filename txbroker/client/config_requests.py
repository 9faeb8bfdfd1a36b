"""The configuration of a topic or a broker, by DescribeConfigs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txbroker.client.client_errors import NotKafka, RequestFailed
from txbroker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse

# ConfigResource.Type
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


def describe_configs(
    call: Callable[[DescribeConfigsRequest], Any], resource_type: int, name: str, keys: Sequence[str] | None = None
) -> Mapping[str, str | None]:
    """The values of these keys, or of all; keys that the broker does not know are left out. `call` sends a request. ClientError."""
    requested = None if keys is None else list(keys)
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=requested)
    response: DescribeConfigsResponse = call(DescribeConfigsRequest(resources=[resource]))
    if len(response.results) != 1:
        raise NotKafka("the broker's DescribeConfigs response does not have the requested resource")
    (result,) = response.results
    if result.error_code:
        raise RequestFailed(f"the configuration of {name} cannot be described", result.error_code, result.error_message)
    return {entry.name: entry.value for entry in result.configs}
