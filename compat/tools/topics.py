"""kafka-topics and kafka-configs."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from compat.adapter import until
from compat.samples import equal
from compat.tools.bench import Bench

_DAY_MS = 86_400_000


def topics(bench: Bench, topic: str) -> None:
    create = ("topics", "--create", "--topic", topic)
    settings = ("--config", "retention.ms=-1", "--config", "segment.bytes=1048576")
    printed = bench.out(*create, "--partitions", "3", "--replication-factor", "1", *settings)
    assert f"Created topic {topic}." in printed, printed
    until(lambda: bench.plain.partitions_with_leaders(topic) == 3, "three partitions with leaders")
    equal(bench.plain.config(topic, "segment.bytes"), "1048576", "segment.bytes")
    bench.fails(*create, saying="already exists")
    bench.out(*create, "--if-not-exists")
    bench.fails("topics", "--create", "--topic", f"{topic}-bad", "--config", "nonsense=1", saying="InvalidConfigurationException")
    bench.fails("topics", "--create", "--topic", f"{topic}-bad", "--replication-factor", "2", saying="InvalidReplicationFactorException")
    assigned = f"{topic}-assigned"
    bench.out("topics", "--create", "--topic", assigned, "--replica-assignment", f"{bench.broker_id},{bench.broker_id}")
    until(lambda: bench.plain.partitions_with_leaders(assigned) == 2, "two partitions with leaders")

    assert {topic, assigned} <= set(bench.out("topics", "--list").split()), "the topics are not in the list"
    equal(bench.out("topics", "--list", "--exclude-internal", "--topic", f"{topic}-a.*").split(), [assigned], "the list by a pattern")
    topic_id = _described(bench, topic, 3)
    by_id = bench.out("topics", "--describe", "--topic-id", topic_id)
    assert f"Topic: {topic}\t" in by_id, by_id
    assert f"Topic: {topic}\t" in bench.out("topics", "--describe", "--topics-with-overrides")
    for which in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        equal(bench.out("topics", "--describe", which).strip(), "", which)
    assert f"Topic: {topic}\tPartition: 2\t" in bench.out("topics", "--describe", "--at-min-isr-partitions")

    bench.out("topics", "--alter", "--topic", topic, "--partitions", "5")
    until(lambda: bench.plain.partitions_with_leaders(topic) == 5, "five partitions with leaders")
    equal(_described(bench, topic, 5), topic_id, "the topic's id")
    bench.fails("topics", "--alter", "--topic", topic, "--partitions", "2", saying="InvalidPartitionsException")
    bench.out("topics", "--delete", "--topic", topic)
    until(lambda: topic not in bench.plain.topics(), "the topic is deleted")
    bench.fails("topics", "--delete", "--topic", topic, saying="does not exist as expected")
    bench.fails("topics", "--describe", "--topic", topic, saying="does not exist as expected")
    bench.out("topics", "--delete", "--topic", topic, "--if-exists")


def _described(bench: Bench, topic: str, partitions: int) -> str:
    """Check the output of --describe; the topic's id."""
    printed = bench.out("topics", "--describe", "--topic", topic)
    first, *lines = printed.strip().splitlines()
    found = re.fullmatch(rf"Topic: {topic}\tTopicId: (\S{{22}})\tPartitionCount: {partitions}\tReplicationFactor: 1\tConfigs: (\S+)", first)
    assert found is not None, first
    assert {"retention.ms=-1", "segment.bytes=1048576"} <= set(found[2].split(",")), first
    broker = bench.broker_id
    for number, line in enumerate(lines):
        wanted = f"\tTopic: {topic}\tPartition: {number}\tLeader: {broker}\tReplicas: {broker}\tIsr: {broker}"
        assert line.startswith(wanted), line
    equal(len(lines), partitions, "lines of partitions")
    return found[1]


def configs(bench: Bench, topic: str) -> None:
    _topic_configs(bench, topic)
    _broker_configs(bench, topic)


