"""Every command that contacts a broker, with brokers that advertise an address that clients cannot use."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT, command, run
from tests.conftest import KINDS
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.server import HOST, Server, free_port
from txbroker.cli.main import COMMANDS

UNRESOLVABLE = "kafka.invalid:9092"
# Commands that contact no broker, and those of Spark, which start a JVM first: their client is the one of `audit keys`.
WITHOUT_BROKER = {"run", "test-server", "config", "secure", "dump-log", "log", "import", "export", "completion", "spark"}
ARGUMENTS = {
    "topics": [["--list"], ["--describe"], ["--create", "--topic", "t"]],
    "configs": [["--describe", "--topic", "t"], ["--alter", "--topic", "t", "--add-config", "retention.ms=1"]],
    "users": [["--list"], ["--remove", "u"]],
    "groups": [["--list"], ["--describe", "--group", "g"], ["--delete", "--group", "g"]],
    "acls": [["--list"], ["explain", "--principal", "User:a", "--operation", "Read", "--topic", "t"]],
    "produce": [["--topic", "t"]],
    "consume": [["--topic", "t", "--from-beginning", "--max-messages", "1"]],
    "get-offsets": [["--topic", "t"]],
    "delete-records": [["--offset-json-file", "offsets.json"]],
    "transactions": [["list"], ["describe", "--transactional-id", "x"]],
    "log-dirs": [["--describe"]],
    "reassign-partitions": [["--list"]],
    "leader-election": [["--election-type", "preferred", "--all-topic-partitions"]],
    "broker-api-versions": [[]],
    "log-cleaner": [["--describe", "--topic", "t"], ["--compact-now", "t"]],
    "perf-produce": [["--topic", "t", "--num-records", "1", "--record-size", "10", "--throughput", "-1"]],
    "perf-consume": [["--topic", "t", "--num-records", "1"]],
    "doctor": [[]],
    "audit": [["keys", "--topic", "t"]],
    "cluster": [["list-endpoints"], ["cluster-id"]],
    "mirror": [["--topic", "t"], ["promote", "--topic", "t"]],
}
CALLS = [(name, flags) for name, all_flags in ARGUMENTS.items() for flags in all_flags]


def test_every_command_that_contacts_a_broker_is_here() -> None:
    assert ARGUMENTS.keys() == COMMANDS.keys() - WITHOUT_BROKER


@pytest.fixture(scope="module")
def advertising(server_directory: Path) -> Iterator[dict[str, Server]]:
    """Brokers by the address that they advertise: one that does not resolve, and one at which nothing listens."""
    servers: dict[str, Server] = {}
    try:
        for address in (UNRESOLVABLE, f"{HOST}:{free_port()}"):
            server = KINDS[BrokerProcess.kind](server_directory / f"advertises-{len(servers)}",
                                               {"advertised.listeners": f"PLAINTEXT://{address}"})  # fmt: skip
            servers[address] = server
            server.start()
        yield servers
    finally:
        for server in servers.values():
            server.close()


@pytest.mark.parametrize("name, flags", CALLS, ids=[f"{name} {' '.join(flags[:2])}" for name, flags in CALLS])
@pytest.mark.process
def test_the_address_is_named(
    name: str, flags: list[str], advertising: dict[str, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("offsets.json").write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}))
    for address, server in advertising.items():
        connection = ["--bootstrap-server", server.address]
        if name == "mirror":
            connection = ["--to", server.address] if "promote" in flags else ["--from", server.address, "--to", server.address]
        # Subcommands come before flags.
        words = [] if name == "transactions" else [word for word in flags[:1] if not word.startswith("-")]
        argv = (name, *words, *connection, *flags[len(words):])
        status = 2 if name == "mirror" or "explain" in flags else 1  # of explain 1 is "may not"
        output, complaint = (run_mirror if name == "mirror" else run)(*argv, stdin="x\n", status=status)
        why = "does not resolve here" if address == UNRESOLVABLE else "refuses connections"
        if name == "doctor":
            assert f"advertised address of broker 1001 {address}: " in output
        else:
            assert f"broker 1001 advertises {address}, which {why}: " in complaint
            assert "correct advertised.listeners, or run `txbroker doctor`" in complaint


def run_mirror(*argv: str, stdin: str, status: int) -> tuple[str, str]:
    """The mirror takes a reactor, which runs once in a process."""
    done = subprocess.run(command(*argv), input=stdin, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def test_one_broker_of_several_is_named_when_it_is_needed(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster(kinds=(BrokerProcess.kind,) * 2)
    server = cluster.brokers[1]
    run("topics", "--bootstrap-server", server.address, "--create", "--topic", name, "--replica-assignment", "2")
    for broker_id, each in cluster.brokers.items():
        assert each.stop() == each.stopped_status
        host = HOST if broker_id == 1 else "kafka.invalid"
        internal = free_port()
        each.overrides |= {
            "listeners": f"PLAINTEXT://{HOST}:{each.port},BROKERS://{HOST}:{internal}",
            "advertised.listeners": f"PLAINTEXT://{host}:{each.port},BROKERS://{HOST}:{internal}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }
    cluster.start_brokers(cluster.brokers)
    assert cluster.leader(name) == 2
    for words in (("audit", "keys"), ("get-offsets",)):
        _, complaint = run(*words, "--bootstrap-server", server.address, "--topic", name, status=1)
        assert f"broker 2 advertises kafka.invalid:{cluster.brokers[2].port}, which does not resolve here: " in complaint


def test_an_address_with_a_protocol_is_recognised() -> None:
    _, complaint = run("topics", "--bootstrap-server", "PLAINTEXT://127.0.0.1:9092", "--list", status=2)
    assert "did you mean 127.0.0.1:9092? " in complaint


def test_a_mirror_to_a_closed_port_says_what_to_do() -> None:
    closed = f"{HOST}:{free_port()}"
    _, complaint = run_mirror("mirror", "--from", closed, "--to", closed, "--topic", "t", stdin="", status=2)
    assert f"no broker of the source answers: no connection to {closed} (" in complaint
    assert complaint.endswith("; check that it runs, or correct the address of the source\n")
