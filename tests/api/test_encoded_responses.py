"""Response templates: their frames are equal to those of the encoder, in every version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.lone_broker import no_leaders
from tests.api.responses import frame
from tests.support.examples import examples
from txbroker.api.fetch_item import FetchItem, PartitionRead, Unusual
from txbroker.api.fetch_response import FetchResponses, partition_data
from txbroker.api.produce_response import ProduceResponses, success
from txbroker.log.log_results import AbortedTransaction, Appended, EpochEnd
from txbroker.log.region import Region
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import response_header_version, response_prefix
from txbroker.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, PartitionData
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse
from txbroker.wire.schema import Request, Response

IDS = [bytes(16), bytes(range(16))]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.sampled_from(["t", "orders.of.today", "\u00f6" * 3, "x" * 126, "x" * 127, "y" * 249])
ids = st.sampled_from(IDS)
offsets = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 1))
indexes = st.integers(0, 3)
SHARED = ProduceResponses()  # its templates are made once


def produced(requested: list[tuple[str, bytes, list[tuple[int, int, int, int]]]]) -> list[Any]:
    """The results of a request by topic and partition, as the handler has them."""
    return [
        (
            TopicProduceData(name=name, topic_id=topic_id, partition_data=[]),
            [
                (PartitionProduceData(index=index, records=None), (None, Appended(first, first, time, start)))
                for index, first, time, start in results
            ],
        )
        for name, topic_id, results in requested
    ]


def encoded(request: type[Request], version: int, correlation_id: int, response: Response) -> bytes:
    body = encode_bytes(response, version)
    return response_prefix(response_header_version(request, version), len(body), correlation_id) + body


RESULTS = st.tuples(indexes, offsets, int64, int64)
TOPICS = st.tuples(topics, ids, st.lists(RESULTS, max_size=3) | st.lists(RESULTS, min_size=62, max_size=66))


@settings(max_examples=examples(200))
@given(st.integers(0, 13), int32, st.lists(TOPICS, max_size=4))
def test_produce(version: int, correlation_id: int, requested: list[tuple[str, bytes, list[tuple[int, int, int, int]]]]) -> None:
    made = SHARED.encoded(version, correlation_id, produced(requested))
    if version < 5 or any(first < 0 for _, _, results in requested for _, first, _, _ in results):
        # A duplicate of unknown offsets needs an error code.
        assert made is None
        return
    assert made is not None
    answers = [
        TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[success(*result) for result in results])
        for name, topic_id, results in requested
    ]
    assert frame(made) == encoded(ProduceRequest, version, correlation_id, ProduceResponse(responses=answers))


def test_produce_to_many_topics() -> None:
    requested = [(f"topic-{number}", bytes([number]) * 16, [(number, number, -1, 0)]) for number in range(200)]
    for version in range(5, 14):
        made = SHARED.encoded(version, 7, produced(requested))
        assert made is not None
        answers = [TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[success(*result) for result in results])
                   for name, topic_id, results in requested]
        assert frame(made) == encoded(ProduceRequest, version, 7, ProduceResponse(responses=answers))


READS = st.tuples(topics, ids, indexes, st.one_of(st.integers(0, 300), st.integers(16_380, 16_390)), st.tuples(int64, int64, int64))


class File:
    """A log file."""

    path = "/data/t-0/00000000000000000000.log"

    def __init__(self, content: bytes) -> None:
        self.content = content

    def pread(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]

    def fileno(self) -> int:
        return -1


def fetch_responses(shared: list[Any] | None = None) -> FetchResponses:
    """Adds the keys of what may be shared to the list."""
    return FetchResponses(no_leaders(), Counter(), lambda key, read: None if shared is None else shared.append(key))


def as_encoded(version: int, session_id: int, reads: dict[FetchItem, PartitionRead]) -> FetchResponse:
    """The response, with the topics in the order of their first partitions."""
    by_topic: dict[tuple[str, bytes], list[PartitionData]] = {}
    for item, read in reads.items():
        data = partition_data(item.partition, read)
        data.records = bytes(read.size)
        by_topic.setdefault((item.topic, item.topic_id), []).append(data)
    responses = [FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=found) for (topic, topic_id), found in by_topic.items()]
    return FetchResponse(session_id=session_id, responses=responses)


@settings(max_examples=examples(300))
@given(st.integers(4, 18), int32, int32, st.booleans(), st.booleans(), st.lists(READS, max_size=6))
def test_fetch(
    version: int, correlation_id: int, session_id: int, committed: bool, in_file: bool,
    wanted: list[tuple[str, bytes, int, int, tuple[int, int, int]]],
) -> None:
    responses = fetch_responses()
    reads: dict[FetchItem, PartitionRead] = {}
    for number, (name, topic_id, index, size, numbers) in enumerate(wanted):
        # A version has either names or ids.
        topic_id = bytes(16) if version < 13 else topic_id[:15] + bytes((number % 2,))
        item = FetchItem("" if version >= 13 else name, topic_id, FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1))
        records = Region(File(bytes(size)), 0, size) if in_file else bytes(size)
        reads[item] = PartitionRead(*numbers, records, size, [] if committed else None)
    made = responses.encoded(version, correlation_id, session_id, reads)
    if version < 7:
        assert made is None
        return
    assert made is not None
    expected = encoded(FetchRequest, version, correlation_id, as_encoded(version, session_id, reads))
    assert frame(made) == expected


@pytest.mark.parametrize("version", range(7, 19))
def test_many_topics_and_partitions_are_counted_as_the_encoder_does(version: int) -> None:
    for topics_count, partitions in ((1, 200), (200, 1), (130, 130)):
        reads = {
            FetchItem(f"topic-{topic}" if version < 13 else "", topic.to_bytes(16) if version >= 13 else bytes(16),
                      FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1)): PartitionRead(1, 2, 0)
            for topic in range(1, topics_count + 1) for partition in range(partitions)
        }  # fmt: skip
        made = fetch_responses().encoded(version, 1, 2, reads)
        assert made is not None
        assert frame(made) == encoded(FetchRequest, version, 1, as_encoded(version, 2, reads))


@given(st.lists(st.tuples(st.integers(7, 18), st.booleans(), int32), min_size=2, max_size=5))
def test_a_shared_read_is_encoded_the_same_for_each_fetch(requested: list[tuple[int, bool, int]]) -> None:
    shared: list[Any] = []
    responses = fetch_responses(shared)
    read = PartitionRead(4, 5, 1, Region(File(b"records"), 0, 7), 7)
    read.shared_key = ("key",)
    for version, alone, correlation_id in requested:
        item = FetchItem("t" if version < 13 else "", bytes(16) if version < 13 else bytes(range(16)),
                         FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1))
        other = FetchItem("u" if version < 13 else "", item.topic_id[:15] + b"x" if version >= 13 else bytes(16),
                          FetchPartition(partition=8, fetch_offset=0, partition_max_bytes=1))
        reads = {item: read} if alone else {other: PartitionRead(1, 1, 1), item: read}
        made = responses.encoded(version, correlation_id, 0, reads)
        assert made is not None
        plain = [PartitionRead(4, 5, 1, b"records", 7)] if alone else [PartitionRead(1, 1, 1), PartitionRead(4, 5, 1, b"records", 7)]
        expected = fetch_responses().encoded(version, correlation_id, 0, dict(zip(reads, plain, strict=True)))
        assert expected is not None
        assert frame(made) == frame(expected)
        assert not any(isinstance(part, Region) for part in made[0])
    assert read.records == b"records", "it keeps no file open"
    assert set(shared) == {("key",)}


def test_what_is_unusual_is_not_encoded() -> None:
    responses = fetch_responses()
    item = FetchItem("t", bytes(16), FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1))
    aborted = [AbortedTransaction(1, 2, 3, 4)]
    unusual = Unusual(error_code=6), Unusual(preferred_replica=3), Unusual(diverging=EpochEnd(1, 2))
    for read in (*(PartitionRead(unusual=one) for one in unusual), PartitionRead(1, 1, 0, aborted=aborted)):
        assert responses.encoded(12, 1, 0, {item: read}) is None
