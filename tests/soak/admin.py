"""The administrator of a soak test: creates and deletes topics, alters configurations, deletes records, describes groups."""

from __future__ import annotations

import random
import time
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest

from tests.soak.ledgers import Ledgers
from tests.soak.plan import ERASED, TOPICS
from tests.support.raw import RawConnection
from tests.support.raw_admin import delete_records, leaders
from tests.support.raw_log import EARLIEST, batch, fetch, produce
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

TOPIC = 2
UNKNOWN_TOPIC = 3
# Errors of deleting a group: it is not empty, or it expired with its offsets.
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 68, 69


def log_start(address: str, topic: str, partition: int) -> int:
    """The first offset of a partition."""
    topics = ListOffsetsRequest.ListOffsetsTopic
    part = topics.ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
    with RawConnection(address, client_id="administrator") as connection:
        request = ListOffsetsRequest(topics=[topics(name=topic, partitions=[part])], timeout_ms=30_000)
        found = connection.call(request, 7).topics[0].partitions[0]
    assert found.error_code == 0, found
    offset: int = found.offset
    return offset


class Administrator:
    """`act` performs one action; AssertionError when an answer is wrong."""

    def __init__(self, server: Server, ledgers: Ledgers, chance: random.Random) -> None:
        self._server = server
        self._ledgers = ledgers
        self._chance = chance
        self._count = 0
        self._there: list[str] = []

    def act(self) -> None:
        """One action, chosen at random."""
        with RawConnection(self._server.address, client_id="administrator") as connection:
            if len(self._there) < 3:
                self._create(connection)
            else:
                self._chance.choice((self._create, self._delete, self._delete, self._configure, self._erase, self._groups))(connection)

    def finish(self) -> None:
        """Delete the topics that remain."""
        with RawConnection(self._server.address, client_id="administrator") as connection:
            while self._there:
                self._delete(connection)

    def _create(self, connection: RawConnection) -> None:
        """Create a topic, add partitions, produce some records and fetch them."""
        if len(self._there) > 8:
            return
        self._count += 1
        name = f"passing-{self._count}"
        topics = CreateTopicsRequest.CreatableTopic
        wanted = topics(name=name, num_partitions=2, replication_factor=1, assignments=[],
                        configs=[topics.CreatableTopicConfig(name="file.delete.delay.ms", value="1000")])
        (created,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 5).topics
        assert created.error_code == 0, created
        self._there.append(name)
        more = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None)
        (grown,) = connection.call(CreatePartitionsRequest(topics=[more], timeout_ms=30_000, validate_only=False), 2).results
        assert grown.error_code == 0, grown
        until(lambda: leaders(connection, name) == 3, f"the partitions of {name} have leaders")
        # With current timestamps: retention runs all the time and would delete older records before they are read.
        records = numbered(self._chance.randint(1, 50), size=200, base_timestamp=time.time_ns() // 1_000_000)
        answer = produce(connection, name, batch(records, codec=self._chance.randrange(5)))
        assert answer.error_code == 0, answer
        found = fetch(connection, name, 0)
        assert [record.value for record in found.records] == [record.value for record in records], found
        self._ledgers.counts.add("topics created")

    def _delete(self, connection: RawConnection) -> None:
        name = self._there.pop(self._chance.randrange(len(self._there)))
        topics = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(topics=[topics(name=name)], topic_names=[name], timeout_ms=30_000)
        (deleted,) = connection.call(request, 6).responses
        assert deleted.error_code == 0, deleted
        answer = produce(connection, name, batch(numbered(1)))
        assert answer.error_code == UNKNOWN_TOPIC, answer
        self._ledgers.counts.add("topics deleted")

    def _configure(self, connection: RawConnection) -> None:
        name, value = self._chance.choice(self._there), str(self._chance.randrange(10**9, 10**10))
        resources = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resources.AlterableConfig(name="retention.ms", config_operation=0, value=value)
        request = IncrementalAlterConfigsRequest(
            resources=[resources(resource_type=TOPIC, resource_name=name, configs=[config])], validate_only=False)
        (altered,) = connection.call(request, 1).responses
        assert altered.error_code == 0, altered
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"])
        (answer,) = connection.call(DescribeConfigsRequest(resources=[resource]), 1).results
        assert [entry.value for entry in answer.configs] == [value], answer
        self._ledgers.counts.add("configurations changed")

    def _erase(self, connection: RawConnection) -> None:
        """Delete records that the reader has read."""
        partitions = next(topic.partitions for topic in TOPICS if topic.name == ERASED)
        number = self._chance.randrange(partitions)
        ledger = self._ledgers.partitions[ERASED, number]
        start = log_start(self._server.address, ERASED, number)
        if start < ledger.position:
            delete_records(self._server, ERASED, self._chance.randint(start, ledger.position), number)
            self._ledgers.counts.add("times that records were deleted")

    def _groups(self, connection: RawConnection) -> None:
        """List and describe all groups, and try to delete one of the short-lived ones."""
        listed = [group.group_id for group in connection.call(ListGroupsRequest(), 3).groups]
        described: Any = connection.call(DescribeGroupsRequest(groups=listed), 4).groups
        assert {group.error_code for group in described} <= {0}, described
        visitors = [name for name in listed if name.startswith("visitor-")]
        if visitors:
            (answer,) = connection.call(DeleteGroupsRequest(groups_names=[self._chance.choice(visitors)]), 2).results
            assert answer.error_code in (0, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND), answer
        self._ledgers.counts.add("times that groups were described")
