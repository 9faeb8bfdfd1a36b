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
    found = describe_several(call, resource_type, {name: keys})[name]
    if isinstance(found, RequestFailed):
        raise found
    return found


def describe_several(
    call: Callable[[DescribeConfigsRequest], Any], resource_type: int, keys: Mapping[str, Sequence[str] | None]
) -> dict[str, Mapping[str, str | None] | RequestFailed]:
    """As `describe_configs`, of several resources by name, each with its keys: the values, or why there are none. ClientError."""
    resources = [
        DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None if these is None else list(these))
        for name, these in keys.items()
    ]
    response: DescribeConfigsResponse = call(DescribeConfigsRequest(resources=resources))
    found: dict[str, Mapping[str, str | None] | RequestFailed] = {}
    for result in response.results:
        if result.error_code:
            what = f"the configuration of {result.resource_name} cannot be described"
            found[result.resource_name] = RequestFailed(what, result.error_code, result.error_message)
        else:
            found[result.resource_name] = {entry.name: entry.value for entry in result.configs}
    if found.keys() != keys.keys():
        raise NotKafka("the broker's DescribeConfigs response does not have the requested resources")
    return found
