"""Answers of one partition that are filled in: the bytes are those that the encoder makes of the message, in every version."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from txbroker.api.encoded.fetch_response import FetchAnswers
from txbroker.api.encoded.produce_response import ProduceAnswers, success
from txbroker.api.fetch_sessions import FetchItem
from txbroker.log.log_results import Appended
from txbroker.wire.codec import encode_bytes
from txbroker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    PartitionData,
)
from txbroker.wire.messages.produce import ProduceResponse, TopicProduceData, TopicProduceResponse

IDS = [bytes(16), bytes(range(16))]
int64 = st.integers(-(2**63), 2**63 - 1)
offsets = st.integers(0, 2**40)
topics = st.sampled_from(["t", "orders.of.today"])
ids = st.sampled_from(IDS)
indexes = st.integers(0, 3)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 13), topics, ids, indexes, int64, int64, int64), max_size=6))
def test_produce(asked: list[tuple[int, str, bytes, int, int, int, int]]) -> None:
    answers = ProduceAnswers()
    for version, name, topic_id, index, first, time, start in asked:
        asked_for = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        body = answers.body(version, asked_for, index, Appended(first, first, time, start))
        topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[success(index, first, time, start)])
        assert body == (encode_bytes(ProduceResponse(responses=[topic]), version) if version >= 5 else None)


def item(name: str, topic_id: bytes, index: int) -> FetchItem:
    return FetchItem(name, topic_id, FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1))


def data(
    index: int, records: bytes | None, aborted: list[AbortedTransaction] | None, numbers: tuple[int, int, int], **more: Any
) -> PartitionData:
    high_watermark, stable, start = numbers
    return PartitionData(**{"partition_index": index, "error_code": 0, "high_watermark": high_watermark, "last_stable_offset": stable,
                            "log_start_offset": start, "aborted_transactions": aborted, "records": records, **more})


@settings(max_examples=200)
@given(st.lists(st.tuples(
    st.integers(4, 18), st.sampled_from([0, 77]), topics, ids, indexes, st.sampled_from([None, []]),
    st.integers(0, 300).map(lambda size: b"r" * size), st.tuples(int64, int64, int64),
), max_size=6))
def test_fetch(asked: list[tuple[int, int, str, bytes, int, Any, bytes, tuple[int, int, int]]]) -> None:
    answers = FetchAnswers()
    for version, session_id, name, topic_id, index, aborted, records, numbers in asked:
        if version < 7:
            session_id = 0
        partition = data(index, records, aborted, numbers)
        parts = answers.parts(version, session_id, item(name, topic_id, index), partition)
        topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[partition])
        expected = encode_bytes(FetchResponse(session_id=session_id, responses=[topic]), version) if version >= 7 else None
        assert (None if parts is None else b"".join(parts)) == expected


def test_what_is_more_than_offsets_and_records_is_left_to_the_encoder() -> None:
    answers, numbers = FetchAnswers(), (5, 5, 0)
    assert answers.parts(17, 0, item("t", IDS[1], 0), data(0, b"", None, numbers)) is not None
    for special in (
        data(0, b"", [AbortedTransaction(producer_id=1, first_offset=2)], numbers),
        data(0, b"", None, numbers, error_code=1),
        data(0, None, None, numbers),
        data(0, b"", None, numbers, diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
    ):
        assert answers.parts(17, 0, item("t", IDS[1], 0), special) is None
