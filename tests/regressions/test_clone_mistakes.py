"""Known mistakes of other implementations of Kafka's protocol, each as a test over a raw connection."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as TransactionalProducer
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, advertised, create_topic, delete_records, find_coordinator, producer_id, until_leaders
from tests.support.raw_log import (
    EARLIEST,
    GZIP,
    LATEST,
    LZ4,
    MAX_TIMESTAMP,
    NONE,
    SNAPPY,
    ZSTD,
    Producer,
    batch,
    fetch,
    list_offset,
    produce,
)
from tests.support.records import BASE_TIMESTAMP, Sample, numbered, numbers
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT, INIT_PRODUCER_ID = 24, 25, 26, 28, 22

CODECS = pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])


@pytest.fixture
def connection(broker: Server) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as opened:
        yield opened


@pytest.fixture
def transactions(broker: Server) -> None:
    """Skips the test unless the broker advertises transactions."""
    if END_TXN not in advertised(broker):
        pytest.skip("the broker does not offer transactions")


# Reading


@CODECS
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_inside_a_batch_returns_the_whole_batch(
    broker: Server, connection: RawConnection, name: str, codec: int, version: int
) -> None:
    create_topic(broker, name)
    for start in (0, 10, 20):
        produce(connection, name, batch(numbered(10, start=start, size=100), codec=codec))
    found = fetch(connection, name, 15, version=version)
    assert (found.first_batch_offset, numbers(found.records)) == (10, list(range(10, 30)))
    small = fetch(connection, name, 15, version=version, bytes_max=1)
    assert (small.first_batch_offset, numbers(small.records)) == (10, list(range(10, 20))), "the first batch is always returned"


def test_offsets_beyond_the_end_are_out_of_range_and_the_end_is_not(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    produce(connection, name, batch(numbered(10)))
    assert fetch(connection, name, 11).error_code == 1
    assert fetch(connection, name, -1).error_code == 1
    at_end = fetch(connection, name, 10)
    assert (at_end.error_code, at_end.records, at_end.high_watermark) == (0, [], 10)


@CODECS
def test_list_offsets_by_timestamp(broker: Server, connection: RawConnection, name: str, codec: int) -> None:
    """The first record at or after the timestamp, also inside a compressed batch, with its own timestamp."""
    create_topic(broker, name)
    for start in (0, 10, 20):
        produce(connection, name, batch(numbered(10, start=start, size=100), codec=codec))
    versions = advertised(broker)[2]
    for version in range(max(1, versions[0]), versions[1] + 1):
        found = list_offset(connection, name, BASE_TIMESTAMP + 1250, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, 13, BASE_TIMESTAMP + 1300)
        beyond = list_offset(connection, name, BASE_TIMESTAMP + 10_000, version=version)
        assert (beyond.error_code, beyond.offset, beyond.timestamp) == (0, -1, -1)
        assert list_offset(connection, name, EARLIEST, version=version).offset == 0
        assert list_offset(connection, name, LATEST, version=version).offset == 30
        if version >= 7:
            latest = list_offset(connection, name, MAX_TIMESTAMP, version=version)
            assert (latest.offset, latest.timestamp) == (29, BASE_TIMESTAMP + 2900)


def test_list_offsets_by_timestamp_when_time_steps_back(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    for steps in ((0, 50, 20), (30, 10, 40)):
        produce(connection, name, batch([Sample(None, b"%d" % step, (), BASE_TIMESTAMP + step) for step in steps]))
    assert list_offset(connection, name, BASE_TIMESTAMP + 15).offset == 1
    assert list_offset(connection, name, BASE_TIMESTAMP + 50).offset == 1
    assert list_offset(connection, name, MAX_TIMESTAMP).offset == 1
    assert list_offset(connection, name, BASE_TIMESTAMP + 51).offset == -1


def test_an_unknown_negative_timestamp(broker: Server, connection: RawConnection, name: str) -> None:
    """Kafka's reset tool sends one when a duration reaches back before 1970; special values need certain versions."""
    create_topic(broker, name)
    produce(connection, name, batch(numbered(3)))
    assert list_offset(connection, name, -1_000_000_000_000).error_code == 35
    assert list_offset(connection, name, MAX_TIMESTAMP, version=6).error_code == 35
    assert list_offset(connection, name, MAX_TIMESTAMP, version=7).offset == 2


