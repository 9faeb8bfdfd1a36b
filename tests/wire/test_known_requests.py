"""Requests recognised by comparison: for any requests in any order the message is equal to the decoded one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txbroker.api.request_context import ANONYMOUS
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import read_client_id, request_header_version, request_prefix
from txbroker.wire.known_requests import BYTES_MAX, KnownRequest, KnownRequests, owner_prefix
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSIONS = st.sampled_from([3, 7, 8, 9, 12, 13])
IDS = [bytes([n]) * 16 for n in range(2)]


def request(topic: int, index: int, records: bytes | None, acks: int = 1, timeout_ms: int = 1000) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    topics = [TopicProduceData(name=f"t{topic}", topic_id=IDS[topic], partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def frame(message: ProduceRequest, version: int, client_id: str | None = "c", correlation_id: int = 1) -> bytearray:
    body = encode_bytes(message, version)
    return bytearray((request_prefix(ProduceRequest, version, correlation_id, client_id, len(body)) + body)[4:])


def straight(data: bytearray, version: int) -> tuple[str | None, ProduceRequest]:
    client_id, at = read_client_id(memoryview(data), request_header_version(ProduceRequest, version))
    return client_id, decode(ProduceRequest, version, memoryview(data)[at:])


def holders(message: ProduceRequest) -> list[PartitionProduceData]:
    return [data for topic in message.topic_data for data in topic.partition_data]


class Wire:
    """Frames of one connection, each decoded both ways; `pool` is that of all connections."""

    def __init__(self, version: int, pool: KnownRequests | None = None, principal: str = ANONYMOUS) -> None:
        self.version = version
        self.pool = KnownRequests() if pool is None else pool
        self.prefix = owner_prefix(principal)
        self.flexible = version >= 9
        self.positions: set[int] = set()

    def find(self, data: bytearray) -> KnownRequest | None:
        return self.pool.find(self.prefix, memoryview(data), sorted(self.positions), flexible=self.flexible)

    def take(self, data: bytearray) -> bool:
        """Whether the request was recognised."""
        client_id, expected = straight(data, self.version)
        found = self.find(data)
        if found is None:
            structs = holders(expected)
            at = self.pool.remember(self.prefix, memoryview(data), client_id, expected, structs, flexible=self.flexible)
            if at is not None:
                self.positions.add(at)
            return False
        assert found.client_id == client_id
        assert found.message == expected
        return True


RECORDS = st.one_of(st.binary(max_size=5), st.integers(100, 20_000).map(bytes))
REQUESTS = st.builds(request, st.integers(0, 1), st.integers(0, 2), RECORDS, st.sampled_from([1, -1]), st.sampled_from([1000, 2000]))


@settings(max_examples=200)
@given(VERSIONS, st.lists(st.tuples(REQUESTS, st.sampled_from(["c", "d", "long", None]), st.integers(0, 9)), max_size=12))
def test_recognised_messages_are_equal_to_decoded_ones(version: int, sent: list[tuple[ProduceRequest, str | None, int]]) -> None:
    wire = Wire(version)
    for message, client_id, correlation_id in sent:
        wire.take(frame(message, version, client_id, correlation_id))


@settings(max_examples=200)
@given(VERSIONS, st.integers(0, 400), st.integers(0, 255), st.integers(0, 3))
def test_a_corrupted_frame_is_not_recognised_as_another_message(version: int, at: int, value: int, cut: int) -> None:
    """A recognised request is equal to the decoded one, with any changed byte and any missing end."""
    wire = Wire(version)
    good = frame(request(0, 1, bytes(150)), version)
    assert not wire.take(good)
    bad = bytearray(good)
    bad[8 + at % (len(bad) - 8)] = value
    if cut:
        del bad[-cut:]
    found = wire.find(bad)
    if found is not None:
        assert (found.client_id, found.message) == straight(bad, version)


def test_the_second_request_of_a_kind_is_recognised() -> None:
    for version in (3, 9, 13):
        wire = Wire(version)
        assert [wire.take(frame(request(0, n % 2, bytes(100 + n)), version)) for n in range(6)] == [False] * 2 + [True] * 4


def test_topics_with_names_of_different_lengths_are_known() -> None:
    wire = Wire(7)
    names = ["a", "long-name", "the-longest-name-of-all"]
    taken = []
    for n in range(9):
        message = request(0, 0, bytes(n))
        message.topic_data[0].name = names[n % 3]
        taken.append(wire.take(frame(message, 7)))
    assert taken == [False] * 3 + [True] * 6


def test_connections_share_known_requests() -> None:
    pool = KnownRequests()
    first, second = Wire(13, pool), Wire(13, pool)
    assert not first.take(frame(request(0, 0, b"records"), 13))
    second.positions = first.positions
    assert second.take(frame(request(0, 0, b"other"), 13))
    assert not Wire(12, pool).take(frame(request(0, 0, b"records"), 12)), "another version is a different request"


@pytest.mark.parametrize(("one", "other"), [("User:alice", "User:bob"), ("User:a", "User:a\0\0"), ("User:a", "User:a" + "\0\0\0\r" * 3)])
def test_what_one_principal_has_sent_is_not_recognised_for_another(one: str, other: str) -> None:
    pool = KnownRequests()
    first, second = Wire(13, pool, one), Wire(13, pool, other)
    assert not first.take(frame(request(0, 0, b"records"), 13))
    second.positions = first.positions
    assert not second.take(frame(request(0, 0, b"records"), 13))
    assert first.take(frame(request(0, 0, b"other"), 13)) and second.take(frame(request(0, 0, b"other"), 13))


def test_known_requests_are_bounded_and_those_in_use_are_kept() -> None:
    wire = Wire(13, KnownRequests(100))
    in_use = frame(request(0, 0, b"records"), 13)
    assert not wire.take(in_use)
    for index in range(1, 1000):
        assert not wire.take(frame(request(0, index, b"records"), 13))
        if index % 20 == 0:
            assert wire.take(in_use)
    assert len(wire.pool) <= 100
    assert not wire.take(frame(request(0, 1, b"records"), 13)), "the least recently used request is dropped"
    long = Wire(7)
    for _ in range(2):
        assert not long.take(frame(request(0, 0, b"records"), 7, client_id="x" * BYTES_MAX))


def test_alternating_requests_stay_known_within_the_bound() -> None:
    wire = Wire(13, KnownRequests(100))
    frames = [frame(request(0, index, b"records"), 13) for index in range(50)]
    for data in frames:
        wire.take(data)
    assert all(wire.take(data) for _ in range(10) for data in frames)


def test_requests_with_null_records_are_decoded() -> None:
    wire = Wire(13)
    for _ in range(2):
        assert not wire.take(frame(request(0, 0, None), 13))
