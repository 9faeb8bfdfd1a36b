"""Log directories to damage: Kafka's samples, and one of txbroker; and what verify finds in them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.log.support import NOW, append, marker, open_log
from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.log_results import Origin
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.findings import Finding, Severity
from txbroker.logtools.log_paths import survey
from txbroker.logtools.verify import Verified, verify

KAFKA = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"


def look(path: Path, disk: OsDisk | None = None) -> Verified:
    disk = disk or UnsyncedDisk()
    return verify(disk, survey(disk, [str(path)]), lambda size, records: None)


def faults(path: Path) -> list[Finding]:
    return [finding for finding in look(path).findings.kept if finding.severity is Severity.FAULT]


def kafka(tmp_path: Path) -> Path:
    """A copy of a data directory of Kafka 3.9.1."""
    return Path(shutil.copytree(KAFKA, tmp_path / "kafka"))


def ours(tmp_path: Path, *, batches: int = 60, transactions: bool = True, segment_bytes: int = 4000) -> Path:
    """A data directory with one partition, orders-3: several segments, idempotent producers, transactions, two epochs."""
    data = tmp_path / "ours"
    path = data / "orders-3"
    path.mkdir(parents=True)
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    (data / ".kafka_cleanshutdown").write_text("")
    log = open_log(path, segment_bytes=segment_bytes, index_interval_bytes=200)
    for number in range(batches):
        timestamp, epoch = NOW + number, number // 30
        if transactions and number % 10 == 9:
            append(
                log, b"in a transaction", producer_id=9, producer_epoch=0, base_sequence=number // 10, transactional=True,
                timestamp=timestamp, leader_epoch=epoch,
            )
            end = marker(9, committed=number % 20 == 9, timestamp=timestamp)
            log.append(end, leader_epoch=epoch, now_ms=timestamp, origin=Origin.COORDINATOR)
        append(
            log, *(f"{number}.{i}".encode() * 10 for i in range(3)), key=b"k%d" % (number % 7), timestamp=timestamp,
            leader_epoch=epoch, producer_id=5, producer_epoch=0, base_sequence=3 * number,
        )
    log.close()
    assert len(list(path.glob("*.log"))) > 3
    return data


def segments(data: Path) -> list[Path]:
    return sorted((data / "orders-3").glob("*.log"))


def mutate(data: Path, chance: random.Random, count: int) -> None:
    """Damage some files: truncate, delete, flip bits, write zeros, append bytes, set extreme numbers."""
    paths = sorted(path for path in data.rglob("*") if path.is_file())
    for _ in range(count):
        path = chance.choice(paths)
        if not path.exists():
            continue
        content = bytearray(path.read_bytes())
        way = chance.randrange(6)
        if way == 0:
            path.unlink()
            continue
        if way == 1:
            content += chance.randbytes(chance.randrange(1, 500))
        elif content:
            at = chance.randrange(len(content))
            if way == 2:
                del content[at:]
            elif way == 3:
                content[at] ^= 1 << chance.randrange(8)
            elif way == 4:
                content[at : at + 200] = bytes(len(content[at : at + 200]))
            else:
                content[at : at + 8] = chance.choice([b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)])
        path.write_bytes(content)