# Deleting


def test_delete_records_below_the_start_does_nothing(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    produce(connection, name, batch(numbered(10)))
    delete_records(broker, name, 6)
    part = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = part(name=name, partitions=[part.DeleteRecordsPartition(partition_index=0, offset=3)])
    (answer,) = connection.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000), 1).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (0, 6)
    assert list_offset(connection, name, EARLIEST).offset == 6


def test_delete_records_is_refused_where_records_are_only_compacted(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name, configs={"cleanup.policy": "compact"})
    part = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = part(name=name, partitions=[part.DeleteRecordsPartition(partition_index=0, offset=-1)])
    (answer,) = connection.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000), 1).topics[0].partitions
    assert answer.error_code == 44


def test_a_start_inside_a_batch_stays_fetchable(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker()
    create_topic(server, name)
    with RawConnection(server.address) as connection:
        produce(connection, name, batch(numbered(10)))
        delete_records(server, name, 5)

    def check() -> None:
        with RawConnection(server.address) as again:
            found = fetch(again, name, 5)
            assert (found.error_code, found.log_start_offset, found.first_batch_offset, found.high_watermark) == (0, 5, 0, 10)
            assert fetch(again, name, 4).error_code == 1
            assert list_offset(again, name, EARLIEST).offset == 5
            by_time = list_offset(again, name, BASE_TIMESTAMP)
            assert by_time.offset == 5, "a record below the start is not found by timestamp"

    check()
    server.restart()
    until_leaders(server, name, 1)
    check()


def test_segments_below_the_start_of_compacted_topics_are_deleted(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name, configs=KEEP | {"cleanup.policy": "compact,delete", "segment.bytes": "1048576",
                                               "min.cleanable.dirty.ratio": "1"})
    for start in range(0, 40, 10):
        produce(connection, name, batch(numbered(10, start=start, size=60_000)))
    segments = broker.partition_directory(name)
    assert len(list(segments.glob("*.log"))) >= 2
    delete_records(broker, name, 40)
    until(lambda: [path.name for path in segments.glob("*.log") if int(path.stem) + 10 < 40] == [], "the old segments are deleted")
    assert fetch(connection, name, 40).error_code == 0


# Writing


@CODECS
def test_a_batch_over_max_message_bytes_is_too_large(broker: Server, connection: RawConnection, name: str, codec: int) -> None:
    create_topic(broker, name, configs=KEEP | {"max.message.bytes": "20000"})
    large = batch([Sample(b"k", random.Random(1).randbytes(30_000), (), BASE_TIMESTAMP)], codec=codec)
    compressed = batch(numbered(10, size=10_000), codec=codec)
    assert produce(connection, name, large).error_code == 10
    assert produce(connection, name, compressed).error_code == (0 if codec else 10), "the compressed size counts"
    assert produce(connection, name, batch(numbered(1))).error_code == 0


def test_a_null_key_on_a_compacted_topic_is_an_invalid_record(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name, configs={"cleanup.policy": "compact"})
    records = numbered(3)
    records[1] = records[1]._replace(key=None)
    refused = produce(connection, name, batch(records))
    assert refused.error_code == 87
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert produce(connection, name, batch(numbered(3))).base_offset == 0, "nothing of the refused batch was stored"


def test_a_client_may_not_write_control_batches(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    marker = [Sample(b"\0\0\0\1", b"\0\0\0\0\0\0", (), BASE_TIMESTAMP)]
    assert produce(connection, name, batch(marker, control=True)).error_code == 87
    assert list_offset(connection, name, LATEST).offset == 0


def test_a_refused_partition_does_not_affect_the_others(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    good, damaged = batch(numbered(5)), bytearray(batch(numbered(5)))
    damaged[-1] ^= 1
    assert produce(connection, name, bytes(damaged)).error_code == 2
    assert produce(connection, name, good, partition=7).error_code == 3
    assert (produce(connection, name, good).error_code, produce(connection, name, good).base_offset) == (0, 5)


def test_idempotence_duplicates_and_gaps(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    given = producer_id(connection)

    def send(sequence: int, epoch: int = given.producer_epoch) -> tuple[int, int]:
        data = batch(numbered(2, start=sequence), producer=Producer(given.producer_id, epoch, sequence))
        answer = produce(connection, name, data)
        return answer.error_code, answer.base_offset

    assert [send(sequence) for sequence in (0, 2, 4)] == [(0, 0), (0, 2), (0, 4)]
    assert send(2) == (0, 2), "a duplicate gets the offset of the original"
    assert send(8)[0] == 45, "a gap is OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert send(6) == (0, 6)
    assert numbers(fetch(connection, name, 0).records) == list(range(8))
    assert send(0, epoch=given.producer_epoch + 1) == (0, 8), "a new epoch starts with sequence 0"
    assert send(10)[0] == 47, "the old epoch is fenced"


# Topics and configs


def test_metadata_creates_a_topic_on_request(connection: RawConnection, name: str) -> None:
    def ask(topic: str, create: bool, version: int = 8) -> Any:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
        return connection.call(request, version).topics[0]

    assert ask(name, create=False).error_code == 3
    assert ask(name, create=False).error_code == 3, "the request did not create it"
    assert ask(name, create=True).error_code in (0, 3, 5)
    until(lambda: ask(name, create=False).error_code == 0, "the topic is there")
    assert [p.leader_id >= 0 for p in ask(name, create=False).partitions] == [True]
    assert ask("not a name", create=True).error_code == 17
    assert ask(f"{name}-old", create=True, version=1).error_code in (0, 3, 5)
    until(lambda: ask(f"{name}-old", create=False).error_code == 0, "versions before 4 always create")


def test_create_partitions_returns_a_result_for_every_topic(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)
    create_topic(broker, f"{name}-b", 3)
    part = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [part(name=name, count=2), part(name=f"{name}-b", count=3), part(name=f"{name}-none", count=2)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000)
    for version in range(advertised(broker)[37][1] + 1):
        request.topics[0].count = 2 + version
        results = {result.name: result.error_code for result in connection.call(request, version).results}
        assert results == {name: 0, f"{name}-b": 37, f"{name}-none": 3}


def describe(connection: RawConnection, kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = connection.call(request, 3).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


# Topic configs that every release from 2.0 to 4.3 has; tools show them all.
TOPIC_CONFIGS = {
    "cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas", "max.compaction.lag.ms",
    "max.message.bytes", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
}
BROKER_CONFIGS = {
    "advertised.listeners", "auto.create.topics.enable", "background.threads", "broker.rack", "compression.type",
    "default.replication.factor", "delete.topic.enable", "group.initial.rebalance.delay.ms", "group.max.session.timeout.ms",
    "inter.broker.listener.name", "listeners", "log.cleaner.enable", "log.dirs", "log.flush.interval.messages",
    "log.message.timestamp.type", "log.retention.bytes", "log.retention.hours", "log.retention.ms", "log.roll.hours", "log.segment.bytes",
    "max.connections.per.ip", "message.max.bytes", "min.insync.replicas", "num.io.threads", "num.network.threads", "num.partitions",
    "offsets.retention.minutes", "offsets.topic.num.partitions", "replica.lag.time.max.ms", "socket.request.max.bytes",
    "transaction.state.log.replication.factor", "unclean.leader.election.enable",
}


def test_describe_configs_lists_every_key(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name, configs={"retention.ms": "123456789"})
    configs = describe(connection, TOPIC, name)
    assert configs.keys() >= TOPIC_CONFIGS
    changed = configs["retention.ms"]
    assert (changed.value, changed.config_source, changed.config_type) == ("123456789", 1, 5)
    assert not changed.read_only
    assert not changed.is_sensitive
    assert next((s.name, s.value, s.source) for s in changed.synonyms) == ("retention.ms", "123456789", 1)
    default = configs["segment.bytes"]
    assert (default.value, default.config_source, default.config_type) == ("1073741824", 5, 3)
    assert [(s.name, s.value, s.source) for s in default.synonyms] == [("log.segment.bytes", "1073741824", 5)]
    assert configs["cleanup.policy"].config_type == 7
    assert configs["min.cleanable.dirty.ratio"].config_type == 6
    assert all(config.documentation for key, config in configs.items() if key in TOPIC_CONFIGS)
    assert describe(connection, TOPIC, name, ["segment.ms"]).keys() == {"segment.ms"}

    (node,) = connection.call(MetadataRequest(topics=[]), 1).brokers
    configs = describe(connection, BROKER, str(node.node_id))
    assert configs.keys() >= BROKER_CONFIGS
    static = configs["group.initial.rebalance.delay.ms"]
    assert (static.value, static.config_source, static.read_only) == ("0", 4, True)
    assert [(s.value, s.source) for s in static.synonyms] == [("0", 4), ("3000", 5)]
    assert all(config.documentation for key, config in configs.items() if key in BROKER_CONFIGS)


def test_incremental_alter_configs_appends_and_subtracts(broker: Server, connection: RawConnection, name: str) -> None:
    create_topic(broker, name)

    def alter(key: str, operation: int, value: str | None) -> int:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name=key, config_operation=operation, value=value)
        request = IncrementalAlterConfigsRequest(resources=[resource(resource_type=TOPIC, resource_name=name, configs=[change])])
        code: int = connection.call(request, 1).responses[0].error_code
        return code

    def until_policy(value: str) -> None:
        until(lambda: describe(connection, TOPIC, name)["cleanup.policy"].value == value, f"cleanup.policy={value}")

    assert alter("cleanup.policy", APPEND, "compact") == 0
    until_policy("delete,compact")
    assert alter("cleanup.policy", APPEND, "compact") == 0
    until_policy("delete,compact")
    assert alter("cleanup.policy", SUBTRACT, "delete") == 0
    until_policy("compact")
    assert alter("cleanup.policy", SUBTRACT, "delete") == 0
    until_policy("compact")
    assert alter("cleanup.policy", DELETE, None) == 0
    until_policy("delete")
    assert alter("retention.ms", APPEND, "1") == 40, "only lists support append"
    assert alter("retention.ms", SET, "soon") == 40
    assert alter("no.such.key", SET, "1") == 40
    until(lambda: describe(connection, TOPIC, name)["retention.ms"].value == "-1", "the refused changes left nothing")


# Groups


@pytest.mark.parametrize("version", [2, 5, 7, 8])
def test_commit_metadata_is_returned(broker: Server, connection: RawConnection, name: str, version: int) -> None:
    create_topic(broker, name, 3)

    def commit(partition: int, offset: int, metadata: str | None) -> int:
        topics = OffsetCommitRequest.OffsetCommitRequestTopic
        part = topics.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
        request = OffsetCommitRequest(group_id=name, topics=[topics(name=name, partitions=[part])])
        code: int = connection.call(request, version).topics[0].partitions[0].error_code
        return code

    find_coordinator(broker, name)
    until(lambda: commit(0, 7, "заметка, 備考") == 0, "the coordinator has loaded")
    assert commit(1, 8, None) == 0
    assert commit(2, 9, "x" * 4096) == 0
    assert commit(2, 10, "x" * 4097) == 12
    asked = OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 2, 3])
    answer = connection.call(OffsetFetchRequest(group_id=name, topics=[asked]), 5).topics[0].partitions
    assert [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in sorted(answer, key=lambda p: p.partition_index)] == [
        (0, 7, "заметка, 備考", 0), (1, 8, "", 0), (2, 9, "x" * 4096, 0), (3, -1, "", 0)]


def test_many_members_join_at_once(broker: Server, name: str) -> None:
    """No member gets UNKNOWN_MEMBER_ID, and all reach the same generation."""
    count = 12
    codes: set[int] = set()
    complete = threading.Event()
    generations: list[int] = []
    find_coordinator(broker, name)

    def member() -> None:
        with RawConnection(broker.address) as connection:
            generation = _join_until(connection, name, count, complete, codes)
        generations.append(generation)

    threads = [threading.Thread(target=member) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert codes <= {0, 14, 16, 27, 79}, "only success, loading, a rebalance, and MEMBER_ID_REQUIRED"
    assert len(generations) == count
    assert len(set(generations)) == 1


def _join_until(connection: RawConnection, group: str, count: int, complete: threading.Event, codes: set[int]) -> int:
    """Join, and join again at each rebalance, until a generation of `count` members is stable; its number."""
    member_id = ""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"any")
        joined = connection.call(
            JoinGroupRequest(group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member_id,
                             protocol_type="consumer", protocols=[protocol]), 5)
        codes.add(joined.error_code)
        member_id = joined.member_id
        if joined.error_code != 0:
            continue
        assignments = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"yours") for m in joined.members]
        synced = connection.call(
            SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=member_id, assignments=assignments), 3)
        codes.add(synced.error_code)
        if synced.error_code != 0:
            continue
        assert synced.assignment == b"yours"
        if len(joined.members) == count:
            complete.set()
        beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=member_id)
        while (code := connection.call(beat, 3).error_code) == 0:
            if complete.is_set():
                return int(joined.generation_id)
            time.sleep(0.02)
        codes.add(code)
    raise AssertionError("the group did not come together")


