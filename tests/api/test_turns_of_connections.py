"""Produce requests that several connections send in one turn: their order, and how many may be in flight."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Mapping, Sequence

from tests.api.responses import joined
from tests.fuzz.inprocess import InProcessBroker
from txbroker.connection.protocol import Connection
from txbroker.connection.response_order import IN_FLIGHT_MAX
from txbroker.wire.batch import read_header
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.records import Record, build, read_records
from txbroker.wire.schema import Request

VERSION = 13
CONNECTIONS = 6


class Topics:
    """Two brokers' topics have different ids."""

    def __init__(self, broker: InProcessBroker) -> None:
        configs = {"plain": {}, "synced": {"flush.messages": "2"}}
        made = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[],
                           configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()])
            for name, config in configs.items()
        ]  # fmt: skip
        (created,) = broker.exchange([broker.frame(CreateTopicsRequest(topics=made, timeout_ms=5000), 7)])
        self.ids = [topic.topic_id for topic in created.topics]
        assert not any(topic.error_code for topic in created.topics)


def _whole(message: Request, version: int, number: int) -> bytes:
    body = encode_bytes(message, version)
    return request_prefix(type(message), version, number, "tests", len(body)) + body


def produce(topic_id: bytes, partition: int, records: bytes, number: int, acks: int = 1) -> bytes:
    data = PartitionProduceData(index=partition, records=records)
    topics = [TopicProduceData(topic_id=topic_id, partition_data=[data])]
    return _whole(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), VERSION, number)


class Clients:
    """Connections to one broker, what they have received and not handled yet, and their output."""

    def __init__(self, broker: InProcessBroker, count: int) -> None:
        self.broker = broker
        self.connections: list[Connection] = [broker._connect()[0] for _ in range(count)]
        self.waiting: list[deque[bytes]] = [deque() for _ in range(count)]
        self.output = [b""] * count
        self.most_in_flight = 0

    def turn(self, received: Mapping[int, Sequence[bytes]]) -> None:
        """Each connection receives some requests."""
        for number, requests in received.items():
            self.waiting[number].extend(requests)
            self._serve(number)
        for _ in range(20):
            self.broker.reactor.advance(0.001)
            for number in range(len(self.connections)):
                self._serve(number)
        assert not any(self.waiting)

    def begin(self, request: bytes) -> None:
        """Send a first request on each connection."""
        self.turn({number: [request] for number in range(len(self.connections))})
        self.output = [b""] * len(self.connections)

    def _serve(self, number: int) -> None:
        connection, waiting = self.connections[number], self.waiting[number]
        while waiting and not connection.full:
            buffer = memoryview(bytearray(waiting[0][4:]))
            if connection.frame_received(buffer):
                waiting.popleft()
            buffer[:] = b"\xee" * len(buffer)  # the receive buffer is used again
            self.most_in_flight = max(self.most_in_flight, connection.in_flight)
        self.output[number] += joined(connection.take_output())


def test_each_connection_keeps_its_order_in_each_partition() -> None:
    """Connections write to four partitions in turn, with acks and versions, and so names of the topic, that change between."""
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, CONNECTIONS)
        chance = random.Random(11)
        sent = 0
        for turn in range(60):
            received: dict[int, list[bytes]] = {}
            for number in range(CONNECTIONS):
                received[number] = []
                for _ in range(chance.choice((1, 4, 12))):
                    sent += 1
                    records = build([Record(0, 1_700_000_000_000, bytes([number]), struct.pack(">i", sent))])
                    topic, partition = chance.randrange(2), chance.randrange(2)
                    version, acks = (13, 1) if turn % 3 else (chance.choice((9, 12, 13)), chance.choice((1, -1)))
                    received[number].append(_named(topics, topic, partition, records, sent, version, acks))
            clients.turn(received)
            for number, requests in received.items():
                asked = [struct.unpack_from(">i", request, 8)[0] for request in requests]
                assert _correlation_ids(clients.output[number]) == asked, "the responses have the order of the requests"
            clients.output = [b""] * CONNECTIONS
        written = [_written(broker, topics.ids[topic], partition) for topic in range(2) for partition in range(2)]
        assert sum(map(len, written)) == sent
        for stored in written:
            for number in range(CONNECTIONS):
                mine = [value for key, value in stored if key == bytes([number])]
                assert len(mine) > 10 and mine == sorted(mine)
    finally:
        broker.close()


def _named(topics: Topics, topic: int, partition: int, records: bytes, number: int, version: int, acks: int) -> bytes:
    data = PartitionProduceData(index=partition, records=records)
    name = "" if version >= VERSION else ("plain", "synced")[topic]
    topic_id = topics.ids[topic] if version >= VERSION else bytes(16)
    named = TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])
    return _whole(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named]), version, number)


def _correlation_ids(output: bytes) -> list[int]:
    found = []
    while output:
        size, number = struct.unpack_from(">ii", output)
        found.append(number)
        output = output[4 + size :]
    return found


def _written(broker: InProcessBroker, topic_id: bytes, partition: int) -> list[tuple[bytes | None, int]]:
    """The key and the value of each record of a partition."""
    read = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 24)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=[FetchTopic(topic_id=topic_id, partitions=[read])])
    (response,) = broker.exchange([broker.frame(fetch, 17)])
    data = bytes(response.responses[0].partitions[0].records)
    found: list[tuple[bytes | None, int]] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        found += [(record.key, int.from_bytes(record.value or b"", "big")) for record in read_records(data, position, header, 1000)]
        position += header.size
    return found


def test_no_more_requests_are_in_flight_than_a_connection_may_have() -> None:
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, 2)
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        clients.begin(produce(topics.ids[1], 0, records, 0))
        clients.turn({0: [produce(topics.ids[1], 0, records, number) for number in range(3 * IN_FLIGHT_MAX)]})
        assert clients.most_in_flight == IN_FLIGHT_MAX
        assert _offsets(clients.output[0]) == list(range(2, 2 + 3 * IN_FLIGHT_MAX))

        clients.begin(produce(topics.ids[1], 1, records, 0))
        clients.most_in_flight = 0
        for first in range(IN_FLIGHT_MAX - 8, IN_FLIGHT_MAX + 1):
            requests = [produce(topics.ids[1], int(number >= first), records, number) for number in range(first + 40)]
            clients.turn({0: requests})
        assert clients.most_in_flight == IN_FLIGHT_MAX, "also if the requests of another partition follow"
    finally:
        broker.close()


def _offsets(output: bytes) -> list[int]:
    """The base offsets of responses, all of which are without error."""
    found = []
    while output:
        end = 4 + struct.unpack_from(">i", output)[0]
        # size, correlation id, tags, topics, topic id, partitions, index, error code
        found.append(struct.unpack_from(">q", output, 4 + 4 + 1 + 1 + 16 + 1 + 4 + 2)[0])
        output = output[end:]
    return found
