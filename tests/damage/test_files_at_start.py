"""Every small file of a log directory without its content at a start: the broker serves all records, or names the file and what to do."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.log.support import append, rows
from tests.service.whole_broker import WholeBroker
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.errors import StartError

TOPIC, PARTITIONS, RECORDS = "orders", 4, 30
SETTINGS = ("log.retention.ms=-1",)

Content = Callable[[Path], None]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    data = path.read_bytes() if path.exists() else b"0\n2\norders 0 5\n"
    path.write_bytes(data[: len(data) // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b"\x93no file of a broker\xff\x00=1" * 40)


def zeros(path: Path) -> None:
    """What a file system leaves when it wrote the file's length and not its data."""
    path.write_bytes(bytes(max(path.stat().st_size if path.exists() else 0, 100)))


def missing(path: Path) -> None:
    path.unlink(missing_ok=True)


CONTENTS: tuple[Content, ...] = (empty, cut, garbage, zeros, missing)
# All of docs/files.md but segments. Without their content nothing is lost: Kafka reads each as one that knows nothing yet, or rebuilds it.
REBUILT = (
    "meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
    "replication-offset-checkpoint", "cleaner-offset-checkpoint", "txbroker-cleaning", "txbroker-zookeeper-session",
    *(f"{{log}}/{name}" for name in (
        "partition.metadata", "leader-epoch-checkpoint", "00000000000000000000.index", "00000000000000000000.timeindex",
        "00000000000000000000.txnindex", "{snapshot}", "txbroker-current-copy", "txbroker-missing",
    )),
)  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    broker = WholeBroker([root / "first", root / "second"], *SETTINGS)
    broker.create(TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        for number in range(RECORDS):
            append(broker.log(TOPIC, partition), b"%d" % number, producer_id=5, producer_epoch=0, base_sequence=number)
    broker.stop()
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "root"))


def values(broker: WholeBroker) -> list[list[bytes | None]]:
    return [[value for _, _, _, value in rows(broker.log(TOPIC, partition))] for partition in range(PARTITIONS)]


WRITTEN = [[b"%d" % number for number in range(RECORDS)]] * PARTITIONS


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("txbroker")
    level, logger.level = logger.level, logging.CRITICAL
    yield
    logger.level = level


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content.__name__)
@pytest.mark.parametrize("name", REBUILT)
def test_a_file_whose_loss_loses_nothing(root: Path, name: str, content: Content) -> None:
    log = next(path for path in (root / "first").iterdir() if path.name.startswith(f"{TOPIC}-"))
    snapshot = max(path.name for path in log.glob("*.snapshot"))
    content(root / "first" / name.format(log=log.name, snapshot=snapshot))
    broker = WholeBroker([root / "first", root / "second"], *SETTINGS)
    assert values(broker) == WRITTEN
    append(broker.log(TOPIC), b"more")
    broker.stop()
    again = WholeBroker([root / "first", root / "second"], *SETTINGS)  # what was written again is right
    assert values(again) == [[*WRITTEN[0], b"more"], *WRITTEN[1:]]
    again.stop()


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content.__name__)
def test_the_metadata_is_never_new_where_logs_are(root: Path, content: Content) -> None:
    content(root / "first" / FILE_NAME)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(StartError, match=rf"{FILE_NAME}.*restore this file from a backup, or take over .* `txbroker import"):
        WholeBroker([root / "first", root / "second"], *SETTINGS)
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
    if content is not cut:  # SQLite may write its header before the damage is found
        assert after.keys() - {root / "first" / f"{FILE_NAME}-wal"} == before.keys()
    assert {path: data for path, data in after.items() if path.name != FILE_NAME} == {
        path: data for path, data in before.items() if path.name != FILE_NAME
    }


def test_a_metadata_file_with_a_header_and_no_tables_is_not_new(root: Path) -> None:
    """What SQLite writes first, before the tables."""
    import sqlite3

    (root / "first" / FILE_NAME).unlink()
    connection = sqlite3.connect(root / "first" / FILE_NAME)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert (root / "first" / FILE_NAME).stat().st_size > 0
    with pytest.raises(StartError, match=rf"{FILE_NAME} is empty, and the log directories have logs: restore this file"):
        WholeBroker([root / "first", root / "second"], *SETTINGS)


@pytest.mark.parametrize("content", [empty, garbage, zeros, missing], ids=lambda content: content.__name__)
@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("broker.id=-1", "meta.properties has no broker id"),
        ("broker.id=2", "meta.properties does not confirm broker id 2"),
    ],
)
def test_another_broker_id_than_that_of_the_replicas_is_refused(root: Path, content: Content, setting: str, sentence: str) -> None:
    for directory in ("first", "second"):
        content(root / directory / "meta.properties")
    with pytest.raises(StartError, match=rf"{sentence} .* and the metadata has replicas on broker 1, such as orders-.: set broker.id=1"):
        WholeBroker([root / "first", root / "second"], *SETTINGS, setting)
    right = WholeBroker([root / "first", root / "second"], *SETTINGS, "broker.id=1")
    assert values(right) == WRITTEN
    right.stop()


def test_a_broker_id_that_was_cut_off_is_refused(root: Path) -> None:
    """Kafka would start as broker 10, without the partitions of broker 1001."""
    for directory in ("first", "second"):
        (root / directory / "meta.properties").write_bytes(b"version=0\nbroker.id=10")
    with pytest.raises(StartError, match=r"does not confirm broker id 10 .*replicas on broker 1, such as .*: set broker.id=1"):
        WholeBroker([root / "first", root / "second"], *SETTINGS, "broker.id=-1")


def test_a_replica_whose_log_is_another_topics_has_no_leader(root: Path) -> None:
    """Kafka's controller leaves the partition to a leader that has refused the role, and no tool shows it."""
    log = next(path for path in (root / "first").iterdir() if path.name.startswith(f"{TOPIC}-"))
    number = int(log.name.rpartition("-")[2])
    (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    broker = WholeBroker([root / "first", root / "second"], *SETTINGS)
    broker.advance(2)
    image = broker.components.image
    leaders = {partition: image.partition(TOPIC, partition) for partition in range(PARTITIONS)}
    assert {partition: found.leader for partition, found in leaders.items() if found is not None} == {
        partition: -1 if partition == number else 1 for partition in range(PARTITIONS)
    }
    (problem,) = broker.components.replicas.refusals()
    assert problem.startswith(f"1 partition such as {TOPIC}-{number} cannot be served here: ")
    assert broker.broker._status.why_not_ready() == problem
    broker.stop()
    assert (log / "00000000000000000000.log").stat().st_size > 0


def test_what_is_left_after_the_disk_with_the_metadata_was_replaced(root: Path) -> None:
    """The message names the command, and after it the partitions that are left have their records."""
    left = [int(path.name.rpartition("-")[2]) for path in (root / "second").iterdir() if path.name.startswith(f"{TOPIC}-")]
    assert 0 < len(left) < PARTITIONS
    shutil.rmtree(root / "first")
    (root / "first").mkdir()
    with pytest.raises(StartError, match=r"second has logs, such as .* with `txbroker import` \(also logs of txbroker\)"):
        WholeBroker([root / "first", root / "second"], *SETTINGS)
    run("import", "--log-dirs", f"{root / 'first'},{root / 'second'}", "--topic-config", "*:retention.ms=-1", "--yes")
    broker = WholeBroker([root / "first", root / "second"], *SETTINGS)
    for partition in left:
        assert [value for _, _, _, value in rows(broker.log(TOPIC, partition))] == WRITTEN[0]
    broker.stop()
