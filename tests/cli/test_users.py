"""`txbroker users`: a file of users without a broker, and users in the metadata of a running one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.support.acls import AUTHORIZER
from tests.support.broker import BrokerProcess
from tests.support.sasl import client_properties, properties_file
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import until
from txbroker.client.client_security import Sasl, Scram
from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.scram import ScramExchange, can_log_in
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
    (("--file", "x", "--add", "ümlaut"), "the user ümlaut could never log in: names of SCRAM users are in ASCII"),
    (("--bootstrap-server", "127.0.0.1:1", "--add", "ümlaut"), "the user ümlaut could never log in: names of SCRAM users are in ASCII"),
    (("--bootstrap-server", "127.0.0.1:1", "--add", "a", "--iterations", "20000"), "--iterations is 20000; brokers take at most 16384"),
])  # fmt: skip
def test_wrong_usage(flags: tuple[str, ...], problem: str) -> None:
    _, complaint = run("users", *flags, status=2)
    assert problem in complaint


def test_an_empty_password(tmp_path: Path) -> None:
    _, complaint = run("users", "--file", str(tmp_path / "users"), "--add", "alice", stdin="\n", status=2)
    assert "the password is empty" in complaint and not (tmp_path / "users").exists()


@pytest.mark.parametrize("name", ["plain", "with space", "=,", "\x01\x7f", "ümlaut", "\x00"])
def test_names_that_are_refused_are_those_that_cannot_log_in(name: str) -> None:
    exchange = ScramExchange("SCRAM-SHA-256", lambda user: None, "nonce", b"secret")
    try:
        exchange.respond(Scram(Sasl("SCRAM-SHA-256", name, "x"), "client").first.encode())
    except LoginFailed:
        assert not can_log_in(name)
    else:
        assert can_log_in(name) and exchange.user == name


@pytest.mark.parametrize("from_file", [False, True])
def test_a_password_that_clients_cannot_send(tmp_path: Path, from_file: bool) -> None:
    latin_1 = "pässword\n".encode("latin-1")
    (tmp_path / "password").write_bytes(latin_1)
    flags = ("--password-file", str(tmp_path / "password")) if from_file else ()
    _, complaint = run("users", "--file", str(tmp_path / "users"), "--add", "alice", *flags, stdin=latin_1, status=2)
    assert "the password is not in UTF-8" in complaint and not (tmp_path / "users").exists()


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
        "broker.id": "7",
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
    as_carol = ("topics", "--bootstrap-server", f"{HOST}:{port}", "--command-config", str(carol), "--list")
    assert run(*as_carol)[0].splitlines() == ["hello"]

    # Carol is in the file, and the metadata has another password for a while: the commands say what is left.
    also, of_file = f"broker 7 also reads users from {file}", f"txbroker users --file {file}"
    _, complaint = run("users", *place, "--remove", "carol", status=1)
    assert f"there is no user carol with a SCRAM password in the metadata; {also}: `{of_file} --remove carol`" in complaint
    listed_users, complaint = run("users", *place, "--list")
    assert "carol" not in listed_users and f"{also}: this list does not have these users, `{of_file} --list`" in complaint
    _, complaint = run("users", *place, "--add", "carol", "--mechanism", "SCRAM-SHA-256", stdin="new\n")
    assert f"{also}: a password of carol there still counts for mechanisms that have none in the metadata" in complaint
    assert run("users", *place, "--add", "carol", stdin="new\n")[1] == ""
    _, complaint = run(*as_carol, status=1)
    assert "user carol could not log in" in complaint
    output, complaint = run("users", *place, "--remove", "carol")
    assert "User carol was removed from the metadata" in output
    assert f"{also}: a user carol there still logs in" in complaint and f"until `{of_file} --remove carol`" in complaint
    assert run(*as_carol)[0].splitlines() == ["hello"]
    logged = "user 'carol' has no password for SCRAM-SHA-512 in the metadata any more, and still logs in"
    until(lambda: logged in broker.log(), "the broker warns of it")
    output, _ = run("users", "--file", str(file), "--remove", "carol")
    assert "A password of this user in the metadata still counts: `txbroker users --bootstrap-server HOST:PORT --remove carol`" in output
    until(lambda: broker.log().count(f"read the users of {file} again") == 2, "the broker has read the file")
    _, complaint = run(*as_carol, status=1)
    assert "user carol could not log in" in complaint


@pytest.mark.process
def test_files_that_a_client_may_not_see(start_broker: Callable[..., Server]) -> None:
    """An administrator of users without DescribeConfigs."""
    broker = start_broker({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true", "broker.id": "7"})
    to = ("--bootstrap-server", broker.address)
    _, complaint = run("users", *to, "--list")
    assert complaint == ""  # the broker has no file
    rights = ("--operation", "Alter", "--operation", "Describe", "--cluster")
    run("acls", *to, "--add", "--allow-principal", "User:ANONYMOUS", *rights)
    _, complaint = run("users", *to, "--list")
    assert "broker 7 may also read users from a file, txbroker.scram.users.file, which this client cannot see (CLUSTER_AUTH" in complaint
    assert "`txbroker users --file FILE --list` on each of their machines" in complaint
