"""The tools that generate load: perf tests, verifiable producer and consumer."""

from __future__ import annotations

import re

from compat.adapter import until
from compat.samples import equal
from compat.simple import ready_topic
from compat.tools.bench import Bench

_COUNT = 3000
_SIZE = 200


def producer_perf_test(bench: Bench, topic: str) -> None:
    ready_topic(bench.single, topic)
    configs = ["--producer-props", f"bootstrap.servers={bench.address}", "compression.type=lz4", "acks=all"]
    if bench.new:
        configs = ["--bootstrap-server", bench.address, "--command-property", "compression.type=lz4", "--command-property", "acks=all"]
    printed = bench.run("producer-perf-test", "--topic", topic, "--num-records", str(_COUNT), "--record-size", str(_SIZE),
                        "--throughput", "-1", "--print-metrics", *configs, server=False).out
    report = rf"^{_COUNT} records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency"
    assert re.search(report, printed, re.MULTILINE), printed[:300]
    assert re.search(rf"producer-topic-metrics:record-send-total:{{[^}}]*topic={topic}}}\s*: {_COUNT}\.000", printed), printed[:300]
    records = bench.single.read(topic, _COUNT)
    equal({len(record.value or b"") for record in records}, {_SIZE}, "sizes of values")
    equal([record.offset for record in records], list(range(_COUNT)), "offsets")


def consumer_perf_test(bench: Bench, topic: str) -> None:
    records = bench.filled(topic, _COUNT)
    count = ("--num-records" if bench.new else "--messages", str(_COUNT))
    group = f"{topic}-group"
    printed = bench.out("consumer-perf-test", "--topic", topic, *count, "--group", group, "--timeout", "30000")
    rows = [line.split(", ") for line in printed.splitlines() if "," in line]
    report = dict(zip(rows[0], rows[-1], strict=True))
    equal(report["data.consumed.in.nMsg"], str(_COUNT), "messages")
    megabytes = sum(len(record.key or b"") + len(record.value or b"") for record in records) / 2**20
    assert abs(float(report["data.consumed.in.MB"]) - megabytes) < 0.001, report
    assert group in bench.plain.groups(), "the tool's group is not there"


def verifiable_producer(bench: Bench, topic: str) -> None:
    ready_topic(bench.plain, topic)
    arguments = ("--topic", topic, "--max-messages", "500", "--acks", "-1", "--value-prefix", "7", "--repeating-keys", "5")
    with bench.events("verifiable-producer", *arguments) as tool:
        equal(tool.ended(), 0, "exit status")
        sent = {(event["partition"], event["offset"]): (event["key"], event["value"]) for event in tool.named("producer_send_success")}
        equal(tool.named("producer_send_error"), [], "errors")
        (data,) = tool.named("tool_data")
        equal((data["sent"], data["acked"], len(sent)), (500, 500, 500), "records sent, acknowledged and reported")
    read = {(record.partition, record.offset): ((record.key or b"").decode(), (record.value or b"").decode())
            for record in bench.plain.read(topic, 500)}
    equal(read, sent, "records in the topic")
    equal(sorted(value for _, value in read.values()), sorted(f"7.{n}" for n in range(500)), "values")


def verifiable_consumer(bench: Bench, topic: str) -> None:
    """One reads, another joins and both share the partitions; committed offsets match the records read."""
    records = bench.filled(topic, 99)
    group = f"{topic}-group"
    arguments = ("--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--session-timeout", "30000")
    strategy = ("--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor")
    with bench.events("verifiable-consumer", *arguments, *strategy, "--verbose") as first:
        first.until(lambda: len(first.named("record_data")) >= 99, "99 records")
        read = {(event["partition"], event["offset"]): event["value"] for event in first.named("record_data")}
        equal(sorted(read), sorted((record.partition, record.offset) for record in records), "offsets that were read")
        texts = {place: value for place, value in read.items() if value is not None and value.isascii()}
        wanted = {(record.partition, record.offset): record.value for record in records}
        assert texts and all(wanted[place] == value.encode() for place, value in texts.items()), "other values"
        until(lambda: bench.group_offsets(group) == {0: 33, 1: 33, 2: 33}, "the consumer commits")
        with bench.events("verifiable-consumer", *arguments, *strategy) as second:
            second.until(lambda: bool(second.named("partitions_assigned")), "the second has partitions")
            first.until(lambda: len(first.named("partitions_assigned")) >= 2, "the first shares")
            shares = [_partitions(tool.named("partitions_assigned")[-1]) for tool in (first, second)]
            equal(sorted(shares[0] + shares[1]), [0, 1, 2], "partitions of both")
            second.stop()
            assert second.named("shutdown_complete"), "the second failed"
        first.until(lambda: _partitions(first.named("partitions_assigned")[-1]) == [0, 1, 2], "the first has all partitions again")
        first.stop()
        assert first.named("shutdown_complete"), "the first failed"
    with bench.events("verifiable-consumer", *arguments, "--max-messages", "3") as third:
        bench.plain.produce(topic, [record._replace(offset=record.offset + 33) for record in records[:3]])
        equal(third.ended(), 0, "exit status")
        equal(sum(event["count"] for event in third.named("records_consumed")), 3, "records after the committed ones")


def _partitions(event: dict[str, list[dict[str, int]]]) -> list[int]:
    return sorted(place["partition"] for place in event["partitions"])
