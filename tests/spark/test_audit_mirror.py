"""`audit` of a topic against a mirror with other offsets: records are matched by their content, in order."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaProducer

from tests.spark.audits import audited_with, found
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.server import Server
from txbroker.spark.audit.by_content import out_of_order
from txbroker.spark.audit.job import AuditOptions
from txbroker.spark.audit.report import KeyCounts
from txbroker.spark.topic_source import TopicSource

NOW_MS = 1_700_000_000_000


def copy(server: Server, topic: str, numbers: dict[int, list[int]], changed: int | None = None) -> None:
    """Records by their numbers, the same ones in any topic; the one with the number `changed` has another value."""
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=20)
    for partition, some in numbers.items():
        for number in some:
            value = b"changed" if number == changed else b"value %d" % number
            producer.send(topic, value, b"key %d" % (number % 10), [("n", b"%d" % number)], partition, NOW_MS + number)
    producer.close()


@pytest.mark.process
def test_a_mirror(spark: Any, broker: Server, name: str) -> None:
    """Partition 0 has everything, at other offsets; 1 has the same offsets; 2 and 3 are wrong; 4 has nothing yet."""
    mirror = f"{name}-mirror"
    create_topic(broker, name, 5)
    create_topic(broker, mirror, 5)
    all_of_them = list(range(20))
    copy(broker, name, dict.fromkeys(range(5), all_of_them))
    copy(broker, mirror, {partition: [100, 101, 102] for partition in (0, 2, 3)})
    for partition in (0, 2, 3):
        delete_records(broker, mirror, 3, partition)
    without_4 = [number for number in all_of_them if number != 4]
    moved = [*range(5), *range(6, 12), 5, *range(12, 18)]  # and the last two are not mirrored yet
    copy(broker, mirror, {0: all_of_them[:18], 1: all_of_them, 2: [*without_4[:9], 9, *without_4[9:]]})
    copy(broker, mirror, {3: moved}, changed=8)
    options = AuditOptions(TopicSource(broker.address, [name]), against=TopicSource(broker.address, [mirror]), keys=True)
    report = audited_with(spark, options)
    assert found(report) == [("missing", 2, 1, 4), ("doubled", 2, 1, 12), ("changed", 3, 1, 10), ("out_of_order", 3, 1, 14)]
    missing, doubled, changed, order = report.findings
    assert f"--topic {name} --partition 2 --offset 4 " in missing.command and f"--topic {mirror} --partition 2" in doubled.command
    assert [(one.offset, one.other, one.key) for one in changed.examples] == [(10, 8, b"key 8")]
    assert [(one.offset, one.other) for one in order.examples] == [(14, 5)]
    assert [(one.end, one.until, one.delivered_end, one.written, one.delivered, one.equal, one.waiting) for one in report.partitions] == [
        (18, 20, 21, 18, 18, 18, 2), (20, 20, 20, 20, 20, 20, 0), (20, 20, 23, 20, 20, 19, 0), (18, 20, 21, 18, 18, 16, 2),
        (0, 20, 0, 0, 0, 0, 20),
    ]  # fmt: skip
    some, none, all_keys = KeyCounts(10, 2), KeyCounts(10), KeyCounts(10, 10, 10)
    assert [one.keys for one in report.partitions] == [some, none, none, some, all_keys]


@pytest.mark.process
def test_a_mirror_that_was_compacted(spark: Any, broker: Server, name: str) -> None:
    """What is removed on one side needs a later record of the key there. The topic has deleted its head, or all of partition 1.

    The mirror of 2 ends before the topic's start, and that of 3 has more records than were deleted.
    """
    mirror = f"{name}-mirror"
    create_topic(broker, name, 4)
    create_topic(broker, mirror, 4, {**KEEP, "cleanup.policy": "compact"})
    copy(broker, name, {0: list(range(30)), 1: list(range(8)), 2: list(range(30)), 3: list(range(30))})
    for partition, start in enumerate((3, 8, 20, 20)):
        delete_records(broker, name, start, partition)
    copy(broker, mirror, {0: [0, 1, 2, *range(15, 27), 28, 29], 1: list(range(5)),  # 27 is the latest of its key, and lost
                          2: list(range(10)), 3: list(range(100, 121))})  # fmt: skip
    report = audited_with(spark, AuditOptions(TopicSource(broker.address, [name]), against=TopicSource(broker.address, [mirror])))
    assert found(report) == [("missing", 0, 1, 27), ("extra", 3, 21, 0)]
    assert [one.events for one in report.partitions] == [{"expired": 3, "missing": 1, "removed": 12}, {"expired": 5}, {"expired": 10},
                                                         {"extra": 21}]  # fmt: skip
    assert [one.waiting for one in report.partitions] == [0, 0, 10, 10]


@pytest.mark.parametrize(("written", "expected"), [
    ([], []),
    ([0, 1, 2, 3], []),
    ([0, 2, 3, 4, 1], [4]),
    ([0, 4, 1, 2, 3], [1]),
    ([1, 0, 3, 2, 4], [0, 2]),
    ([3, 2, 1], [0, 1]),
])  # fmt: skip
def test_the_fewest_records_that_are_out_of_order(written: list[int], expected: list[int]) -> None:
    rows = [("topic", partition, offset, one) for partition in range(2) for offset, one in enumerate(written)]
    assert list(out_of_order(rows)) == [("topic", partition, offset) for partition in range(2) for offset in expected]