# Transactions


def test_the_apis_of_transactions_are_advertised_together_or_not_at_all(broker: Server, connection: RawConnection, name: str) -> None:
    keys = advertised(broker)
    offered = [key in keys for key in (ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT)]
    assert all(offered) or not any(offered)
    assert INIT_PRODUCER_ID in keys, "idempotent producers need it"
    if all(offered):
        assert keys[END_TXN][0] == 0
        assert keys[END_TXN][1] >= 3
    else:
        refused = connection.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        assert refused.error_code != 0
        assert connection.call(FindCoordinatorRequest(key=name, key_type=CoordinatorType.TRANSACTION), 2).error_code != 0


@pytest.mark.usefixtures("transactions")
def test_a_transaction_timeout_over_the_limit_is_invalid(connection: RawConnection, name: str) -> None:
    def init(timeout_ms: int) -> int:
        code: int = connection.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4).error_code
        return code

    find = FindCoordinatorRequest(key=name, key_type=CoordinatorType.TRANSACTION)
    until(lambda: connection.call(find, 2).error_code == 0, "a coordinator")
    until(lambda: init(900_000) == 0, "the longest that is allowed")
    assert init(900_001) == 50


@pytest.mark.usefixtures("transactions")
def test_aborted_records_are_hidden_and_markers_survive_compaction(broker: Server, name: str) -> None:
    create_topic(broker, name, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100",
                                        "delete.retention.ms": "100000"})
    producer = TransactionalProducer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    start_ms = int(time.time() * 1000) - 10_000
    for round_ in range(6):
        producer.begin_transaction()
        for key in range(5):
            # Timestamps are further apart than segment.ms, so that each round starts a segment.
            producer.produce(name, b"%d" % round_, b"%d" % key, 0, timestamp=start_ms + 1000 * round_)
        if round_ % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    until(lambda: len(list(broker.partition_directory(name).glob("*.log"))) < 6, "the log was cleaned")

    def read(isolation: str) -> dict[str, str]:
        settings = {"group.id": "unused", "isolation.level": isolation, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": broker.address} | settings)
        consumer.assign([TopicPartition(name, 0, 0)])
        seen: dict[str, str] = {}
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            seen[message.key().decode()] = message.value().decode()
        consumer.close()
        return seen

    assert read("read_committed") == {str(key): "4" for key in range(5)}
    assert set(read("read_uncommitted").values()) <= {"4", "5"}
