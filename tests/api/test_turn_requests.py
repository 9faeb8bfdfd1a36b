"""Produce requests that several connections send in one turn get the responses, and leave the log, as if each was received in its own."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from tests.fuzz.inprocess import InProcessBroker
from txbroker.action_queue import ActionQueue
from txbroker.connection import Connection
from txbroker.connection.response_order import IN_FLIGHT_MAX
from txbroker.connection.turn_requests import CONNECTIONS_MAX, REQUESTS_MAX, RequestGroup
from txbroker.wire.batch import read_header
from txbroker.wire.codec import encode_bytes
from txbroker.wire.compression import Codec
from txbroker.wire.headers import request_prefix
from txbroker.wire.joined_requests import FRAME_MAX
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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


def _batch(chance: random.Random) -> bytes:
    kind = chance.randrange(20)
    made = [Record(offset, 1_700_000_000_000, b"k", chance.randbytes(20)) for offset in range(chance.choice((1, 1, 1, 3)))]
    if kind == 0:
        return build(made, producer_id=5, producer_epoch=0, base_sequence=chance.randrange(3))
    if kind == 1:
        return build([Record(0, 1_700_000_000_000, b"k", bytes(FRAME_MAX))])
    records = bytearray(build(made, codec=Codec.LZ4 if kind == 2 else Codec.NONE))
    if kind == 3:
        records[-1] ^= 1
    return bytes(records)


def _requests(chance: random.Random, topics: Topics, count: int, acks: int, reads: bool) -> list[bytes]:
    """The requests of one connection. Reads wait for syncs, of which there are fewer when requests are handled together."""
    made = []
    for number in range(count):
        topic_id, partition = topics.ids[0] if reads else chance.choice(topics.ids), chance.choice((0, 0, 0, 1))
        kind = chance.randrange(30) if reads else 30
        if kind == 0:
            wanted = [ListOffsetsPartition(partition_index=partition, timestamp=-1)]
            made.append(_whole(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=wanted)]), 7, number))
        elif kind == 1:
            read = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
            fetch = FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic_id=topics.ids[0], partitions=[read])]
            )
            made.append(_whole(fetch, 17, number))
        else:
            made.append(produce(bytes(16) if kind == 2 else topic_id, partition, _batch(chance), number, acks))
    return made


class Clients:
    """Connections to one broker, what they have received and not handled yet, and their output."""

    def __init__(self, broker: InProcessBroker, count: int) -> None:
        self.broker = broker
        self.connections: list[Connection] = [broker._connect()[0] for _ in range(count)]
        self.waiting: list[deque[bytes]] = [deque() for _ in range(count)]
        self.output = [b""] * count
        self.actions: ActionQueue = self.connections[0]._turn_requests.actions
        self.most_collected = self.most_in_flight = 0

    def turn(self, received: dict[int, Sequence[bytes]], *, collects: bool) -> None:
        """Each connection receives some requests."""
        self.actions.begin_turn(collects=collects)
        for number, requests in received.items():
            self.waiting[number].extend(requests)
            self._serve(number)
        self.actions.end_reading()
        self.actions.end_turn()
        for _ in range(20):
            self.broker.reactor.advance(0.001)
            for number in range(len(self.connections)):
                self._serve(number)
        assert not any(self.waiting)

    def begin(self, request: bytes) -> None:
        """Send a first request on each connection, which is decoded; those that repeat it are recognised."""
        self.turn({number: [request] for number in range(len(self.connections))}, collects=False)
        self.output = [b""] * len(self.connections)

    def _serve(self, number: int) -> None:
        connection, waiting = self.connections[number], self.waiting[number]
        while waiting and not connection.full:
            buffer = memoryview(bytearray(b"".join(waiting)))
            taken = connection.frame_received(buffer[4 : len(waiting[0])], buffer)
            buffer[:] = b"\xee" * len(buffer)  # the receive buffer is used again
            while taken > 0:
                taken -= len(waiting.popleft())
            self.most_in_flight = max(self.most_in_flight, connection.in_flight)
        self.most_collected = max(self.most_collected, connection._turn_requests.waiting)
        parts: Any = connection.take_output()
        self.output[number] += b"".join(part if isinstance(part, (bytes, memoryview)) else part.read() for part in parts)


def _plain(output: bytes, topics: Topics) -> bytes:
    for number, topic_id in enumerate(topics.ids):
        output = output.replace(topic_id, bytes([number]) * 16)
    return output


def test_the_requests_of_a_turn_are_answered_as_single_ones() -> None:
    one, other = InProcessBroker(), InProcessBroker()
    try:
        most = 0
        topics, same = Topics(one), Topics(other)
        for seed in range(60):
            outputs = []
            for broker, ids, collects in ((one, topics, True), (other, same, False)):
                chance = random.Random(seed)
                acks = chance.choice((1, -1))
                clients = Clients(broker, CONNECTIONS)
                for _ in range(8):
                    chosen = chance.sample(range(CONNECTIONS), chance.randrange(1, CONNECTIONS))
                    clients.turn(
                        {number: _requests(chance, ids, chance.choice((1, 1, 2, 5)), acks, bool(seed % 2)) for number in chosen},
                        collects=collects,
                    )
                assert not any(connection.in_flight for connection in clients.connections)
                outputs.append([_plain(output, ids) for output in clients.output])
                most = max(most, clients.most_collected)
            assert outputs[0] == outputs[1], f"seed {seed}"
        assert most > 3
    finally:
        one.close()
        other.close()


def test_each_connection_keeps_its_order_in_each_partition() -> None:
    """Connections write to four partitions in turn, with acks and versions, and so names of the topic, that change between."""
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, CONNECTIONS)
        chance = random.Random(11)
        sent = 0
        for turn in range(60):
            received = {}
            for number in range(CONNECTIONS):
                received[number] = []
                for _ in range(chance.choice((1, 4, 12))):
                    sent += 1
                    records = build([Record(0, 1_700_000_000_000, bytes([number]), struct.pack(">i", sent))])
                    topic, partition = chance.randrange(2), chance.randrange(2)
                    version, acks = (13, 1) if turn % 3 else (chance.choice((9, 12, 13)), chance.choice((1, -1)))
                    received[number].append(_named(topics, topic, partition, records, sent, version, acks))
            clients.turn(received, collects=True)
            for number, requests in received.items():
                asked = [struct.unpack_from(">i", request, 8)[0] for request in requests]
                assert _correlation_ids(clients.output[number]) == asked, "the responses have the order of the requests"
            clients.output = [b""] * CONNECTIONS
        assert clients.most_collected == CONNECTIONS
        written = [_written(broker, topics.ids[topic], partition) for topic in range(2) for partition in range(2)]
        assert sum(map(len, written)) == sent
        for records in written:
            for number in range(CONNECTIONS):
                mine = [value for key, value in records if key == bytes([number])]
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


@pytest.mark.parametrize(("connections", "each"), [(CONNECTIONS_MAX + 3, 1), (REQUESTS_MAX // 16 + 2, 16)])
def test_what_is_collected_is_handled_when_it_is_much(connections: int, each: int) -> None:
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, connections)
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        clients.begin(produce(topics.ids[0], 0, records, 0))
        requests = [produce(topics.ids[0], 0, records, number) for number in range(each)]
        clients.turn(dict.fromkeys(range(connections), requests), collects=True)
        assert 3 < clients.most_collected < connections
        offsets = [offset for output in clients.output for offset in _offsets(output)]
        assert sorted(offsets) == list(range(connections, connections + connections * each))
    finally:
        broker.close()


def test_no_more_requests_are_in_flight_than_a_connection_may_have() -> None:
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, 2)
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        clients.begin(produce(topics.ids[1], 0, records, 0))
        clients.turn({0: [produce(topics.ids[1], 0, records, number) for number in range(3 * IN_FLIGHT_MAX)]}, collects=True)
        assert clients.most_in_flight == IN_FLIGHT_MAX
        assert _offsets(clients.output[0]) == list(range(2, 2 + 3 * IN_FLIGHT_MAX))

        clients.begin(produce(topics.ids[1], 1, records, 0))
        clients.most_in_flight = 0
        for first in range(IN_FLIGHT_MAX - 8, IN_FLIGHT_MAX + 1):
            requests = [produce(topics.ids[1], int(number >= first), records, number) for number in range(first + 40)]
            clients.turn({0: requests}, collects=True)
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


def test_no_response_follows_a_request_that_cannot_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that matches responses by their order would take it for the missing one."""
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, 2)
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        for partition in (0, 1):
            clients.begin(produce(topics.ids[0], partition, records, 0))
        put_answers, failing = Connection.put_answers, clients.connections[0]

        def failing_once(connection: Connection, group: RequestGroup, first: int, count: int, begun: float) -> None:
            if connection is failing and group.number == 0:
                raise RuntimeError("a defect")
            put_answers(connection, group, first, count, begun)

        monkeypatch.setattr(Connection, "put_answers", failing_once)
        monkeypatch.setattr("txbroker.connection.turn_requests.log.exception", lambda *args: None)
        clients.turn({n: [produce(topics.ids[0], partition, records, partition) for partition in (0, 1)] for n in (0, 1)}, collects=True)
        assert clients.output[0] == b"" and failing._closing
        assert _correlation_ids(clients.output[1]) == [0, 1]
    finally:
        broker.close()


