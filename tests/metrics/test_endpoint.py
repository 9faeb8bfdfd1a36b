"""The metrics port: responses, readiness, and misbehaving clients."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.metrics.scraping import ON, OPENMETRICS, Scrape, address, get
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.server import HOST, Server, ServerFailed, free_port
from tests.support.waiting import until
from txbroker.metrics.http import CONNECTIONS_MAX


def test_responses_by_path_and_method(start_broker: Callable[..., Server]) -> None:
    server = start_broker(ON)
    assert get(server).content_type.startswith("text/plain; version=")
    assert get(server, accept=OPENMETRICS).content_type.startswith("application/openmetrics-text; version=")
    assert get(server, accept=OPENMETRICS).body.endswith(b"\n# EOF\n")
    assert get(server, "/metrics?name=whatever").status == 200
    for path in ("/healthz", "/readyz"):
        assert get(server, path)[::2] == (200, b"ok\n")
    head = get(server, "/metrics", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert get(server, "/favicon.ico")[::2] == (404, b"this port serves /healthz, /metrics, /readyz\n")
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(server, method=method).status == 405
    assert address(server)[0] == HOST, "by default only this machine can connect"


def speak(server: Server, data: bytes) -> bytes:
    """Send these bytes; all bytes received until the end."""
    with socket.create_connection(address(server), 30) as peer:
        try:
            peer.sendall(data)
            parts = []
            while part := peer.recv(65536):
                parts.append(part)
        except ConnectionError:
            pass
        return b"".join(parts)


def test_a_page_of_another_site_cannot_read_it(start_broker: Callable[..., Server]) -> None:
    """It can resolve its own name to 127.0.0.1, and its browser sends this name."""
    server = start_broker({**ON, "txbroker.metrics.host.names": "metrics.example"})
    for path in ("/metrics", "/healthz", "/readyz", "/", "/other"):
        answer = speak(server, f"GET {path} HTTP/1.1\r\nHost: evil.example:{address(server)[1]}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 421 "), path
        assert answer.endswith(b"or add the name to txbroker.metrics.host.names\n") and b"evil" not in answer
    for host in ("localhost", "Metrics.Example", "[::1]:80"):
        assert speak(server, f"GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 "), host
    assert speak(server, b"GET /readyz HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nok\n")


NO_REQUESTS = {
    "a large body": (b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", b"413"),
    "chunks": (b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"413"),
    "many headers": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", b"400"),
    "a long line": (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"400"),
    "no HTTP": (b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n", b"400"),
}


def test_malformed_requests(start_broker: Callable[..., Server]) -> None:
    server = start_broker(ON)
    for what, (data, status) in NO_REQUESTS.items():
        answer = speak(server, data)
        # Bytes that arrive after the broker closed cause a reset, which discards the response.
        assert answer.startswith(b"HTTP/1.1 " + status) or (answer == b"" and len(data) > 10_000), what
        assert get(server, "/readyz").status == 200


def test_silent_connections_do_not_block_others(start_broker: Callable[..., Server]) -> None:
    server = start_broker(ON)
    create_topic(server, "t")
    idle = [socket.create_connection(address(server)) for _ in range(3 * CONNECTIONS_MAX)]
    try:
        for peer in idle[-10:]:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        with RawConnection(server.address) as connection:
            assert produce(connection, "t", batch(numbered(3))).error_code == 0
        scrape = Scrape(server)
        assert scrape("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 3
        assert scrape("process_open_fds") < 2 * CONNECTIONS_MAX + 40
    finally:
        for peer in idle:
            peer.close()


def test_clients_that_do_not_read_do_not_block_others(start_broker: Callable[..., Server]) -> None:
    server = start_broker(ON)
    create_topic(server, "t", 200)
    slow = []
    for _ in range(2 * CONNECTIONS_MAX):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(address(server))
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.append(peer)
    assert Scrape(server)("kafka_topic_partitions", topic="t") == 200
    for peer in slow:
        peer.close()


def test_a_port_that_is_taken_stops_the_start(start_broker: Callable[..., Server]) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = rf"the metrics port cannot be bound on {HOST}:{port}: Address already in use; stop what uses the port"
        with pytest.raises(pytest.fail.Exception, match=said):
            start_broker({"txbroker.metrics.port": str(port)})


def test_partitions_are_reported_up_to_the_limit(start_broker: Callable[..., Server]) -> None:
    server = start_broker(ON | {"txbroker.metrics.labels.max": "5"})
    create_topic(server, "t", 8)
    scrape = Scrape(server)
    assert len(scrape.samples["kafka_log_log_size"]) == 5
    assert scrape("txbroker_metrics_left_out", kind="partition") == 3
    assert scrape("kafka_server_replicamanager_partitioncount") == 8
    assert scrape("txbroker_metrics_left_out", kind="topic") == 0


@contextmanager
def started_beside(server: Server) -> Iterator[None]:
    """Starts the process in a thread; it is ready at the end."""
    failures: list[ServerFailed] = []

    def start() -> None:
        try:
            server.start()
        except ServerFailed as failure:
            failures.append(failure)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failures, failures


def asked(port: int, path: str) -> tuple[int, bytes] | None:
    """Status and body of a response; None while the port is closed."""
    try:
        with socket.create_connection((HOST, port), 30) as peer:
            peer.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
            with peer.makefile("rb") as answer:
                head, _, body = answer.read().partition(b"\r\n\r\n")
    except ConnectionError:
        return None
    return int(head.split()[1]), body


def test_readiness_while_logs_are_loaded_and_while_the_broker_stops(server_directory: Path) -> None:
    port = free_port()
    server = BrokerProcess(server_directory / "readiness", {"txbroker.metrics.port": str(port), "num.recovery.threads.per.data.dir": "3"})
    server.start()
    try:
        create_topic(server, "t", 3)
        server.kill()
        # A FIFO in place of an index that recovery opens: that blocks until something opens it to write.
        place = server.partition_directory("t", 1) / f"{0:020d}.index"
        place.unlink()
        os.mkfifo(place)
        with started_beside(server):
            until(lambda: asked(port, "/readyz") == (503, b"loading logs 2 of 3\n"), "two of three logs are loaded")
            assert asked(port, "/healthz") == (200, b"ok\n")
            reported = asked(port, "/metrics")
            assert reported is not None and b"\nkafka_server_kafkaserver_brokerstate 2\n" in reported[1]
            with place.open("wb"):
                place.unlink()  # recovery writes a file there
        assert asked(port, "/readyz") == (200, b"ok\n")
        # And a FIFO in place of a checkpoint that is written at the end.
        os.mkfifo(server.data / "recovery-point-offset-checkpoint.tmp")
        ending = threading.Thread(target=server.stop)
        ending.start()
        until(lambda: asked(port, "/readyz") == (503, b"stopping\n"), "it is stopping")
        assert asked(port, "/healthz") == (200, b"ok\n")
        with open(server.data / "recovery-point-offset-checkpoint.tmp", "rb") as pipe:
            pipe.read()
        ending.join()
    finally:
        server.close()


def test_without_a_metrics_port_its_libraries_are_not_imported() -> None:
    program = (
        "import sys\n"
        "from tests.fuzz.inprocess import InProcessBroker\n"
        "import txbroker.broker_service, txbroker.cli.run\n"
        "InProcessBroker().close()\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'prometheus_client' or name.startswith('twisted.web')])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout == "[]\n"
