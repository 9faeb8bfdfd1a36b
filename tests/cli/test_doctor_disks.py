"""The doctor's checks of disks: a full small file system, offline directories, and the limits; and of in-sync replicas."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_doctor import bad, create, doctor, one
from tests.support.server import Server
from tests.support.small_disk import ballast, small_disk
from txbroker.cli.doctor.disk_checks import check_brokers_directories
from txbroker.cli.doctor.facts import Configs
from txbroker.cli.doctor.findings import FAILED, Finding, Findings
from txbroker.cli.doctor.topic_checks import check_min_isr
from txbroker.client.log_directories import FULL_BYTES, LogDirectory
from txbroker.errors import ErrorCode
from txbroker.wire.messages.metadata import MetadataResponsePartition

MB, GB = 1000**2, 1000**3
STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.process
def test_a_full_disk_is_named(start_broker: Callable[..., Server], tmp_path: Path, name: str) -> None:
    with small_disk(tmp_path / "small") as mounted:
        server = start_broker({"log.dirs": str(mounted / "data")})
        create(server, name)
        fine = one(doctor(server, "--topic", name, status=0), "disks of broker")
        assert str(mounted / "data") in fine["found"] and " of 8.4 MB free)" in fine["found"]
        heavy = ballast(mounted)
        (full,) = bad(doctor(server, "--topic", name, status=1))
        assert full["check"].startswith("disks of broker ") and full["outcome"] == "failed"
        assert f"the disk of log directory {mounted / 'data'} is full (0 B of 8.4 MB free)" in full["found"]
        heavy.unlink()
        assert bad(doctor(server, "--topic", name, status=0)) == []


@pytest.mark.process
def test_a_disk_without_free_inodes_is_named(broker: Server, tmp_path: Path, name: str) -> None:
    create(broker, name)
    with small_disk(tmp_path / "small", "nr_inodes=10") as mounted:
        with pytest.raises(OSError, match="No space left"):
            for number in range(100):
                (mounted / str(number)).touch()
        full, other = bad(doctor(broker, "--topic", name, "--log-dir", str(mounted), status=1))
        assert full["found"] == f"the file system of {mounted} has no free inodes: the broker can create no file there"
        assert other["found"] == f"{mounted} has no partition of it"


@pytest.mark.process
def test_a_log_directory_that_is_offline_is_named(start_broker: Callable[..., Server], tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    server = start_broker({"log.dirs": f"{tmp_path / 'data'},{blocked}"})
    if server.kind != "txbroker":
        pytest.skip("the tests format the directories of Apache Kafka before each start")
    server.stop()
    shutil.rmtree(blocked)
    blocked.write_text("a file")
    server.start()
    (offline,) = bad(doctor(server, status=1))
    assert offline["found"].startswith(f"log directory {blocked} is offline: ")
    assert "restart the broker" in offline["advice"]


class Kept(Findings):
    """Collects findings instead of printing them."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def add(self, finding: Finding) -> None:
        self.found.append(finding)


@pytest.mark.parametrize(("total", "usable", "outcome"), [
    (None, None, "ok"),
    (100 * GB, 6 * GB, "ok"),
    (100 * GB, 4 * GB, "warning"),
    (1000 * GB, 11 * GB, "ok"),
    (1000 * GB, 9 * GB, "warning"),
    (24 * MB, 12 * MB, "ok"),
    (24 * MB, FULL_BYTES, "warning"),
    (24 * MB, FULL_BYTES - 1, "failed"),
    (24 * MB, 0, "failed"),
])  # fmt: skip
def test_free_space(total: int | None, usable: int | None, outcome: str) -> None:
    kept = Kept()
    check_brokers_directories(kept, "disks of broker 1", [LogDirectory("/data", 0, total, usable)])
    assert [finding.outcome for finding in kept.found] == [outcome]


def test_each_directory_has_its_finding_and_the_good_ones_share_one() -> None:
    kept = Kept()
    directories = [
        LogDirectory("/a", 0, 100 * GB, 50 * GB), LogDirectory("/b", STORAGE_ERROR, None, None), LogDirectory("/c", 0, GB, 0),
        LogDirectory("/d", 0, None, None), LogDirectory("/e", int(ErrorCode.UNKNOWN_SERVER_ERROR), None, None),
    ]  # fmt: skip
    check_brokers_directories(kept, "disks of broker 1", directories)
    assert [finding.outcome for finding in kept.found] == ["failed", "failed", "failed", "ok"]
    assert kept.found[-1].found == "log directories online: /a (50.0 GB of 100 GB free), /d"
    none = Kept()
    check_brokers_directories(none, "disks of broker 1", [])
    assert [finding.outcome for finding in none.found] == ["failed"]


def test_too_few_replicas_in_sync_for_acks_all() -> None:
    parts = [MetadataResponsePartition(error_code=0, partition_index=number, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=in_sync)
             for number, in_sync in enumerate(([1, 2], [1]))]
    kept = Kept()
    check_min_isr(kept, "t", parts, Configs({"min.insync.replicas": "2"}, {}))
    (finding,) = kept.found
    assert finding.outcome == FAILED and "in partition 1: acks=all fails with NOT_ENOUGH_REPLICAS" in finding.found
