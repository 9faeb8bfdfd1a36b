"""The lowest versions that setup.cfg allows: installed in an empty environment with the wheel, which then serves clients."""

from __future__ import annotations

import configparser
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from tests.packaging.test_wheel import CLEAN_ENVIRONMENT, Installation, run, tracked
from tests.support.cache import CHECKOUT
from tests.support.running import Running
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process


def lowest() -> list[str]:
    """The requirements of setup.cfg, each with its lower bound as the only version."""
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    lines = [line for line in settings["options"]["install_requires"].splitlines() if line and not line.startswith("#")]
    found = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in lines]
    assert all(found), "each requirement has a lower bound"
    return [f"{match[1]}=={match[2]}" for match in found if match is not None]


def test_a_group_is_served_with_the_lowest_versions(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, source / name)
    command = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ".")
    run(*command, cwd=source, environment={**CLEAN_ENVIRONMENT, "TXBROKER_COMPILE": "0"})
    (wheel,) = tmp_path.glob("*.whl")
    installation = Installation(tmp_path / "venv")
    versions = lowest()
    installation.pip("install", "-q", "--prefer-binary", *versions)
    installation.pip("install", "-q", "--no-deps", wheel)
    assert installation.pip("check") == "No broken requirements found.\n"
    service = Running((installation.command("txbroker"), "run"), tmp_path, environment=CLEAN_ENVIRONMENT)
    try:
        service.wait_ready()
        producer = Producer({"bootstrap.servers": service.address, "compression.type": "zstd"})
        for number in range(100):
            producer.produce("t", b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        del producer  # it would try to connect when the broker has stopped
        values: list[bytes] = []
        consumer = Consumer({"bootstrap.servers": service.address, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])

        def take() -> bool:
            message: Message | None = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
            return len(values) == 100

        until(take, "all records arrive")
        consumer.close()
        assert values == [b"%d" % number for number in range(100)]
        assert service.end(signal.SIGTERM) == 0
    finally:
        service.process.kill()
        service.process.wait()
