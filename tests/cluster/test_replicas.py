"""The partitions of one broker: what the controller says of them, and directories that fail under them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.api.lone_broker import no_leaders, no_quota
from tests.log.support import batch
from tests.log_directories.support import NOW, TOPIC_ID, DirectoryHarness
from tests.support.fakes.disk_path import DiskPath
from txbroker.api.fetch_item import FetchClient, FetchItem
from txbroker.api.fetch_partition import PartitionReader
from txbroker.api.read_replica import ReadReplicas
from txbroker.broker.partition_state_log import PartitionStateLog
from txbroker.cluster.followers import IsrProposal
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.offset_lookup import MAX_TIMESTAMP, list_offset
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode, OutOfResources, StorageError
from txbroker.log.log import Log
from txbroker.names import NULL_TOPIC_ID, OFFSETS_TOPIC, TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.compression import Codec
from txbroker.wire.messages.fetch import FetchPartition
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState

OWN, OTHER = 1, 2


class ReplicasHarness:
    """The replicas of broker 1 in two log directories, and the observer of both. `config`: of the logs."""

    def __init__(self, path: DiskPath, **config: Any) -> None:
        self.calls: list[str] = []
        self.broker = DirectoryHarness(path, 2, **config)
        self.broker.start()
        self.image = ClusterImage()
        self.replicas = Replicas(OWN, self.broker.directories, self.image, self, lambda: 0.0, lambda: 10.0)
        self.broker.directories.wire(self)

    def roles(
        self, topic: str, *, leader: int = OWN, epoch: int = 0, version: int = 0, topic_id: bytes = TOPIC_ID, in_sync: int = 0
    ) -> ErrorCode:
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=1,
            leader=leader,
            leader_epoch=epoch,
            isr=[leader, in_sync] if in_sync else [leader],
            partition_epoch=version,
            replicas=[OWN, OTHER],
            is_new=True,
        )
        topic_state = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic_state], live_leaders=[])
        (answered,) = self.replicas.leader_and_isr(request, NOW).topics
        return ErrorCode(answered.partition_errors[0].error_code)

    def moved(self, partition: Partition) -> None:
        pass

    def committed(self, partition: Partition) -> None:
        pass

    def following(self, partition: Partition) -> None:
        self.calls.append(f"follows {partition.topic_partition}")

    def stopped(self, topic_partition: TopicPartition) -> None:
        self.calls.append(f"stopped {topic_partition}")

    def truncated(self, partition: Partition) -> None:
        self.replicas.truncated(partition)

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None:
        self.calls.append(f"proposes {sorted(proposal.members)}")

    def leading(self, partition: Partition) -> None:
        self.calls.append(f"leads {partition.topic_partition}")

    def resigned(self, topic_partition: TopicPartition) -> None:
        self.calls.append(f"resigned {topic_partition}")

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        self.replicas.storage_failed(partition, error)

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        self.replicas.directory_failed(directory, partitions)

    def all_directories_failed(self) -> None:
        self.calls.append("all failed")

    def log_moved(self, topic_partition: TopicPartition, log: Log) -> None:
        raise AssertionError


@pytest.fixture
def harness(directory: DiskPath) -> ReplicasHarness:
    return ReplicasHarness(directory)


def broken(harness: ReplicasHarness, topic: str, topic_id: bytes = TOPIC_ID) -> Partition:
    """A partition that is led here, the disk of whose directory is gone."""
    assert harness.roles(topic, topic_id=topic_id) == ErrorCode.NONE
    partition = harness.replicas.get(topic, 0)
    partition.append(batch(b"a"), NOW)
    harness.broker.disk.fail(path=partition.log.directory.rpartition("/")[0])
    return partition


def assert_offline(harness: ReplicasHarness, topic: str) -> None:
    assert len(harness.broker.directories.offline()) == 1
    assert f"resigned {TopicPartition(topic, 0)}" in harness.calls
    with pytest.raises(BrokerError) as error:
        harness.replicas.get(topic, 0)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_failure_during_leader_and_isr_takes_the_directory_offline(harness: ReplicasHarness) -> None:
    broken(harness, "t", NULL_TOPIC_ID)
    assert harness.roles("t", epoch=1, version=1) == ErrorCode.KAFKA_STORAGE_ERROR, "the topic's id cannot be written"
    assert_offline(harness, "t")
    assert harness.roles("t", epoch=2, version=2) == ErrorCode.KAFKA_STORAGE_ERROR


def test_nothing_is_appended_or_acknowledged_once_the_directory_is_offline(harness: ReplicasHarness) -> None:
    assert harness.roles("t") == ErrorCode.NONE
    partition = harness.replicas.get("t", 0)
    partition.lead(partition.state._replace(isr=(partition.broker_id,), replicas=(partition.broker_id,)))
    harness.replicas.directory_failed(partition.log.directory.rpartition("/")[0], [TopicPartition("t", 0)])
    with pytest.raises(BrokerError) as error:
        partition.append(batch(b"a"), NOW)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == partition.log.log_end_offset == 0


def test_a_partition_that_could_not_take_its_role_is_not_served(harness: ReplicasHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_: object) -> None:
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "lead", no_descriptor)
        assert harness.roles("t") == ErrorCode.REQUEST_TIMED_OUT
    assert len(harness.replicas) == 0 and harness.calls == []
    assert harness.roles("t") == ErrorCode.NONE, "and it can lead at the next request"


def test_a_log_with_a_newer_epoch_than_the_metadata_is_reported_once(harness: ReplicasHarness, caplog: pytest.LogCaptureFixture) -> None:
    for topic in ("ahead", "also-ahead", "behind"):
        made = harness.broker.directories.create(TopicPartition(topic, 0), TOPIC_ID, is_new=True, now_ms=NOW)
        made.leader_epochs.assign(2 if topic == "behind" else 5, 0)
        assert harness.roles(topic, epoch=3) == ErrorCode.NONE
    assert [record.getMessage().partition(":")[0] for record in caplog.records if "import --force" in record.getMessage()] == [
        "ahead-0 has leader epoch 5 in its log, and the metadata has 3"
    ]


def test_stale_controller_requests_are_refused_and_change_nothing(harness: ReplicasHarness) -> None:
    assert harness.roles("t", epoch=5, version=3) == ErrorCode.NONE
    assert harness.roles("t", epoch=4, version=9) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert harness.roles("t", leader=OTHER, epoch=5, version=3) == ErrorCode.NONE
    assert harness.replicas.get("t", 0).is_leader and harness.calls == [f"leads {TopicPartition('t', 0)}"]
    assert harness.roles("t", epoch=6, version=4, topic_id=bytes(15) + b"x") == ErrorCode.INCONSISTENT_TOPIC_ID
    assert harness.roles("none", epoch=-2) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert harness.replicas.find("none", 0) is None
    assert harness.broker.directories.get(TopicPartition("none", 0)) is None


def test_a_directory_whose_disk_fails_goes_offline_when_records_are_deleted_or_looked_up(harness: ReplicasHarness) -> None:
    partition = broken(harness, "t")
    with pytest.raises(StorageError):
        partition.delete_records(1)
    assert_offline(harness, "t")


def test_a_flush_that_cannot_begin_takes_only_its_directory_offline(harness: ReplicasHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harness.roles("t") == harness.roles("u") == ErrorCode.NONE
    for topic in ("t", "u"):
        harness.replicas.get(topic, 0).append(batch(b"a"), NOW)
    plan = Log.flush_plan

    def fail_for_t(log: Log) -> object:
        if log.topic_partition.topic == "t":
            raise StorageError("the disk is gone")
        return plan(log)

    monkeypatch.setattr(Log, "flush_plan", fail_for_t)
    harness.broker.directories.flush_due(2**64)
    harness.broker.worker.run()
    assert_offline(harness, "t")
    assert harness.replicas.get("u", 0).log.recovery_point == 1


def store(harness: ReplicasHarness, read: Deferred[bytes | memoryview]) -> PartitionStateLog:
    """The coordinator's store on a partition of __consumer_offsets; `read` is what a worker reads."""
    return PartitionStateLog(
        OFFSETS_TOPIC,
        harness.replicas,
        Purgatory(Clock(), "produce"),
        codec=Codec.NONE,
        timeout_ms=1000,
        load_bytes=lambda: 1000,
        in_worker=lambda job: read,
    )


