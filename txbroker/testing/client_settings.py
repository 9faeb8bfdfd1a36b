"""The settings with which a client library connects to a broker for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbroker.testing.errors import KitError
from txbroker.testing.secured import OF_LIBRARY, Security

# The libraries' names of bootstrap servers, group, and where a group without offsets begins.
_PROPERTIES = ("bootstrap.servers", "group.id", "auto.offset.reset")
_ARGUMENTS = ("bootstrap_servers", "group_id", "auto_offset_reset")
LIBRARIES: Mapping[str, tuple[str, str, str]] = {
    "confluent": _PROPERTIES,
    "librdkafka": _PROPERTIES,
    "java": _PROPERTIES,
    "kafka-python": _ARGUMENTS,
    "aiokafka": _ARGUMENTS,
}
# kafka-python may join a group before it knows a topic that was just created. It then has no partitions until it reads the metadata again.
OF_CONSUMERS: Mapping[str, Mapping[str, Any]] = {"kafka-python": {"metadata_max_age_ms": 1000}}


def client_settings(library: str, bootstrap_servers: str, group: str | None, security: Security | None = None) -> dict[str, Any]:
    """The settings for a producer or an admin client; with a group those for a consumer, which begins at the first record. KitError."""
    if library not in LIBRARIES:
        raise KitError(f"there are no settings for the client {library!r}; use one of {', '.join(LIBRARIES)}, or bootstrap_servers")
    servers_name, group_name, reset_name = LIBRARIES[library]
    found = {servers_name: bootstrap_servers, **({} if security is None else OF_LIBRARY[library](security))}
    return found if group is None else {**found, group_name: group, reset_name: "earliest", **OF_CONSUMERS.get(library, {})}
