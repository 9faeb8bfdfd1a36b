"""The doctor with real problems: wrong advertised addresses, other servers, topics and groups without progress."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import run
from tests.support.kafka import ZooKeeperProcess
from tests.support.server import HOST, Server, free_port
from txbroker.cli.doctor import network_checks

pytestmark = pytest.mark.process
DAY_MS = 24 * 3600 * 1000


def doctor(server: Server | str, *flags: str, status: int) -> list[dict[str, Any]]:
    """Run the doctor, which must exit with `status`; its findings."""
    address = server if isinstance(server, str) else server.address
    output, complaint = run("doctor", "--bootstrap-server", address, "--json", *flags, status=status)
    assert complaint == ""
    return [json.loads(line) for line in output.splitlines()]


def bad(findings: list[dict[str, Any]], check: str = "") -> list[dict[str, Any]]:
    """The findings that are not ok; each must have advice."""
    found = [finding for finding in findings if finding["outcome"] != "ok" and finding["check"].startswith(check)]
    assert all(finding["advice"] for finding in found)
    return found


def one(findings: list[dict[str, Any]], check: str) -> dict[str, Any]:
    (found,) = [finding for finding in findings if finding["check"].startswith(check)]
    return found


def create(server: Server, topic: str, *config: str) -> None:
    flags = [flag for text in config for flag in ("--config", text)]
    run("topics", "--bootstrap-server", server.address, "--create", "--topic", topic, *flags)


def produce(server: Server, topic: str, *timestamps_ms: int, together: bool = False) -> None:
    """Produce records with these timestamps, each in its own batch or all in one."""
    settings: dict[str, Any] = {"linger_ms": 60_000} if together else {"batch_size": 0}
    with contextlib.closing(KafkaProducer(bootstrap_servers=[server.address], **settings)) as producer:
        sent = [producer.send(topic, key=b"k", value=b"v" * 100, timestamp_ms=timestamp_ms) for timestamp_ms in timestamps_ms]
        producer.flush()
        for future in sent:
            future.get(10)


@contextlib.contextmanager
def accepting(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that calls `serve` for every connection."""
    listener = socket.create_server((HOST, 0))

    def work() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=work, daemon=True).start()
    try:
        yield f"{HOST}:{listener.getsockname()[1]}"
    finally:
        listener.close()


def test_a_healthy_broker(broker: Server, name: str) -> None:
    create(broker, name)
    findings = doctor(broker, "--topic", name, status=0)
    assert bad(findings) == []
    looked_at = {finding["check"].split()[0] for finding in findings}
    assert looked_at == {"bootstrap", "versions", "cluster", "advertised", "disks", "topic", "expiry", "compaction"}
    assert "there are no records" in one(findings, "expiry")["found"]
    text, _ = run("doctor", "--bootstrap-server", broker.address, "--topic", name)
    assert text.splitlines()[-1].endswith(" checks: no problems found")
    assert text.startswith(f"ok       bootstrap server {broker.address}: ")


def test_names_and_ports(start_broker: Callable[..., Server]) -> None:
    """The broker is the test's own: the groups of other tests would be found, too."""
    closed = f"{HOST}:{free_port()}"
    findings = doctor(f"nowhere.invalid:9092,{closed},{start_broker().address}", status=1)
    unknown, refused = bad(findings)
    assert "the name nowhere.invalid does not resolve on this machine" in unknown["found"]
    assert refused["found"] == f"nothing listens at {closed} (connection refused)"
    assert one(findings, "cluster")["outcome"] == "ok", "other checks use the reachable server"
    assert doctor(closed, status=1)[-1]["outcome"] == "failed"


def test_an_http_server(monkeypatch: pytest.MonkeyPatch) -> None:
    # The server waits for the end of a line, which a request does not have.
    monkeypatch.setattr(network_checks, "CLIENT", network_checks.CLIENT._replace(request_timeout_s=0.3))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (finding,) = doctor(f"{HOST}:{server.server_port}", status=1)
        server.shutdown()
    assert finding["found"].endswith(" is an HTTP server")


