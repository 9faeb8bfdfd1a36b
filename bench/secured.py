"""Loads over TLS 1.3: those of real clients, large fetches, and handshakes. The certificate's key is on the curve P-256."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.process_tree import CpuMeter
from bench.real import APPLICATIONS, application
from bench.throughput import fetch_big, per_byte
from tests.support.kafka import KafkaProcess
from tests.support.server import HOST, Server, free_port
from tests.support.tls import CERTIFICATE, KEY

HANDSHAKES = 1000  # a second
_THREADS = 4
_TARGETS = {"records/s": 1.0, "MB/s": 1.0, "CPU per record": 0.8}


def add_listener(server: Server) -> None:
    """Let a broker, which has a port and does not run yet, also listen with TLS, with the default settings of TLS."""
    store = server.directory / "tls.pem"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(KEY.read_text() + CERTIFICATE.read_text())
    both = f"PLAINTEXT://{server.address},SSL://{HOST}:{free_port()}"
    controller = f",CONTROLLER://{HOST}:{server.controller_port}" if isinstance(server, KafkaProcess) else ""
    server.overrides |= {
        "listeners": both + controller,
        "advertised.listeners": both,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL" + (",CONTROLLER:PLAINTEXT" if controller else ""),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }


def address(server: Server) -> str:
    """host:port of the listener with TLS."""
    return server.overrides["advertised.listeners"].rpartition("SSL://")[2]


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
)
