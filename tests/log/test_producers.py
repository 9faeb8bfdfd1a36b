"""Idempotent and transactional producers: duplicates, refusals, and the state after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, append, batch, committed_rows, corrupt, end_transaction, marker, names, open_log, values
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.log.cleaner.rewriting import emptied
from txbroker.log.log import Log
from txbroker.log.log_results import Appended, Origin
from txbroker.log.producer_snapshots import format_snapshot, parse_snapshot
from txbroker.log.producers import BATCHES_REMEMBERED, NO_OFFSET, REPEATABLE_MS, SEQUENCE_MAX, ProducerBatch, ProducerState
from txbroker.wire.batch import stamp

ID = 4000


def send(log: Log, sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = ID, transactional: bool = False) -> Appended:
    content = [f"{sequence + index}".encode() for index in range(count)]
    return append(log, *content, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)


def refused(code: ErrorCode, log: Log, sequence: int, *, count: int = 1, epoch: int = 0, transactional: bool = False) -> None:
    end = log.log_end_offset
    with pytest.raises(BrokerError) as caught:
        send(log, sequence, count=count, epoch=epoch, transactional=transactional)
    assert caught.value.code is code
    assert log.log_end_offset == end


def test_the_last_batches_are_recognised_as_duplicates(directory: DiskPath) -> None:
    """Five that wait at the previous leader, which has replicated them, and five that were sent to this one meanwhile."""
    log = open_log(directory)
    sequences = range(0, 2 * BATCHES_REMEMBERED + 4, 2)
    first = [send(log, sequence, count=2) for sequence in sequences]
    for again, sequence in zip(first[2:], sequences[2:], strict=True):
        found = send(log, sequence, count=2)
        assert found.duplicate
        assert (found.first_offset, found.last_offset) == (again.first_offset, again.last_offset)
    end = sequences.stop
    assert log.log_end_offset == end
    for sequence, count in ((0, 2), (2, 2), (0, 4), (3, 1)):  # older than the batches that are kept
        earlier = send(log, sequence, count=count)
        assert (earlier.duplicate, earlier.first_offset, earlier.last_offset) == (True, NO_OFFSET, 3)
    for sequence, count in ((2, 3), (4, 1), (5, 2), (4, 4), (end - 1, 2), (end + 1, 1)):  # neither a duplicate nor the next sequence
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, sequence, count=count)
    assert not send(log, end).duplicate


@pytest.mark.parametrize("segment_bytes", [1 << 20, 250], ids=["one segment", "one segment a batch or two"])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_the_last_batches_are_duplicates_after_a_restart(directory: DiskPath, clean: bool, segment_bytes: int) -> None:
    """A snapshot has one batch of each producer; a client may have had more in flight when the broker ended."""
    settings_ = {"segment_bytes": segment_bytes, "index_interval_bytes": 100}
    log = open_log(directory, **settings_)
    send(log, 77, producer_id=ID + 1)
    count = BATCHES_REMEMBERED + 9
    for sequence in range(count):
        append(log, *(b"of others" for _ in range(3)))
        send(log, sequence, producer_id=ID + 1, epoch=1)
        sent = send(log, sequence)
    for _ in range(2):  # from a snapshot, and from a snapshot written after loading one
        if clean:
            log.close()
        else:
            log.flush()
        log = open_log(directory, clean=clean, recovery_point=log.recovery_point, **settings_)

    def check_earlier(sequence: int) -> None:
        if clean or segment_bytes == 250:
            refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, sequence)
        else:
            assert send(log, sequence).first_offset == NO_OFFSET, "all batches were read, and no snapshot"

    check_earlier(8)
    for sequence in range(9, count):
        found = send(log, sequence)
        assert found.duplicate
        assert found.first_offset == sent.first_offset - 5 * (count - 1 - sequence)
    check_earlier(8)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, count + 1)
    assert not send(log, count).duplicate
    assert send(log, 10).duplicate
    check_earlier(9)


def kept(log: Log, now_ms: int = NOW) -> list[int]:
    """The ends of the batches that a cleaning at `now_ms` keeps."""
    return [last.data_offset for last in log.last_records(now_ms)]


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_cleaning_keeps_the_batches_that_a_producer_may_send_again(directory: DiskPath, clean: bool) -> None:
    log = open_log(directory)
    for sequence in range(BATCHES_REMEMBERED + 4):
        send(log, sequence)
    end = log.log_end_offset
    last = [*range(end - 1, end - 1 - BATCHES_REMEMBERED, -1)]
    assert kept(log) == last
    assert kept(log, NOW + REPEATABLE_MS + 1) == last[:1], "clients send nothing again after that time"
    log.roll(NOW)
    log.close() if clean else log.flush()
    log = open_log(directory, clean=clean, recovery_point=log.recovery_point)
    assert kept(log) == last, "also of a producer from a snapshot, which has one batch"


def test_cleaning_keeps_the_last_batch_of_a_producer_with_transactions(directory: DiskPath) -> None:
    log = open_log(directory)
    for sequence in (0, 1):
        send(log, sequence, transactional=True)
    end_transaction(log, ID, committed=True)
    assert kept(log) == [1], "no batch of an ended transaction is sent again"
    end_transaction(log, ID, epoch=1, committed=True)
    assert list(log.last_records(NOW)) == [(ID, 1, NO_OFFSET)]


def cleaned_marker(offset: int, epoch: int) -> memoryview:
    """A control batch whose marker the cleaner has removed."""
    control = bytearray(marker(ID, epoch=epoch, committed=False))
    stamp(control, 0, offset, 0)
    return memoryview(emptied(control, 0))


def test_a_control_batch_without_its_marker_has_the_epoch(directory: DiskPath) -> None:
    """The cleaner keeps it for the epoch."""
    log = open_log(directory)
    log.append_replicated(cleaned_marker(7, epoch=4), now_ms=NOW)
    for again in (log, open_log(directory, clean=False)):
        state = again.producers.get(ID)
        assert state is not None and (state.epoch, state.last_timestamp) == (4, NOW)
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, again, 1, epoch=3, transactional=True)


def test_data_of_a_transaction_whose_marker_was_cleaned_is_not_readable(directory: DiskPath) -> None:
    """A follower that was behind has data that the leader has removed, and nothing says whether it was committed."""
    log = open_log(directory)
    append(log, b"x")
    send(log, 0, epoch=3, transactional=True)
    log.append_replicated(cleaned_marker(2, epoch=4), now_ms=NOW)
    for again in (log, open_log(directory, clean=False)):
        assert again.last_stable_offset(again.log_end_offset) == 1
        assert [row[3] for row in committed_rows(again)] == [b"x"]


def test_what_came_before_a_gap_is_no_duplicate(directory: DiskPath) -> None:
    """A log that does not know a producer takes any first sequence; earlier ones may never have been there."""
    log = open_log(directory)
    for sequence in range(50, 50 + 2 * BATCHES_REMEMBERED):
        send(log, sequence)
    assert send(log, 50).first_offset == NO_OFFSET
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 49)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 49, count=2)
    copy = open_log(directory / "copy")
    for sequence in (*range(BATCHES_REMEMBERED), *range(50, 50 + 2 * BATCHES_REMEMBERED)):
        records = batch(b"v", producer_id=ID, producer_epoch=0, base_sequence=sequence)
        stamp(records, 0, copy.log_end_offset, 0)
        copy.append_replicated(records, now_ms=NOW)
    assert send(copy, 51).first_offset == NO_OFFSET
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, copy, 1)


@pytest.mark.parametrize("sequences", [(0, 5), (*range(990, 1000), 2000), (7, 3), (*range(20), 30)])
def test_a_gap_between_the_batches_that_are_kept(directory: DiskPath, sequences: tuple[int, ...]) -> None:
    """A follower copies what the cleaner, or the expiry of a producer, has left."""
    log = open_log(directory)
    for sequence in sequences:
        records = batch(b"v", producer_id=ID, producer_epoch=0, base_sequence=sequence)
        stamp(records, 0, log.log_end_offset, 0)
        log.append_replicated(records, now_ms=NOW)
    last = sequences[-1]
    for sequence in {1, 2, 4, 7, 8, 15, 50, 989, last - 1, last + 2, last + 3, last + 15, SEQUENCE_MAX} - set(sequences) - {last + 1}:
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, sequence)
    assert not send(log, last + 1).duplicate


def test_a_batch_of_the_next_lap_is_no_duplicate(directory: DiskPath) -> None:
    """Sequence numbers wrap around after 2^31-1. A batch that begins with 2 comes too early if the one that begins with 0 has failed."""
    log = open_log(directory)
    send(log, 0)
    state = ProducerState(ID)
    state.take_epoch(0)
    state.add(ProducerBatch(0, SEQUENCE_MAX - BATCHES_REMEMBERED, 0, 0, NOW))
    for sequence in range(SEQUENCE_MAX - BATCHES_REMEMBERED + 1, SEQUENCE_MAX + 1):
        state.add(ProducerBatch(sequence, sequence, 0, 0, NOW))
    log.producers.restore(state, None)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 2)
    assert send(log, SEQUENCE_MAX - BATCHES_REMEMBERED).first_offset == NO_OFFSET
    assert not send(log, 0).duplicate


def test_a_marker_ends_what_counts_as_repeated(directory: DiskPath) -> None:
    """librdkafka uses the sequence numbers of an aborted transaction again in the same epoch, for other records."""
    log = open_log(directory)
    for sequence in range(BATCHES_REMEMBERED + 5):
        send(log, sequence, transactional=True)
    assert send(log, 0, transactional=True).first_offset == NO_OFFSET
    end_transaction(log, ID, committed=False)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0, transactional=True)
    send(log, BATCHES_REMEMBERED + 5, transactional=True)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0, transactional=True)


def test_batches_of_another_epoch_are_not_duplicates(directory: DiskPath) -> None:
    log = open_log(directory)
    for sequence in range(3):
        send(log, sequence)
    send(log, 0, epoch=1)
    log.close()
    log = open_log(directory)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 2, epoch=1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 2)
    assert send(log, 0, epoch=1).duplicate
    assert not send(log, 1, epoch=1).duplicate


def test_sequences_wrap_around(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, SEQUENCE_MAX - 2, count=2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0)
    assert send(log, SEQUENCE_MAX, count=3).first_offset == 2  # 2^31-1, 0, 1
    assert send(log, SEQUENCE_MAX, count=3).duplicate
    assert not send(log, 2).duplicate
    send(log, 3)
    log.close()
    log = open_log(directory)
    assert send(log, 3).duplicate
    send(log, 4)


def test_early_batches_are_recognised_over_the_wrap(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, SEQUENCE_MAX - 2, count=2)
    send(log, SEQUENCE_MAX, count=3)
    for sequence in range(2, 2 + BATCHES_REMEMBERED):
        send(log, sequence)
    for sequence, count in ((SEQUENCE_MAX - 2, 2), (SEQUENCE_MAX, 3)):
        assert send(log, sequence, count=count).first_offset == NO_OFFSET
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, SEQUENCE_MAX - 3)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, SEQUENCE_MAX, count=4)


def test_epochs(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, 17, epoch=3)  # an unknown producer may start with any sequence: its earlier records may be deleted
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 18, epoch=2)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 17, epoch=2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 18, epoch=4)
    assert not send(log, 0, epoch=4).duplicate
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 18, epoch=3)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 18, epoch=4)
    assert send(log, 0, epoch=4).duplicate
    assert not send(log, 0, epoch=4, producer_id=ID + 1).duplicate


def test_a_duplicate_returns_the_append_time_of_the_original(directory: DiskPath) -> None:
    log = open_log(directory, message_timestamp_log_append=True)
    options: dict[str, Any] = {"producer_id": ID, "producer_epoch": 0, "base_sequence": 0}
    append(log, b"a", now_ms=NOW, **options)
    again = append(log, b"a", now_ms=NOW + 5, **options)
    assert (again.duplicate, again.append_time_ms) == (True, NOW)


def test_coordinators_have_no_sequences(directory: DiskPath) -> None:
    log = open_log(directory)
    options: dict[str, Any] = {"producer_id": ID, "transactional": True}
    for _ in range(3):
        append(log, b"offsets", producer_epoch=1, origin=Origin.COORDINATOR, **options)
    assert log.log_end_offset == 3
    with pytest.raises(BrokerError) as caught:
        append(log, b"offsets", producer_epoch=0, origin=Origin.COORDINATOR, **options)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_inactive_producers_without_open_transactions_expire(directory: DiskPath) -> None:
    log = open_log(directory, producer_id_expiration_ms=1000)
    send(log, 0)
    send(log, 0, producer_id=ID + 1, transactional=True)
    assert log.expire_producers(NOW + 999) == 0
    assert log.expire_producers(NOW + 1000) == 1
    assert [state.producer_id for state in log.producers] == [ID + 1]
    assert not send(log, 0).duplicate
    log.close()
    log = open_log(directory, producer_id_expiration_ms=1000, now_ms=NOW + 1000)
    assert [state.producer_id for state in log.producers] == [ID + 1]


# Transactions


def test_the_last_stable_offset_waits_for_the_earliest_open_transaction(directory: DiskPath) -> None:
    log = open_log(directory)
    append(log, b"plain")
    send(log, 0, producer_id=1, transactional=True)  # at 1
    send(log, 0, producer_id=2, transactional=True)  # at 2
    append(log, b"plain")
    assert log.last_stable_offset(4) == 1
    assert log.last_stable_offset(1) == 1
    end_transaction(log, 1, committed=True)  # at 4
    assert log.last_stable_offset(4) == 1  # the marker is not replicated
    assert log.last_stable_offset(5) == 2
    end_transaction(log, 2, committed=False)  # at 5
    assert log.last_stable_offset(5) == 2
    assert log.last_stable_offset(6) == 6
    assert log.aborted_transactions(0, 6) == [(2, 2, 5, 6)]
    assert log.aborted_transactions(0, 2) == []
    assert log.aborted_transactions(6, 7) == []
    assert log.aborted_transactions(5, 7) == [(2, 2, 5, 6)]
    assert [row[0] for row in committed_rows(log)] == [0, 1, 3]


def test_markers_are_fenced(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, 0, epoch=2, transactional=True)
    for options, code in (
        ({"epoch": 1, "coordinator_epoch": 5}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 2, "coordinator_epoch": 5}, None),
        ({"epoch": 2, "coordinator_epoch": 4}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        end = log.log_end_offset
        if code is None:
            end_transaction(log, ID, committed=True, **options)
            continue
        with pytest.raises(BrokerError) as caught:
            end_transaction(log, ID, committed=True, **options)
        assert caught.value.code is code
        assert log.log_end_offset == end
    end_transaction(log, ID, committed=False, epoch=2, coordinator_epoch=6)  # no open transaction, so none was aborted
    assert log.aborted_transactions(0, 99) == []
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset


def test_a_non_transactional_batch_within_an_open_transaction_is_refused(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, 0, transactional=True)
    refused(ErrorCode.INVALID_TXN_STATE, log, 1)
    send(log, 1, transactional=True)
    end_transaction(log, ID, committed=True)
    send(log, 2)


def test_a_marker_with_a_new_epoch_resets_sequences(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, 0, transactional=True)
    end_transaction(log, ID, committed=False, epoch=1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 1, transactional=True)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 1, epoch=1, transactional=True)
    send(log, 0, epoch=1, transactional=True)


STEP = st.tuples(st.sampled_from(["send", "commit", "abort", "plain", "roll", "close", "kill", "replicate"]), st.integers(1, 3))


@settings(max_examples=examples(40))
@given(st.lists(STEP, max_size=30))
def test_transactions_against_a_model(steps: list[tuple[str, int]]) -> None:
    """A read_committed consumer reads exactly the committed records, also after rolls, restarts and kills."""
    path = DiskPath(MemoryDisk(), "/data")
    log, follower = open_log(path / "leader"), open_log(path / "follower")
    sequences, open_since = dict.fromkeys((1, 2, 3), 0), dict[int, int]()
    outcome: dict[int, str] = {}  # offset -> outcome of its transaction
    for step, producer_id in steps:
        if step == "send":
            offset = send(log, sequences[producer_id], producer_id=producer_id, transactional=True).first_offset
            sequences[producer_id] += 1
            open_since.setdefault(producer_id, offset)
            outcome[offset] = f"open {producer_id}"
        elif step in ("commit", "abort"):
            end_transaction(log, producer_id, committed=step == "commit")
            open_since.pop(producer_id, None)
            outcome = {offset: step if state == f"open {producer_id}" else state for offset, state in outcome.items()}
        elif step == "plain":
            outcome[append(log, b"plain").first_offset] = "commit"
        elif step == "roll":
            log.roll(NOW)
        elif step == "replicate":
            missing = log.read(follower.log_end_offset, 10**6, offset_end=log.log_end_offset, whole_first_batch=True).region.read()
            follower.append_replicated(memoryview(bytearray(missing)), now_ms=NOW)
        else:
            if step == "close":
                log.close()
            log = open_log(path / "leader", clean=step == "close")
        stable = min(open_since.values(), default=log.log_end_offset)
        assert log.last_stable_offset(log.log_end_offset) == stable
        committed = [offset for offset, state in outcome.items() if state == "commit" and offset < stable]
        assert [row[0] for row in committed_rows(log)] == committed
    for producer_id, sequence in sequences.items():
        if sequence:
            assert send(log, sequence - 1, producer_id=producer_id, transactional=True).duplicate
    while follower.log_end_offset < log.log_end_offset:
        missing = log.read(follower.log_end_offset, 10**6, offset_end=log.log_end_offset, whole_first_batch=True).region.read()
        follower.append_replicated(memoryview(bytearray(missing)), now_ms=NOW)
    assert committed_rows(follower) == committed_rows(log)


# Snapshots

STATES = st.lists(
    st.tuples(
        st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, SEQUENCE_MAX), st.integers(1, 1000), st.integers(0, 2**40),
        st.integers(-1, 2**50), st.integers(-1, 100), st.integers(-1, 2**40),
    ),
    max_size=20,
)  # fmt: skip


def described(states: list[ProducerState]) -> list[tuple[object, ...]]:
    return [(s.producer_id, s.epoch, list(s.batches), s.last_timestamp, s.coordinator_epoch, s.txn_first_offset) for s in states]


@given(STATES)
def test_decoding_a_snapshot_returns_the_producers(rows: list[tuple[int, ...]]) -> None:
    states = []
    for producer_id, epoch, first, count, offset, timestamp, coordinator_epoch, txn_first_offset in rows:
        state = ProducerState(producer_id)
        state.epoch, state.last_timestamp = epoch, timestamp
        state.coordinator_epoch, state.txn_first_offset = coordinator_epoch, txn_first_offset
        state.add(ProducerBatch(first, first + count - 1 & SEQUENCE_MAX, offset, offset + count - 1, timestamp))
        states.append(state)
    assert described(parse_snapshot(format_snapshot(states))) == described(states)


def test_every_damaged_snapshot_is_detected(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, 0)
    content = format_snapshot(log.producers)
    for at in range(len(content)):
        for broken in (content[:at], content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]):
            with pytest.raises(CorruptRecords):
                parse_snapshot(broken)


def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_batches(directory: DiskPath) -> None:
    log = open_log(directory)
    for sequence in range(6):
        send(log, sequence)
        if sequence % 2:
            log.roll(NOW)
    log.close()
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 4, 6)]
    for offset in (6, 4):
        corrupt(directory / f"{offset:020d}.snapshot", 20, b"\xff\xff")
        log = open_log(directory)
        assert send(log, 5).duplicate
        assert not (directory / f"{offset:020d}.snapshot").exists()


def test_snapshots_are_removed_with_their_segments(directory: DiskPath) -> None:
    log = open_log(directory, retention_bytes=0, file_delete_delay_ms=0)
    for sequence in range(4):
        send(log, sequence)
        log.roll(NOW)
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (1, 2, 3, 4)]
    log.delete_expired(NOW, 2)
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 3, 4)]
    log.truncate_to(3)
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 3)]
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 4)
    send(log, 3)
    log.close()
    (directory / f"{0:020d}.snapshot").write_bytes(b"stray")
    log = open_log(directory)
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (2, 3, 4)]
    log.truncate_fully_at(100, now_ms=NOW)
    assert names(directory, ".snapshot") == []
    assert not send(log, 3).duplicate


def test_producers_are_kept_after_their_records_are_deleted(directory: DiskPath) -> None:
    log = open_log(directory, retention_bytes=0)
    send(log, 0)
    log.advance_start(1)
    log.close()
    log = open_log(directory, log_start_offset=1, retention_bytes=0)
    assert send(log, 0).duplicate
    send(log, 1)
    log.delete_expired(NOW, 2)
    log.close()
    log = open_log(directory, log_start_offset=2)
    assert log.log_start_offset == 2
    assert send(log, 1).duplicate


def test_a_truncation_restores_the_producers_of_that_offset(directory: DiskPath) -> None:
    log = open_log(directory)
    for sequence in range(6):
        send(log, sequence)
        if sequence == 2:
            log.roll(NOW)
    send(log, 0, producer_id=7, transactional=True)
    log.truncate_to(5)
    assert log.last_stable_offset(5) == 5
    assert send(log, 4).duplicate
    assert send(log, 3).duplicate
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 6)
    assert send(log, 5).first_offset == 5
    assert values(log)[-1] == b"5"


def test_a_control_batch_of_another_type_is_ignored(directory: DiskPath) -> None:
    log = open_log(directory)
    send(log, 0, transactional=True)
    odd = bytearray(bytes(batch(b"\0\0\0\0\0\0", key=b"\0\0\0\x09", producer_id=ID, producer_epoch=0, transactional=True, control=True)))
    log.append(memoryview(odd), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    assert log.last_stable_offset(2) == 0
    short = batch(b"", key=b"\0", producer_id=ID, producer_epoch=0, transactional=True, control=True, base_offset=2)
    log.append_replicated(short, now_ms=NOW)
    nonsense = batch(bytes(6), key=b"\xff\xff\0\1", producer_id=ID, producer_epoch=0, transactional=True, control=True)
    with pytest.raises(CorruptRecords):
        log.append(nonsense, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log = open_log(directory, clean=False)
    assert log.log_end_offset == 3
    assert log.last_stable_offset(3) == 0
    with pytest.raises(BrokerError):
        log.append(marker(ID, committed=True), leader_epoch=0, now_ms=NOW)
