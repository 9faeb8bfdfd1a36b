"""Loads over TLS 1.3: those of real clients, large fetches, and handshakes. The certificate's key is on the curve P-256."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.process_tree import CpuMeter
from bench.real import APPLICATIONS, application
from bench.requests import BrokerClient, Refused, batch, frame, produce
from bench.throughput import fetch_big, per_byte
from tests.support.kafka import KafkaProcess
from tests.support.server import HOST, Server, free_port
from tests.support.tls import CERTIFICATE, KEY
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest

HANDSHAKES = 1000  # a second
_THREADS = 4
_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_known="secret";'
STRANGERS = 200
_EVERY_S = 0.005
_SIZE_BYTES = 4
_ANSWER_S = 60.0
_TARGETS = {"records/s": 1.0, "MB/s": 1.0, "CPU per record": 0.8}


def add_listener(server: Server) -> None:
    """Let a broker, which has a port and does not run yet, also listen with TLS, with the default settings of TLS."""
    store = server.directory / "tls.pem"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(KEY.read_text() + CERTIFICATE.read_text())
    all_ports = f"PLAINTEXT://{server.address},SSL://{HOST}:{free_port()},SASL_SSL://{HOST}:{free_port()}"
    controller = f",CONTROLLER://{HOST}:{server.controller_port}" if isinstance(server, KafkaProcess) else ""
    server.overrides |= {
        "listeners": all_ports + controller,
        "advertised.listeners": all_ports,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL" + (",CONTROLLER:PLAINTEXT" if controller else ""),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": _USERS,
    }


def address(server: Server, protocol: str = "SSL") -> str:
    """host:port of the listener with this protocol."""
    listeners = dict(each.split("://") for each in server.overrides["advertised.listeners"].split(","))
    return listeners[protocol]


def client_context() -> ssl.SSLContext:
    """Trusts the broker's certificate. New sessions only: each handshake is a whole one."""
    return ssl.create_default_context(cafile=CERTIFICATE)


@contextmanager
def _fetching(server: Server, settings: Settings) -> Iterator[Measure]:
    with fetch_big(
        server, settings, lambda load: replace(load, ports=[int(address(server).rpartition(":")[2])], tls=client_context())
    ) as measure:
        yield measure


@contextmanager
def _handshakes(server: Server, settings: Settings) -> Iterator[Measure]:
    """Connections that end after their handshake, from four threads, at a fixed rate."""
    host, _, port = address(server).rpartition(":")
    context = client_context()

    def connect() -> None:
        with socket.create_connection((host, int(port)), 30) as sock, context.wrap_socket(sock, server_hostname=host):
            pass

    def measure(seconds: float) -> Sample:
        count = int(HANDSHAKES * settings.scale * seconds)
        problems: list[OSError] = []
        cpu, begun = CpuMeter(server.pid), time.perf_counter()

        def work(first: int) -> None:
            try:
                for number in range(first, count, _THREADS):
                    time.sleep(max(0.0, begun + number / HANDSHAKES / settings.scale - time.perf_counter()))
                    connect()
            except OSError as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return {"handshakes/s": count / (time.perf_counter() - begun), "CPU per handshake": cpu.seconds() / count * 1e3}

    measure(settings.first_warmup_s)
    yield lambda: measure(settings.seconds)


