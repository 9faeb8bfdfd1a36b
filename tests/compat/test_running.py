"""Drivers as processes: one that hangs, fails, prints malformed lines or requests changes of the brokers; and a real driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compat.brokers import changes
from compat.clients import CLIENTS, Client
from compat.matrix import ABSENT, NO, YES, Row
from compat.running import MOVE, RESTART, Changes, run_client, without_folders
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.process

FEATURES = ["gzip", "acks"]
ASKS = '''echo '{"CHANGE": "a topic"}'
if read -r answer; then echo '{"feature": "gzip", "ok": true, "detail": "'"$answer"'"}'
else echo '{"feature": "gzip", "ok": null, "detail": "no answer"}'; fi'''


@pytest.fixture
def driver(tmp_path: Path) -> Callable[[str], Client]:
    """Creates a client whose driver is a shell script."""
    def make(lines: str) -> Client:
        program = tmp_path / "run"
        program.write_text(f"#!/bin/sh\necho '{{\"client\": \"x\", \"version\": \"7\"}}'\n{lines}\n")
        program.chmod(0o755)
        return Client(str(tmp_path), "of a test")

    return make


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run(client: Client, requests: Changes | None = None, silence_s: float = 60) -> Row:
    return run_client(client, "nowhere:1", FEATURES, lambda feature: None, requests, silence_s=silence_s)


def test_a_hanging_driver_is_killed_with_its_children(driver: Callable[[str], Client], tmp_path: Path) -> None:
    children = tmp_path / "child"
    row = run(driver(f'''echo '{{"feature": "gzip", "ok": true}}'
        echo 'about to wait' >&2
        sleep 1000 & echo $! > {children}
        wait'''), silence_s=1)
    assert row.version == "7"
    assert row.cells == {"gzip": YES, "acks": NO}
    assert "hung" in row.details["acks"] and "about to wait" in row.details["acks"]
    child = int(children.read_text())
    until(lambda: not _lives(child), "the driver's child ends")


@pytest.mark.parametrize(("text", "without"), [
    ("at x (file:///srv/b-1.0/c.js:2:3)", "at x (c.js:2:3)"), ("/srv/lib/y.py: no", "y.py: no"), ("a: /x/y/z.txt", "a: z.txt"),
    ("http://h:1/p/q", "http://h:1/p/q"), ("not/absolute/z", "not/absolute/z"),
])  # fmt: skip
def test_reasons_name_files_without_their_folders(text: str, without: str) -> None:
    assert without_folders(text) == without


def test_a_failed_driver_is_reported_with_its_last_output(driver: Callable[[str], Client]) -> None:
    row = run(driver("echo 'no such thing' >&2; exit 3"))
    assert row.cells == dict.fromkeys(FEATURES, NO)
    assert row.details["gzip"] == "the driver ended with 3: no such thing"


@pytest.mark.parametrize("line", ["hello", "[]", "{}", '{"feature": "gzip"}'])
def test_a_driver_that_prints_a_malformed_line_is_ended(driver: Callable[[str], Client], line: str) -> None:
    row = run(driver(f"echo '{line}'; sleep 1000"))
    assert row.cells == dict.fromkeys(FEATURES, NO)
    assert line in row.details["acks"]


@pytest.mark.parametrize("change", [RESTART, MOVE])
def test_a_driver_can_change_the_brokers(driver: Callable[[str], Client], change: str) -> None:
    topics: list[str] = []

    def done(topic: str) -> str:
        topics.append(topic)
        return "the leader's address"

    row = run(driver(ASKS.replace("CHANGE", change)), {change: done})
    assert topics == ["a topic"]
    assert row.cells == {"gzip": YES, "acks": NO}
    assert row.details["gzip"] == "the leader's address"


def test_a_driver_without_changes_reads_the_end_of_its_input(driver: Callable[[str], Client]) -> None:
    row = run(driver(ASKS.replace("CHANGE", RESTART)))
    assert (row.cells["gzip"], row.details["gzip"]) == (ABSENT, "no answer")


def test_a_change_that_fails_ends_the_driver(driver: Callable[[str], Client]) -> None:
    def fail(topic: str) -> str:
        raise KeyError("it does not start")

    with pytest.raises(KeyError, match="it does not start"):
        run(driver(ASKS.replace("CHANGE", RESTART)), {RESTART: fail})


def test_a_client_survives_restarts_and_rebalances(start_broker: Callable[..., Server]) -> None:
    features = ["cooperative", "static", "topic_ids", "long_poll", "reconnect"]
    server = start_broker()
    row = run_client(CLIENTS["confluent_kafka"], server.address, features, lambda feature: None, changes(server))
    assert row.cells == dict.fromkeys(features, YES), row.details
