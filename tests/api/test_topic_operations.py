"""Operations on topics in the form of configuration changes: how they are recognised, performed and answered."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from txbroker.api.topic_operations import CLEANER, COMPACT, EXPIRE, TopicOperation, TopicOperations, parse_operation
from txbroker.cluster.node_paths import ALL_BROKERS, Entity, broker_entity, topic_entity
from txbroker.config.alter import Change, Operation
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition

TOPIC = topic_entity("t")
SET = Operation.SET


@pytest.mark.parametrize(("key", "value"), [(COMPACT, "now"), (COMPACT, "roll"), (EXPIRE, "now")])
def test_operations(key: str, value: str) -> None:
    assert parse_operation(TOPIC, [Change(key, SET, value)]) == TopicOperation(key, value)


@pytest.mark.parametrize("entity", [TOPIC, ALL_BROKERS, broker_entity(1)])
def test_other_configurations_are_not_operations(entity: Entity) -> None:
    assert parse_operation(entity, [Change("retention.ms", SET, "1"), Change("txbroker.metrics.port", SET, "1")]) is None
    assert parse_operation(entity, []) is None


@pytest.mark.parametrize(
    ("entity", "changes", "code", "message"),
    [
        (TOPIC, [(COMPACT, SET, "now"), ("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST, "set it alone"),
        (TOPIC, [("retention.ms", SET, "1"), (EXPIRE, SET, "now")], ErrorCode.INVALID_REQUEST, "set it alone"),
        (TOPIC, [(COMPACT, SET, "now"), (EXPIRE, SET, "now")], ErrorCode.INVALID_REQUEST, "set it alone"),
        (TOPIC, [(COMPACT, Operation.DELETE, None)], ErrorCode.INVALID_REQUEST, "it can only be set"),
        (TOPIC, [(COMPACT, Operation.APPEND, "now")], ErrorCode.INVALID_REQUEST, "it can only be set"),
        (TOPIC, [(COMPACT, 9, "now")], ErrorCode.INVALID_REQUEST, "it can only be set"),
        (TOPIC, [(COMPACT, SET, "please")], ErrorCode.INVALID_CONFIG, "txbroker.compact is 'please'; it must be now or roll"),
        (TOPIC, [(COMPACT, SET, None)], ErrorCode.INVALID_CONFIG, "txbroker.compact is 'None'; it must be now or roll"),
        (TOPIC, [(EXPIRE, SET, "roll")], ErrorCode.INVALID_CONFIG, "txbroker.expire is 'roll'; it must be now"),
        (TOPIC, [(CLEANER, SET, "{}")], ErrorCode.INVALID_CONFIG, "txbroker.cleaner cannot be set"),
        (TOPIC, [(f"{CLEANER}.0", SET, "{}")], ErrorCode.INVALID_CONFIG, "txbroker.cleaner cannot be set"),
        (ALL_BROKERS, [(COMPACT, SET, "now")], ErrorCode.INVALID_REQUEST, "alter a topic, not a broker"),
        (broker_entity(1), [(EXPIRE, SET, "now")], ErrorCode.INVALID_REQUEST, "alter a topic, not a broker"),
    ],
)
def test_operations_that_are_refused(entity: Entity, changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str) -> None:
    with pytest.raises(BrokerError) as caught:
        parse_operation(entity, [Change(*change) for change in changes])
    assert caught.value.code is code
    assert message in str(caught.value)


class Replicas:
    """The parts of image and replicas that TopicOperations uses: partitions 0 to 2 are led here, 3 is followed, 4 is elsewhere."""

    def __init__(self, name: str) -> None:
        self.partitions = dict.fromkeys(range(5))
        self._name = name
        self.offline = -1

    def topic(self, name: str) -> Replicas | None:
        return self if name == self._name else None

    def get(self, topic: str, number: int) -> Any:
        if number == self.offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        if number == 4:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return Led(TopicPartition(topic, number), number < 3)


class Led:
    def __init__(self, topic_partition: TopicPartition, is_leader: bool) -> None:
        self.topic_partition = topic_partition
        self.is_leader = is_leader


class LogMaintenance:
    """Keeps every operation pending until the test ends it."""

    def __init__(self) -> None:
        self.begun: dict[TopicPartition, list[Deferred[None]]] = {}
        self.asked: list[tuple[str, int, bool | None]] = []
        self.refused: Mapping[int, BrokerError] = {}
        self.text = "idle"

    def check_cleanable(self, topic_partition: TopicPartition) -> None:
        if topic_partition.partition in self.refused:
            raise self.refused[topic_partition.partition]

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[None]:
        self.asked.append(("clean", topic_partition.partition, roll))
        return self._begin(topic_partition)

    def expire_now(self, topic_partition: TopicPartition) -> Deferred[None]:
        self.asked.append(("expire", topic_partition.partition, None))
        return succeed(None)

    def status(self, topic_partition: TopicPartition) -> Mapping[str, Any]:
        return {"state": self.text}

    def _begin(self, topic_partition: TopicPartition) -> Deferred[None]:
        work: Deferred[None] = Deferred()
        self.begun.setdefault(topic_partition, []).append(work)
        return work

    def end(self, number: int, error: Exception | None = None) -> None:
        for work in self.begun.pop(TopicPartition("t", number)):
            if error is None:
                work.callback(None)
            else:
                work.errback(error)


def operations(maintenance: LogMaintenance, reread: Deferred[None] | None = None, *, offline: int = -1) -> TopicOperations:
    replicas: Any = Replicas("t")
    replicas.offline = offline
    return TopicOperations(replicas, replicas, maintenance, lambda topic: reread or succeed(None))


def performed(made: TopicOperations, key: str, value: str, *, validate_only: bool = False) -> list[object]:
    """The list that receives the result of `perform`: None or a failure."""
    ended: list[object] = []
    work = Deferred.fromCoroutine(made.perform("t", TopicOperation(key, value), validate_only=validate_only))
    work.addBoth(ended.append)
    return ended


def test_the_response_follows_the_last_partition() -> None:
    maintenance = LogMaintenance()
    ended = performed(operations(maintenance), COMPACT, "roll")
    assert maintenance.asked == [("clean", 0, True), ("clean", 1, True), ("clean", 2, True)]
    for number in (2, 0):
        maintenance.end(number)
    assert ended == []
    maintenance.end(1)
    assert ended == [None]
    assert performed(operations(maintenance), EXPIRE, "now") == [None]
    assert maintenance.asked[3:] == [("expire", 0, None), ("expire", 1, None), ("expire", 2, None)]


def test_the_first_error_is_returned_after_the_last_partition(caplog: pytest.LogCaptureFixture) -> None:
    maintenance = LogMaintenance()
    ended: list[Any] = performed(operations(maintenance), COMPACT, "now")
    maintenance.end(1, BrokerError(ErrorCode.INVALID_REQUEST, "it is uncleanable"))
    maintenance.end(2, ValueError("a bug"))
    assert ended == []
    maintenance.end(0)
    error = ended[0].value
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, "t-1: it is uncleanable (and 1 more of 3 partitions)")
    assert [(record.levelno, "a bug" in record.getMessage()) for record in caplog.records] == [(logging.ERROR, True)]


def test_operations_continue_when_the_client_disconnects() -> None:
    maintenance = LogMaintenance()
    work = Deferred.fromCoroutine(operations(maintenance).perform("t", TopicOperation(COMPACT, "now"), validate_only=False))
    gone: list[object] = []
    work.addErrback(gone.append)
    work.cancel()
    assert len(gone) == 1
    for number, begun in [(partition.partition, works) for partition, works in maintenance.begun.items()]:
        assert not any(each.called for each in begun), number
    for number in range(3):
        maintenance.end(number)


def test_operations_start_when_the_client_has_already_disconnected() -> None:
    maintenance, reread = LogMaintenance(), Deferred[None]()
    work = Deferred.fromCoroutine(operations(maintenance, reread).perform("t", TopicOperation(COMPACT, "now"), validate_only=False))
    work.addErrback(lambda _: None)
    work.cancel()
    assert maintenance.asked == []
    reread.callback(None)
    assert [partition for _, partition, _ in maintenance.asked] == [0, 1, 2]


def test_validate_only_checks_and_starts_nothing() -> None:
    maintenance = LogMaintenance()
    assert performed(operations(maintenance), COMPACT, "roll", validate_only=True) == [None]
    maintenance.refused = {2: BrokerError(ErrorCode.INVALID_REQUEST, "no")}
    for validate_only in (True, False):
        (failure,) = performed(operations(maintenance), COMPACT, "roll", validate_only=validate_only)
        assert isinstance(failure.value, BrokerError)  # type: ignore[attr-defined]
    assert maintenance.asked == [], "all partitions are checked before the first one starts"


def test_an_offline_directory_stops_operations_and_is_left_out_of_the_status() -> None:
    maintenance = LogMaintenance()
    made = operations(maintenance, offline=1)
    (failure,) = performed(made, COMPACT, "now")
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[attr-defined]
    assert maintenance.asked == []
    (entry,) = made.cleaner_entries("t", [CLEANER, f"{CLEANER}.1"])
    assert list(json.loads(entry.value or "")) == ["0", "2"]


def test_the_cleaning_status() -> None:
    maintenance = LogMaintenance()
    made = operations(maintenance)
    assert made.cleaner_entries("t", ["retention.ms"]) == []
    every, one = made.cleaner_entries("t", [CLEANER, f"{CLEANER}.1", f"{CLEANER}.3", f"{CLEANER}.x"])
    assert json.loads(every.value or "") == {"0": {"state": "idle"}, "1": {"state": "idle"}, "2": {"state": "idle"}}
    assert (one.name, json.loads(one.value or ""), one.read_only) == ("txbroker.cleaner.1", {"state": "idle"}, True)
    maintenance.text = "x" * 11_000
    with pytest.raises(BrokerError, match=r"describe single partitions, such as txbroker\.cleaner\.0"):
        made.cleaner_entries("t", [CLEANER])
    assert len(made.cleaner_entries("t", [f"{CLEANER}.0", f"{CLEANER}.2"])) == 2