def refusal(deferred: Deferred[Any]) -> ErrorCode:
    outcomes: list[Any] = []
    deferred.addBoth(outcomes.append)
    error = outcomes[0].value
    assert isinstance(error, BrokerError)
    return error.code


def test_a_commit_that_cannot_be_written_takes_the_directory_offline(harness: ReplicasHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(harness, OFFSETS_TOPIC)

    def gone(*_: object, **__: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(Log, "append", gone)
    assert refusal(store(harness, succeed(b"")).append(0, [(b"k", b"v")], NOW)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(harness, OFFSETS_TOPIC)


def test_offsets_that_cannot_be_read_take_the_directory_offline(harness: ReplicasHarness) -> None:
    broken(harness, OFFSETS_TOPIC)
    assert refusal(store(harness, fail(StorageError("the disk is gone"))).read(0, 0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(harness, OFFSETS_TOPIC)


def test_the_largest_timestamp_is_one_of_the_remaining_records(harness: ReplicasHarness) -> None:
    assert harness.roles("t") == ErrorCode.NONE
    partition = harness.replicas.get("t", 0)
    for timestamp in (NOW + 9, NOW + 1, NOW + 2):
        partition.append(batch(b"a", timestamp=timestamp), NOW)
    assert list_offset(partition, MAX_TIMESTAMP, 0) == (NOW + 9, 0, 0)
    partition.delete_records(1)
    assert list_offset(partition, MAX_TIMESTAMP, 0) == (NOW + 2, 2, 0)


def test_a_flush_without_a_free_descriptor_is_retried(harness: ReplicasHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harness.roles("t") == ErrorCode.NONE
    partition = harness.replicas.get("t", 0)
    partition.append(batch(b"a"), NOW)

    def none_left(_: Log) -> None:
        raise OutOfResources("too many open files")

    done: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(Log, "flush_plan", none_left)
        harness.broker.directories.flush(partition.log, lambda: done.append(True))
    harness.broker.worker.run()
    assert harness.broker.directories.offline() == [] and not done
    harness.broker.worker.wait(1000)
    assert done and partition.log.recovery_point == 1


def test_only_fetches_of_replicas_advance_the_high_watermark(harness: ReplicasHarness) -> None:
    assert harness.roles("t", in_sync=OTHER) == ErrorCode.NONE
    partition = harness.replicas.get("t", 0)
    partition.append(batch(b"a"), NOW)
    image = ClusterImage()
    reader = PartitionReader(harness.replicas, no_leaders(), Counter(), lambda: 0.0, ReadReplicas(image, None), no_quota())

    def fetch(replica: int, offset: int) -> int:
        item = FetchItem("t", NULL_TOPIC_ID, FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000))
        try:
            return reader.read(item, 1000, True, FetchClient(replica)).size
        except BrokerError as error:
            return -error.code

    assert fetch(7, 1) == -ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(OTHER, 99) == -ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.high_watermark == 0
    assert fetch(-2, 0) > 0, "Kafka's debugging tools see everything"
    assert fetch(-1, 0) == 0
    assert fetch(OTHER, 0) > 0 and partition.high_watermark == 0
    assert fetch(OTHER, 1) == 0 and partition.high_watermark == 1


def test_a_truncation_lowers_the_cleaner_checkpoint(harness: ReplicasHarness) -> None:
    """Kafka's maybeTruncateCheckpoint: the records that follow are others, and have not been cleaned."""
    assert harness.roles("t") == ErrorCode.NONE
    partition = harness.replicas.get("t", 0)
    for _ in range(4):
        partition.append(batch(b"a"), NOW)
    cleaning = harness.broker.directories.cleaning
    cleaning.set_offset(partition.topic_partition, 3)
    assert harness.roles("t", leader=OTHER, epoch=1, version=1) == ErrorCode.NONE
    partition.truncate_to(3)
    assert cleaning.offset(partition.topic_partition) == 3
    partition.truncate_to(1)
    assert cleaning.offset(partition.topic_partition) == 1
    while partition.log.log_end_offset != 9:
        partition.restart_at(9, NOW)
        assert partition.high_watermark <= partition.log.log_end_offset
        harness.broker.worker.run()
    assert (partition.log.log_start_offset, partition.log.log_end_offset, partition.high_watermark) == (9, 9, 9)
    assert cleaning.offset(partition.topic_partition) == 0


@pytest.mark.parametrize("flush_messages", [1, 10**9])
@pytest.mark.parametrize("target", [9, 4, 1, 0])
def test_a_loss_of_power_during_a_truncation_is_not_taken_for_missing_records(
    directory: DiskPath, target: int, flush_messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint has a lower recovery point before anything is removed, and is written again when all is."""
    for jobs in range(1000):
        disk = MemoryDisk()
        path = DiskPath(disk, f"/{jobs}").made()
        disk.sync("/")
        harness = ReplicasHarness(path, segment_bytes=250, flush_messages=flush_messages)
        assert harness.roles("t") == ErrorCode.NONE
        partition = harness.replicas.get("t", 0)
        for _ in range(10):
            partition.append(batch(b"a"), NOW)
            harness.broker.worker.run()
        assert len(partition.log.segments) > 2
        harness.broker.directories.flush(partition.log)
        harness.broker.directories.checkpoints.write_recovery_points()
        harness.broker.worker.run()
        assert partition.log.recovery_point == 10
        assert harness.roles("t", leader=OTHER, epoch=1, version=1) == ErrorCode.NONE
        left = jobs
        while partition.log.log_end_offset > target and left:
            partition.truncate_to(target)
            left -= harness.broker.worker.run(1)
        complete = partition.log.log_end_offset == target and bool(left)
        if complete:
            harness.broker.worker.run()
            name, = partition.log.directory.split("/")[2:3]
            assert harness.broker.checkpoint("recovery-point-offset-checkpoint", name) == [f"t 0 {target}"]
        disk.power_cut(Random(jobs))
        again = DirectoryHarness(path, 2)
        again.start()
        log = again.directories.get(TopicPartition("t", 0))
        assert log is not None and not log.missing
        assert log.log_end_offset >= target
        if complete:
            break
    assert jobs >= 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_truncation_goes_on_after_a_time_without_a_leader(harness: ReplicasHarness) -> None:
    """A sync from before it has ended meanwhile."""
    assert harness.roles("t") == ErrorCode.NONE
    partition = harness.replicas.get("t", 0)
    for _ in range(4):
        partition.append(batch(b"a"), NOW)
    partition._have_flushed()
    assert harness.roles("t", leader=OTHER, epoch=1, version=1) == ErrorCode.NONE
    partition.restart_at(9, NOW)
    assert partition.log.must_flush
    assert harness.roles("t", leader=-1, epoch=2, version=2) == ErrorCode.NONE
    harness.broker.worker.run()
    assert partition.log.must_flush, "the sync is older than the truncation"
    assert harness.roles("t", leader=OTHER, epoch=3, version=3) == ErrorCode.NONE
    harness.broker.worker.run()
    assert not partition.log.must_flush