def _topic_configs(bench: Bench, topic: str) -> None:
    bench.plain.create_topic(topic, 1, {"segment.bytes": "1048576"})
    entity = ("--entity-type", "topics", "--entity-name", topic)
    equal(_values(bench, *entity).get("segment.bytes"), "1048576", "the config given at creation")
    printed = bench.out("configs", *entity, "--alter", "--add-config", "cleanup.policy=[delete,compact],max.message.bytes=600000")
    assert f"Completed updating config for topic {topic}." in printed, printed
    _until(bench, entity, {"cleanup.policy": "delete,compact", "max.message.bytes": "600000", "segment.bytes": "1048576"})
    everything = _values(bench, *entity, "--all")
    equal({key: everything.get(key) for key in ("max.message.bytes", "min.insync.replicas", "compression.type")},
          {"max.message.bytes": "600000", "min.insync.replicas": "1", "compression.type": "producer"}, "some of all configs")
    assert _source(bench, "DEFAULT_CONFIG:log.segment.bytes=1073741824", *entity)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "configs.properties"
        path.write_text("flush.messages=7\nmax.message.bytes=700000\n")
        bench.out("configs", *entity, "--alter", "--add-config-file", str(path))
    _until(bench, entity, {"flush.messages": "7", "max.message.bytes": "700000"})
    bench.out("configs", *entity, "--alter", "--delete-config", "cleanup.policy,max.message.bytes,flush.messages")
    _until(bench, entity, {"cleanup.policy": None, "max.message.bytes": None, "segment.bytes": "1048576"})
    equal(bench.plain.config(topic, "max.message.bytes"), "1048588", "the default, for another client")
    bench.fails("configs", *entity, "--alter", "--add-config", "nonsense=1", saying="InvalidConfigurationException")
    bench.fails("configs", *entity, "--alter", "--add-config", "max.message.bytes=many", saying="InvalidConfigurationException")


def _broker_configs(bench: Bench, topic: str) -> None:
    """The same key for one broker and for all brokers; the value of the broker has precedence for the topic."""
    one = ("--entity-type", "brokers", "--entity-name", str(bench.broker_id))
    every = ("--entity-type", "brokers", "--entity-default")
    bench.out("configs", *every, "--alter", "--add-config", f"log.retention.ms={9 * _DAY_MS}")
    _until(bench, every, {"log.retention.ms": str(9 * _DAY_MS)})
    until(lambda: bench.plain.config(topic, "retention.ms") == str(9 * _DAY_MS), "the topic has the default of all brokers")
    bench.out("configs", *one, "--alter", "--add-config", f"log.retention.ms={8 * _DAY_MS}")
    _until(bench, one, {"log.retention.ms": str(8 * _DAY_MS)})
    until(lambda: bench.plain.config(topic, "retention.ms") == str(8 * _DAY_MS), "the topic has the broker's value")
    assert _source(bench, f"DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms={9 * _DAY_MS}", *one)
    assert _values(bench, *one, "--all").get("log.cleaner.threads") == "1"
    bench.fails("configs", *one, "--alter", "--add-config", "log.dirs=/nowhere", saying="Cannot update|InvalidRequestException")
    bench.out("configs", *one, "--alter", "--delete-config", "log.retention.ms")
    bench.out("configs", *every, "--alter", "--delete-config", "log.retention.ms")
    _until(bench, one, {"log.retention.ms": None})
    until(lambda: bench.plain.config(topic, "retention.ms") == str(7 * _DAY_MS), "the topic has the default again")


def _until(bench: Bench, entity: tuple[str, ...], wanted: dict[str, str | None]) -> None:
    def found() -> bool:
        values = _values(bench, *entity)
        return all(values.get(key) == value for key, value in wanted.items())

    until(found, f"{wanted} is described, which is {_values(bench, *entity)}")


def _values(bench: Bench, *entity: str) -> dict[str, str]:
    """The described configs, by key."""
    return dict(re.findall(r"^  ([\w.]+)=(.*?) sensitive=", bench.out("configs", *entity, "--describe"), re.MULTILINE))


def _source(bench: Bench, synonym: str, *entity: str) -> bool:
    return synonym in bench.out("configs", *entity, "--describe")
