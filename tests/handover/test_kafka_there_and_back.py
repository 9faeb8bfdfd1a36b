"""Log directories go from Apache Kafka 3.9 to txbroker and back, after stops and kills: nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run
from tests.handover.feeding import (
    CODECS,
    COMPACTED,
    TRANSACTIONAL,
    Content,
    Counting,
    commit_offsets,
    content,
    delete_topic,
    fill,
    make_topic,
    new_producer_id,
    transaction,
)
from tests.support.broker import BrokerProcess
from tests.support.dump import dump_directory
from tests.support.kafka import KafkaOldProcess
from tests.support.raw_admin import delete_records
from tests.support.waiting import until
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.log.checkpoints import LOG_START_OFFSETS

pytestmark = pytest.mark.process
QUICK = {"offsets.topic.num.partitions": "3", "log.flush.start.offset.checkpoint.interval.ms": "200"}


@pytest.fixture
def log_dirs(tmp_path: Path) -> str:
    """Two log directories, which both brokers use."""
    return f"{tmp_path / 'logs-a'},{tmp_path / 'logs-b'}"


@pytest.fixture
def kafka(tmp_path: Path, log_dirs: str) -> Iterator[KafkaOldProcess]:
    server = KafkaOldProcess(tmp_path / "kafka", {"log.dirs": log_dirs, **QUICK, "transaction.state.log.num.partitions": "2"})
    yield server
    server.close()


@pytest.fixture
def ours(tmp_path: Path, log_dirs: str) -> Iterator[BrokerProcess]:
    server = BrokerProcess(tmp_path / "ours", {"log.dirs": log_dirs, **QUICK})
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log_tail()


def checkpointed_starts(directories: list[Path]) -> set[str]:
    """The lines of the log start offset checkpoints."""
    files = [directory / LOG_START_OFFSETS for directory in directories]
    return {line for file in files if file.exists() for line in file.read_text().splitlines()}


def same(now: Content, before: Content, *, but: tuple[str, ...] = ()) -> None:
    """Check that everything is unchanged, except topics in `but`."""
    def kept(values: dict[Any, Any]) -> dict[Any, Any]:
        return {key: value for key, value in values.items() if not set(but).intersection([key] if isinstance(key, str) else key)}

    for name in ("configs", "starts", "committed", "records"):
        assert kept(getattr(now, name)) == kept(getattr(before, name)), name


@pytest.mark.timeout(1200)  # four JVM starts, recoveries, and six reads of everything
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_directories_go_to_txbroker_and_back_and_again(kafka: KafkaOldProcess, ours: BrokerProcess, log_dirs: str, killed: bool) -> None:
    directories = [Path(path) for path in log_dirs.split(",")]

    def end(server: KafkaOldProcess | BrokerProcess, *deleted: str) -> None:
        """`deleted`: lines of the log start offset checkpoint, which each broker writes at an interval."""
        if killed:
            until(lambda: set(deleted) <= checkpointed_starts(directories), f"{deleted} are written down")
            server.kill()
        else:
            server.stop()

    kafka.start()
    places = ("--log-dirs", log_dirs, "--zookeeper", kafka.zookeeper)
    fill(kafka)
    counting = Counting.begin(kafka)
    counting.go_on(kafka)
    before = content(kafka)
    last_id = new_producer_id(kafka)
    _, complaint = run("import", *places, status=1)
    assert "a broker is running" in complaint
    output, complaint = run("import", *places, "--dry-run", status=1)
    assert COMPACTED in output and "is registered" in complaint
    end(kafka, "codec-zstd 0 40")

    output, _ = run("import", *places)
    assert "concern" not in output, output
    ours.start()
    same(content(ours, before.configs), before)
    assert new_producer_id(ours) > last_id
    counting.go_on(ours)
    commit_offsets(ours, "codec-none", {0: 50})
    make_topic(ours, "made-here")
    delete_records(ours, "codec-lz4", 25)
    delete_topic(ours, "codec-gzip")
    middle = content(ours)
    last_id = new_producer_id(ours)
    end(ours, "codec-zstd 0 40", "codec-lz4 0 25")

    _, complaint = run("export", *places, status=1)
    assert "--yes" in complaint, "a topic was deleted"
    run("export", *places, "--yes")
    assert not any((directory / FILE_NAME).exists() for directory in directories)
    kafka.start()
    after = content(kafka, middle.configs)
    same(after, middle)
    assert ("codec-gzip", 0) not in after.starts and ("made-here", 1) in after.starts and after.committed["codec-none", 0] == 50
    assert new_producer_id(kafka) > last_id
    counting.go_on(kafka)
    transaction(kafka, TRANSACTIONAL, 7, commit=True)
    transaction(kafka, TRANSACTIONAL, 8, commit=False)
    last = content(kafka)
    end(kafka)

    run("import", *places)
    ours.start()
    same(content(ours, last.configs), last)
    counting.go_on(ours)
    ours.stop()
    dumped = [dump_directory(directory) for directory in directories]
    assert all(dumped), "both have logs"
    assert last.starts["codec-zstd", 0][0] == 40 and last.starts["codec-lz4", 0][0] == 25
    assert set(CODECS) - {"gzip"} <= {topic.removeprefix("codec-") for topic, _ in last.starts}
    assert (COMPACTED, 0) in last.starts
