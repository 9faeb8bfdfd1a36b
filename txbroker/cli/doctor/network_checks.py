"""Checks of a host and port: name resolution, TCP, and which kind of server listens there if it is not a Kafka broker."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import threading
import time
from typing import NamedTuple

from txbroker.cli.doctor import security_checks
from txbroker.cli.doctor.findings import Findings
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import Closed, ConnectionFailed, NotKafka, Silent, TlsExpected, TooOld, Unreachable, address_text
from txbroker.client.client_machine import ClientSettings

NAMES_TIMEOUT_S = 5.0
CLIENT = ClientSettings("txbroker-doctor", connect_timeout_s=4.0, request_timeout_s=5.0, in_flight_max=1)
PROBE_TIMEOUT_S = 2.0


class Resolved(NamedTuple):
    """The addresses of a name, in the resolver's order; `problem` if there are none."""

    addresses: list[str]
    problem: str


def resolve(host: str) -> Resolved:
    """Resolve a name with the system's resolver, within NAMES_TIMEOUT_S."""
    outcome: list[Resolved] = []

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            outcome.append(Resolved(list(dict.fromkeys(str(address[0]) for *_, address in found)), ""))
        except (OSError, UnicodeError) as error:
            outcome.append(Resolved([], getattr(error, "strerror", None) or str(error)))

    thread = threading.Thread(target=ask, daemon=True)  # getaddrinfo cannot be interrupted
    thread.start()
    thread.join(NAMES_TIMEOUT_S)
    return outcome[0] if outcome else Resolved([], f"the resolver did not answer within {NAMES_TIMEOUT_S:.0f} s")


def is_loopback(address: str) -> bool:
    """Whether this is a loopback address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def reach(
    findings: Findings, what: str, host: str, port: int, setting: str, client: ClientSettings = CLIENT
) -> BlockingConnection | None:
    """Connect to a broker, with findings; None if that is not possible.

    `what` is checked (a bootstrap server, an advertised address); `setting` is what to correct if the address is wrong. `client`: with TLS
    and SASL.
    """
    check = f"{what} {address_text(host, port)}"
    resolved = resolve(host)
    if not resolved.addresses:
        found = f"the name {host} does not resolve on this machine ({resolved.problem})"
        findings.failed(check, found, f"{_name_advice(host)}, or correct {setting}")
        return None
    connections: list[BlockingConnection] = []
    problems: list[ConnectionFailed] = []
    for address in resolved.addresses:
        try:
            connections.append(BlockingConnection(address, port, client, host))
        except ConnectionFailed as problem:
            problems.append(problem)
    addresses = "" if resolved.addresses == [host] else f"resolves to {', '.join(resolved.addresses)}; "
    for connection in connections[1:]:
        connection.close()
    if not connections:
        # A connection that was accepted says more than one that was refused.
        best = min(problems, key=lambda failed: isinstance(failed, Unreachable))
        address = resolved.addresses[problems.index(best)]
        reason = security_checks.explain(best, host, address, port, client.security, _now_ms())
        found, advice = reason or diagnose(best, address, port, setting)
        findings.failed(check, addresses + found, advice)
        return None
    connection = connections[0]
    took = f"{addresses}connected in {connection.connect_ms:.1f} ms; a broker answers"
    if problems:
        advice = f"clients may try that address first: let the broker listen there too, or set {setting} to {connection.address}"
        findings.warning(check, f"{took}, but {'; '.join(map(str, problems))}", advice)
    else:
        findings.ok(check, took)
    security_checks.check_connected(findings, connection, host, port, _now_ms())
    return connection


def _now_ms() -> int:
    return int(time.time() * 1000)


def _name_advice(host: str) -> str:
    if "." not in host and ":" not in host:
        return f"{host} looks like a container's name or a name of another network: make it resolvable (DNS, /etc/hosts)"
    return "make it resolvable (DNS, /etc/hosts)"


def diagnose(problem: ConnectionFailed, host: str, port: int, setting: str) -> tuple[str, str]:
    """What is wrong with an address, and what to do about it."""
    address = address_text(host, port)
    if isinstance(problem, Unreachable):
        return _no_connection(problem, address, setting)
    if isinstance(problem, TooOld):
        return str(problem), "use a newer broker"
    received = problem.received if isinstance(problem, NotKafka | Closed) else b""
    kind = _TLS if isinstance(problem, TlsExpected) else _recognized(received) or _probe(host, port)
    if kind is not None:
        return f"{address} is {kind[0]}", kind[1].format(setting=setting)
    if isinstance(problem, Silent):
        advice = f"check firewalls, proxies and port forwarding between here and the broker, or correct {setting}"
        return f"{address} accepts connections, but did not respond within {CLIENT.request_timeout_s:.0f} s", advice
    if isinstance(problem, Closed) and not received:
        advice = (
            "see the broker's log: it may be starting, the listener may require TLS or a client certificate, or max.connections may be "
            f"reached; if another server listens there, correct {setting}"
        )
        return f"{address} closes the connection without a response", advice
    return f"{address} does not speak Kafka's protocol (its first bytes are {received[:24]!r})", f"correct {setting}"


def _no_connection(problem: Unreachable, address: str, setting: str) -> tuple[str, str]:
    error = problem.error
    if isinstance(error, ConnectionRefusedError):
        advice = f"start the broker, correct the port in {setting}, or publish the container's port"
        return f"nothing listens at {address} (connection refused)", advice
    if isinstance(error, TimeoutError):
        advice = f"check that the machine is up and that firewalls let the port through, or correct {setting}"
        return f"no answer from {address} within {CLIENT.connect_timeout_s:.0f} s", advice
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        advice = f"check this machine's route to it (VPN, container network, IPv6), or correct {setting}"
        return f"no route to {address} ({error.strerror})", advice
    return str(problem), f"correct {setting}"


_HTTP = ("an HTTP server", "correct the port in {setting}: this may be a web interface, a REST proxy or a metrics port")
_TLS = (
    "a listener that requires TLS",
    "set security.protocol to SSL or SASL_SSL in the file of --command-config and in clients, or name a listener without TLS",
)
_ZOOKEEPER = (
    "a ZooKeeper server",
    "correct {setting}: clients connect to brokers (usually port 9092), only brokers connect to ZooKeeper",
)
_SSH = ("an SSH server", "correct the port in {setting}")


def _recognized(received: bytes) -> tuple[str, str] | None:
    """The kind of server, by its first bytes."""
    if received.startswith((b"HTTP", b"<htm", b"<!DO")):
        return _HTTP
    if received.startswith(b"SSH-"):
        return _SSH
    return None


def _probe(host: str, port: int) -> tuple[str, str] | None:
    """The kind of server, by its answers to other protocols."""
    answer = _send(host, port, b"GET / HTTP/1.0\r\n\r\n")
    known = _recognized(answer)
    if known is not None:
        return known
    # A four-letter command of ZooKeeper: the answer is its statistics, or that the command is not allowed, or that it is not serving.
    answer = _send(host, port, b"srvr").lower()
    if b"zookeeper" in answer or b"whitelist" in answer:
        return _ZOOKEEPER
    return _TLS if _speaks_tls(host, port) else None


def _send(host: str, port: int, data: bytes) -> bytes:
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(data)
            return connection.recv(200)
    except OSError:
        return b""


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT_S) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        # An alert in TLS: it requires a client certificate, or another version.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
