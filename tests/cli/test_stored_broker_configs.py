"""`txbroker configs --log-dirs`: configurations that are deleted in the metadata file of a stopped broker."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from txbroker.cli.main import main
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import encode_config
from txbroker.cluster.tree.interface import Create
from txbroker.cluster.tree.sqlite import FILE_NAME, connect
from txbroker.cluster.tree.sqlite_file import write_tree
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.stored_configs import broker_configs

ONE, TWO = "listener.name.ssl.ssl.key.password", "log.cleaner.threads"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folders = [Create("/config", b""), Create("/config/brokers", b"")]
    nodes = {node_paths.broker_entity(1): {ONE: "encrypted", TWO: "2"}, node_paths.ALL_BROKERS: {TWO: "3"}}
    stored = [Create(entity.path, encode_config(values)) for entity, values in nodes.items()]
    write_tree(str(tmp_path / FILE_NAME), [*folders, *stored], OsDisk())
    return tmp_path


def found(data: Path) -> tuple[dict[str, str], dict[str, str]]:
    stored = broker_configs(OsDisk(), [str(data)], 1)
    return dict(stored.broker), dict(stored.default)


def configs(data: Path, *more: str) -> int:
    return main(["configs", "--log-dirs", str(data), "--alter", *more])


def test_keys_of_a_broker_and_of_the_defaults_are_deleted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert configs(data, "--entity-type", "brokers", "--entity-name", "1", "--delete-config", ONE, "--json") == 0
    assert json.loads(capsys.readouterr().out)["deleted"] == [ONE]
    assert found(data) == ({TWO: "2"}, {TWO: "3"})
    assert configs(data, "--broker-defaults", "--delete-config", TWO) == 0
    assert found(data) == ({TWO: "2"}, {})


def test_all_keys_are_deleted_or_none(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = found(data)
    assert configs(data, "--broker", "1", "--delete-config", f"{ONE},retention.ms") == 1
    assert f"Invalid config(s): retention.ms: not in /config/brokers/1 of the metadata; set are {ONE}, {TWO}" in capsys.readouterr().err
    assert configs(data, "--broker", "2", "--delete-config", ONE) == 1
    assert "not in /config/brokers/2 of the metadata; none is set" in capsys.readouterr().err
    with closing(connect(str(data / FILE_NAME))):
        assert configs(data, "--broker", "1", "--delete-config", ONE) == 1
    assert "if a broker is running on it, stop it first, or use --bootstrap-server" in capsys.readouterr().err
    assert found(data) == before


def test_other_directories_are_refused(data: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path_factory.mktemp("empty")
    assert configs(empty, "--broker", "1", "--delete-config", ONE) == 1
    assert f"found no metadata file {FILE_NAME} in {empty}" in capsys.readouterr().err
    assert list(empty.iterdir()) == []
    (empty / FILE_NAME).write_bytes(b"no database" * 1000)
    assert configs(empty, "--broker", "1", "--delete-config", ONE) == 1
    assert "cannot be used: file is not a database" in capsys.readouterr().err


@pytest.mark.parametrize("more", [
    ("--broker", "1", "--add-config", "a=b"), ("--topic", "t", "--delete-config", "retention.ms"), ("--broker", "1"),
    ("--user", "alice", "--delete-config", "a"), ("--broker", "1", "--delete-config", ONE, "--bootstrap-server", "localhost:1"),
])  # fmt: skip
def test_wrong_usage(data: Path, more: tuple[str, ...]) -> None:
    before = found(data)
    assert configs(data, *more) == 2
    assert found(data) == before
