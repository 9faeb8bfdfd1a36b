"""The small files of a log directory: checkpoints, meta.properties, names of partition directories."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.log_directories.support import T0, T1
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.worker import Worker
from txbroker.errors import StartError
from txbroker.log import clean_shutdown, meta_properties
from txbroker.log.checkpoint_file import CheckpointFile
from txbroker.log.checkpoints import OFFSET_MAX, MalformedCheckpoint, format_offsets, parse_offsets
from txbroker.log.directory_names import DirectoryState, PartitionDirectory, name_in_state, parse
from txbroker.log.log_results import at_once
from txbroker.log.meta_properties import Identity
from txbroker.log.os_disk import OsDisk
from txbroker.log.single_flight import SingleFlight
from txbroker.names import TopicPartition

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"

# Offset checkpoints


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*-checkpoint")), ids=lambda path: path.name)
def test_kafkas_checkpoints_are_read_and_written_as_they_were(path: Path) -> None:
    content = path.read_bytes()
    assert format_offsets(parse_offsets(content)) == content


def test_a_checkpoint() -> None:
    assert parse_offsets(b"0\n2\na-b 0 7\nc 12 0\n") == {TopicPartition("a-b", 0): 7, TopicPartition("c", 12): 0}
    assert parse_offsets(b"") == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1\n0\n", "version 1"),
        (b"0\n", "the line that counts"),
        (b"0\n2\nt 0 1\n", "its count is 2, and it has 1 entry"),
        (b"0\n0\nt 0 1\n", "its count is 0, and it has 1 entry"),
        (b"0\n1\nt 0\n", "line 3 has 2 fields"),
        (b"0\n1\nt 0 15", "its last line is cut off"),
        (b"0\n1\nt 0 -1\n", "'-1' is not a number"),
        (b"0\n1\nt 0 9223372036854775808\n", "is not a number"),
        (b"0\n1\nt 2147483648 0\n", "is not a number"),
        (b"0\n1\nt 0 1_0\n", "'1_0' is not a number"),
        (b"0\n99999999999999999999\n", "is not a number"),
        (b"0\n1\n\xff 0 1\n", "byte 4 is not UTF-8"),
        (b"garbage", "'garbage' is not a number"),
        (bytes(100), "is not a number"),
    ],
)
def test_malformed_checkpoints(content: bytes, reason: str) -> None:
    with pytest.raises(MalformedCheckpoint, match=reason):
        parse_offsets(content)


partitions = st.builds(TopicPartition, st.text("az09._-", min_size=1, max_size=9), st.integers(0, 99))


@given(st.dictionaries(partitions, st.integers(0, OFFSET_MAX)))
def test_offsets_are_decoded_as_encoded(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets


@given(st.binary(max_size=30) | st.from_regex(rb"0\n[0-9]\n([a-z]{0,3} [0-9]{0,3}[ \n]){0,4}", fullmatch=True))
@example(b"0\n1\n\x1c 0 1")
def test_decoding_any_bytes_returns_offsets_or_reports_a_malformed_checkpoint(content: bytes) -> None:
    with contextlib.suppress(MalformedCheckpoint):
        assert all(offset >= 0 for offset in parse_offsets(content).values())


def test_a_checkpoint_file_is_written_once_for_many_requests(directory: DiskPath) -> None:
    worker, offsets, path = Worker(), {T0: 1}, directory / "c"
    file = CheckpointFile(directory.disk, worker, str(path), lambda: offsets, format_offsets, parse_offsets)
    file.request()
    offsets[T0] = 2
    file.request()
    file.request()
    assert worker.run() == 2
    assert parse_offsets(path.read_bytes()) == {T0: 2}
    path.unlink()
    file.request()
    assert worker.run() == 0  # unchanged, so not written
    assert not path.exists()


def test_a_late_write_does_not_replace_newer_content(directory: DiskPath) -> None:
    worker, offsets, path = Worker(), {T0: 1}, directory / "c"
    file = CheckpointFile(directory.disk, worker, str(path), lambda: offsets, format_offsets, parse_offsets)
    file.request()
    offsets[T0] = 2
    file.write()
    worker.run()
    assert parse_offsets(path.read_bytes()) == {T0: 2}


@pytest.mark.parametrize("content", [b"0\n1\n", b"\xff", b"0\n0\n" * 100])
def test_a_malformed_file_is_ignored_with_a_warning(directory: DiskPath, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = directory / "recovery-point-offset-checkpoint"
    path.write_bytes(content)
    assert CheckpointFile(directory.disk, at_once, str(path), dict, format_offsets, parse_offsets).read() == {}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(path) in caplog.text


def test_a_file_of_absurd_size_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert CheckpointFile(OsDisk(), at_once, str(path), dict, format_offsets, parse_offsets).read() == {}
    assert "it has 1099511627776 bytes" in caplog.text


def test_coalesced_work_without_a_second_request() -> None:
    worker = Worker()
    SingleFlight(worker, lambda: None).request()
    assert worker.run() == 0


# meta.properties


def test_kafkas_meta_properties() -> None:
    assert meta_properties.parse((GOLDEN / "meta.properties").read_bytes(), "m") == Identity(1, "lvr4NfIWTo6tu8cpVcm0iw")


def test_meta_properties_are_decoded_as_encoded() -> None:
    identity = Identity(1001, "lvr4NfIWTo6tu8cpVcm0iw")
    assert meta_properties.parse(meta_properties.format_identity(identity), "m") == identity


@pytest.mark.parametrize("content", [b"#\nversion=0\n", b"", b"\n", bytes(50), b"\xff\xfe" + bytes(50), b"no properties"])
def test_meta_properties_without_ids(content: bytes) -> None:
    """Apache Kafka takes a file without a version for version 0, and without ids for one that is not written yet."""
    assert meta_properties.parse(content, "m") == Identity(None, None)


def test_meta_properties_without_a_version() -> None:
    assert meta_properties.parse(b"broker.id=7\n", "m") == Identity(7, None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"version=1\nnode.id=3\ncluster.id=x\ndirectory.id=y\n", "m belongs to KRaft node 3 .*choose another directory"),
        (b"version=2\n", "m has version '2', only version 0 is supported"),
        (b"version=0\nbroker.id=one\n", "m has broker.id=one, which is not a broker id"),
        (b"version=0\nbroker.id=-3\n", "broker.id=-3"),
        (b"version=0\nbroker.id=99999999999\n", "broker.id=99999999999"),
        (b"version=0\nbroker.id=" + b"9" * 50_000, "m has broker.id=9999999999"),
        (b"version=0\n\\u12", r"m is damaged \(m:2: \\u12.*\): remove it, and set broker.id"),
    ],
)
def test_meta_properties_that_are_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(StartError, match=sentence):
        meta_properties.parse(content, "m")


def test_the_identities_of_two_files_are_combined() -> None:
    assert meta_properties.join(Identity(None, "c"), "a", Identity(2, None), "b") == Identity(2, "c")
    with pytest.raises(StartError, match=r"a has broker.id=1 and b has broker.id=2; log.dirs must all belong to one broker"):
        meta_properties.join(Identity(1, "c"), "a", Identity(2, "c"), "b")
    with pytest.raises(StartError, match=r"a has cluster.id=c and b has cluster.id=d"):
        meta_properties.join(Identity(1, "c"), "a", Identity(1, "d"), "b")


def test_the_clean_shutdown_file_is_kafkas() -> None:
    assert (GOLDEN / ".kafka_cleanshutdown").read_bytes() == clean_shutdown.CONTENT


# Names of directories


@pytest.mark.parametrize(
    ("name", "partition", "state"),
    [
        ("t-0", T0, DirectoryState.IN_USE),
        ("a-b-12", TopicPartition("a-b", 12), DirectoryState.IN_USE),
        (f"t-1.{'0' * 32}-delete", T1, DirectoryState.DELETE),
        (f"t-1.{'f' * 32}-future", T1, DirectoryState.FUTURE),
        (f"t-1.{'0' * 32}-stray", T1, DirectoryState.STRAY),
        (f"t-1.{'0' * 32}-delete-0", TopicPartition(f"t-1.{'0' * 32}-delete", 0), DirectoryState.IN_USE),
    ],
)
def test_partition_directories(name: str, partition: TopicPartition, state: DirectoryState) -> None:
    assert parse(name) == PartitionDirectory(partition, state)


@pytest.mark.parametrize(
    "name",
    ["t", "-0", "t-", "t-x", "t-00", "t-2147483648", "t-0.short-delete", f"t-0.{'0' * 32}-gone", "remote-log-index-cache", "t-٣", ""],
)
def test_other_directories(name: str) -> None:
    assert parse(name) is None


@pytest.mark.parametrize("state", [DirectoryState.DELETE, DirectoryState.FUTURE, DirectoryState.STRAY])
def test_a_long_topic_name_is_shortened(state: DirectoryState) -> None:
    name = name_in_state(TopicPartition("x" * 249, 17), state, "0" * 32)
    assert len(name) == 255
    assert parse(name) is not None
    assert name_in_state(T0, state, "0" * 32) == f"t-0.{'0' * 32}-{state.value}"
