"""State with bounds: producers, and requested directories of logs that do not exist yet."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.log_directories.support import NOW, T0, T1, DirectoryHarness
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import BrokerError
from txbroker.log.directory_moves import CHOICES_MAX
from txbroker.log.log import Log
from txbroker.log.producer_expiry import PRODUCERS_PER_TURN
from txbroker.names import TopicPartition
from txbroker.wire.batch import BatchHeader
from txbroker.wire.records import Record, build


def test_producer_expiry_uses_the_current_configuration(directory: DiskPath) -> None:
    expiration_ms = 1000
    broker = DirectoryHarness(directory, producer_id_expiration_ms=lambda: expiration_ms)
    directories = broker.start()
    log = broker.create(T0)
    records = build([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    log.append(memoryview(bytearray(records)), leader_epoch=0, now_ms=NOW)
    expiration_ms = 2000
    directories.expire_producers(NOW + 1999)
    assert len(log.producers) == 1
    expiration_ms = 1500
    directories.expire_producers(NOW + 1999)
    assert len(log.producers) == 0


def producers(log: Log, ids: range, *, timestamp: int = NOW) -> None:
    for producer_id in ids:
        header = BatchHeader(0, 100, 0, 2, 0, 0, 0, timestamp, timestamp, producer_id, 0, 0, 1)
        log.producers.update(header, producer_id)


def test_many_producers_expire_in_slices(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, producer_id_expiration_ms=lambda: 1000)
    directories = broker.start()
    logs = [broker.create(topic_partition) for topic_partition in (T0, T1)]
    for log in logs:
        producers(log, range(2 * PRODUCERS_PER_TURN))
    left = [len(logs[0].producers) + len(logs[1].producers)]
    directories.expire_producers(NOW + 1000)
    directories.expire_producers(NOW + 1000)  # does not start a second pass
    producers(logs[1], range(5), timestamp=NOW + 1)  # these are active again
    turns = 0
    while broker.worker.run(1):
        turns += 1
        left.append(len(logs[0].producers) + len(logs[1].producers))
    assert max(before - after for before, after in pairwise(left)) <= PRODUCERS_PER_TURN
    assert turns >= 3
    assert sorted(state.producer_id for state in logs[1].producers) == [0, 1, 2, 3, 4] and not len(logs[0].producers)
    directories.expire_producers(NOW + 2000)
    broker.worker.run()
    assert not len(logs[1].producers)


def test_producer_expiry_ends_when_the_broker_stops(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, producer_id_expiration_ms=lambda: 1000)
    directories = broker.start()
    log = broker.create(T0)
    producers(log, range(2 * PRODUCERS_PER_TURN))
    directories.expire_producers(NOW + 1000)
    directories.stop()
    broker.worker.run()
    assert len(log.producers) == PRODUCERS_PER_TURN


def test_requested_directories_of_partitions_that_are_never_created_are_bounded(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    for partition in range(CHOICES_MAX + 1):
        with pytest.raises(BrokerError):
            directories.moves.begin(TopicPartition("never", partition), broker.paths[1], NOW)
    assert len(directories.moves._preferred) == CHOICES_MAX
    assert broker.create(TopicPartition("never", CHOICES_MAX)).directory.startswith(broker.paths[1])
