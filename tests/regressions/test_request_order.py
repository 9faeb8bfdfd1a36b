"""Requests that a client sends together on one connection take effect one after the other, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from tests.support.broker import BrokerProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, find_coordinator
from tests.support.raw_log import EARLIEST, batch, fetch_request, list_offset, produce, produce_request
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

Start = Callable[[dict[str, str]], Server]


def commit_request(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    topics = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topics.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="",
                               topics=[topics(name=topic, partitions=[partition])])


def committed_request(group: str, topic: str) -> OffsetFetchRequest:
    topics = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(group_id=group, topics=[topics(name=topic, partition_indexes=[0])])


def test_a_fetch_of_offsets_sees_the_commit_before_it(start_broker: Start, name: str) -> None:
    """With a sync after each record, a commit takes as long as the sync."""
    server = start_broker({"log.flush.interval.messages": "1"})
    create_topic(server, name)
    find_coordinator(server, name)
    with RawConnection(server.address) as connection:
        # Apache Kafka's coordinator may load its partition until now.
        until(lambda: connection.call(commit_request(name, name, 0), 7).topics[0].partitions[0].error_code == 0, "a commit is accepted")
        for offset in range(1, 30):
            commit, committed = commit_request(name, name, offset), committed_request(name, name)
            connection.send(commit, 7)
            connection.send(committed, 5)
            assert connection.receive(commit).topics[0].partitions[0].error_code == 0
            assert connection.receive(committed).topics[0].partitions[0].committed_offset == offset


def test_a_request_after_a_fetch_waits_for_its_response(broker: Server, name: str) -> None:
    deleted = f"{name}-deleted"
    create_topic(broker, name)
    create_topic(broker, deleted)
    topics = DeleteRecordsRequest.DeleteRecordsTopic
    partition = topics.DeleteRecordsPartition(partition_index=0, offset=2)
    delete = DeleteRecordsRequest(topics=[topics(name=deleted, partitions=[partition])], timeout_ms=30_000)
    fetch = fetch_request(name, 0, bytes_min=1, wait_ms=30_000)
    with RawConnection(broker.address) as connection, RawConnection(broker.address) as other:
        produce(other, deleted, batch(numbered(5)))
        connection.send(fetch, 11)
        connection.send(delete, 1)
        for _ in range(20):
            assert list_offset(other, deleted, EARLIEST).offset == 0, "the fetch before it still waits"
        produce(other, name, batch(numbered(1)))
        assert connection.receive(fetch).responses[0].partitions[0].records
        assert connection.receive(delete).topics[0].partitions[0].error_code == 0
        assert list_offset(other, deleted, EARLIEST).offset == 2


def test_a_produce_overlaps_with_the_fetch_before_it(broker: Server, name: str) -> None:
    """In Kafka this Produce would wait until the fetch's max.wait.ms is over."""
    if broker.kind != BrokerProcess.kind:
        pytest.skip("Kafka handles one request of a connection at a time")
    create_topic(broker, name)
    requests: list[Any] = [fetch_request(name, 0, bytes_min=1, wait_ms=30_000), produce_request(name, batch(numbered(3)))]
    with RawConnection(broker.address) as connection:
        connection.send(requests[0], 11)
        connection.send(requests[1], 8)
        assert connection.receive(requests[0]).responses[0].partitions[0].records
        assert connection.receive(requests[1]).responses[0].partition_responses[0].error_code == 0


ROUNDS = 20


def test_the_end_of_a_connection_leaves_the_responses_before_it(start_broker: Start, name: str) -> None:
    """A failed produce with acks=0 ends its connection. With a sync after each record the append before it still waits then; a client that
    misses its response sends the records again."""
    server = start_broker({"log.flush.interval.messages": "1", "auto.create.topics.enable": "false"})
    create_topic(server, name)
    for number in range(ROUNDS):
        appended, refused, after = (
            produce_request(name, batch(numbered(1))),
            produce_request(f"{name}-unknown", batch(numbered(1)), acks=0),
            produce_request(name, batch(numbered(1))),
        )
        with RawConnection(server.address) as connection:
            connection.send(appended, 8)
            connection.send(refused, 8)
            connection.send(after, 8)
            (partition,) = connection.receive(appended).responses[0].partition_responses
            assert (partition.error_code, partition.base_offset) == (0, number), "nothing after the failed request is appended"
            assert connection.is_ended()


def test_a_client_that_sends_no_more_gets_its_responses(start_broker: Start, name: str) -> None:
    server = start_broker({"log.flush.interval.messages": "1"})
    create_topic(server, name)
    for number in range(ROUNDS):
        requests = [produce_request(name, batch(numbered(1))) for _ in range(3)]
        with RawConnection(server.address) as connection:
            for request in requests:
                connection.send(request, 8)
            connection.end_input()
            for place, request in enumerate(requests):
                (partition,) = connection.receive(request).responses[0].partition_responses
                assert (partition.error_code, partition.base_offset) == (0, number * len(requests) + place)
            assert connection.is_ended()