def test_requests_that_are_handled_together_are_timed_as_often() -> None:
    counts = []
    for collects in (False, True):
        broker = InProcessBroker()
        try:
            topics = Topics(broker)
            clients = Clients(broker, CONNECTIONS)
            records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
            clients.begin(produce(topics.ids[0], 0, records, 0))
            (route,) = (each for each in clients.connections[0]._registry.routes.values() if each.name == f"Produce v{VERSION}")
            timed: list[float] = []
            route.times = SimpleNamespace(begin=lambda: 1.0, end=timed.append)
            for number in range(100):
                clients.turn({key: [produce(topics.ids[0], 0, records, number)] for key in range(CONNECTIONS)}, collects=collects)
            counts.append(len(timed))
        finally:
            broker.close()
    assert counts[0] == counts[1] > 10


def test_a_connection_that_is_lost_leaves_the_requests_of_others() -> None:
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, 3)
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        clients.begin(produce(topics.ids[0], 0, records, 0))
        clients.actions.begin_turn(collects=True)
        for connection in clients.connections:
            buffer = memoryview(bytearray(produce(topics.ids[0], 0, records, 1)))
            assert connection.frame_received(buffer[4:], buffer) == len(buffer)
            assert not connection.output_bytes
        clients.connections[1].connectionLost(Failure(ConnectionLost()))
        clients.turn({}, collects=False)
        assert [_offsets(clients.output[number]) for number in (0, 2)] == [[3], [5]]
    finally:
        broker.close()


def test_the_requests_of_a_lost_connection_do_not_wait() -> None:
    """They are appended, as they were received; their answers have nowhere to go."""
    broker = InProcessBroker()
    try:
        topics = Topics(broker)
        clients = Clients(broker, 1)
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        clients.begin(produce(topics.ids[1], 0, records, 0))
        (connection,) = clients.connections
        clients.actions.begin_turn(collects=True)
        frames = b"".join(produce(topics.ids[1], 0, records, number) for number in range(3))
        size = len(frames) // 3
        buffer = memoryview(bytearray(frames))
        while buffer:
            buffer = buffer[connection.frame_received(buffer[4:size], buffer) :]
        assert connection.collected_count == 3
        connection.connectionLost(Failure(ConnectionLost()))
        clients.actions.end_reading()
        assert all(slot.later is None or slot.later.called for slot in connection._slots)
        clients.turn({}, collects=False)
    finally:
        broker.close()
