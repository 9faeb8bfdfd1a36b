"""Quotas of changes and of connections, as Apache Kafka applies them too (`--broker=kafka`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.server import Server
from tests.support.waiting import until

THROTTLED = 89


def call(server: Server, request: Any, version: int, client_id: str = "admin") -> Any:
    """On a connection of its own, as a throttled one is not read for a while."""
    with RawConnection(server.address, client_id=client_id) as connection:
        return connection.call(request, version)


def alter(server: Server, entity: Sequence[tuple[str, str | None]], key: str, value: float) -> int:
    request = AlterClientQuotasRequest(entries=[(list(entity), [(key, value, False)])], validate_only=False)
    return int(call(server, request, 1).entries[0].error_code)


def create(server: Server, topic: str, partitions: int, version: int, client_id: str = "c") -> tuple[int, bool]:
    """The error, and whether the client has to pause."""
    creatable = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    answer = call(server, CreateTopicsRequest(topics=[creatable], timeout_ms=30_000, validate_only=False), version, client_id)
    return answer.topics[0].error_code, answer.throttle_time_ms > 0


def extend(server: Server, topic: str, partitions: int, version: int) -> tuple[int, bool]:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
    answer = call(server, CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), version, "c")
    return answer.results[0].error_code, answer.throttle_time_ms > 0


def delete(server: Server, topic: str, version: int) -> tuple[int, bool]:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    answer = call(server, request, version, "c")
    return answer.responses[0].error_code, answer.throttle_time_ms > 0


def test_changes_above_the_quota_are_refused_and_older_requests_are_only_delayed(start_broker: Callable[..., Server]) -> None:
    server = start_broker({"controller.quota.window.num": "2"})
    assert create(server, "t", 2, 7, "other") == (0, False)
    assert alter(server, [("client-id", "c")], "controller_mutation_rate", 0.01) == 0
    names = (f"t{number}" for number in count())
    until(lambda: create(server, next(names), 5, 7) == (THROTTLED, True), "the quota has an effect")
    assert create(server, "refused", 1, 6) == (THROTTLED, True)
    assert extend(server, "t", 3, 3) == (THROTTLED, True)
    assert delete(server, "t", 5) == (THROTTLED, True)
    assert create(server, "refused", 1, 5) == (0, True), "it was not created before"
    assert extend(server, "t", 3, 2) == (0, True)
    assert delete(server, "t", 4) == (0, True)
    assert create(server, "u", 1, 7, "other") == (0, False)


def test_an_address_that_connects_too_fast_gets_no_answer(start_broker: Callable[..., Server]) -> None:
    server = start_broker()
    assert alter(server, [("ip", "127.0.0.9")], "connection_creation_rate", 1) == 0
    assert alter(server, [("ip", None)], "connection_creation_rate", 1000) == 0
    for entity in ([("ip", "127.0.0.9"), ("user", "u")], [("ip", "no address")]):
        assert alter(server, entity, "connection_creation_rate", 1) == 42
    assert alter(server, [("ip", "127.0.0.9")], "connection_creation_rate", 1.5) == 42
    assert alter(server, [("ip", "127.0.0.9")], "producer_byte_rate", 1) == 42
    assert alter(server, [("user", "u")], "connection_creation_rate", 1) == 42

    def described(components: list[tuple[str, int, str | None]], strict: bool) -> list[tuple[list[tuple[str, str | None]], Any]]:
        answer = call(server, DescribeClientQuotasRequest(components=components, strict=strict), 1)
        assert answer.error_code == 0
        return [([(part.entity_type, part.entity_name) for part in entry.entity], entry.values[0].value) for entry in answer.entries]

    both = [([("ip", None)], 1000.0), ([("ip", "127.0.0.9")], 1.0)]
    until(lambda: len(described([("ip", 2, None)], True)) == 2, "the quotas are described")
    assert sorted(described([("ip", 2, None)], True), key=str) == sorted(both, key=str)
    assert sorted(described([], False), key=str) == sorted(both, key=str) and described([], True) == []
    assert described([("ip", 1, None)], True) == both[:1] and described([("ip", 0, "127.0.0.9")], True) == both[1:]
    assert described([("user", 2, None)], False) == []

    def is_silent() -> bool:
        with suppress(ConnectionEnded, ConnectionResetError), RawConnection(server.address, host="127.0.0.9") as connection:
            request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
            assert connection.call(request, 3).error_code == 0
            return False
        return True

    until(is_silent, "a connection is closed without an answer")
    assert described([], True) == [], "another address is served"
