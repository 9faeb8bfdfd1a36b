"""`txbroker users`: a file of users without a broker, and users in the metadata of a running one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.support.broker import BrokerProcess
from tests.support.sasl import client_properties, properties_file
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import until
from txbroker.security.users_file import parse_users


def listed(*place: str) -> list[tuple[str, str, int]]:
    output, _ = run("users", *place, "--list", "--json")
    return [(row["user"], row["mechanism"], row["iterations"]) for row in map(json.loads, output.splitlines())]


def test_a_file_of_users(tmp_path: Path) -> None:
    file = tmp_path / "users"
    place = ("--file", str(file))
    _, complaint = run("users", *place, "--list", status=1)
    assert "does not exist" in complaint
    output, _ = run("users", *place, "--add", "alice", stdin="alice-secret\n")
    assert "User alice has this password in" in output
    assert file.stat().st_mode & 0o777 == 0o600 and "alice-secret" not in file.read_text()
    password = tmp_path / "password"
    password.write_text("another\nline\n")
    run("users", *place, "--add", "b/c d", "--mechanism", "SCRAM-SHA-256", "--iterations", "8192", "--password-file", str(password))
    assert listed(*place) == [("alice", "SCRAM-SHA-256", 4096), ("alice", "SCRAM-SHA-512", 4096), ("b/c d", "SCRAM-SHA-256", 8192)]
    before = parse_users(file.read_bytes())
    run("users", *place, "--add", "alice", "--mechanism", "SCRAM-SHA-256", stdin="new\n")
    after = parse_users(file.read_bytes())
    assert after["SCRAM-SHA-512"] == before["SCRAM-SHA-512"] and after["SCRAM-SHA-256"]["alice"] != before["SCRAM-SHA-256"]["alice"]
    assert file.stat().st_mode & 0o777 == 0o600, "also after a change"
    file.chmod(0o640)
    run("users", *place, "--remove", "alice")
    assert file.stat().st_mode & 0o777 == 0o640
    assert listed(*place) == [("b/c d", "SCRAM-SHA-256", 8192)]
    _, complaint = run("users", *place, "--remove", "alice", status=1)
    assert "has no user alice" in complaint
    file.write_text("broken\n")
    _, complaint = run("users", *place, "--add", "alice", stdin="x\n", status=1)
    assert "line 1 has 1 words" in complaint and file.read_text() == "broken\n"


@pytest.mark.parametrize(("flags", "problem"), [
    (("--list",), "specify one of --file and --bootstrap-server"),
    (("--file", "x", "--bootstrap-server", "a:1", "--list"), "specify one of --file and --bootstrap-server"),
    (("--file", "x", "--list", "--mechanism", "SCRAM-SHA-256"), "only valid with --add"),
    (("--file", "x", "--add", ""), "the name of a user must not be empty"),
])  # fmt: skip
def test_wrong_usage(flags: tuple[str, ...], problem: str) -> None:
    _, complaint = run("users", *flags, status=2)
    assert problem in complaint


def test_an_empty_password(tmp_path: Path) -> None:
    _, complaint = run("users", "--file", str(tmp_path / "users"), "--add", "alice", stdin="\n", status=2)
    assert "the password is empty" in complaint and not (tmp_path / "users").exists()


@pytest.mark.process
def test_users_in_the_metadata(broker: Server, name: str) -> None:
    place = ("--bootstrap-server", broker.address)
    run("users", *place, "--add", name, stdin="secret\n")
    assert {(name, "SCRAM-SHA-256", 4096), (name, "SCRAM-SHA-512", 4096)} <= set(listed(*place))
    output, _ = run("users", *place, "--remove", name)
    assert f"User {name} was removed from the metadata" in output
    until(lambda: not any(user == name for user, _, _ in listed(*place)), "the user is gone")
    _, complaint = run("users", *place, "--remove", name, status=1)
    assert f"there is no user {name}" in complaint


@pytest.mark.process
def test_the_first_user_of_a_broker_without_another_listener(start_broker: Callable[..., Server], tmp_path: Path) -> None:
    """From nothing to a broker on which every client logs in; commands log in by the properties of a Java client."""
    file = tmp_path / "users"
    run("users", "--file", str(file), "--add", "admin", stdin="first secret\n")
    port = free_port()
    broker = start_broker({
        "listeners": f"SASL_PLAINTEXT://{HOST}:{port}", "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512", "txbroker.scram.users.file": str(file),
    })  # fmt: skip
    assert broker.kind == BrokerProcess.kind
    admin = properties_file(tmp_path / "admin", client_properties("SCRAM-SHA-512", "admin", "first secret"))
    place = ("--bootstrap-server", f"{HOST}:{port}", "--command-config", str(admin))
    run("topics", *place, "--create", "--topic", "hello")
    run("users", *place, "--add", "alice", stdin="alice-secret\n")
    alice = properties_file(tmp_path / "alice", client_properties("SCRAM-SHA-512", "alice", "alice-secret"))
    output, _ = run("topics", "--bootstrap-server", f"{HOST}:{port}", "--command-config", str(alice), "--list")
    assert output.splitlines() == ["hello"]
    wrong = properties_file(tmp_path / "wrong", client_properties("SCRAM-SHA-512", "alice", "guess"))
    _, complaint = run("topics", "--bootstrap-server", f"{HOST}:{port}", "--command-config", str(wrong), "--list", status=1)
    assert "user alice could not log in: Authentication failed" in complaint
    run("users", "--file", str(file), "--add", "carol", stdin="carol-secret\n")
    carol = properties_file(tmp_path / "carol", client_properties("SCRAM-SHA-512", "carol", "carol-secret"))
    until(lambda: f"read the users of {file} again" in broker.log(), "the broker has read the file")
    output, _ = run("topics", "--bootstrap-server", f"{HOST}:{port}", "--command-config", str(carol), "--list")
    assert output.splitlines() == ["hello"]
