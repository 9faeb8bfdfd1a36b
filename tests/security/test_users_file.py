"""The file of users: its lines, its changes, and a broker that reads it again."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.config.configs import broker_config
from txbroker.broker.users_file import READ_EVERY_S, UsersFile
from txbroker.cluster.node_paths import Entity
from txbroker.errors import StartError
from txbroker.security.scram import ScramCredential
from txbroker.security.scram_credentials import ScramCredentials
from txbroker.security.users_file import InvalidUsers, changed, lines, parse_users

ONE = ScramCredential(b"salt", b"stored", b"server", 4096)
OTHER = ScramCredential(b"other", b"stored", b"server", 8192)
TEXT = f"""# the users of a test

alice SCRAM-SHA-256 {ONE.format()}
   alice\tSCRAM-SHA-512   {OTHER.format()}
a%20b%3Ac SCRAM-SHA-256 {OTHER.format()}
"""


def test_lines() -> None:
    found = parse_users(TEXT.encode())
    assert found == {"SCRAM-SHA-256": {"alice": ONE, "a b:c": OTHER}, "SCRAM-SHA-512": {"alice": OTHER}}
    assert [line.number for line in lines(TEXT.encode())] == [3, 4, 5]


@pytest.mark.parametrize(("text", "problem"), [
    ("alice", "line 1 has 1 words; it must have a user, a mechanism and a credential"),
    (f"\n# x\nalice PLAIN {ONE.format()}", "line 3 has the mechanism 'PLAIN'; it must be SCRAM-SHA-256 or SCRAM-SHA-512"),
    ("alice SCRAM-SHA-256 secret", "line 1 has an invalid credential: it must have the fields salt"),
    (f"alice SCRAM-SHA-256 {ONE.format()}\n" * 2, "line 2 has SCRAM-SHA-256 of the user 'alice' again"),
])  # fmt: skip
def test_invalid_lines(text: str, problem: str) -> None:
    with pytest.raises(InvalidUsers, match=problem) as refused:
        parse_users(text.encode())
    assert "secret" not in str(refused.value)


@given(st.dictionaries(st.text(min_size=1), st.dictionaries(st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]), st.just(ONE))),
       st.text(min_size=1))  # fmt: skip
def test_changes_concern_one_user(users: dict[str, dict[str, ScramCredential]], name: str) -> None:
    data = b"# kept\n"
    for user, credentials in users.items():
        data = changed(data, user, credentials)
    data = changed(data, name, {"SCRAM-SHA-512": OTHER})
    expected = {**users, name: {"SCRAM-SHA-512": OTHER}}
    found = parse_users(data)
    for user, credentials in expected.items():
        assert {mechanism: known[user] for mechanism, known in found.items() if user in known} == credentials
    assert all(name not in known for known in parse_users(changed(data, name, {})).values())
    assert data.startswith(b"# kept\n")


class Broker:
    """What reads the file."""

    def __init__(self, content: bytes | None) -> None:
        self.disk, self.clock, self.credentials = MemoryDisk(), Clock(), ScramCredentials()
        self.disk.make_directory("/etc")
        if content is not None:
            self.disk.replace("/etc/users", content)
        environment: Any = SimpleNamespace(disk=self.disk, reactor=self.clock, in_worker=maybeDeferred)
        self.file = UsersFile(broker_config("txbroker.scram.users.file=/etc/users"), environment, self.credentials)

    def users(self) -> list[str]:
        return [user for user in ("alice", "bob") if self.credentials.find("SCRAM-SHA-256", user) is not None]


def test_a_broker_reads_the_file_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txbroker.security")
    broker = Broker(TEXT.encode())
    broker.file.start()
    assert broker.users() == ["alice"]
    broker.disk.replace("/etc/users", f"bob SCRAM-SHA-256 {ONE.format()}\n".encode())
    broker.clock.advance(READ_EVERY_S)
    assert broker.users() == ["bob"] and caplog.messages == ["read the users of /etc/users again"]
    caplog.clear()
    for content in (b"bob", None):
        if content is None:
            broker.disk.remove("/etc/users")
        else:
            broker.disk.replace("/etc/users", content)
        broker.clock.pump([READ_EVERY_S] * 3)
        assert broker.users() == ["bob"]
    first, second = caplog.messages
    assert "stay as they were: line 1 has 1 words" in first and "the file does not exist" in second, "each problem is logged once"
    broker.disk.replace("/etc/users", TEXT.encode())
    broker.clock.advance(READ_EVERY_S)
    assert broker.users() == ["alice"]
    broker.file.stop()
    assert not broker.clock.getDelayedCalls()


@pytest.mark.parametrize(("content", "problem"), [
    (None, "the file does not exist; `txbroker users` creates it"), (b"x", "line 1 has 1 words"),
])  # fmt: skip
def test_a_broker_does_not_start_without_it(content: bytes | None, problem: str) -> None:
    broker = Broker(content)
    with pytest.raises(StartError, match=f"server.properties:1: txbroker.scram.users.file is /etc/users: {problem}"):
        broker.file.start()


def test_the_metadata_counts_before_the_file() -> None:
    credentials = ScramCredentials()
    credentials.replace_file(parse_users(TEXT.encode()))
    assert credentials.find("SCRAM-SHA-256", "alice") == ONE
    credentials.configure(Entity("users", "alice"), {"SCRAM-SHA-256": OTHER.format()})
    assert credentials.find("SCRAM-SHA-256", "alice") == OTHER
    credentials.configure(Entity("users", "alice"), {})
    assert credentials.find("SCRAM-SHA-256", "alice") == ONE


def test_a_stored_credential_that_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    credentials = ScramCredentials()
    credentials.configure(Entity("users", "%C3%BC%2Fx"), {"SCRAM-SHA-256": ONE.format(), "SCRAM-SHA-512": "salt=c2VjcmV0", "x": "y"})
    assert credentials.find("SCRAM-SHA-256", "\u00fc/x") == ONE and credentials.find("SCRAM-SHA-512", "\u00fc/x") is None
    assert "user '\u00fc/x' cannot log in with SCRAM-SHA-512: the credential is invalid" in caplog.text and "c2VjcmV0" not in caplog.text
    for other in (Entity("users", "<default>"), Entity("users", "a/clients/b"), Entity("clients", "a")):
        credentials.configure(other, {"SCRAM-SHA-256": ONE.format()})
    assert all(credentials.find("SCRAM-SHA-256", user) is None for user in ("<default>", "a", "b"))
