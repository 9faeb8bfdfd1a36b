"""The topic of the audit log: order, what waits while a leader is away, what is lost then, and that nothing waits for it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.api.test_acls import STRANGER, Guarded
from tests.config.configs import broker_config
from tests.fuzz import frames
from tests.security.test_audit_trail import Recorded, session
from txbroker.broker.audit_queue import BACKOFF_MAX_S, BATCH_BYTES, BATCH_GROWTH, Line
from txbroker.broker.audit_topic import COLLECTED_S, STOP_S, WAITING_MAX, AuditTopic
from txbroker.client.client_errors import ClientError, Unreachable
from txbroker.errors import BrokerError, ConfigError, ErrorCode
from txbroker.security.acl_index import NO_ACL, Rule
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclResource as R
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import Scan
from txbroker.wire.records import read_records


def line(number: int, principal: str | None = "User:alice", size: int = 0) -> bytes:
    return json.dumps({"number": number, "principal": principal, "more": "x" * size}).encode() + b"\n"


class Kept:
    """A topic whose leaders are the test: batches that were appended, by partition, and what is not answered yet."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.created = 0
        self.error: Callable[[int, Sequence[Line]], Exception | None] = lambda partition, lines: None
        self.holds = False
        self.held: list[tuple[int, Sequence[Line], Deferred[None]]] = []
        self.found: dict[int, list[Line]] = {}
        self.clock = Clock()
        self.topic = AuditTopic("audit", self.clock, lambda: 0.5, lambda: 1_700_000_000_000, lambda count: b'{"left_out": %d}\n' % count)

    def partition_count(self) -> int:
        return self.count

    def create(self) -> None:
        self.created += 1

    def append(self, partition: int, lines: Sequence[Line]) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.held.append((partition, lines, done))
        if not self.holds:
            self.answer()
        return done

    def close(self) -> None:
        self.error = lambda partition, lines: Unreachable("a:1", "closed", OSError())
        self.answer()

    def answer(self) -> None:
        while self.held:
            partition, lines, done = self.held.pop(0)
            error = self.error(partition, lines)
            if error is None:
                self.found.setdefault(partition, []).extend(lines)
                done.callback(None)
            else:
                done.errback(error)

    def fails(self, error: Exception | None) -> None:
        self.error = lambda partition, lines: error

    def numbers(self) -> list[int]:
        """Of the lines in all partitions; -N for the report of N lost ones."""
        values = [json.loads(each.value) for lines in self.found.values() for each in lines]
        return [value["number"] if "number" in value else -value["left_out"] for value in values]

    def wait(self, seconds: float = COLLECTED_S) -> None:
        self.clock.pump([0.01] * round(seconds / 0.01 + 1))


@pytest.fixture
def kept() -> Kept:
    made = Kept()
    made.topic.open(made)
    return made


def test_a_record_has_the_principal_as_its_key(kept: Kept) -> None:
    kept.topic.write(line(1))
    kept.topic.write(line(2, None))
    assert kept.found == {}, "the request that made the line does not wait"
    kept.wait()
    first, second = kept.found[0]
    assert first == Line(1_700_000_000_000, b"User:alice", line(1).rstrip())
    assert second.key is None


def test_lines_of_the_start_wait_until_there_is_a_way_to_the_leaders() -> None:
    kept = Kept()
    kept.topic.write(line(1))
    kept.wait(10)
    kept.topic.open(kept)
    kept.wait()
    assert kept.numbers() == [1]


def test_a_topic_that_does_not_exist_is_created_and_its_lines_wait(kept: Kept) -> None:
    kept.count = 0
    kept.topic.write(line(1))
    kept.wait()
    assert kept.created == 1
    kept.count = 2
    kept.wait(BACKOFF_MAX_S)
    assert kept.numbers() == [1]


