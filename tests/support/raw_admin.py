"""Administrative requests that many tests need, over a raw connection: fast, and without the behaviour of a client library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest
from kafka.protocol.metadata import ApiVersionsRequest, CoordinatorType, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from tests.support.raw import RawConnection
from tests.support.server import Server
from tests.support.waiting import until

KEEP = {"retention.ms": "-1"}  # sample records have old timestamps: retention would delete them at once


def create_topic(server: Server, topic: str, partitions: int = 1, configs: Mapping[str, str] = KEEP) -> None:
    """Create a topic, and wait until every partition has a leader."""
    with RawConnection(server.address) as connection:
        created = creation(connection, topic, partitions, 1, configs)
        assert created.error_code == 0, created
    until_leaders(server, topic, partitions)


def creation(connection: RawConnection, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> Any:
    """The broker's answer about a topic that is to be created."""
    creatable = CreateTopicsRequest.CreatableTopic
    entries = [creatable.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    wanted = creatable(name=topic, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=entries)
    (created,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 5).topics
    return created


def until_leaders(server: Server, topic: str, partitions: int) -> None:
    """Wait until every partition has a leader: after creation, and after a start of the broker."""
    with RawConnection(server.address) as connection:
        until(lambda: leaders(connection, topic) == partitions, f"the {partitions} partitions of {topic} have leaders")


def advertised(server: Server) -> dict[int, tuple[int, int]]:
    """The advertised versions by API key."""
    with RawConnection(server.address) as connection:
        answer = connection.call(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}


def leaders(connection: RawConnection, topic: str) -> int:
    """How many partitions of the topic have a leader; does not create the topic."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = connection.call(request, 8).topics
    return sum(partition.leader_id >= 0 and partition.error_code == 0 for partition in found.partitions)


def brokers(connection: RawConnection) -> int:
    """How many brokers this one knows."""
    return len(connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), 8).brokers)


def find_coordinator(server: Server, group: str) -> None:
    """Wait until a group has a coordinator; the first request creates the topic for offsets."""
    request = FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP)
    with RawConnection(server.address) as connection:
        until(lambda: connection.call(request, 2).error_code == 0, "a coordinator")


def producer_id(connection: RawConnection) -> Any:
    """A new producer's id and epoch; the broker may first have to allocate a block of ids."""
    def ask() -> Any:
        given = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        assert given.error_code in (0, 14)
        return given if given.error_code == 0 else None

    return until(ask, "a producer id")


def delete_records(server: Server, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records of a partition before `offset`."""
    part = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = part(name=topic, partitions=[part.DeleteRecordsPartition(partition_index=partition, offset=offset)])
    with RawConnection(server.address) as connection:
        (answer,) = connection.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000), 1).topics
        assert answer.partitions[0].error_code == 0, answer