def test_a_port_that_accepts_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_checks, "CLIENT", network_checks.CLIENT._replace(request_timeout_s=0.3))
    monkeypatch.setattr(network_checks, "PROBE_TIMEOUT_S", 0.3)
    with socket.create_server((HOST, 0)) as deaf:
        (finding,) = doctor(f"{HOST}:{deaf.getsockname()[1]}", status=1)
    assert "accepts connections, but did not respond within" in finding["found"]
    assert "firewall" in finding["advice"]


def test_a_tls_listener() -> None:
    # Without a certificate it sends an alert, as a server that requires a client certificate.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
            pass

    with accepting(serve) as address:
        (finding,) = doctor(address, status=1)
    assert finding["found"].endswith(" is a listener that requires TLS")


def test_a_server_of_another_protocol() -> None:
    for greeting, kind in ((b"SSH-2.0-OpenSSH_9.2\r\n", "is an SSH server"), (b"220 mail ESMTP\r\n", "does not speak Kafka's protocol")):

        def serve(connection: socket.socket, greeting: bytes = greeting) -> None:
            connection.sendall(greeting)
            connection.recv(1000)
            connection.close()

        with accepting(serve) as address:
            (finding,) = doctor(address, status=1)
        assert kind in finding["found"]


def test_a_broker_that_requires_authentication(broker: Server) -> None:
    """ApiVersions is served before SASL; any other request closes the connection."""

    def serve(connection: socket.socket) -> None:
        with connection, socket.create_connection((HOST, broker.port)) as real:
            real.sendall(connection.recv(1000))
            connection.sendall(real.recv(10_000))
            connection.recv(1000)

    with accepting(serve) as address:
        findings = doctor(address, status=1)
    assert "seems to require SASL" in one(findings, "cluster")["advice"]


def test_a_zookeeper(server_directory: Path) -> None:
    zookeeper = ZooKeeperProcess(server_directory / "doctor-zookeeper")
    zookeeper.start()
    try:
        (finding,) = doctor(zookeeper.address, status=1)
    finally:
        zookeeper.kill()
    assert finding["found"].endswith(" is a ZooKeeper server")


def test_unreachable_advertised_addresses(start_broker: Callable[..., Server]) -> None:
    closed = free_port()
    for advertised, found in (
        ("localhost.invalid:9092", "the name localhost.invalid does not resolve on this machine"),
        (f"{HOST}:{closed}", f"nothing listens at {HOST}:{closed} (connection refused)"),
    ):
        server = start_broker({"advertised.listeners": f"PLAINTEXT://{advertised}"})
        findings = doctor(server, "--group", "g", status=1)
        (finding, *_) = bad(findings)
        assert finding["check"].startswith("advertised address of broker ")
        assert finding["check"].endswith(advertised)
        assert finding["outcome"] == "failed"
        assert found in finding["found"]
        assert "advertised.listeners of broker" in finding["advice"]


def test_an_advertised_address_of_another_cluster(broker: Server, start_broker: Callable[..., Server]) -> None:
    if broker.kind != "txbroker":
        pytest.skip("these brokers share a cluster id")
    server = start_broker({"advertised.listeners": f"PLAINTEXT://{broker.address}"})
    (finding,) = bad(doctor(server, status=1))
    assert finding["found"].startswith("it leads to another cluster: ")


def test_a_missing_topic(broker: Server, name: str) -> None:
    create(broker, name)
    findings = doctor(broker, "--topic", name + "s", status=1)
    (finding,) = bad(findings)
    assert finding["found"] == "it does not exist; a producer would create it: auto.create.topics.enable=true"
    assert finding["advice"].startswith(f"did you mean {name}")