def test_a_principal_has_one_partition_and_its_lines_keep_their_order(kept: Kept) -> None:
    kept.count = 3
    for number in range(90):
        kept.topic.write(line(number, f"User:{number % 9}", BATCH_BYTES // 20))
        kept.wait(0.01)
    kept.wait(5)
    by_key: dict[bytes | None, set[int]] = {}
    for partition, lines in kept.found.items():
        of_key: dict[bytes | None, list[int]] = {}
        for each in lines:
            by_key.setdefault(each.key, set()).add(partition)
            of_key.setdefault(each.key, []).append(json.loads(each.value)["number"])
        assert all(numbers == sorted(numbers) for numbers in of_key.values())
    assert sorted(kept.numbers()) == list(range(90)) and len(kept.found) > 1
    assert {len(partitions) for partitions in by_key.values()} == {1}


@pytest.mark.parametrize("error", [
    BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS), Unreachable("a:1", "refused", OSError()),
], ids=lambda error: str(getattr(error, "code", type(error).__name__)))  # fmt: skip
def test_lines_wait_while_their_leader_is_away(kept: Kept, error: BrokerError | ClientError, caplog: pytest.LogCaptureFixture) -> None:
    kept.fails(error)
    for number in range(3):
        kept.topic.write(line(number))
        kept.wait(1)
    kept.fails(None)
    kept.topic.write(line(3))
    kept.wait(2 * BACKOFF_MAX_S)
    assert (kept.numbers(), kept.topic.dropped) == ([0, 1, 2, 3], 0)
    assert len(caplog.records) == 1 and "topic audit cannot get lines of the audit log, 1 wait: partition 0: " in caplog.text


def test_one_partition_without_a_leader_does_not_stop_the_others(kept: Kept) -> None:
    kept.count = 2
    kept.error = lambda partition, lines: BrokerError(ErrorCode.LEADER_NOT_AVAILABLE) if partition == 0 else None
    for number in range(20):
        kept.topic.write(line(number, f"User:{number}"))
    kept.wait()
    assert kept.found.keys() == {1}
    kept.fails(None)
    kept.wait(BACKOFF_MAX_S)
    assert sorted(kept.numbers()) == list(range(20))


def principal_of(partition: int, count: int = 2) -> str:
    """A principal whose lines are in this partition."""
    return next(name for number in range(100) if zlib.crc32((name := f"User:{number}").encode()) % count == partition)


def test_a_slow_leader_delays_the_lines_of_its_partitions_only(kept: Kept) -> None:
    kept.count, kept.holds = 2, True
    kept.topic.write(line(0, principal_of(0)))
    kept.wait()
    ((slow, _, answer),) = kept.held
    kept.held.clear()
    kept.holds = False
    for number in range(1, 4):
        kept.topic.write(line(number, principal_of(1)))
        kept.topic.write(line(number + 10, principal_of(0)))
        kept.wait()
    assert slow == 0 and kept.found.keys() == {1} and kept.numbers() == [1, 2, 3]
    answer.callback(None)
    kept.wait()
    assert [json.loads(each.value)["number"] for each in kept.found[0]] == [11, 12, 13], "in their order"


def test_lines_for_a_leader_that_is_away_leave_room_for_others(kept: Kept) -> None:
    kept.count = 2
    kept.error = lambda partition, lines: BrokerError(ErrorCode.LEADER_NOT_AVAILABLE) if partition == 0 else None
    kept.topic.write(line(0, principal_of(1)))
    kept.wait()
    for number in range(WAITING_MAX):
        kept.topic.write(line(number, principal_of(0)))
    for number in range(1, 4):
        kept.topic.write(line(number, principal_of(1)))
    kept.wait()
    assert [number for number in kept.numbers() if number >= 0] == [0, 1, 2, 3]
    assert kept.topic.dropped == 3 == -sum(number for number in kept.numbers() if number < 0)
    kept.fails(None)
    kept.wait(2 * BACKOFF_MAX_S)
    assert [json.loads(each.value)["number"] for each in kept.found[0]] == list(range(WAITING_MAX - 3)), "the newest are lost"


@pytest.mark.parametrize("counts", [(1, 3), (3, 1)])
def test_lines_keep_their_order_when_the_number_of_partitions_changes(kept: Kept, counts: tuple[int, int]) -> None:
    kept.count, kept.holds = counts[0], True
    kept.topic.write(line(0, "User:a"))
    kept.wait()
    kept.count = counts[1]
    for number in range(1, 4):
        kept.topic.write(line(number, "User:a"))
        kept.wait()
    assert len(kept.held) == 1, "the line that is on its way is awaited"
    kept.holds = False
    kept.answer()
    kept.wait()
    assert kept.numbers() == [0, 1, 2, 3]


def test_batches_grow_again_after_one_was_too_large(kept: Kept) -> None:
    """The topic has a larger max.message.bytes than before."""
    errors: list[Exception] = [BrokerError(ErrorCode.MESSAGE_TOO_LARGE)]
    kept.error = lambda partition, lines: errors.pop() if errors else None
    for number in range(4):
        kept.topic.write(line(number, size=BATCH_BYTES // 8))
    kept.wait()
    (queue,) = kept.topic._queues
    assert kept.numbers() == [0, 1, 2, 3] and kept.topic.dropped == 0
    assert queue.batch_bytes < BATCH_BYTES // 2, "it was halved"
    while queue.batch_bytes < BATCH_BYTES:
        before = queue.batch_bytes
        kept.topic.write(line(9))
        kept.wait()
        assert queue.batch_bytes == min(before + BATCH_GROWTH, BATCH_BYTES)


def test_what_exceeds_the_bound_is_lost_counted_and_reported(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.fails(BrokerError(ErrorCode.LEADER_NOT_AVAILABLE))
    for number in range(WAITING_MAX + 7):
        kept.topic.write(line(number))
    kept.wait()
    assert kept.topic.dropped == 7
    kept.topic.write(line(-1))
    kept.wait(1)
    kept.fails(None)
    kept.wait(3 * BACKOFF_MAX_S)
    numbers = kept.numbers()
    assert sorted(numbers) == [-8, *range(WAITING_MAX)] and numbers.index(-8) < WAITING_MAX / 2, "as soon as a batch was taken"
    assert "lines of the audit log for topic audit are lost, 1 since the start" in caplog.text


def test_lines_in_flight_count_for_the_bound(kept: Kept) -> None:
    kept.holds = True
    kept.topic.write(line(0))
    kept.wait()
    for number in range(1, WAITING_MAX + 1):
        kept.topic.write(line(number))
    assert kept.topic.dropped == 1


def test_a_batch_that_is_too_large_is_sent_in_parts_and_a_line_that_is_too_large_is_lost(kept: Kept) -> None:
    def too_large(partition: int, lines: Sequence[Line]) -> Exception | None:
        return BrokerError(ErrorCode.MESSAGE_TOO_LARGE) if sum(len(each.value) for each in lines) > 1000 else None

    kept.error = too_large
    for number in range(30):
        kept.topic.write(line(number, size=2000 if number == 20 else 100))
    kept.wait(1)
    assert sorted(kept.numbers()) == [-1, *(number for number in range(30) if number != 20)]
    assert kept.topic.dropped == 1


def test_a_defect_loses_the_lines_of_its_batch_only(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.fails(ZeroDivisionError())
    kept.topic.write(line(0))
    kept.wait()
    kept.fails(None)
    kept.topic.write(line(1))
    kept.wait()
    assert kept.numbers() == [1, -1]
    assert "internal error while the audit log is sent" in caplog.text


def test_a_stop_waits_for_the_leader_but_not_for_long(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.holds = True
    kept.topic.write(line(0))
    finished = kept.topic.finish()
    kept.wait()
    assert not finished.called
    kept.answer()
    assert finished.called and kept.numbers() == [0]
    kept.topic.write(line(1))
    finished = kept.topic.finish()
    kept.clock.advance(STOP_S)
    assert finished.called
    kept.topic.close()
    kept.topic.write(line(2))
    assert kept.topic.dropped == 2 and "the broker stops before topic audit has all lines of the audit log: 1 are lost" in caplog.text
    assert kept.clock.getDelayedCalls() == []


def test_a_stop_does_not_wait_for_a_topic_that_does_not_exist(kept: Kept) -> None:
    kept.count = 0
    kept.topic.write(line(0))
    assert kept.topic.finish().called


def test_that_a_broker_may_not_write_the_topic_makes_no_line() -> None:
    trail = Recorded()
    trail._own_topic = "audit"
    for who in (session("User:broker"), session("User:alice")):
        for name in ("audit", "other"):
            trail.denied(who, "app", "Produce", Op.WRITE, R.TOPIC, name, Rule(NO_ACL))
    trail.denied(session("User:broker"), "app", "DeleteTopics", Op.DELETE, R.TOPIC, "audit", Rule(NO_ACL))
    assert [(each["principal"], each["resource"], each["operation"]) for each in trail.found] == [
        ("User:broker", "other", "Write"), ("User:alice", "audit", "Write"), ("User:alice", "other", "Write"),
        ("User:broker", "audit", "Delete"),
    ]  # fmt: skip


def test_the_key_must_be_a_topic() -> None:
    for value, problem in (("a b", "a topic: Topic name 'a b' is invalid"), ("__consumer_offsets", "another topic than the internal one")):
        with pytest.raises(ConfigError, match=problem):
            broker_config(f"txbroker.audit.topic={value}\n")


# A whole broker, without sockets


class Audited(Guarded):
    """A broker with the topic, and no file."""

    def __init__(self, *overrides: str) -> None:
        super().__init__("txbroker.audit.topic=audit", *overrides)

    def lines(self) -> list[dict[str, Any]]:
        """The values of the topic, as one who may read it gets them."""
        self.reactor.advance(1.0)
        partition = self.components.replicas.get("audit", 0)
        data = partition.read(0, 1 << 20, partition.log.log_end_offset, True).region.read()
        found = []
        for at, header in Scan(data, check_crc=True):
            assert isinstance(header, BatchHeader)
            found += [json.loads(record.value or b"") for record in read_records(data, at, header, 1 << 20)]
        return found


@pytest.fixture
def audited() -> Iterator[Audited]:
    made = Audited()
    yield made
    made.close()


def test_a_broker_creates_its_topic_and_writes_to_it(audited: Audited) -> None:
    audited.topics(STRANGER, frames.TOPICS[0])
    audited.reactor.advance(1.0)
    (found,) = [each for each in audited.lines() if each["event"] == "denial"]
    assert (found["principal"], found["resource"], found["outcome"]) == (STRANGER, frames.TOPICS[0], "denied")


def test_a_broker_that_may_not_create_topics_waits_for_an_administrator(caplog: pytest.LogCaptureFixture) -> None:
    audited = Audited("auto.create.topics.enable=false")
    try:
        audited.topics(STRANGER, frames.TOPICS[0])
        audited.reactor.advance(1.0)
        assert "audit" not in audited.components.image.topics
        assert "wait: it does not exist; create it, if auto.create.topics.enable is false" in caplog.text
    finally:
        audited.close()
