"""Response templates: their frames are equal to those of the encoder, in every version."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.responses import frame
from txbroker.api.encoded.encoded_response import EncodedResponse, SharedResponse
from txbroker.api.encoded.fetch_response import FetchResponses
from txbroker.api.encoded.produce_response import PARTITIONS_MAX, ProduceResponses, success
from txbroker.log.log_results import Appended
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import response_header_version, response_prefix
from txbroker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from txbroker.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse
from txbroker.wire.schema import Request, Response

IDS = [bytes(16), bytes(range(16))]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.sampled_from(["t", "orders.of.today", "\u00f6" * 3, "x" * 126, "x" * 127, "y" * 249])
ids = st.sampled_from(IDS)
offsets = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 1))
indexes = st.integers(0, 3)
SHARED = ProduceResponses()  # its templates are made once


def encoded(request: type[Request], version: int, correlation_id: int, response: Response) -> bytes:
    body = encode_bytes(response, version)
    return response_prefix(response_header_version(request, version), len(body), correlation_id) + body


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 13), int32, topics, ids, indexes, offsets, int64, int64), max_size=6))
def test_produce(requested: list[tuple[int, int, str, bytes, int, int, int, int]]) -> None:
    responses = ProduceResponses()
    for version, correlation_id, name, topic_id, index, first, time, start in requested:
        data = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        made = responses.encoded(version, correlation_id, data, index, Appended(first, first, time, start))
        if version < 5 or first < 0:  # -1: a duplicate that needs an error code
            assert made is None
            continue
        assert made is not None
        topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[success(index, first, time, start)])
        assert frame(made) == encoded(ProduceRequest, version, correlation_id, ProduceResponse(responses=[topic]))


@given(st.integers(0, 13), topics, ids, st.lists(st.tuples(indexes, offsets, int64, int64), min_size=2, max_size=PARTITIONS_MAX + 2))
def test_produce_to_several_partitions(version: int, name: str, topic_id: bytes, results: list[tuple[int, int, int, int]]) -> None:
    data = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
    appended = [(index, Appended(first, first, time, start)) for index, first, time, start in results]
    made = SHARED.encoded_partitions(version, 7, data, appended)
    if version < 5 or len(results) > PARTITIONS_MAX or any(first < 0 for _, first, _, _ in results):
        assert made is None
        return
    assert made is not None
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[success(*result) for result in results])
    assert frame(made) == encoded(ProduceRequest, version, 7, ProduceResponse(responses=[topic]))


@settings(max_examples=300)
@given(st.lists(st.tuples(
    st.integers(4, 18), st.tuples(int32, int32), topics, ids, indexes, st.booleans(),
    st.one_of(st.integers(0, 300), st.integers(16_380, 16_390)), st.tuples(int64, int64, int64),
), max_size=6))
def test_fetch(requested: list[tuple[int, tuple[int, int], str, bytes, int, bool, int, tuple[int, int, int]]]) -> None:
    responses = FetchResponses()
    for version, (correlation_id, session_id), name, topic_id, index, committed, size, numbers in requested:
        records = b"r" * size
        made = responses.encoded(version, correlation_id, session_id, name, topic_id, index, *numbers, records, committed=committed)
        if version < 7:
            assert made is None
            continue
        assert made is not None
        high_watermark, stable, start = numbers
        partition = PartitionData(partition_index=index, error_code=0, high_watermark=high_watermark, last_stable_offset=stable,
                                  log_start_offset=start, aborted_transactions=[] if committed else None, records=records)
        topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[partition])
        expected = encoded(FetchRequest, version, correlation_id, FetchResponse(session_id=session_id, responses=[topic]))
        assert frame(made) == expected
        other = SharedResponse(made).for_request(77)
        assert len(other.parts) == 1
        assert frame(other) == expected[:4] + (77).to_bytes(4, "big") + expected[8:]
        assert made.records_bytes == other.records_bytes == size


def test_memory_does_not_grow_with_partitions() -> None:
    responses = ProduceResponses()
    data = TopicProduceData(name="t", topic_id=IDS[1], partition_data=[])
    made: list[Any] = [responses.encoded(13, 1, data, index, Appended(0, 0, -1, 0)) for index in range(1000)]
    assert all(isinstance(one, EncodedResponse) for one in made)
    assert len(responses._templates) == 1
