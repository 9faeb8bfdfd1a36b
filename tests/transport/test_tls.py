"""TLS of a listener: OpenSSL on the client's side, in threads, and this project's stream on the other."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import select
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from tests.support.certificates import Authority
from tests.support.openssl import NOT_REQUESTED, REQUESTED, KeyUpdater
from tests.transport.harness import Answering, ListenerHarness, echo, frame
from tests.transport.test_reading import Reluctant
from txbroker.log.region import Region
from txbroker.tls.listener_tls import ListenerTls
from txbroker.tls.settings import read_settings
from txbroker.transport import tls_stream
from txbroker.transport.handshakes import Handshakes

Make = Callable[..., ListenerHarness]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    pool = ThreadPool(0, 2)
    pool.start()
    yield pool
    pool.stop()


@pytest.fixture
def tls(start: Make, authority: Authority, workers: ThreadPool) -> Make:
    """A listener with TLS; the arguments are ssl. keys with underscores, `answer` and `rules`."""

    def make(*, answer: Any = echo, rules: str = "DEFAULT", **keys: str) -> ListenerHarness:
        values = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("server").pem())}
        values |= {key.replace("_", "."): value for key, value in keys.items()}
        reactor: Any = EPollReactor()
        made = ListenerTls(read_settings(values.get), rules, names_clients=True)
        return start(answer, reactor=reactor, tls=made, worker=partial(deferToThreadPool, reactor, workers))

    return make


def client_context(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.text())
    if own is not None:
        context.load_cert_chain(own)
    return context


class TlsClient(Thread):
    """Sends frames, all before it receives an answer if the listener reads them, and receives their answers."""

    def __init__(self, harness: ListenerHarness, context: ssl.SSLContext, frames: list[bytes]) -> None:
        super().__init__()
        self.frames = frames
        self.answers: list[bytes] = []
        self.failure: Exception | None = None
        self.version: str | None = None
        self._context = context
        self._socket = socket.create_connection(("127.0.0.1", harness.listener.getHost().port))

    def run(self) -> None:
        try:
            with self._context.wrap_socket(self._socket, server_hostname="localhost") as tls:
                self.version = tls.version()
                self._exchange(tls)
        except Exception as error:
            self.failure = error
        finally:
            self._socket.close()

    def _exchange(self, tls: ssl.SSLSocket) -> None:
        """In one thread: Python before 3.13 does not protect a connection that is read and written at the same time."""
        tls.setblocking(False)
        unsent, received = memoryview(b"".join(map(frame, self.frames))), b""
        while len(self.answers) < len(self.frames):
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                unsent = unsent[tls.send(unsent[:100_000]) :] if unsent else unsent
            came = b""
            with contextlib.suppress(ssl.SSLWantReadError):
                came = tls.recv(1 << 20)
                assert came, "the listener has closed the connection"
            received += came
            while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
                self.answers.append(received[4 : 4 + size])
                received = received[4 + size :]
            if not came:
                select.select([tls], [tls] if unsent else [], [])


def run(harness: ListenerHarness, context: ssl.SSLContext, frames: list[bytes]) -> TlsClient:
    client = TlsClient(harness, context, frames)
    client.start()
    harness.until(lambda: not client.is_alive())
    return client


def exchange(harness: ListenerHarness, context: ssl.SSLContext, frames: list[bytes]) -> list[bytes]:
    client = run(harness, context, frames)
    assert client.failure is None
    return client.answers


SIZES = (0, 10, 5000, 16_384, 100, 300_000, 1_500_000, 7, 40_000)
FRAMES = [hashlib.sha256(b"%d" % size).digest() + bytes(size) for size in SIZES] * 2


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_frames_of_all_sizes_are_received_and_answered(tls: Make, authority: Authority, version: str) -> None:
    harness = tls(ssl_enabled_protocols=version)
    client = run(harness, client_context(authority), FRAMES)
    assert client.failure is None
    assert client.answers == FRAMES
    assert client.version == version
    assert harness.hub.handshakes.count == 1
    assert harness.hub.quotas.accepted == 1


def test_many_clients_are_served_at_once(tls: Make, authority: Authority) -> None:
    harness = tls()
    context = client_context(authority)
    clients = [TlsClient(harness, context, [b"%08d" % number]) for number in range(60)]
    for client in clients:
        client.start()
    harness.until(lambda: not any(client.is_alive() for client in clients))
    assert [client.failure for client in clients] == [None] * 60
    assert [client.answers for client in clients] == [client.frames for client in clients]


def test_a_connection_that_is_full_reads_on_what_its_stream_has_received(tls: Make, authority: Authority) -> None:
    """The frames are in the stream, and no event of the socket says so, when the connection takes frames again."""
    harness = tls()
    harness.build = lambda: Reluctant(echo)
    frames = [b"%08d" % number + bytes(3000) for number in range(100)]
    assert exchange(harness, client_context(authority), frames) == frames
    assert harness.hub.pauses


def test_file_regions_are_sent(tls: Make, authority: Authority, tmp_path: Path) -> None:
    data = b"".join(hashlib.sha1(b"%d" % n).digest() for n in range(100_000))
    (tmp_path / "file").write_bytes(data)

    class File:
        path = str(tmp_path / "file")

        def __init__(self) -> None:
            self._file = open(self.path, "rb")  # noqa: SIM115

        def fileno(self) -> int:
            return self._file.fileno()

        def pread(self, position: int, length: int) -> bytes:
            return os.pread(self.fileno(), length, position)

    file: Any = File()

    def answer(received: memoryview) -> list[Any]:
        position, length = int.from_bytes(received[:4], "big"), int.from_bytes(received[4:], "big")
        return [length.to_bytes(4, "big"), Region(file, position, length)]

    wanted = [(0, 10), (7, 1_900_000), (100, 20_000), (0, len(data)), (5, 3)]
    harness = tls(answer=answer)
    requests = [position.to_bytes(4, "big") + length.to_bytes(4, "big") for position, length in wanted]
    assert exchange(harness, client_context(authority), requests) == [data[position : position + length] for position, length in wanted]
    file._file.close()


# Principals and client authentication


def principals(harness: ListenerHarness) -> list[str]:
    return [protocol.transport.session.principal for protocol in harness.protocols]


def remember(harness: ListenerHarness) -> list[str]:
    """The principals of all connections, also of those that end."""
    found: list[str] = []

    class Remembering(Answering):
        def makeConnection(self, transport: Any) -> None:
            super().makeConnection(transport)
            found.append(transport.session.principal)

    harness.build = lambda: Remembering(echo)
    return found


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_the_certificate_of_a_client_is_its_principal(tls: Make, authority: Authority, auth: str) -> None:
    harness = tls(ssl_client_auth=auth, ssl_truststore_type="PEM", ssl_truststore_location=str(authority.pem()))
    found = remember(harness)
    assert exchange(harness, client_context(authority, authority.issue("alice").pem()), [b"12345678"]) == [b"12345678"]
    assert found == ["User:CN=alice,O=Test"]


def test_rules_make_the_principal(tls: Make, authority: Authority) -> None:
    harness = tls(
        rules="RULE:^CN=(.*),O=Test$/$1/U", ssl_client_auth="required", ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.pem()),
    )  # fmt: skip
    found = remember(harness)
    exchange(harness, client_context(authority, authority.issue("alice").pem()), [b"12345678"])
    assert found == ["User:ALICE"]


def test_a_client_whose_certificate_no_rule_matches_is_disconnected(
    tls: Make, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    harness = tls(
        rules="RULE:^OU=(.*)$/$1/", ssl_client_auth="required", ssl_truststore_type="PEM", ssl_truststore_location=str(authority.pem())
    )
    client = run(harness, client_context(authority, authority.issue("alice").pem()), [b"12345678"])
    assert client.failure
    assert "no rule of ssl.principal.mapping.rules matches CN=alice,O=Test; add one, or DEFAULT" in caplog.text
    assert harness.hub.closed_for["tls_principal"] == 1


def test_a_client_without_a_certificate_is_anonymous_if_none_is_required(tls: Make, authority: Authority) -> None:
    harness = tls(ssl_client_auth="requested", ssl_truststore_type="PEM", ssl_truststore_location=str(authority.pem()))
    found = remember(harness)
    exchange(harness, client_context(authority), [b"12345678"])
    assert found == ["User:ANONYMOUS"]


# Clients that are refused


def refused(harness: ListenerHarness, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture) -> str:
    """The line in the log."""
    caplog.clear()
    client = run(harness, context, [b"12345678"])
    assert client.failure
    harness.until(lambda: harness.hub.connections == 0)
    assert harness.protocols == []
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert " to listener TEST://127.0.0.1:" in line
    return line.rpartition(f":{harness.listener.getHost().port}: ")[2]


def test_clients_whose_handshake_fails_are_logged_with_the_reason(
    tls: Make, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = tls(ssl_client_auth="required", ssl_truststore_type="PEM", ssl_truststore_location=str(authority.pem()))
    assert refused(harness, client_context(authority), caplog) == (
        "the client sent no certificate, which ssl.client.auth=required needs"
    )
    foreign = Authority(tmp_path, "foreign").issue("mallory").pem()
    assert refused(harness, client_context(authority, foreign), caplog) == (
        "the client's certificate is not accepted: unable to get local issuer certificate"
    )
    expired = authority.issue("expired", days=(-20, -2)).pem()
    assert refused(harness, client_context(authority, expired), caplog) == (
        "the client's certificate is not accepted: certificate has expired"
    )
    early = authority.issue("early", days=(2, 20)).pem()
    assert refused(harness, client_context(authority, early), caplog) == (
        "the client's certificate is not accepted: certificate is not yet valid"
    )
    old = client_context(authority, authority.issue("old").pem())
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE-RSA-AES128-SHA256")
    assert refused(harness, old, caplog) == "the client has none of the cipher suites of this listener"
    assert harness.hub.closed_for["tls_handshake_failed"] == 5


def test_a_client_that_does_not_trust_the_listener_is_logged(
    tls: Make, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = tls()
    line = refused(harness, client_context(Authority(tmp_path, "other")), caplog)
    assert line == "the client does not trust the issuer of this listener's certificate"


def test_the_same_failure_is_logged_once_a_minute_with_its_number(
    tls: Make, caplog: pytest.LogCaptureFixture
) -> None:
    harness, clock = tls(), Clock()
    harness.hub.handshakes = Handshakes(harness.hub.run_in_worker, clock)
    for seconds, lines in ((100.0, 1), (59.0, 1), (2.0, 2)):
        clock.advance(seconds)
        client = harness.connect()
        client.send(frame(b"12345678"))
        harness.until(client.at_end)
        assert len(caplog.records) == lines
    assert caplog.records[1].getMessage().endswith(
        "the client does not speak TLS: set security.protocol=SSL or SASL_SSL in the client (1 connection more since the last such line)"
    )
    assert harness.hub.closed_for["plain_client"] == 3


def test_a_client_without_tls_gets_no_bytes(tls: Make) -> None:
    """A TLS alert would be the size of a response of 352 MB for it (KAFKA-4090)."""
    harness = tls()
    client = harness.connect()
    client.send(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    harness.until(client.at_end)


def test_an_endless_handshake_is_ended(tls: Make, caplog: pytest.LogCaptureFixture) -> None:
    harness = tls()
    client = harness.connect()
    part = struct.pack(">BHH", 0x16, 0x0301, 5) + struct.pack(">BI", 1, 16_000_000)[:5]
    with contextlib.suppress(ConnectionError):
        while not client.at_end():
            client.send_some(part)
            harness.turn(0.001)
    assert harness.hub.closed_for["tls_handshake_failed"] == 1


def test_clients_that_stop_in_their_handshake_do_not_keep_others_out(tls: Make, authority: Authority) -> None:
    harness = tls()
    for _ in range(200):
        harness.connect().send(b"\x16\x03\x01\x02\x00\x01\x00")
    assert exchange(harness, client_context(authority), [b"12345678"]) == [b"12345678"]
    assert harness.hub.connections >= 200


def test_the_broker_stops_during_handshakes(tls: Make) -> None:
    harness = tls()
    clients = [harness.connect() for _ in range(3)]
    clients[0].send(b"\x16\x03\x01\x02\x00\x01\x00")
    harness.until(lambda: harness.hub.connections == 3)
    stopped: list[Any] = []
    harness.hub.stop().addCallback(stopped.append)
    harness.until(lambda: stopped)
    harness.until(lambda: all(client.at_end() for client in clients))


# KeyUpdate


class OpensslClient:
    """`openssl s_client`: its commands K and k send KeyUpdate, with and without a request for the peer's."""

    def __init__(self, port: int, authority: Authority, log: Path) -> None:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", str(authority.pem()), "-tls1_3"]
        self._log = log.open("wb")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT)

    def write(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._log.close()


@pytest.fixture
def openssl(tls: Make, authority: Authority, tmp_path: Path) -> Iterator[tuple[ListenerHarness, OpensslClient]]:
    harness = tls()
    client = OpensslClient(harness.listener.getHost().port, authority, tmp_path / "log")
    yield harness, client
    client.close()


def test_key_updates_are_answered_and_data_goes_on(openssl: tuple[ListenerHarness, OpensslClient], tmp_path: Path) -> None:
    harness, client = openssl
    harness.until(lambda: harness.protocols)
    # A line of s_client is one read of its input: a request is text here, whose first four bytes are its size.
    protocol = harness.protocols[0]
    for number in range(100):
        client.write(b"K\n")
        # Else it would read both lines as one command.
        harness.until(lambda: (tmp_path / "log").read_bytes().count(b"KEYUPDATE") == number + 1)  # noqa: B023
        client.write(b"\x00\x00\x00\x09%08d\n" % number)
        harness.until(lambda: protocol.frames == number + 1)  # noqa: B023
    assert harness.hub.connections == 1
    harness.until(lambda: b"00000099" in (tmp_path / "log").read_bytes())


UPDATES = 10_000


def test_thousands_of_key_updates_in_both_directions(tls: Make, authority: Authority) -> None:
    """Every other one requests one of the listener, which its OpenSSL sends by itself; data goes on beside them."""
    harness = tls()
    client = KeyUpdater(harness.listener.getHost().port, authority.pem())
    connecting = Thread(target=client.connect, daemon=True)
    connecting.start()
    harness.until(lambda: not connecting.is_alive() and harness.protocols)
    for number in range(UPDATES):
        client.update(REQUESTED if number % 2 else NOT_REQUESTED)
        if number % 100 == 0:
            sent = frame(b"%08d" % number)
            client.write(sent)
            harness.until(lambda: harness.protocols[0].frames == number // 100 + 1)  # noqa: B023
            harness.turn()
            assert client.read(len(sent)) == sent
    assert harness.hub.connections == 1
    client.close()
    harness.until(lambda: harness.hub.connections == 0)


class OneWay(Thread):
    """Passes on what a client sends, and nothing of what the listener sends after its handshake."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._target = socket.socket()
        self._target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._target.connect(("127.0.0.1", port))
        self.stops_reading = False

    def run(self) -> None:
        client, _ = self._listening.accept()
        ends = {client: self._target, self._target: client}
        with contextlib.suppress(OSError):
            while True:
                for end in select.select([client] if self.stops_reading else list(ends), [], [], 0.1)[0]:
                    data = end.recv(65_536)
                    if not data:
                        return
                    ends[end].sendall(data)

    def close(self) -> None:
        for each in (self._listening, self._target):
            each.close()


def test_a_client_that_requests_keys_and_receives_nothing_is_disconnected(
    tls: Make, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each KeyUpdate makes OpenSSL answer: what is not received must not fill the memory."""
    monkeypatch.setattr(tls_stream, "ANSWERS_MAX", 2048)
    harness = tls()
    harness.listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    proxy = OneWay(harness.listener.getHost().port)
    proxy.start()
    client = OpensslClient(proxy.port, authority, tmp_path / "log")
    harness.until(lambda: harness.protocols)
    proxy.stops_reading = True
    sent = 0

    def ends() -> bool:
        nonlocal sent
        if (tmp_path / "log").read_bytes().count(b"KEYUPDATE") == sent:
            with contextlib.suppress(BrokenPipeError):
                client.write(b"K\n")
            sent += 1
        return harness.hub.connections == 0

    harness.until(ends, "the listener keeps the connection")
    client.close()
    proxy.close()
