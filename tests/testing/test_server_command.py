"""`txbroker test-server`, as a test process in another language uses it: a line of JSON, HTTP, and a pipe to its input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.cache import CHECKOUT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from tests.testing.leftovers import brokers_in

pytestmark = pytest.mark.process


def command(tmp_path: Path, *flags: str, **streams: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    arguments = [sys.executable, "-m", "txbroker", "test-server", *flags]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **streams)


@contextmanager
def server(tmp_path: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The process, and what it has printed."""
    with command(tmp_path, *flags, stdin=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def post(url: str, path: str, body: dict[str, object]) -> Any:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_a_test_process_that_keeps_a_pipe_to_it(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    flags = ["--stop-with-input", "--ready-file", str(ready), "--topic", "orders:2", "--topic", "state"]
    flags += ["--setting", "message.max.bytes=5000"]
    with server(tmp_path, *flags) as (process, printed):
        assert json.loads(ready.read_text()) == printed
        url = printed["control_url"]
        rule = post(url, "/v1/rules", {"api": "Produce", "topic": "orders", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"})
        producer = Producer({"bootstrap.servers": printed["bootstrap_servers"], "client.id": "test", "message.max.bytes": 100_000})
        found: list[tuple[object, int]] = []
        for value in (b"one", b"x" * 8000):
            producer.produce("orders", value, partition=1, on_delivery=lambda error, message: found.append((error, message.offset())))
            producer.flush(PATIENCE_S)
        assert found[0] == (None, 0) and "too large" in str(found[1][0]), "the topic and the setting"
        assert get(url, f"/v1/rules/{rule['id']}")["hits"] == 1
        entries = [each for each in get(url, "/v1/journal?since=0")["entries"] if each["api"] == "Produce"]
        assert [each["errors"] for each in entries] == [["NOT_LEADER_OR_FOLLOWER"], [], ["MESSAGE_TOO_LARGE"]]
        assert len(brokers_in(tmp_path)) == 1
        _, errors = process.communicate("", PATIENCE_S)
        assert (process.returncode, errors) == (0, "")
    assert not brokers_in(tmp_path) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_nothing_is_left_after_a_signal(number: signal.Signals, status: int, tmp_path: Path) -> None:
    with server(tmp_path) as (process, _):
        (broker,) = brokers_in(tmp_path)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == status
        until(lambda: not brokers_in(tmp_path) and not list(tmp_path.iterdir()), f"broker {broker} has ended")


def test_a_broker_that_ends_by_itself(tmp_path: Path) -> None:
    with server(tmp_path) as (process, _):
        (broker,) = brokers_in(tmp_path)
        os.kill(broker, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and errors.startswith("txbroker test-server: the broker has ended by itself")


@pytest.mark.parametrize(("flags", "status", "problem"), [
    (("--port", "x"), 2, "argument --port: x is not a port: it must be from 0 to 65535"),
    (("--topic", "a:b"), 2, "argument --topic: a:b is neither NAME nor NAME:PARTITIONS, such as orders:3"),
    (("--setting", "num.partitons=3"), 1, "the broker did not start: num.partitons is not a known key (did you mean num.partitions?)"),
    (("--ready-file", "/proc/x/y"), 1, "cannot be"),
])  # fmt: skip
def test_wrong_flags(flags: tuple[str, ...], status: int, problem: str, tmp_path: Path) -> None:
    with command(tmp_path, *flags, stdin=subprocess.DEVNULL) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status and problem in errors.splitlines()[-1], errors
    assert not brokers_in(tmp_path) and not list(tmp_path.iterdir())


def test_a_port_in_use(tmp_path: Path, broker: Server) -> None:
    with command(tmp_path, "--port", str(broker.port), stdin=subprocess.DEVNULL) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    problem = f"port {broker.port} is in use; stop what uses it, or specify no port, and a free one is taken"
    assert (process.returncode, errors) == (1, f"txbroker test-server: {problem}\n")
