"""kcat, the command line client of librdkafka, against a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from typing import Any

import pytest

from tests.support.cache import Missing
from tests.support.raw_admin import create_topic
from tests.support.records import BASE_TIMESTAMP
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

PACKAGE_INDEX = "".join(f"package-{i}\tDescription of package number {i}, {'long ' * (i % 50)}\n" for i in range(2000))


def kcat(server: Server, *arguments: str, stdin: str | None = None) -> str:
    """The output of kcat; its exit status must be 0."""
    program = shutil.which("kcat")
    if program is None:
        raise Missing("kcat is not installed: run `make prepare` as root, or on Debian apt-get install kcat")
    command = [program, "-b", server.address, *arguments]
    ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def topic(broker: Server, name: str) -> str:
    create_topic(broker, name, 2)
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_piped_lines_are_produced_and_consumed(broker: Server, topic: str, codec: str) -> None:
    kcat(broker, "-P", "-t", topic, "-K", "\t", "-p", "0", "-z", codec, "-X", "enable.idempotence=true", stdin=PACKAGE_INDEX)
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-K", "\t", "-X", "check.crcs=true") == PACKAGE_INDEX


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(broker: Server, topic: str, acks: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", "-X", f"acks={acks}", stdin="one\ntwo\n")
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-c", "2", "-q") == "one\ntwo\n"


def test_headers_and_timestamps(broker: Server, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    kcat(broker, "-P", "-t", topic, "-p", "1", "-k", "k", "-H", "a=1", "-H", "b=", "-H", "a=2", stdin="value")
    (line,) = kcat(broker, "-C", "-t", topic, "-p", "1", "-e", "-q", "-J").splitlines()
    record: dict[str, Any] = json.loads(line)
    assert (record["topic"], record["partition"], record["offset"], record["key"], record["payload"]) == (topic, 1, 0, "k", "value")
    assert record["headers"] == ["a", "1", "b", "", "a", "2"]
    assert record["tstype"] == "create"
    assert before <= record["ts"] <= time.time_ns() // 1_000_000


def test_offsets(broker: Server, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="".join(f"{i}\n" for i in range(100)))

    def numbers(*arguments: str) -> list[int]:
        return [int(line) for line in kcat(broker, "-C", "-t", topic, "-p", "0", "-q", *arguments).split()]

    assert numbers("-o", "40", "-c", "10") == list(range(40, 50))
    assert numbers("-o", "-5", "-e") == list(range(95, 100))
    assert numbers("-o", "beginning", "-c", "3") == [0, 1, 2]
    assert numbers("-o", f"s@{BASE_TIMESTAMP}", "-e") == list(range(100))
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "100"]
    assert kcat(broker, "-Q", "-t", f"{topic}:0:{BASE_TIMESTAMP}").split() == [topic, "[0]", "offset", "0"]


def test_metadata(broker: Server, topic: str) -> None:
    described = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    (found,) = described["topics"]
    assert found["topic"] == topic
    (node,) = described["brokers"]
    assert node["name"] == broker.address
    assert found["partitions"] == [
        {"partition": p, "leader": node["id"], "replicas": [{"id": node["id"]}], "isrs": [{"id": node["id"]}]} for p in range(2)
    ]


def test_a_group(broker: Server, topic: str) -> None:
    """A group continues where it stopped; `-e` exits at the end of all partitions."""
    arguments = ("-G", topic, "-X", "auto.offset.reset=earliest", "-q", "-e", topic)
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="".join(f"{i}\n" for i in range(50)))
    kcat(broker, "-P", "-t", topic, "-p", "1", stdin="".join(f"{i}\n" for i in range(50, 100)))
    assert sorted(int(line) for line in kcat(broker, *arguments).split()) == list(range(100))
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="100\n")
    assert kcat(broker, *arguments).split() == ["100"]


def test_a_topic_that_does_not_exist_is_created(broker: Server, name: str) -> None:
    kcat(broker, "-P", "-t", name, stdin="first\n")
    assert kcat(broker, "-C", "-t", name, "-e", "-q") == "first\n"
