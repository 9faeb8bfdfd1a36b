"""A broker that refuses to start reports why in one sentence, exits with a status other than 0, and changes no data."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, until_leaders
from tests.support.raw_log import batch, fetch, produce
from tests.support.records import numbered, numbers
from tests.support.server import HOST
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.process
TOPIC = "kept"
COUNT = 500


@pytest.fixture(scope="module")
def broker_with_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A killed broker, whose next start has to recover; its port is free."""
    server = BrokerProcess(tmp_path_factory.mktemp("refusals"), {"log.segment.bytes": "20000"})
    server.start()
    create_topic(server, TOPIC)
    with RawConnection(server.address) as connection:
        for start in range(0, COUNT, 10):
            assert produce(connection, TOPIC, batch(numbered(10, start=start, size=100))).error_code == 0
    server.kill()
    yield server
    server.close()


def try_to_start(server: BrokerProcess, **overrides: str) -> str:
    """The output of a start that must fail."""
    keys = {name.replace("_", "."): value for name, value in overrides.items()}
    settings = {"listeners": f"PLAINTEXT://{HOST}:0", "log.dirs": str(server.data), **keys}
    command = [sys.executable, "-m", "txbroker", "run"]
    for key, value in settings.items():
        command += ["--override", f"{key}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, timeout=PATIENCE_S, check=False)
    assert ended.returncode not in (0, None), ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr


def everything_is_there(server: BrokerProcess) -> None:
    server.start()
    until_leaders(server, TOPIC, 1)
    with RawConnection(server.address) as connection:
        records = fetch(connection, TOPIC, 0, bytes_max=10 << 20).records
        while len(records) < COUNT:
            more = fetch(connection, TOPIC, records[-1].offset + 1, bytes_max=10 << 20).records
            assert more, f"the log ends after {len(records)} records"
            records += more
        assert numbers(records) == list(range(COUNT))
    server.kill()


def port_in_use(server: BrokerProcess) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        assert str(port) in try_to_start(server, listeners=f"PLAINTEXT://{HOST}:{port}")


def data_in_use(server: BrokerProcess) -> None:
    server.start()
    assert "in use" in try_to_start(server)
    server.kill()


def another_broker_id(server: BrokerProcess) -> None:
    assert "meta.properties" in try_to_start(server, broker_id="77")


def another_cluster(server: BrokerProcess) -> None:
    path = server.data / "meta.properties"
    before = path.read_text()
    path.write_text(re.sub("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", before))
    assert "meta.properties" in try_to_start(server)
    path.write_text(before)


def nonsense_in_meta_properties(server: BrokerProcess) -> None:
    path = server.data / "meta.properties"
    before = path.read_text()
    path.write_text("version=99\n")
    assert "meta.properties" in try_to_start(server)
    path.write_text(before)


def damaged_metadata(server: BrokerProcess) -> None:
    (path,) = server.data.glob("*.sqlite")
    others = list(server.data.glob("*.sqlite-*"))
    kept = {each: each.read_bytes() for each in [path, *others]}
    for each in others:
        each.unlink()
    path.write_bytes(b"garbage" * 5000)
    assert path.name in try_to_start(server)
    for each, content in kept.items():
        each.write_bytes(content)


def a_bad_value(server: BrokerProcess) -> None:
    assert "log.segment.bytes" in try_to_start(server, log_segment_bytes="many")


def a_file_for_a_directory(server: BrokerProcess) -> None:
    blocker = server.directory / "a-file"
    blocker.write_text("")
    assert str(blocker) in try_to_start(server, log_dirs=str(blocker))


@pytest.mark.parametrize("refusal", [port_in_use, data_in_use, another_broker_id, another_cluster, nonsense_in_meta_properties,
                                     damaged_metadata, a_bad_value, a_file_for_a_directory])
def test_a_refusal_loses_nothing(broker_with_data: BrokerProcess, refusal: Callable[[BrokerProcess], None]) -> None:
    refusal(broker_with_data)
    everything_is_there(broker_with_data)


def test_a_missing_directory_loses_nothing(tmp_path: Path) -> None:
    """With one of its two directories a broker serves the logs in that one, and with both again it serves all."""
    first, second = tmp_path / "one", tmp_path / "two"
    server = BrokerProcess(tmp_path / "server", {"log.dirs": f"{first},{second}"})
    server.start()
    create_topic(server, TOPIC, partitions=4)
    with RawConnection(server.address) as connection:
        for partition in range(4):
            assert produce(connection, TOPIC, batch(numbered(5)), partition=partition).error_code == 0
    server.stop()
    homes = {path.name: path.parent.name for path in tmp_path.glob(f"*/{TOPIC}-*")}
    assert set(homes.values()) == {"one", "two"}
    moved = second.rename(tmp_path / "away")
    second.write_text("not a directory")
    server.start()
    server.stop()
    second.unlink()
    moved.rename(second)
    server.start()
    until_leaders(server, TOPIC, 4)
    server.stop()
    assert {path.name: path.parent.name for path in tmp_path.glob(f"*/{TOPIC}-*")} == homes
    assert sum(path.stat().st_size > 0 for path in tmp_path.glob(f"*/{TOPIC}-*/*.log")) == 4
