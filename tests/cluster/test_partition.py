"""One partition: roles, epochs, the high watermark, offsets looked up, records deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, PLENTY, batch, open_log
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import WRITES, FaultyDisk
from txbroker.cluster.followers import FollowerFetch, IsrProposal
from txbroker.cluster.local_replica import Isolation, Leadership
from txbroker.cluster.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, list_offset
from txbroker.cluster.partition import Partition, Replication
from txbroker.cluster.pending_append import PendingAppend
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log import Log

OWN, OTHER, THIRD = 1, 2, 3
LAG_S = 10.0


class Moves:
    """Counts what a partition reports, and syncs its log when the test says so."""

    def __init__(self) -> None:
        self.count = 0
        self.flushes: list[Callable[[], None]] = []
        self.failures: list[str] = []
        self.proposals: list[IsrProposal] = []
        self.truncations: list[int] = []
        self.now_s = 0.0
        self.alive = {OWN, OTHER, THIRD}
        self.replication = Replication(lambda: self.now_s, lambda: LAG_S, lambda replica, _: replica in self.alive)

    def flush(self, log: Log, done: Callable[[], None]) -> None:
        plan = log.flush_plan()
        assert plan is not None

        def synced() -> None:
            log.flushed(plan)
            done()

        self.flushes.append(synced)

    def moved(self, partition: Partition) -> None:
        self.count += 1

    def committed(self, partition: Partition) -> None:
        self.count += 1

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        self.failures.append(str(error))

    def truncated(self, partition: Partition) -> None:
        self.truncations.append(partition.log.log_end_offset)

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)


@pytest.fixture
def moves() -> Moves:
    return Moves()


def leading(path: DiskPath, moves: Moves, isr: tuple[int, ...] = (OWN,), epoch: int = 0, **settings: object) -> Partition:
    log = open_log(path, **settings)
    partition = Partition(OWN, log, moves, moves.flush, moves.replication)
    partition.lead(Leadership(OWN, epoch, isr, (OWN, OTHER, THIRD), 0))
    return partition


def fetched(partition: Partition, moves: Moves, replica: int, offset: int) -> None:
    partition.follower_fetched(FollowerFetch(replica, offset, partition.log.log_end_offset, moves.now_s))


def code_of(error: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    return error.value.code


def test_a_single_replica_commits_its_appends(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves)
    before = moves.count
    appended = partition.append(batch(b"a", b"b"), NOW)
    assert (appended.first_offset, appended.last_offset, partition.high_watermark) == (0, 1, 2)
    assert partition.acknowledged(1) and not partition.acknowledged(2)
    assert moves.count == before + 1


def test_a_failed_write_is_reported(directory: DiskPath, moves: Moves) -> None:
    disk = FaultyDisk(directory.disk)
    partition = Partition(OWN, open_log(directory, disk=disk), moves, moves.flush, moves.replication)
    partition.lead(Leadership(OWN, 0, (OWN,), (OWN,), 0))
    partition.append(batch(b"a"), NOW)
    before = moves.count
    disk.fail(WRITES)
    with pytest.raises(StorageError):
        partition.append(batch(b"lost"), NOW)
    assert (len(moves.failures), moves.count, partition.high_watermark) == (1, before, 1)


def test_the_high_watermark_follows_the_slowest_in_sync_replica_and_never_goes_back(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, isr=(OWN, OTHER, THIRD))
    partition.append(batch(b"a", b"b", b"c"), NOW, all_in_sync=True)
    assert partition.high_watermark == 0
    fetched(partition, moves, OTHER, 3)
    assert partition.high_watermark == 0, "the third replica has nothing yet"
    before = moves.count
    fetched(partition, moves, THIRD, 2)
    assert partition.high_watermark == 2
    assert moves.count == before + 1
    fetched(partition, moves, THIRD, 1)
    assert partition.high_watermark == 2
    partition.lead(Leadership(OWN, 0, (OWN, OTHER), (OWN, OTHER, THIRD), 1))
    assert partition.high_watermark == 3, "the slow one left the ISR"


def test_acks_all_needs_min_insync_replicas(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, min_insync_replicas=2)
    with pytest.raises(BrokerError) as error:
        partition.append(batch(b"a"), NOW, all_in_sync=True)
    assert code_of(error) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    partition.append(batch(b"a"), NOW)


def test_acks_all_needs_no_more_replicas_than_there_are(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, min_insync_replicas=2)
    partition.lead(Leadership(OWN, 0, (OWN,), (OWN,), 1))
    partition.append(batch(b"a"), NOW, all_in_sync=True)
    assert partition.enough_in_sync


def test_only_a_leader_appends_and_answers(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves)
    assert partition.follow(Leadership(OTHER, 1, (OTHER,), (OWN, OTHER), 1))
    for refused in (lambda: partition.append(batch(b"a"), NOW), partition.check_leader):
        with pytest.raises(BrokerError) as error:
            refused()
        assert code_of(error) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_clients_of_other_epochs_are_fenced(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, epoch=5)
    partition.check_leader(5)
    partition.check_leader(-1)
    with pytest.raises(BrokerError) as error:
        partition.check_leader(4)
    assert code_of(error) == ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(BrokerError) as error:
        partition.check_leader(6)
    assert code_of(error) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_consumers_read_up_to_the_high_watermark_and_followers_to_the_end(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, isr=(OWN, OTHER))
    partition.append(batch(b"a", b"b"), NOW)
    fetched(partition, moves, OTHER, 1)
    assert partition.end_for(Isolation.READ_UNCOMMITTED) == 1
    assert partition.end_for(Isolation.READ_COMMITTED) == 1
    assert partition.end_for(Isolation.READ_UNCOMMITTED, replica=OTHER) == 2
    assert len(partition.read(0, PLENTY, 0, True).region) == 0


def test_offsets_by_name_and_by_time(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, epoch=2)
    for i in range(3):
        partition.append(batch(b"a", b"b", timestamp=NOW + 10 * i, step_ms=1), NOW)
    assert list_offset(partition, EARLIEST_TIMESTAMP, 0) == (-1, 0, 2)
    assert list_offset(partition, LATEST_TIMESTAMP, 0) == (-1, 6, 2)
    assert list_offset(partition, NOW + 2, 0) == (NOW + 10, 2, 2)
    assert list_offset(partition, MAX_TIMESTAMP, 0) == (NOW + 21, 5, 2)
    assert list_offset(partition, NOW + 22, 0) is None
    assert list_offset(partition, LATEST_TIERED_TIMESTAMP, 0) is None


def test_uncommitted_records_are_not_found_by_time(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, isr=(OWN, OTHER))
    partition.append(batch(b"a"), NOW)
    assert list_offset(partition, NOW, 0) is None
    assert list_offset(partition, NOW, None) is not None, "a replica sees it"
    assert list_offset(partition, LATEST_TIMESTAMP, 0) == (-1, 0, 0)


def test_deleting_records(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves)
    partition.append(batch(b"a", b"b", b"c"), NOW)
    assert partition.delete_records(2) == 2
    assert partition.delete_records(1) == 1 and partition.log.log_start_offset == 2, "below the start nothing changes"
    assert len(partition.read(2, PLENTY, 3, True).region) > 0, "a start inside a batch stays readable"
    for wrong in (4, -2):
        with pytest.raises(BrokerError) as error:
            partition.delete_records(wrong)
        assert code_of(error) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 3


def test_records_of_a_compacted_topic_cannot_be_deleted(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, cleanup_policy=frozenset({"compact"}))
    with pytest.raises(BrokerError) as error:
        partition.delete_records(0)
    assert code_of(error) == ErrorCode.POLICY_VIOLATION


def test_a_diverging_reader_receives_its_truncation_point(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, epoch=1)
    partition.append(batch(b"a", b"b"), NOW)
    partition.lead(Leadership(OWN, 3, (OWN,), (OWN, OTHER), 1))
    partition.append(batch(b"c"), NOW)
    assert partition.diverging_epoch(-1, 3) is None
    assert partition.diverging_epoch(3, 3) is None
    assert partition.diverging_epoch(1, 2) is None
    assert partition.diverging_epoch(1, 3) == (1, 2), "epoch 1 ended at 2 here"
    assert partition.diverging_epoch(2, 3) == (1, 2)
    assert partition.diverging_epoch(0, 1) == (0, 0), "an epoch before all that are known ends where the first begins"
    with pytest.raises(BrokerError) as error:
        partition.diverging_epoch(9, 1)
    assert code_of(error) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_high_watermark_checkpoint_beyond_the_log_end_is_lowered(directory: DiskPath, moves: Moves) -> None:
    log = open_log(directory)
    assert Partition(OWN, log, moves, moves.flush, moves.replication, high_watermark=99).high_watermark == 0


def test_with_flush_messages_records_are_acknowledged_after_the_sync(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, flush_messages=1)
    for _ in range(3):
        last = partition.append(batch(b"a"), NOW).last_offset
        assert not partition.acknowledged(last) and not partition.acknowledged(last, all_in_sync=False)
    assert partition.high_watermark == 0
    assert len(moves.flushes) == 1, "one sync at a time"
    before = moves.count
    moves.flushes[0]()
    assert moves.count > before
    assert partition.high_watermark == 1, "the others came after the sync began"
    assert partition.acknowledged(0, all_in_sync=False) and not partition.acknowledged(1, all_in_sync=False)
    assert len(moves.flushes) == 2, "the next one covers both"
    moves.flushes[1]()
    assert partition.high_watermark == 3 and partition.acknowledged(2) and partition.acknowledged(2, all_in_sync=False)
    assert len(moves.flushes) == 2


def test_below_flush_messages_no_request_waits(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, flush_messages=3)
    partition.append(batch(b"a", b"b"), NOW)
    assert partition.high_watermark == 2 and partition.acknowledged(1, all_in_sync=False) and not moves.flushes
    partition.append(batch(b"c"), NOW)
    partition.append(batch(b"d"), NOW)
    assert partition.high_watermark == 2 and not partition.acknowledged(2, all_in_sync=False)
    (synced,) = moves.flushes
    synced()
    assert partition.high_watermark == 4, "the fourth is the first of three again"
    assert len(moves.flushes) == 1


def test_a_synced_record_still_waits_for_the_other_replicas(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, isr=(OWN, OTHER), flush_messages=1)
    partition.append(batch(b"a"), NOW)
    fetched(partition, moves, OTHER, 1)
    assert partition.high_watermark == 0
    partition.append(batch(b"b"), NOW)
    moves.flushes[0]()
    moves.flushes[1]()
    assert partition.high_watermark == 1
    assert partition.acknowledged(1, all_in_sync=False) and not partition.acknowledged(1)


def test_a_moved_log_does_not_wait_for_a_flush_of_the_old_copy(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory / "old", moves, flush_messages=1)
    partition.append(batch(b"a"), NOW)
    other = open_log(directory / "new", flush_messages=1)
    other.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    other.flush()
    partition.take_log(other)
    assert partition.acknowledged(0)
    partition.append(batch(b"b"), NOW)
    assert len(moves.flushes) == 2
    moves.flushes[0]()  # the old copy's, late
    assert not partition.acknowledged(1)
    moves.flushes[1]()
    assert partition.acknowledged(1)


def test_a_new_leader_syncs_what_is_due(directory: DiskPath, moves: Moves) -> None:
    log = open_log(directory, flush_messages=1)
    log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    partition = Partition(OWN, log, moves, moves.flush, moves.replication)
    partition.lead(Leadership(OWN, 1, (OWN,), (OWN,), 0))
    assert partition.high_watermark == 0
    moves.flushes[0]()
    assert partition.high_watermark == 1


USES: dict[str, tuple[str, Callable[[Partition], object]]] = {
    "append": ("append", lambda partition: partition.append(batch(b"x"), NOW)),
    "read": ("read", lambda partition: partition.read(0, PLENTY, 1, True)),
    "aborted transactions": ("aborted_transactions", lambda partition: partition.aborted_transactions(0, 1)),
    "a time": ("offset_for_timestamp", lambda partition: list_offset(partition, NOW, 0)),
    "the largest time": ("offset_of_max_timestamp", lambda partition: list_offset(partition, MAX_TIMESTAMP, 0)),
    "records deleted": ("advance_start", lambda partition: partition.delete_records(1)),
    "a topic id": ("assign_topic_id", lambda partition: partition.assign_topic_id(bytes(16))),
}


@pytest.mark.parametrize("use", USES)
def test_every_operation_reports_a_log_failure(directory: DiskPath, moves: Moves, monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    partition = leading(directory, moves)
    partition.append(batch(b"a"), NOW)

    def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is gone")

    method, call = USES[use]
    monkeypatch.setattr(Log, method, fail)
    with pytest.raises(StorageError):
        call(partition)
    assert moves.failures == ["the disk is gone"]


def test_the_first_append_of_an_epoch_writes_it(directory: DiskPath, moves: Moves, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that becomes the leader of thousands of partitions writes nothing."""
    partition = leading(directory, moves)
    partition.append(batch(b"a"), NOW)
    partition.follow(Leadership(OTHER, 1, (OTHER,), (OWN, OTHER), 1))

    def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDisk, "replace", fail)
        partition.lead(Leadership(OWN, 2, (OWN,), (OWN, OTHER), 2))
        assert partition.is_leader and list(partition.log.leader_epochs) == [(0, 0), (2, 1)] and not moves.failures
        with pytest.raises(StorageError):
            partition.append(batch(b"b"), NOW)
        assert moves.failures == ["the disk is gone"] and partition.log.log_end_offset == 1
    checkpoint = DiskPath(directory.disk, partition.log.leader_epochs.path)
    assert checkpoint.read_text() == "0\n1\n0 0\n"
    partition.append(batch(b"b"), NOW)
    assert checkpoint.read_text() == "0\n2\n0 0\n2 1\n"


