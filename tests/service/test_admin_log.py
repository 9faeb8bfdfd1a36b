"""What the broker's log says about its start, and about what clients change."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cli.commands import run
from tests.support.server import HOST, Server
from tests.support.waiting import until
from txbroker import __version__
from txbroker.api.admin_log import RecordedChange
from txbroker.api.request_context import RequestContext, Session
from txbroker.build_info import commit
from txbroker.cluster.node_paths import BROKER_TYPE, Entity


def lines(server: Server) -> str:
    return server.log()


def test_the_start_says_version_and_settings(start_broker: Callable[..., Server]) -> None:
    own = start_broker({"ssl.keystore.password": "very-secret", "num.partitions": "3", "log.retention.hours": "168"})
    text = lines(own)
    assert f"txbroker {__version__} (commit {commit()[:12]}), Python 3." in text
    (settings,) = re.findall(r"settings that differ from the defaults: (.*) \(txbroker\)", text)
    assert "num.partitions=3" in settings
    assert "ssl.keystore.password=[hidden]" in settings
    assert "log.retention.hours" not in settings, "168 is the default"
    assert "very-secret" not in text
    assert "on all addresses" not in text


def test_listeners_on_all_addresses_cause_a_warning() -> None:
    _, complaint = run("config", "--check", "--override", "listeners=PLAINTEXT://0.0.0.0:9092,B://:9093", "--override",
                       "listener.security.protocol.map=B:PLAINTEXT,PLAINTEXT:PLAINTEXT", "--override", "log.dirs=./none",
                       "--override", "inter.broker.listener.name=B")  # fmt: skip
    assert "PLAINTEXT://0.0.0.0:9092 and B://:9093 are on all addresses, without TLS, SASL and ACLs" in complaint
    _, complaint = run("config", "--check", "--override", "listeners=PLAINTEXT://127.0.0.1:9092", "--override", "log.dirs=./none")
    assert "on all addresses" not in complaint


def test_changes_are_logged_with_who_made_them(start_broker: Callable[..., Server], name: str) -> None:
    own = start_broker({"auto.create.topics.enable": "true"})
    server = ("--bootstrap-server", own.address)
    run("topics", *server, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=5000")
    run("topics", *server, "--alter", "--topic", name, "--partitions", "4")
    run("configs", *server, "--alter", "--topic", name, "--add-config", "retention.ms=7000,cleanup.policy=compact")
    run("configs", *server, "--alter", "--topic", name, "--delete-config", "retention.ms")
    run("configs", *server, "--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    run("configs", *server, "--alter", "--client", "app", "--add-config", "producer_byte_rate=1000")
    run("produce", *server, "--topic", f"{name}-auto", stdin="x\n")
    who = rf"User:ANONYMOUS \(client id '[^']+', {HOST}\)"
    for text in (
        rf"topic {name} created by {who}: 2 partitions, replication factor 1, retention\.ms=5000 \(txbroker\.admin\)",
        rf"topic {name} has 4 partitions now, by {who}",
        rf"configuration of topic {name} changed by {who}: cleanup\.policy: \(not set\) -> compact, retention\.ms: 5000 -> 7000",
        rf"configuration of topic {name} changed by {who}: retention\.ms: 7000 -> \(not set\)",
        rf"configuration of all brokers changed by {who}: log\.cleaner\.threads: \(not set\) -> 2",
        rf"configuration of clients app changed by {who}: producer_byte_rate: \(not set\) -> 1000",
        rf"topic {name}-auto created by this broker, automatically: 1 partition",
    ):
        assert re.search(text, lines(own)), text
    run("topics", *server, "--delete", "--topic", name)
    until(lambda: f"topic {name} is deleted" in lines(own), "the deletion is logged")


def test_secrets_are_hidden_in_changes(caplog: pytest.LogCaptureFixture) -> None:
    """No secret can be changed at run time yet."""
    session = Session(peer_host=HOST, peer_port=1, local_host=HOST, local_port=2, listener="A", number=1)
    after = {"ssl.key.password": "very-secret", "plugin.token": "secret-too", "num.io.threads": "9"}
    change = RecordedChange(lambda before: after)
    change({"num.io.threads": "8"})
    with caplog.at_level("INFO", "txbroker.admin"):
        change.log(Entity(BROKER_TYPE, "1"), RequestContext(44, 1, 1, "a\nb", session))
    assert caplog.messages == [
        "configuration of broker 1 changed by User:ANONYMOUS (client id 'a\\nb', 127.0.0.1): num.io.threads: 8 -> 9, "
        "plugin.token: (not set) -> [hidden], ssl.key.password: (not set) -> [hidden]"
    ]
