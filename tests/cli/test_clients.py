"""Flags and properties as settings of kafka-python, and the messages for its errors."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import pytest
from twisted.internet.task import Clock

from tests.support.certificates import Authority
from tests.support.server import Server
from txbroker.cli import clients, produce
from txbroker.cli.line_reader import Line
from txbroker.cli.main import main
from txbroker.console.addresses import addresses
from txbroker.console.failures import BadUsage, CommandFailed, broker_error


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("localhost:1234", [("localhost", 1234)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:1234", [("::1", 1234)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers(servers: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(servers) == expected


@pytest.mark.parametrize("servers", ["", ",", ":1", "a:", "a:x", "a:0", "a:65536", "a:1,,b:2", "a:²"])
def test_malformed_bootstrap_servers(servers: str) -> None:
    with pytest.raises(BadUsage, match="it must be comma-separated HOST:PORT"):
        addresses(servers)


@pytest.mark.parametrize(
    ("key", "text", "name", "value"),
    [
        ("acks", "all", "acks", "all"),
        ("acks", "1", "acks", 1),
        ("compression.type", "lz4", "compression_type", "lz4"),
        ("compression.type", "none", "compression_type", None),
        ("enable.idempotence", "False", "enable_idempotence", False),
        ("linger.ms", "5", "linger_ms", 5),
        ("retries", "3", "retries", 3),
        ("client.id", "17", "client_id", "17"),
        ("send.buffer.bytes", "65536", "send_buffer_bytes", 65536),
        ("sasl.plain.password", "1234", "sasl_plain_password", "1234"),
    ],
)
def test_properties_of_java_clients(key: str, text: str, name: str, value: object) -> None:
    assert clients.settings({key: text}, kafka.KafkaProducer.DEFAULT_CONFIG) == {name: value}


def test_the_user_of_a_login_configuration() -> None:
    known = kafka.KafkaProducer.DEFAULT_CONFIG
    jaas = "a.PlainLoginModule required username=alice password='p w';"
    expected = {"sasl_plain_username": "alice", "sasl_plain_password": "p w", "sasl_mechanism": "PLAIN"}
    assert clients.settings({"sasl.jaas.config": jaas, "sasl.mechanism": "PLAIN"}, known) == expected
    for wrong, problem in (("x", "has no control flag"), ("a required username=x;", "has no username and password")):
        with pytest.raises(BadUsage, match=f"sasl.jaas.config {problem}"):
            clients.settings({"sasl.jaas.config": wrong}, known)


def test_stores_of_java_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = kafka.KafkaAdminClient.DEFAULT_CONFIG
    authority = Authority(tmp_path)
    java = {
        "security.protocol": "ssl", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.pem()),
        "ssl.endpoint.identification.algorithm": "", "bootstrap.servers": "ignored:9092",
    }  # fmt: skip
    made = clients.settings(java, known)
    context = made.pop("ssl_context")
    assert made == {"security_protocol": "SSL"} and not context.check_hostname
    assert [int(each["serialNumber"], 16) for each in context.get_ca_certs()] == [authority.certificate.serial_number]
    assert capsys.readouterr().err == ""
    with pytest.raises(BadUsage, match=r"ssl\.truststore\.location is .*/missing"):
        clients.settings({**java, "ssl.truststore.location": str(tmp_path / "missing")}, known)
    by_library = {"security.protocol": "SSL", "ssl.cafile": str(authority.pem())}
    assert clients.settings(by_library, known) == {"security_protocol": "SSL", "ssl_cafile": str(authority.pem())}


def test_unknown_properties_give_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    known = kafka.KafkaConsumer.DEFAULT_CONFIG
    assert clients.settings({"key.deserializer": "org.x.Y", "fetch.min.bytes": "2"}, known) == {"fetch_min_bytes": 2}
    assert capsys.readouterr().err == "key.deserializer is not known to the client library and is ignored\n"


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    ("command", "setting"), [("produce", "transactional.id=abc"), ("consume", "group.protocol=consumer"), ("consume", "group.protocol=")]
)
def test_properties_that_must_not_be_ignored(
    command: str, setting: str, as_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"{setting}\n")
    flag = "--producer-property" if command == "produce" else "--consumer-property"
    with socket.create_server(("127.0.0.1", 0)) as server, (tmp_path / "client.properties").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        chosen = ["--command-config", str(path)] if as_file else [flag, setting]
        assert main([command, "--bootstrap-server", address, "--topic", "t", *chosen]) == 2
    assert f"txbroker {command}: {setting} is not supported: " in capsys.readouterr().err


def test_properties_that_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert clients.settings({"transactional.id": ""}, kafka.KafkaProducer.DEFAULT_CONFIG) == {}
    assert clients.settings({"group.protocol": "CLASSIC"}, kafka.KafkaConsumer.DEFAULT_CONFIG) == {}
    assert capsys.readouterr().err == ""
    assert clients.settings({"transactional.id": "t", "group.protocol": "consumer"}, kafka.KafkaAdminClient.DEFAULT_CONFIG) == {}
    assert capsys.readouterr().err.count("is not known to the client library and is ignored") == 2, "an admin client does not use them"


@pytest.mark.parametrize(("key", "text"), [("linger.ms", "soon"), ("enable.idempotence", "maybe"), ("acks", "most")])
def test_properties_with_bad_values(key: str, text: str) -> None:
    with pytest.raises(BadUsage, match=f"{key} is '{text}'; it must be"):
        clients.settings({key: text}, kafka.KafkaProducer.DEFAULT_CONFIG)


def test_property_files(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# mine\nclient.id = me\nlinger.ms: 7\n")
    assert clients.read_properties(str(path)) == {"client.id": "me", "linger.ms": "7"}
    assert clients.read_properties(None) == {}
    with pytest.raises(CommandFailed, match="nowhere cannot be read: No such file or directory; correct the path"):
        clients.read_properties(str(tmp_path / "nowhere"))


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize("command", [["topics", "--list"], ["produce", "--topic", "a"], ["consume", "--topic", "a"]])
def test_a_refused_connection(command: list[str], closed_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--bootstrap-server", f"127.0.0.1:{closed_port}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"txbroker {command[0]}: no connection to 127.0.0.1:{closed_port} (Connection refused); "
        "start a broker with `txbroker run`, or correct --bootstrap-server\n"
    )


def test_one_reachable_server_is_enough(closed_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        clients.check_reachable(f"127.0.0.1:{closed_port},127.0.0.1:{server.getsockname()[1]}")


def test_broker_errors() -> None:
    assert str(broker_error("topic a was not created", 36, None)) == (
        "topic a was not created: topic already exists (TOPIC_ALREADY_EXISTS); specify --if-not-exists to ignore this"
    )
    assert str(broker_error("it failed", 40, "x is bad.")) == "it failed: x is bad (INVALID_CONFIG)"
    assert "error 32000, which this version of txbroker does not know" in str(broker_error("it failed", 32000, None))


def test_errors_of_the_library() -> None:
    too_large = kafka.errors.MessageSizeTooLargeError("it has 9 bytes")
    assert str(clients.failure("line 3", too_large)).startswith("line 3: it has 9 bytes (MESSAGE_TOO_LARGE); raise ")
    lost = kafka.errors.KafkaConnectionError("socket disconnected")
    assert str(clients.failure("line 3", lost)) == "line 3: socket disconnected; check that the broker runs, and try again"
    assert "KafkaTimeoutError" in str(clients.failure("line 3", kafka.errors.KafkaTimeoutError()))


def test_a_full_disk_is_named() -> None:
    full = broker_error("topic a was not created", 56, "cannot write /d/x: No space left on device")
    assert str(full) == (
        "topic a was not created: the broker's disk is full: cannot write /d/x: No space left on device (KAFKA_STORAGE_ERROR); "
        "free space there: `txbroker delete-records`, then `txbroker log-cleaner --expire TOPIC`, for all but the active segments"
    )
    assert full.code == 56
    other = broker_error("it failed", 56, "/d is offline")
    assert str(other) == "it failed: /d is offline (KAFKA_STORAGE_ERROR); see the broker's log for the log directory that failed"


@pytest.mark.parametrize(("raised", "shown"), [
    (RuntimeError("Failed to find active controller id!"), "no broker is the controller"),
    (kafka.errors.KafkaTimeoutError("no answer"), "no answer"),
])
def test_errors_of_the_library_are_not_internal_errors(raised: Exception, shown: str, broker: Server) -> None:
    """The library raises a RuntimeError when a broker answers NOT_CONTROLLER twice."""
    namespace = {"__name__": "kafka.admin.client", "raised": raised}
    exec("def call(): raise raised", namespace)
    with pytest.raises(CommandFailed, match=shown), clients.connected("KafkaAdminClient", broker.address, {}):
        namespace["call"]()  # type: ignore[operator]


def test_internal_errors_of_commands_are_raised(broker: Server) -> None:
    with pytest.raises(RuntimeError, match="oh"), clients.connected("KafkaAdminClient", broker.address, {}):
        raise RuntimeError("oh")


class Future:
    """A future of kafka-python."""

    def __init__(self) -> None:
        self.is_done = False
        self.error: Exception | None = None
        self.clock: Clock | None = None
        self.done_at_s = 0.0

    def get(self, timeout_s: float = 0.0) -> object:
        if self.clock is not None:
            self.clock.advance(timeout_s)
            if self.clock.seconds() < self.done_at_s:
                raise kafka.errors.KafkaTimeoutError
        self.is_done = True
        if self.error is not None:
            raise self.error
        return self


class Producer:
    """Records what was sent."""

    def __init__(self) -> None:
        self.futures: list[Future] = []
        self.flushes = 0

    def send(self, topic: str, value: bytes | None, **rest: Any) -> Future:
        self.futures.append(Future())
        return self.futures[-1]

    def flush(self, timeout_s: float) -> None:
        self.flushes += 1


def sending_to(producer: Producer, outstanding: int, clock: Clock | None = None, **calls: Any) -> produce.Sending:
    return produce.Sending(producer, "a", outstanding, (clock or Clock()).seconds, 30, **calls)


def line(size: int) -> Line:
    return Line(None, bytes(size), [])


def test_unacknowledged_records_are_bounded() -> None:
    producer = Producer()
    sending = sending_to(producer, 1000)
    for i in range(20):
        sending.send(line(99), i)
    waited_for = [future.is_done for future in producer.futures]
    assert waited_for == [True] * 10 + [False] * 10, "the oldest are waited for"
    sending.finish()
    assert all(future.is_done for future in producer.futures)


def test_sync_waits_for_each_record() -> None:
    producer = Producer()
    sending = sending_to(producer, 0)
    for i in range(3):
        sending.send(line(0), i)
        assert producer.futures[i].is_done


def test_each_acknowledged_record_is_counted() -> None:
    producer = Producer()
    reported: list[tuple[int, Any]] = []
    sending = sending_to(producer, 150, written=lambda number, record: reported.append((number, record)))
    for i in range(3):
        sending.send(line(99), i)
    assert reported == [(0, producer.futures[0]), (1, producer.futures[1])]
    sending.finish()
    assert [number for number, _ in reported] == [0, 1, 2]


def test_a_stall_is_reported_until_the_next_acknowledgement() -> None:
    producer, clock = Producer(), Clock()
    stalls: list[float] = []
    sending = sending_to(producer, 1000, clock, stalled=lambda: stalls.append(clock.seconds()))
    for number in (1, 2):
        sending.send(line(9), number)
        producer.futures[-1].clock, producer.futures[-1].done_at_s = clock, 12 * number
    sending.finish()
    assert stalls == [5, 10, 20]
    assert producer.flushes == 1


def test_sending_fails_when_no_acknowledgement_comes_for_long() -> None:
    producer, clock = Producer(), Clock()
    sending = sending_to(producer, 1000, clock)
    sending.send(line(9), 7)
    producer.futures[0].clock, producer.futures[0].done_at_s = clock, 1e9
    with pytest.raises(CommandFailed, match=r"line 7 was not written to a, .*: no acknowledgement within 30 s; check that the broker runs"):
        sending.finish()
    assert clock.seconds() == 30


def test_the_first_rejected_line_is_reported() -> None:
    producer = Producer()
    sending = sending_to(producer, 1000)
    for i in range(1, 4):
        sending.send(line(9), i)
    producer.futures[1].error = kafka.errors.NotEnoughReplicasError("2 wanted")
    with pytest.raises(CommandFailed, match=r"line 2 was not written to a, and .* may not be: 2 wanted \(NOT_ENOUGH_REPLICAS\)"):
        sending.finish()