def test_only_assigned_replicas_may_fetch_as_followers(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves)
    partition.check_replica(THIRD)
    with pytest.raises(BrokerError) as error:
        partition.check_replica(7)
    assert code_of(error) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_append_that_waits_fails_when_another_broker_has_led(directory: DiskPath, moves: Moves) -> None:
    """Records of the other leader may have the same offsets: the high watermark that passes them says nothing about this append."""
    partition = leading(directory, moves, isr=(OWN, OTHER), epoch=1)
    appended = partition.append(batch(b"a"), NOW, all_in_sync=True)
    waiting = PendingAppend(partition, partition.leadership, appended.last_offset)
    assert waiting.outcome() is None
    partition.follow(Leadership(OTHER, 2, (OTHER,), (OWN, OTHER), 1))
    assert waiting.outcome() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.lead(Leadership(OWN, 3, (OWN,), (OWN, OTHER), 2))
    moves.alive.discard(OTHER)
    partition.check_followers()
    assert partition.high_watermark == 1 and waiting.outcome() == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_append_whose_isr_became_too_small(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, isr=(OWN, OTHER), min_insync_replicas=2)
    appended = partition.append(batch(b"a"), NOW, all_in_sync=True)
    waiting = PendingAppend(partition, partition.leadership, appended.last_offset)
    partition.lead(Leadership(OWN, 0, (OWN,), (OWN, OTHER), 1))
    assert waiting.outcome() == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert waiting.outcome(all_in_sync=False) == ErrorCode.NONE


def test_followers_leave_and_join_the_isr(directory: DiskPath, moves: Moves) -> None:
    partition = leading(directory, moves, isr=(OWN, OTHER))
    partition.append(batch(b"a"), NOW)
    moves.now_s += LAG_S + 1
    partition.check_followers()
    partition.check_followers()
    (leaves,) = moves.proposals
    assert leaves.members == {OWN} and partition.high_watermark == 0, "not before the controller has confirmed it"
    partition.isr_confirmed(leaves, (OWN,), 1)
    assert (partition.state.isr, partition.state.partition_epoch, partition.high_watermark) == ((OWN,), 1, 1)
    fetched(partition, moves, OTHER, 0)
    assert len(moves.proposals) == 1, "it has not caught up"
    fetched(partition, moves, OTHER, 1)
    joins = moves.proposals[-1]
    assert joins.members == {OWN, OTHER} and joins.partition_epoch == 1
    partition.append(batch(b"b"), NOW)
    assert partition.high_watermark == 1, "the controller may have confirmed it already"
    moves.alive.discard(OTHER)
    partition.isr_refused(joins)
    assert partition.high_watermark == 2
    partition.isr_confirmed(joins, (OWN, OTHER), 2)
    assert partition.state.isr == (OWN,), "a late answer"