@contextmanager
def _beside_logins(server: Server, settings: Settings) -> Iterator[Measure]:
    """The latency of a produce every 5 ms over TLS, first alone, then while others log in with a wrong password, again and again."""
    secured = address(server)
    with BrokerClient(server.address) as client:
        topic_id = client.create_topic("beside-logins", 1)
        data = frame(produce(topic_id, 0, batch(1, 100)))
        with _connected(secured) as sock:

            def quantiles(seconds: float) -> tuple[float, float]:
                taken = sorted(_paced(sock, data, seconds))
                return taken[len(taken) // 2] * 1e3, taken[len(taken) * 99 // 100] * 1e3

            def measure(seconds: float) -> Sample:
                alone = quantiles(seconds)
                failed = get_context("fork").Value("q", 0)
                strangers = get_context("fork").Process(target=_log_in_wrongly, args=(address(server, "SASL_SSL"), failed), daemon=True)
                strangers.start()
                try:
                    _until_answered(failed, 0)
                    quantiles(settings.warmup_s)
                    before, begun = failed.value, time.perf_counter()
                    beside = quantiles(seconds)
                    _until_answered(failed, before)
                    rate = (failed.value - before) / (time.perf_counter() - begun)
                finally:
                    strangers.kill()
                    strangers.join()
                return {"p50 alone": alone[0], "p99 alone": alone[1], "p50": beside[0], "p99": beside[1], "logins/s": rate}

            measure(settings.first_warmup_s)
            yield lambda: measure(settings.seconds)
        client.delete_topic("beside-logins")


def _until_answered(failed: Any, before: int) -> None:
    """A short measurement on a busy machine lasts until another login has failed."""
    deadline = time.monotonic() + _ANSWER_S
    while failed.value == before:
        if time.monotonic() > deadline:
            raise Refused(f"no login with a wrong password was answered in {_ANSWER_S:.0f} s")
        time.sleep(0.01)


def _connected(to: str) -> ssl.SSLSocket:
    host, _, port = to.rpartition(":")
    return client_context().wrap_socket(socket.create_connection((host, int(port)), 30), server_hostname=host)


def _paced(sock: ssl.SSLSocket, data: bytes, seconds: float) -> Iterator[float]:
    """Send the same request at a fixed rate; the seconds that each response took since it was due."""
    begun = time.perf_counter()
    for number in range(int(seconds / _EVERY_S)):
        due = begun + number * _EVERY_S
        time.sleep(max(0.0, due - time.perf_counter()))
        sock.sendall(data)
        _received(sock)
        yield time.perf_counter() - due


def _received(sock: ssl.SSLSocket) -> bytes:
    found = b""
    while len(found) < _SIZE_BYTES or len(found) < _SIZE_BYTES + int.from_bytes(found[:_SIZE_BYTES]):
        part = sock.recv(1 << 16)
        if not part:
            raise ConnectionError("the broker closed a connection")
        found += part
    return found


def _log_in_wrongly(to: str, failed: Any) -> None:
    """In a process of its own: so many clients, each of which connects again as soon as it has its answer."""
    handshake = frame(SaslHandshakeRequest(mechanism="PLAIN"), version=1)
    login = frame(SaslAuthenticateRequest(auth_bytes=b"\0known\0wrong"), version=2)

    def stranger() -> None:
        while True:
            try:
                with _connected(to) as sock:
                    for data in (handshake, login):
                        sock.sendall(data)
                        _received(sock)
            except OSError:
                time.sleep(_EVERY_S)
                continue
            with failed.get_lock():
                failed.value += 1

    for _ in range(STRANGERS):
        threading.Thread(target=stranger, daemon=True).start()
    threading.Event().wait()


def _application(plain: Bench) -> Bench:
    figures = tuple(replace(figure, target=figure.target and _TARGETS.get(figure.key)) for figure in plain.figures)
    return Bench(f"{plain.name}-tls", f"{plain.name} over TLS", figures, application(plain.name, CERTIFICATE, address))


BENCHES = (
    *(_application(plain) for plain in APPLICATIONS),
    Bench("fetch-big-tls", "fetch-big over TLS", per_byte(0.65, rate_target=1.3), _fetching),
    Bench(
        "handshakes",
        f"{HANDSHAKES} connections with TLS a second, each ends after its handshake",
        (Figure("handshakes/s", "handshakes/s"), Figure("CPU per handshake", "ms", less=True, digits=2)),
        _handshakes,
    ),
    Bench(
        "beside-logins",
        f"a produce every 5 ms over TLS, alone and beside {STRANGERS} clients that log in with a wrong password in a loop",
        (
            Figure("p50 alone", "ms", less=True, digits=2),
            Figure("p99 alone", "ms", less=True, digits=2),
            Figure("p50", "ms", less=True, digits=2),
            Figure("p99", "ms", less=True, digits=2),
            Figure("logins/s", "logins/s"),
        ),
        _beside_logins,
    ),
)