def test_why_old_records_are_not_deleted(broker: Server, name: str) -> None:
    """Old records and a new one in the active segment, and one with a future timestamp."""
    now_ms = int(time.time() * 1000)
    create(broker, name, "retention.ms=3600000", "segment.ms=604800000", f"message.timestamp.after.max.ms={2**63 - 1}")
    # In one batch: retention may run at any time, and would delete the old record.
    produce(broker, name, now_ms - 2 * DAY_MS, now_ms - 1000, together=True)
    directory = ("--log-dir", str(broker.data))
    for flags in ((), directory):
        findings = doctor(broker, "--topic", name, *flags, status=0)
        (finding,) = bad(findings)
        assert (finding["outcome"], finding["check"]) == ("warning", "expiry")
        assert "active" in finding["found"]
        assert "segment.ms=604800000, 7 d" in finding["found"]
        assert "lower segment.ms" in finding["advice"]
    assert "its oldest segment, from offset 0 (" in finding["found"]
    produce(broker, name, now_ms + 30 * DAY_MS)
    findings = doctor(broker, "--topic", name, *directory, status=0)
    future, old = bad(findings, "expiry")
    assert "records have timestamps in the future, up to " in future["found"]
    assert "29 d" in future["found"] or "30 d" in future["found"]
    assert "message.timestamp.after.max.ms" in future["advice"]
    assert "it is deleted after" in old["found"]


def test_closed_segments_and_the_active_segment_are_distinguished(broker: Server, name: str) -> None:
    create(broker, name, "segment.ms=1000", "cleanup.policy=compact", "min.compaction.lag.ms=60000")
    start_ms = 1_700_000_000_000
    produce(broker, name, start_ms, start_ms + 500, start_ms + 5000, start_ms + 10_000)
    assert len(list(broker.partition_directory(name).glob("*.log"))) == 3
    findings = doctor(broker, "--topic", name, "--log-dir", str(broker.data), status=0)
    assert "cleanup.policy is compact" in one(findings, "expiry")["found"]
    ratio = [finding for finding in findings if "a dirty ratio of " in finding["found"]]
    (finding,) = ratio
    assert finding["found"].startswith("partition 0: ")
    findings = doctor(broker, "--topic", name, status=0)
    if broker.kind == "txbroker":
        assert one(findings, "compaction")["found"].startswith("partition 0: ")
    else:
        assert any("min.compaction.lag.ms=60000 (1 min)" in finding["found"] for finding in findings)


def test_an_invalid_log_directory(broker: Server, name: str, tmp_path: Path) -> None:
    create(broker, name)
    (finding,) = bad(doctor(broker, "--topic", name, "--log-dir", str(tmp_path), status=0))
    assert finding["found"] == f"{tmp_path} has no partition of it"
    _, complaint = run("doctor", "--bootstrap-server", broker.address, "--topic", name, "--log-dir", str(tmp_path / "no"), status=1)
    assert complaint.endswith("is not a directory; --log-dir must be one of the broker's log.dirs, on the broker's machine\n")
    _, complaint = run("doctor", "--bootstrap-server", broker.address, "--log-dir", str(tmp_path), status=2)
    assert complaint == "txbroker doctor: --log-dir needs --topic; see txbroker doctor --help\n"


def test_min_insync_replicas(broker: Server, name: str) -> None:
    create(broker, name, "min.insync.replicas=2")
    assert bad(doctor(broker, "--topic", name, status=0)) == [], "a topic of one replica needs one"


def test_groups(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    run("produce", *server, stdin="1\n2\n3\n4\n5\n")
    (finding,) = bad(doctor(broker, "--group", name, status=1))
    assert finding["found"] == "it does not exist"
    run("consume", *server, "--group", name, "--from-beginning", "--max-messages", "2")
    findings = doctor(broker, "--group", name, status=0)
    empty, lag = bad(findings)
    assert "state Empty, 0 members, 1 committed offset; no member reads" in empty["found"]
    assert (lag["check"], lag["found"]) == (f"lag of group {name}", f"3 records behind, most in {name}-0 (3); no member reads")
