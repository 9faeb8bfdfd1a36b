"""A broker whose Python lacks what only Linux has, and one that lacks also what Windows has not (`removed/sitecustomize.py`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.running import RUN, flags
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process

REMOVED = Path(__file__).parent / "removed"
LARGE = 300_000  # bytes of a value: several of them are more than a socket takes at once


class Lacking(BrokerProcess):
    """A broker of this checkout without these names. `removed`: linux or windows."""

    removed = ""

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "PYTHONPATH": f"{REMOVED}:{CHECKOUT}", "REMOVED": self.removed}


@pytest.fixture(params=["linux", "windows"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lacking]:
    made = Lacking(tmp_path / "broker", {"log.segment.bytes": "2000000", "log.segment.delete.delay.ms": "100"})
    made.removed = request.param
    made.start()
    yield made
    made.close()


def values(consumer: Consumer, count: int) -> list[bytes]:
    """The next `count` values that a group's member gets."""
    found: list[bytes] = []

    def take() -> bool:
        message: Message | None = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
        return len(found) >= count

    until(take, f"{count} records arrive")
    return found


def test_it_serves_clients(server: Lacking) -> None:
    """Large records, a group, transactions with zstd, a restart, the lock of the directory, and the deletion of a topic."""
    assert "platform portable" in server.log()
    settings = {"bootstrap.servers": server.address}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
    producer = Producer({**settings, "transactional.id": "one", "compression.type": "zstd"})
    producer.init_transactions(PATIENCE_S)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        for part in range(10):
            producer.produce("t", b"%d-%d" % (number, part))
        ends(PATIENCE_S)
    plain = Producer({**settings, "compression.type": "none"})
    for number in range(20):
        plain.produce("t", bytes([number]) * LARGE)
    assert plain.flush(PATIENCE_S) == 0
    small = [b"%d-%d" % (number, part) for number in (0, 2) for part in range(10)]
    large = [bytes([number]) * LARGE for number in range(20)]

    group = {**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    first = Consumer(group)
    first.subscribe(["t"])
    assert values(first, 10) == small[:10]
    first.commit(asynchronous=False)
    first.close()
    second = Consumer(group)
    second.subscribe(["t"])
    assert values(second, 30) == small[10:] + large
    second.close()

    other = subprocess.run([*RUN, *flags(server.data)], cwd=server.directory, env=server._environment(), capture_output=True, text=True,
                           timeout=PATIENCE_S, check=False)  # fmt: skip
    assert other.returncode == 1
    assert f"the log directory {server.data} is in use by another broker" in other.stderr

    del admin, producer, plain, ends  # these would try to connect while the broker is stopped

    assert server.stop() == 0
    server.start()
    settings = {"bootstrap.servers": server.address}
    third = Consumer({**group, **settings})
    third.subscribe(["t"])
    assert values(third, 30) == small[10:] + large, "the group has its commits"
    third.close()
    admin = AdminClient(settings)
    admin.delete_topics(["t"])["t"].result(PATIENCE_S)
    until(lambda: not [path for path in server.data.iterdir() if path.name.startswith("t-0")], "the directory of the topic is removed")
    assert server.stop() == 0
    assert "Traceback" not in server.log()


def test_linux_is_refused_where_it_is_not_available(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path / "broker")
    lacking.removed = "linux"
    command = [sys.executable, "-m", "txbroker", "run", *flags(tmp_path / "data"), "--override", "txbroker.platform=linux"]
    ended = subprocess.run(command, cwd=tmp_path, env=lacking._environment(), capture_output=True, text=True, timeout=PATIENCE_S,
                           check=False)  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.startswith("txbroker: txbroker.platform is linux, but this Python lacks a function of Linux")
    assert "set it to auto or portable" in ended.stderr
    assert not (tmp_path / "data").exists()
