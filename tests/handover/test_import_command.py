"""`txbroker import` on directories that Apache Kafka 3.9 wrote."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import command, run
from tests.support.waiting import PATIENCE_S
from txbroker.cluster.tree.interface import Create
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.cluster.tree.sqlite_file import data_of, read_tree, write_tree
from txbroker.log.directory import LOCK_FILE
from txbroker.log.os_disk import OsDisk

SAMPLES = Path(__file__).parent.parent / "golden" / "kafka-3.9.1" / "data"
TOPICS = {"__consumer_offsets", "__transaction_state", "s-compact", "s-logappend", "s-mixed", "s-recompressed", "s-txn", "s-v1-logappend"}
KEEP = ("--topic-config", "*:retention.ms=-1")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "kafka"))


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith((FILE_NAME, LOCK_FILE))
    }


def test_an_import_without_zookeeper_only_adds_the_metadata_file(directory: Path) -> None:
    before = content(directory)
    output, _ = run("import", "--log-dirs", str(directory), *KEEP)
    assert "Imported 8 topics with 10 partitions into " in output
    tree = read_tree(str(directory / FILE_NAME))
    assert data_of(tree, "/brokers/topics").keys() == TOPICS
    assert data_of(tree, "/brokers/topics/s-txn/partitions").keys() == {"0", "1"}
    assert content(directory) == before
    assert [path.name for path in directory.glob(f"{FILE_NAME}*")] == [FILE_NAME], "one complete file"


def test_directories_of_old_brokers_get_a_cluster_id(directory: Path) -> None:
    """Before 2.4, meta.properties had no cluster id; before 0.8.2 it did not exist."""
    (directory / "meta.properties").write_text("#\n#Tue Sep 03 14:56:41 PDT 2019\nversion=0\nbroker.id=1\n")
    output, _ = run("import", "--log-dirs", str(directory), *KEEP, "--json")
    plan = json.loads(output.splitlines()[0])
    assert len(plan["cluster_id"]) == 22 and plan["broker_id"] == 1 and any("--cluster-id" in note for note in plan["notes"])
    output, _ = run("import", "--log-dirs", str(directory), *KEEP, "--json", "--force", "--cluster-id", "lvr4NfIWTo6tu8cpVcm0iw")
    assert json.loads(output.splitlines()[0])["cluster_id"] == "lvr4NfIWTo6tu8cpVcm0iw"
    (directory / "meta.properties").unlink()
    _, complaint = run("import", "--log-dirs", str(directory), *KEEP, "--force", status=1)
    assert "--override broker.id=ID" in complaint
    output, _ = run("import", "--log-dirs", str(directory), *KEEP, "--json", "--force", "--override", "broker.id=7")
    assert json.loads(output.splitlines()[0])["broker_id"] == 7


@pytest.mark.parametrize("flags", [("--cluster-id", "another"), ("--override", "broker.id=7")])
def test_ids_that_differ_from_those_of_the_directories_are_refused(directory: Path, flags: tuple[str, ...]) -> None:
    _, complaint = run("import", "--log-dirs", str(directory), *KEEP, *flags, status=2)
    assert "the directories belong to" in complaint and not (directory / FILE_NAME).exists()


@pytest.mark.parametrize("left", [b"", b"no database"])
def test_a_metadata_file_without_content_is_replaced(directory: Path, left: bytes) -> None:
    (directory / FILE_NAME).write_bytes(left)
    _, complaint = run("import", "--log-dirs", str(directory), *KEEP, status=1)
    assert "empty or damaged" in complaint and "--force" in complaint
    run("import", "--log-dirs", str(directory), *KEEP, "--force")
    assert data_of(read_tree(str(directory / FILE_NAME)), "/brokers/topics").keys() == TOPICS
    assert (directory / f"{FILE_NAME}.replaced").exists()


def test_a_disk_that_was_replaced_is_named(directory: Path, tmp_path: Path) -> None:
    """What is in a partition of an internal topic depends on their number: it is not that of the logs that are left."""
    new = tmp_path / "new"
    new.mkdir()
    output, _ = run("import", "--log-dirs", f"{new},{directory}", *KEEP, status=1)
    assert f"concern: {new} has no meta.properties, as a disk that was replaced" in output
    run("import", "--log-dirs", f"{new},{directory}", *KEEP, "--yes")
    tree = read_tree(str(new / FILE_NAME))
    assert len(data_of(tree, "/brokers/topics/__consumer_offsets/partitions")) == 50
    assert data_of(tree, "/brokers/topics/s-txn/partitions").keys() == {"0", "1"}


def test_unknown_configurations_require_consent_and_a_dry_run_writes_nothing(directory: Path) -> None:
    output, complaint = run("import", "--log-dirs", str(directory), status=1)
    assert "concern: the directories do not contain the configurations of 6 topics" in output
    assert "s-compact" in output and "--yes" in complaint
    run("import", "--log-dirs", str(directory), "--yes", "--dry-run")
    assert not (directory / FILE_NAME).exists()
    output, _ = run("import", "--log-dirs", str(directory), "--yes", "--json")
    plan, done = map(json.loads, output.splitlines())
    assert plan["cluster_id"] == "lvr4NfIWTo6tu8cpVcm0iw" and plan["clean"] and {each["topic"] for each in plan["topics"]} == TOPICS
    assert done["partitions"] == 10


def test_a_second_import_requires_force(directory: Path) -> None:
    run("import", "--log-dirs", str(directory), *KEEP)
    first = (directory / FILE_NAME).read_bytes()
    _, complaint = run("import", "--log-dirs", str(directory), *KEEP, status=1)
    assert "--force" in complaint and (directory / FILE_NAME).read_bytes() == first
    _, said = run("import", "--log-dirs", str(directory), *KEEP, "--force")
    assert f"{FILE_NAME}.replaced" in said
    assert read_tree(str(directory / f"{FILE_NAME}.replaced")).keys() == read_tree(str(directory / FILE_NAME)).keys()
    run("import", "--log-dirs", str(directory), *KEEP, "--force")
    assert (directory / f"{FILE_NAME}.replaced-2").exists()


def test_an_import_removes_the_cleaning_history(directory: Path) -> None:
    (directory / "txbroker-cleaning").write_bytes(b"of before Kafka cleaned")
    run("import", "--log-dirs", str(directory), *KEEP)
    assert not (directory / "txbroker-cleaning").exists()


def test_an_interrupted_import_has_no_effect(directory: Path) -> None:
    for suffix in (".new", ".new-wal", ".new-journal", "-wal"):
        (directory / f"{FILE_NAME}{suffix}").write_bytes(b"half of it")
    run("import", "--log-dirs", str(directory), *KEEP)
    assert data_of(read_tree(str(directory / FILE_NAME)), "/brokers/topics").keys() == TOPICS
    assert [path.name for path in directory.glob(f"{FILE_NAME}*")] == [FILE_NAME]


@pytest.mark.process
def test_a_broker_refuses_a_directory_that_is_not_imported(directory: Path) -> None:
    before = content(directory)
    overrides = ("--override", f"log.dirs={directory}", "--override", "listeners=PLAINTEXT://127.0.0.1:0")
    ended = subprocess.run(command("run", *overrides), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1
    assert "`txbroker import`" in ended.stderr and "Traceback" not in ended.stderr
    assert content(directory) == before and not list(directory.glob(f"{FILE_NAME}*"))


def test_a_kraft_directory_is_refused(directory: Path) -> None:
    (directory / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=lvr4NfIWTo6tu8cpVcm0iw\n")
    _, complaint = run("import", "--log-dirs", str(directory), *KEEP, status=1)
    assert "KRaft" in complaint and "dump-log" in complaint


def test_a_directory_in_use_is_refused(directory: Path) -> None:
    other = subprocess.Popen(
        ["python3", "-c", f"import fcntl; f = open({str(directory / LOCK_FILE)!r}, 'w'); fcntl.lockf(f, 2); print(); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None and other.stdin is not None
    other.stdout.readline()
    _, complaint = run("import", "--log-dirs", str(directory), *KEEP, status=1)
    assert "a broker is running" in complaint
    other.communicate(b"\n", timeout=PATIENCE_S)
    other.stdin.close()


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (("--log-dirs", "{d},{d}"), 2, "twice"),
    (("--log-dirs", "{d},"), 2, "empty"),
    ((), 2, "--log-dirs"),
    (("--log-dirs", "{d}/nowhere"), 1, "not a directory"),
    (("--log-dirs", "{d}/s-txn-0"), 1, "no logs"),
    (("--log-dirs", "{d}", "--topic-config", "typo:retention.ms=-1"), 1, "typo"),
    (("--log-dirs", "{d}", "--yes", "--topic-config", "*:retention.ms=-1x"), 2, "retention.ms"),
    (("--log-dirs", "{d}", "--yes", "--topic-config", "*:no.such.key=1"), 2, "no.such.key"),
    (("--log-dirs", "{d}", "--yes", *KEEP, "--topic-config", "s-none:cleanup.policy=banana"), 2, "cleanup.policy"),
    (("--log-dirs", "{d}", "--zookeeper", "127.0.0.1:port"), 2, "HOST:PORT"),
    (("--log-dirs", "{d}", "--config", "{d}/missing.properties"), 1, "missing.properties"),
])  # fmt: skip
def test_errors_are_one_sentence(directory: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    _, complaint = run("import", *(each.format(d=directory) for each in arguments), status=status)
    assert said in complaint and "fault" not in complaint


def test_a_directory_of_two_brokers_is_refused(directory: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=lvr4NfIWTo6tu8cpVcm0iw\n")
    _, complaint = run("import", "--log-dirs", f"{directory},{other}", *KEEP, status=1)
    assert "broker.id=1" in complaint and "broker.id=2" in complaint


def test_a_tree_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    path = str(tmp_path / FILE_NAME)
    with pytest.raises(Exception, match="/a/b"):
        write_tree(path, [Create("/a/b")], OsDisk())
    assert not (tmp_path / FILE_NAME).exists()
