"""What log directories remember: producers, and choices for logs that are not there yet."""

from __future__ import annotations

import pytest

from tests.log_directories.support import NOW, T0, DirectoryHarness
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import BrokerError
from txbroker.log.directories import CHOICES_MAX
from txbroker.names import TopicPartition
from txbroker.wire.records import Record, build


def test_silent_producers_expire_by_what_is_configured_now(directory: DiskPath) -> None:
    expiration_ms = 1000
    broker = DirectoryHarness(directory, producer_id_expiration_ms=lambda: expiration_ms)
    directories = broker.start()
    log = broker.create(T0)
    records = build([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    log.append(memoryview(bytearray(records)), leader_epoch=0, now_ms=NOW)
    expiration_ms = 2000
    assert directories.expire_producers(NOW + 1999) == 0
    expiration_ms = 1500
    assert directories.expire_producers(NOW + 1999) == 1


def test_choices_for_partitions_that_never_come_are_not_kept_without_end(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    for partition in range(CHOICES_MAX + 1):
        with pytest.raises(BrokerError):
            directories.move(TopicPartition("never", partition), broker.paths[1], NOW)
    assert len(directories._preferred) == CHOICES_MAX
    assert broker.create(TopicPartition("never", CHOICES_MAX)).directory.startswith(broker.paths[1])
