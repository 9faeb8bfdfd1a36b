"""Produce requests that repeat an earlier one get the responses that they get when they are decoded."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from tests.fuzz import frames
from tests.fuzz.inprocess import InProcessBroker
from txbroker.wire.codec import encode_bytes
from txbroker.wire.compression import Codec
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.records import Record, build


def _batch(chance: random.Random) -> bytes:
    kind = chance.randrange(12)
    value = chance.randbytes(chance.choice((20, 20, 20, 100, 4096)))
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


def _requests(chance: random.Random, count: int, client_id: Callable[[int], str]) -> list[bytes]:
    """Requests, most of them alike but for the client id."""
    made = []
    version = chance.choice((3, 5, 8, 9, 12, 13))
    for number in range(count):
        topic = chance.choice([0] * 12 + [1])
        acks = chance.choice([1] * 8 + [-1, -1])
        partition = chance.choice([0] * 12 + [1, 9])
        data = PartitionProduceData(index=partition, records=_batch(chance))
        names = TopicProduceData(name=frames.TOPICS[topic], topic_id=frames.TOPIC_IDS[topic], partition_data=[data])
        body = encode_bytes(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[names]), version)
        made.append(request_prefix(ProduceRequest, version, number, client_id(number), len(body)) + body)
    return made


def _answers(broker: InProcessBroker, requests: list[bytes]) -> list[bytes]:
    """The responses to requests that one connection receives."""
    connection, transport = broker._connect()
    output = b""
    for request in requests:
        buffer = memoryview(bytearray(request[4:]))
        assert connection.frame_received(buffer)
        buffer[:] = b"\xee" * len(buffer)  # the receive buffer is used again
        broker.reactor.advance(0)
        output += b"".join(bytes(part) for part in connection.take_output())  # type: ignore[arg-type]
    assert not connection.in_flight and not transport.closed
    found = []
    while output:
        end = 4 + struct.unpack_from(">i", output)[0]
        found.append(output[4:end])
        output = output[end:]
    return found


def _kept(broker: InProcessBroker) -> int:
    """How many requests the broker remembers: those that it has decoded."""
    return len(broker._connect()[0]._registry.known_requests)


@pytest.mark.parametrize("overrides", [[], ["log.message.timestamp.type=LogAppendTime"], ["compression.type=uncompressed"]], ids=str)
def test_recognised_requests_are_answered_as_decoded_ones(overrides: list[str]) -> None:
    one, other = InProcessBroker(overrides=overrides), InProcessBroker(overrides=overrides)
    try:
        for seed in range(60):
            recognised = _answers(one, _requests(random.Random(seed), 40, lambda number: "tests"))
            decoded = _answers(other, _requests(random.Random(seed), 40, lambda number, seed=seed: f"tests-{seed}-{number}"))
            assert recognised == decoded, f"seed {seed}"
            assert len(recognised) == 40
        assert _kept(one) < 100 < 2000 < _kept(other)
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
        answers = _answers(broker, [request] * 4)
        assert len(answers) == 4 and len({answer[:-40] for answer in answers}) == 1
    finally:
        broker.close()
