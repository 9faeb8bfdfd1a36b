"""Errors of partitions, of topics and of requests: which part of a request fails, and that the broker handles the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.support.waiting import until
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_machine import ClientSettings
from txbroker.errors import ErrorCode
from txbroker.testing import Kafka, KitError, Namespace, Record
from txbroker.testing.error_scopes import scopes_of
from txbroker.wire import records
from txbroker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from txbroker.wire.messages.create_topics import CreateTopicsResponse
from txbroker.wire.messages.fetch import FetchResponse
from txbroker.wire.messages.join_group import JoinGroupResponse
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from txbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.schema import Response

NONE = ErrorCode.NONE
NAMES_VERSION = 12  # the last one of Produce with names of topics


@pytest.mark.parametrize(("response", "scopes"), [
    (ProduceResponse, {"partition"}),
    (FetchResponse, {"partition", "request"}),
    (MetadataResponse, {"partition", "topic", "request"}),
    (CreateTopicsResponse, {"topic"}),
    (JoinGroupResponse, {"request"}),
    (OffsetFetchResponse, {"partition", "request"}),
    (AddPartitionsToTxnResponse, {"partition", "request"}),
])  # fmt: skip
def test_the_scopes_of_answers(response: type[Response], scopes: set[str]) -> None:
    assert scopes_of(response) == scopes


@pytest.fixture
def client(kafka: Kafka, names: Namespace) -> Iterator[BlockingConnection]:
    """A client whose requests are exactly those of the test."""
    connection = BlockingConnection("127.0.0.1", kafka.port, ClientSettings(client_id=names.client_id()))
    yield connection
    connection.close()


def produced(client: BlockingConnection, *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
    """Produce a record to each in one request; their error codes."""
    batch = records.build([records.Record(0, 1, None, b"value", ())], base_offset=0)
    topics = {topic: [number for name, number in partitions if name == topic] for topic, _ in partitions}
    data = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=number, records=batch) for number in numbers])
        for topic, numbers in topics.items()
    ]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    answer: ProduceResponse = client.call(request, version_max=NAMES_VERSION)
    return {(topic.name, each.index): each.error_code for topic in answer.responses for each in topic.partition_responses}


@pytest.mark.process
def test_an_error_of_one_partition(kafka: Kafka, names: Namespace, client: BlockingConnection) -> None:
    topic, other = names.topic("a", partitions=3), names.topic("b")
    rule = kafka.when("Produce", topic=topic, partition=1).error("NOT_LEADER_OR_FOLLOWER")
    expected = {(topic, 0): NONE, (topic, 1): ErrorCode.NOT_LEADER_OR_FOLLOWER, (topic, 2): NONE, (other, 0): NONE}
    assert produced(client, *expected) == expected
    assert sorted(record.partition or 0 for record in kafka.records(topic)) == [0, 2] and len(kafka.records(other)) == 1
    (entry,) = kafka.journal.where(api="Produce", topic=topic)
    assert (entry.errors, entry.rule, rule.hits) == (("NOT_LEADER_OR_FOLLOWER",), rule.number, 1)
    assert set(entry.partitions) == {f"{name}-{number}" for name, number in expected}


@pytest.mark.process
def test_an_error_of_one_topic_of_a_request(kafka: Kafka, names: Namespace, client: BlockingConnection) -> None:
    topic, other = names.topic("a", partitions=2), names.topic("b")
    kafka.when("Produce", topic=topic).error("MESSAGE_TOO_LARGE")
    expected = {(topic, 0): ErrorCode.MESSAGE_TOO_LARGE, (topic, 1): ErrorCode.MESSAGE_TOO_LARGE, (other, 0): NONE}
    assert produced(client, *expected) == expected
    assert kafka.records(topic) == [] and len(kafka.records(other)) == 1


@pytest.mark.process
def test_a_consumer_reads_on_in_the_other_partition(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic(partitions=2)
    kafka.produce(topic, b"none yet", b"none yet")  # to partition 0
    with KafkaConsumer(**kafka.client_config("kafka-python", names.group()), client_id=names.client_id(), retry_backoff_ms=10) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        failed = kafka.when("Fetch", topic=topic, partition=0).always().error("NOT_LEADER_OR_FOLLOWER")
        until(lambda: consumer.poll(50) or failed.hits, "partition 0 has failed")
        kafka.produce(topic, Record("read", partition=1))
        found: list[bytes] = []

        def polled() -> list[bytes]:
            for some in consumer.poll(50).values():
                found.extend(record.value for record in some)
            return found

        until(polled, "partition 1 is read")
        assert found == [b"read"]
        failed.remove()
        until(lambda: len(polled()) == 3, "partition 0 is read, too")


@pytest.mark.process
def test_a_commit_that_fails_for_one_partition(kafka: Kafka, names: Namespace, client: BlockingConnection) -> None:
    topic, group = names.topic(partitions=2), names.group()
    kafka.when("OffsetCommit", group=group, topic=topic, partition=0).error("OFFSET_METADATA_TOO_LARGE")
    partitions = [OffsetCommitRequestPartition(partition_index=number, committed_offset=5, committed_metadata="") for number in (0, 1)]
    commit = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])
    kafka.delete_group(group)  # which waits for its coordinator
    answer: OffsetCommitResponse = client.call(commit, version_max=9)
    codes = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
    assert codes == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: NONE}
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = client.call(fetch, version_max=9).groups
    assert [(each.partition_index, each.committed_offset) for each in found.topics[0].partitions] == [(1, 5)]
    with kafka.when("OffsetFetch", group=group).error("COORDINATOR_LOAD_IN_PROGRESS", at="request"):
        (found,) = client.call(fetch, version_max=9).groups
    assert (found.error_code, found.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


@pytest.mark.process
def test_the_scopes_of_metadata(kafka: Kafka, names: Namespace, client: BlockingConnection) -> None:
    topic = names.topic(partitions=2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def metadata(version_max: int = 13) -> MetadataResponse:
        answer: MetadataResponse = client.call(request, version_max=version_max)
        assert len(answer.brokers) == 1
        return answer

    with kafka.when("Metadata", topic=topic).error("LEADER_NOT_AVAILABLE"):
        (found,) = metadata().topics
        assert (found.error_code, found.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    with kafka.when("Metadata", topic=topic, partition=1).error("LEADER_NOT_AVAILABLE"):
        (found,) = metadata().topics
        assert found.error_code == NONE
        leaders = {each.partition_index: (each.error_code, each.leader_id) for each in found.partitions}
        assert leaders == {0: (NONE, 0), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1)}
    with kafka.when("Metadata", topic=topic).error("REBOOTSTRAP_REQUIRED", at="request"):
        answer = metadata()
        assert (answer.error_code, answer.topics[0].error_code) == (ErrorCode.REBOOTSTRAP_REQUIRED, NONE)
    rule = kafka.when("Metadata", topic=topic).optional().error("REBOOTSTRAP_REQUIRED", at="request")
    assert metadata(version_max=12).error_code == NONE and rule.hits == 0, "version 12 has no such error code"


@pytest.mark.process
def test_a_scope_that_the_answer_does_not_have(kafka: Kafka) -> None:
    with pytest.raises(KitError, match="an answer to Produce has no error of a request: use at='partition'"):
        kafka.when("Produce").error("NOT_LEADER_OR_FOLLOWER", at="request")
    with pytest.raises(KitError, match="the scope of a rule is 'group'; it must be one of partition, topic, request"):
        kafka.when("OffsetFetch").error("NOT_COORDINATOR", at="group")  # type: ignore[arg-type]
