"""Produce requests that are received together get the responses, and leave the log, as if each was received alone."""

from __future__ import annotations

import random
import struct

import pytest

from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker
from txbroker.wire.codec import encode_bytes
from txbroker.wire.compression import Codec
from txbroker.wire.headers import request_prefix
from txbroker.wire.joined_requests import FRAME_MAX, JOINED_MAX
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.records import Record, build


def _batch(chance: random.Random) -> bytes:
    kind = chance.randrange(12)
    value = chance.randbytes(chance.choice((20, 20, 20, 100, FRAME_MAX)))
    codec = Codec.ZSTD if kind == 1 else Codec.NONE
    made = [Record(offset, 1_700_000_000_000, b"k", value) for offset in range(chance.choice((1, 1, 3)))]
    if kind == 5:  # a transactional batch whose producer id is not one
        return build(made, producer_id=chance.choice((-1, -2)), transactional=True)
    if kind == 2:
        sequence, transactional = chance.randrange(3), chance.random() < 0.3
        return build(made, producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=transactional)
    records = bytearray(build(made, codec=codec))
    if kind == 3:
        records[-1] ^= 1
    if kind == 4:
        del records[chance.randrange(70) :]
    return bytes(records)


def _requests(chance: random.Random, count: int) -> list[bytes]:
    """Requests of one client, most of them alike."""
    made = []
    version = chance.choice((3, 5, 8, 9, 12, 13))
    for number in range(count):
        topic = chance.choice([0] * 12 + [1])
        acks = chance.choice([1] * 8 + [-1, -1])
        partition = chance.choice([0] * 12 + [1, 9])
        data = PartitionProduceData(index=partition, records=_batch(chance))
        names = TopicProduceData(name=frames.TOPICS[topic], topic_id=frames.TOPIC_IDS[topic], partition_data=[data])
        body = encode_bytes(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[names]), version)
        made.append(request_prefix(ProduceRequest, version, number, "tests", len(body)) + body)
    return made


def _answers(broker: InProcessBroker, requests: list[bytes], together: int) -> tuple[list[bytes], int]:
    """The responses to requests that are received `together` at a time, and how many were handled with one before them."""
    connection, transport = broker._connect()
    output = b""
    joined = 0
    for at in range(0, len(requests), together):
        received = b"".join(requests[at : at + together])
        position = 0
        while position < len(received):
            end = position + 4 + struct.unpack_from(">i", received, position)[0]
            buffer = memoryview(bytearray(received[position:]))
            taken_end = position + connection.frame_received(buffer[4 : end - position], buffer)
            buffer[:] = b"\xee" * len(buffer)  # the receive buffer is used again
            count = 0
            while position < taken_end:
                position += 4 + struct.unpack_from(">i", received, position)[0]
                count += 1
            assert position == taken_end and 0 < count <= JOINED_MAX
            joined += count - 1
        broker.reactor.advance(0)
        output += b"".join(bytes(part) for part in connection.take_output())  # type: ignore[arg-type]
    assert not connection.in_flight and not transport.closed
    found = []
    while output:
        end = 4 + struct.unpack_from(">i", output)[0]
        found.append(output[4:end])
        output = output[end:]
    return found, joined


@pytest.mark.parametrize("overrides", [[], ["log.message.timestamp.type=LogAppendTime"], ["compression.type=uncompressed"]], ids=str)
def test_joined_requests_are_answered_as_single_ones(overrides: list[str]) -> None:
    one, other = InProcessBroker(overrides=overrides), InProcessBroker(overrides=overrides)
    try:
        joined = 0
        for seed in range(150):
            requests = _requests(random.Random(seed), 40)
            together, more = _answers(one, requests, 3 + seed % 20)
            alone, none = _answers(other, requests, 1)
            assert together == alone, f"seed {seed}"
            assert len(alone) == len(requests) and not none
            joined += more
        assert joined > 500
    finally:
        one.close()
        other.close()


def test_a_topic_without_partitions_before_another_one() -> None:
    """The request is remembered: it has one partition with records, though not in its first topic."""
    broker = InProcessBroker()
    try:
        data = PartitionProduceData(index=0, records=build([Record(0, 1_700_000_000_000, b"k", b"v")]))
        topics = [TopicProduceData(name=frames.TOPICS[0], partition_data=[]),
                  TopicProduceData(name=frames.TOPICS[1], partition_data=[data])]  # fmt: skip
        body = encode_bytes(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
        request = request_prefix(ProduceRequest, 9, 7, "tests", len(body)) + body
        answers, joined = _answers(broker, [request] * 4, 4)
        assert len(answers) == 4 and not joined
    finally:
        broker.close()
